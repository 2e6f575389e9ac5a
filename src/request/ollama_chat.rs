//! Ollama's chat: `POST /api/chat`.
//!
//! The prompt: tools, how much to think (`think`), then `messages`, whose images stand beside the text. Where OpenAI's chat
//! can say the same the same is fed. Answers are streams unless asked otherwise, and all tell their usage at the end.
//!
//! Source: ollama/ollama, `docs/api.md`, "Generate a chat completion".

use super::format::Format;
use super::message::feed_messages;
use super::preamble::Preamble;
use super::scan::{Kind, Value};
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OllamaChat<'a> {
    preamble: Preamble<'a>,
    messages: Option<Value<'a>>,
}

impl<'a> Format<'a> for OllamaChat<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"messages" => Some(&mut self.messages),
            b"tools" => Some(&mut self.preamble.tools),
            b"think" => Some(&mut self.preamble.reasoning_effort),
            _ => None,
        }
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
}
