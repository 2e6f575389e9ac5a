//! `POST /generate` and `POST /generate_stream`: three servers' formats, told apart by where their prompt stands.
//!
//! SGLang's and TGI's have files of their own. vLLM's demonstration server takes `prompt`, a text, and tells no usage.
//!
//! Source: vLLM, `vllm/entrypoints/api_server.py`.

use super::completions::{feed_prompts, is_prompt};
use super::format::{Format, Stream};
use super::scan::Value;
use super::sglang_generate::SglangGenerate;
use super::text::Text;
use super::tgi_generate::TgiGenerate;
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Generate<'a> {
    sglang: SglangGenerate<'a>,
    tgi: TgiGenerate<'a>,
    prompt: Option<Value<'a>>,
}

impl<'a> Format<'a> for Generate<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        if key == b"prompt" {
            return Some(&mut self.prompt);
        }
        self.sglang.member(key).or_else(|| self.tgi.member(key))
    }

    fn holds_prompt(&self) -> bool {
        self.sglang.holds_prompt() || self.tgi.holds_prompt() || self.prompt.is_some_and(|prompt| is_prompt(&prompt))
    }

    fn feed(&self, is_open: bool, sink: &mut impl PromptSink) {
        if self.sglang.holds_prompt() {
            self.sglang.feed(is_open, sink);
        } else if self.tgi.holds_prompt() {
            self.tgi.feed(is_open, sink);
        } else if let Some(prompt) = &self.prompt {
            feed_prompts(prompt, sink);
        }
    }

    fn adapter(&self) -> Option<Text<'a>> {
        self.tgi.adapter().filter(|_| !self.sglang.holds_prompt())
    }

    fn tells_usage(&self, stream: Stream) -> bool {
        if self.sglang.holds_prompt() {
            self.sglang.tells_usage(stream)
        } else if self.tgi.holds_prompt() {
            self.tgi.tells_usage(stream)
        } else {
            !stream.is_stream
        }
    }
}
