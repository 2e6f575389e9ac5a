//! Messages of a chat, in the forms of all chat APIs.
//!
//! A message's keys may stand in any order, so they are found first and fed in a fixed one. What follows the content is
//! fed after it even where a chat template puts it before: of a message that is cut short only what cannot change any
//! more is fed, and that way it is all of the content seen so far.

use super::content::{feed_content, feed_media_list};
use super::json::{feed_json, feed_text_or_json};
use super::mark;
use super::media::Media;
use super::scan::{Halt, Scanner, Value};
use super::text::{SHORT_BYTES_MAX, Text};
use super::tools::{feed_function_call, feed_message_tools, feed_tool_calls};
use crate::prefix::PromptSink;

/// Feeds a list of messages. What is malformed within it ends the prompt there: the engine is going to refuse it anyway.
pub(super) fn feed_messages(messages: &Value<'_>, sink: &mut impl PromptSink) {
    let mut scanner = Scanner::new(messages.raw);
    if scanner.enter(b'[') {
        let _ = feed_items(&mut scanner, sink);
    }
}

fn feed_items(scanner: &mut Scanner<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut had_root = false;
    while scanner.next_item(b']')? {
        if !scanner.enter(b'{') {
            feed_odd(scanner, sink)?;
            continue;
        }
        let mut message = Message::default();
        let end = message.read(scanner);
        message.feed(end.is_ok(), sink);
        end?;
        sink.end_of_message();
        if !had_root && message.is_from_user() {
            had_root = true;
            sink.end_of_root();
        }
    }
    Ok(())
}

/// Feeds what stands in a list of messages and is none.
pub(super) fn feed_odd(scanner: &mut Scanner<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let value = scanner.value()?;
    sink.mark(mark::JSON);
    feed_json(&value, sink);
    if value.is_cut {
        return Err(Halt::End { offset: scanner.offset() });
    }
    sink.end_of_message();
    Ok(())
}

/// Feeds a message that is written as a content of its own, as a system prompt is in many APIs; `false` if it is cut.
pub(super) fn feed_message_of(role: &[u8], content: &Value<'_>, sink: &mut impl PromptSink) -> bool {
    if content.is_null() || content.is_cut_scalar() {
        return !content.is_cut;
    }
    sink.mark(mark::ROLE);
    sink.text(role);
    sink.mark(mark::CONTENT);
    feed_content(content, 0, sink);
    if !content.is_cut {
        sink.end_of_message();
    }
    !content.is_cut
}

/// What of a message goes into the prompt. Of keys that are written twice the last one counts, as in the engines.
#[derive(Default)]
pub(super) struct Message<'a> {
    role: Option<Value<'a>>,
    content: Option<Value<'a>>,
    /// Ollama's: base64, beside a content that is a text.
    images: Option<Value<'a>>,
    reasoning: Option<Value<'a>>,
    tool_calls: Option<Value<'a>>,
    tool_call_id: Option<Value<'a>>,
    name: Option<Value<'a>>,
    /// Tools that a developer's message brings along; vLLM hands them to the chat template.
    tools: Option<Value<'a>>,
    /// What `tool_calls` were before there could be more than one.
    function_call: Option<Value<'a>>,
}

impl<'a> Message<'a> {
    /// Reads the members of the object that `scanner` has entered, up to its end.
    fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Halt> {
        while let Some((key, value)) = scanner.member()? {
            self.take(key, value);
        }
        Ok(())
    }

    /// Takes a member; `false` if it is none of a message's.
    pub(super) fn take(&mut self, key: Text<'_>, value: Value<'a>) -> bool {
        let field = match key.short(&mut [0; SHORT_BYTES_MAX]) {
            b"role" => &mut self.role,
            b"content" => &mut self.content,
            b"tool_calls" => &mut self.tool_calls,
            b"tool_call_id" => &mut self.tool_call_id,
            b"name" | b"tool_name" => &mut self.name,
            b"reasoning_content" | b"reasoning" | b"thinking" => &mut self.reasoning,
            b"images" => &mut self.images,
            b"tools" => &mut self.tools,
            b"function_call" => &mut self.function_call,
            _ => return false,
        };
        *field = Some(value);
        true
    }

    pub(super) fn has_role(&self) -> bool {
        self.role.is_some_and(|role| !role.is_cut)
    }

    /// Whether the role may be [guessed](Self::feed).
    pub(super) fn is_long(&self) -> bool {
        self.content.is_some_and(|content| content.is_cut && content.raw.len() >= GUESS_BYTES_MIN)
    }

    pub(super) fn is_from_user(&self) -> bool {
        self.role.and_then(|role| role.text()).is_some_and(|role| role.is(b"user"))
    }

    /// Feeds the message; of one that is not whole, all before the first field that may yet come or go on.
    ///
    /// A role that may yet come behind a long content is taken to be the user's: what is so long nearly always is, and
    /// clients that sort their keys would go unrecognized else.
    pub(super) fn feed(&self, is_whole: bool, sink: &mut impl PromptSink) {
        sink.mark(mark::ROLE);
        match self.role {
            Some(role) if role.is_null() && !role.is_cut => {}
            Some(role) => {
                feed_text_or_json(&role, sink);
                if role.is_cut {
                    return;
                }
            }
            None if is_whole => {}
            None if self.is_long() => sink.text(b"user"),
            None => return,
        }
        self.feed_fields(is_whole, sink);
    }

    fn feed_fields(&self, is_whole: bool, sink: &mut impl PromptSink) {
        let fields = [
            (mark::CONTENT, &self.content),
            (mark::IMAGE, &self.images),
            (mark::REASONING, &self.reasoning),
            (mark::TOOL_CALLS, &self.tool_calls),
            (mark::TOOL_CALL_ID, &self.tool_call_id),
            (mark::NAME, &self.name),
            (mark::MESSAGE_TOOLS, &self.tools),
            (mark::FUNCTION_CALL, &self.function_call),
        ];
        for (kind, value) in fields {
            let Some(value) = value.filter(|value| !value.is_cut_scalar()) else {
                if is_whole { continue } else { return }
            };
            if value.is_null() {
                continue;
            }
            match kind {
                mark::IMAGE => feed_media_list(Media::Image, &value, sink),
                mark::TOOL_CALLS => feed_tool_calls(&value, sink),
                mark::MESSAGE_TOOLS => feed_message_tools(&value, sink),
                mark::FUNCTION_CALL => feed_function_call(&value, sink),
                _ => {
                    sink.mark(kind);
                    if kind == mark::CONTENT {
                        feed_content(&value, 0, sink);
                    } else {
                        feed_text_or_json(&value, sink);
                    }
                }
            }
            if value.is_cut {
                return;
            }
        }
    }
}

/// From so many bytes on a content that is cut is taken to be the user's, and a part's text that is cut to be text.
pub(super) const GUESS_BYTES_MIN: usize = 16_384;
