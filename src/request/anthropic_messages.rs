//! Anthropic's messages API, `POST …/v1/messages`, and its count of tokens, `POST …/v1/messages/count_tokens`: of vLLM,
//! SGLang, llama.cpp and Ollama.
//!
//! The prompt: tools, `system` as a system message, then `messages`. Their contents are texts or blocks: text, image,
//! document, what the model thought, calls of tools and their results. Where a chat can say the same the same is fed, but
//! for calls and results: they stay blocks, in their place. `cache_control` says what to cache and is no part of a prompt.
//!
//! Sources: Anthropic API reference, "Messages" and "Count Message tokens"; vLLM,
//! `vllm/entrypoints/anthropic/protocol.py` (`chat_template_kwargs`).

use super::format::Format;
use super::message::{feed_message_of, feed_messages};
use super::preamble::Preamble;
use super::scan::{Kind, Value};
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnthropicMessages<'a> {
    preamble: Preamble<'a>,
    system: Option<Value<'a>>,
    messages: Option<Value<'a>>,
}

impl<'a> Format<'a> for AnthropicMessages<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"messages" => Some(&mut self.messages),
            b"system" => Some(&mut self.system),
            _ => self.preamble.member(key),
        }
    }

    fn holds_prompt(&self) -> bool {
        self.messages.map_or_else(|| self.preamble.is_front(), |messages| messages.kind == Kind::Array)
    }

    fn feed(&self, is_open: bool, sink: &mut impl PromptSink) {
        if !self.preamble.feed(is_open && self.messages.is_none(), sink) {
            return;
        }
        if let Some(system) = &self.system
            && !feed_message_of(b"system", system, sink)
        {
            return;
        }
        if let Some(messages) = &self.messages {
            feed_messages(messages, sink);
        }
    }
}
