//! OpenAI's embeddings API: `POST …/embeddings`, of vLLM, SGLang, TEI, llama.cpp and Infinity.
//!
//! The prompt is `input`: a text, token ids, or a list of either, or (Jina's) of objects with a text or an image; or
//! `messages` as of a chat (vLLM's).
//!
//! Sources: OpenAI API reference, "Create embeddings"; vLLM, "OpenAI-Compatible Server", "Embeddings API"; Jina AI,
//! "Embeddings API".

use super::completions::{feed_prompts, is_prompt};
use super::format::Format;
use super::message::feed_messages;
use super::scan::{Kind, Value};
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Embeddings<'a> {
    input: Option<Value<'a>>,
    messages: Option<Value<'a>>,
}

impl<'a> Format<'a> for Embeddings<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"input" => Some(&mut self.input),
            b"messages" => Some(&mut self.messages),
            _ => None,
        }
    }

    fn holds_prompt(&self) -> bool {
        self.input.is_some_and(|input| is_prompt(&input))
            || self.messages.is_some_and(|messages| messages.kind == Kind::Array)
    }

    fn feed(&self, _is_open: bool, sink: &mut impl PromptSink) {
        match (&self.input, &self.messages) {
            (Some(input), _) if is_prompt(input) => feed_prompts(input, sink),
            (_, Some(messages)) => feed_messages(messages, sink),
            _ => {}
        }
    }
}
