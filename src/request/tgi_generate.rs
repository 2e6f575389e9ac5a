//! The API of Text Generation Inference: `POST /generate`, and `POST /generate_stream` as a stream.
//!
//! The prompt is `inputs`, a text, images within it as Markdown links. `parameters.adapter_id` names an adapter. An answer
//! tells the prompt's tokens only in its details (`input_length`), which a stream has if `parameters.details` asks for them.
//!
//! Sources: huggingface/text-generation-inference, `router/src/lib.rs` (`GenerateRequest`, `GenerateParameters`,
//! `StreamDetails`) and `router/src/server.rs` (`generate_stream_internal`).

use super::completions::feed_prompts;
use super::format::{Format, Stream};
use super::scan::{Kind, Scanner, Value};
use super::text::Text;
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TgiGenerate<'a> {
    inputs: Option<Value<'a>>,
    parameters: Option<Value<'a>>,
}

impl<'a> TgiGenerate<'a> {
    /// The last value of a parameter.
    fn parameter(&self, key: &[u8]) -> Option<Value<'a>> {
        let mut scanner = Scanner::new(self.parameters?.raw);
        let mut found = None;
        if scanner.enter(b'{') {
            while let Ok(Some((name, value))) = scanner.member() {
                if name.is(key) {
                    found = Some(value);
                }
            }
        }
        found
    }
}

impl<'a> Format<'a> for TgiGenerate<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"inputs" => Some(&mut self.inputs),
            b"parameters" => Some(&mut self.parameters),
            _ => None,
        }
    }

    fn holds_prompt(&self) -> bool {
        self.inputs.is_some_and(|inputs| inputs.kind == Kind::String)
    }

    fn feed(&self, _is_open: bool, sink: &mut impl PromptSink) {
        if let Some(inputs) = &self.inputs {
            feed_prompts(inputs, sink);
        }
    }

    fn adapter(&self) -> Option<Text<'a>> {
        self.parameter(b"adapter_id")?.whole_text()
    }

    fn tells_usage(&self, stream: Stream) -> bool {
        !stream.is_stream || self.parameter(b"details").is_some_and(|details| details.raw == b"true")
    }
}
