//! vLLM's token ids in, token ids out: `POST /inference/v1/generate`.
//!
//! The prompt is `token_ids`. `features` holds hashes and places of the images among them: it is fed first, since the ids
//! of two images are the same.
//!
//! Source: vLLM at 0640893, `vllm/entrypoints/serve/disagg/protocol.py`, `GenerateRequest`.

use super::completions::feed_prompts;
use super::format::{Format, Stream};
use super::json::feed_json;
use super::mark;
use super::scan::{Kind, Value};
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VllmGenerate<'a> {
    token_ids: Option<Value<'a>>,
    features: Option<Value<'a>>,
}

impl<'a> Format<'a> for VllmGenerate<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"token_ids" => Some(&mut self.token_ids),
            b"features" => Some(&mut self.features),
            _ => None,
        }
    }

    fn holds_prompt(&self) -> bool {
        self.token_ids.is_some_and(|token_ids| token_ids.kind == Kind::Array)
    }

    fn feed(&self, _is_open: bool, sink: &mut impl PromptSink) {
        if let Some(features) = self.features.filter(|features| !features.is_null() && !features.is_cut_scalar()) {
            sink.mark(mark::FEATURES);
            feed_json(&features, sink);
            if features.is_cut {
                return;
            }
        }
        if let Some(token_ids) = &self.token_ids {
            feed_prompts(token_ids, sink);
        }
    }

    fn tells_usage(&self, stream: Stream) -> bool {
        stream.tells_usage_if_asked()
    }
}
