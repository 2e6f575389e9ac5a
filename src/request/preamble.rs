//! What stands before the messages of a chat: tools, and what else the chat template is given.

use super::json::{feed_json, feed_text_or_json};
use super::mark;
use super::scan::Value;
use super::tools::feed_tools;
use crate::prefix::PromptSink;

/// The members of a chat request that change the prompt beside its messages.
///
/// Sources: OpenAI API reference, "Create chat completion" (`tools`, `reasoning_effort`); vLLM, "OpenAI-Compatible
/// Server", extra parameters of the chat API (`documents`, `chat_template`, `chat_template_kwargs`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Preamble<'a> {
    pub(super) tools: Option<Value<'a>>,
    pub(super) documents: Option<Value<'a>>,
    pub(super) chat_template: Option<Value<'a>>,
    pub(super) chat_template_kwargs: Option<Value<'a>>,
    pub(super) reasoning_effort: Option<Value<'a>>,
}

impl<'a> Preamble<'a> {
    /// Where the member `key` is kept; `None` if it is none of these.
    pub(super) fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        Some(match key {
            b"tools" => &mut self.tools,
            b"documents" => &mut self.documents,
            b"chat_template" => &mut self.chat_template,
            b"chat_template_kwargs" => &mut self.chat_template_kwargs,
            b"reasoning_effort" => &mut self.reasoning_effort,
            _ => return None,
        })
    }

    /// Whether the body is cut within its front: what comes first in the prompt is there, the messages are not.
    pub(super) fn is_front(&self) -> bool {
        let members = [&self.tools, &self.documents, &self.chat_template, &self.chat_template_kwargs];
        self.tools.is_some() && members.iter().any(|member| member.is_some_and(|value| value.is_cut))
    }

    /// Feeds what there is; `false` if it is cut, and what comes behind it is not to be fed.
    ///
    /// If a member is cut, the messages stand before it in the body and are left out: the whole body would have fed the
    /// member in full first. `is_open` = the messages were not reached, so that members may yet come.
    pub(super) fn feed(&self, is_open: bool, sink: &mut impl PromptSink) -> bool {
        let members = [
            (mark::TOOLS, &self.tools),
            (mark::DOCUMENTS, &self.documents),
            (mark::TEMPLATE, &self.chat_template),
            (mark::TEMPLATE_ARGUMENTS, &self.chat_template_kwargs),
            (mark::EFFORT, &self.reasoning_effort),
        ];
        for (kind, value) in members {
            match value {
                None if is_open => return false,
                Some(value) if value.is_cut_scalar() => return false,
                Some(value) if !value.is_null() => {
                    feed_member(kind, value, sink);
                    if value.is_cut {
                        return false;
                    }
                }
                _ => {}
            }
        }
        !is_open
    }
}

fn feed_member(kind: u8, value: &Value<'_>, sink: &mut impl PromptSink) {
    match kind {
        mark::TOOLS => feed_tools(value, sink),
        mark::DOCUMENTS | mark::TEMPLATE_ARGUMENTS => {
            sink.mark(kind);
            feed_json(value, sink);
        }
        _ => {
            sink.mark(kind);
            feed_text_or_json(value, sink);
        }
    }
}
