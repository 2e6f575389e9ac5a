//! OpenAI's chat completions API: `POST …/chat/completions`, of vLLM, SGLang, TGI, TensorRT-LLM, llama.cpp and Ollama.
//!
//! The prompt: what the chat template is given (tools first), then `messages`, each with role, content, what it thought,
//! its tool calls.
//!
//! Sources: OpenAI API reference, "Create chat completion"; vLLM, "OpenAI-Compatible Server", "Chat API".

use super::format::{Format, Stream};
use super::message::feed_messages;
use super::preamble::Preamble;
use super::scan::{Kind, Value};
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChatCompletions<'a> {
    preamble: Preamble<'a>,
    messages: Option<Value<'a>>,
}

impl<'a> Format<'a> for ChatCompletions<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        if key == b"messages" { Some(&mut self.messages) } else { self.preamble.member(key) }
    }

    fn holds_prompt(&self) -> bool {
        self.messages.map_or_else(|| self.preamble.is_front(), |messages| messages.kind == Kind::Array)
    }

    fn feed(&self, is_open: bool, sink: &mut impl PromptSink) {
        if self.preamble.feed(is_open && self.messages.is_none(), sink)
            && let Some(messages) = &self.messages
        {
            feed_messages(messages, sink);
        }
    }

    fn tells_usage(&self, stream: Stream) -> bool {
        stream.tells_usage_if_asked()
    }
}

#[cfg(test)]
mod tests;
