//! The prompt of the chat completions API: tools, then messages.
//!
//! A message's keys may stand in any order, so they are found first and fed in a fixed one. What follows the content is
//! fed after it even where a chat template puts it before: of a message that is cut short only what cannot change any
//! more is fed, and that way it is all of the content seen so far.

use super::json::{feed_json, feed_text, feed_text_or_json};
use super::mark;
use super::scan::{Halt, Kind, Scanner, Value};
use super::text::Text;
use crate::prefix::PromptSink;

/// Feeds tools and messages in the order in which the engine's chat template sees them.
///
/// If the tools are cut, the messages stand before them in the body and are left out: the whole body would have fed the
/// tools in full first.
pub(super) fn feed(tools: Option<&Value<'_>>, messages: Option<&Value<'_>>, sink: &mut impl PromptSink) {
    if let Some(tools) = tools.filter(|tools| !tools.is_null() && !tools.is_cut_scalar()) {
        sink.mark(mark::TOOLS);
        feed_json(tools, sink);
        if tools.is_cut {
            return;
        }
    }
    let Some(messages) = messages else { return };
    // What is malformed within the messages ends the prompt there: the engine is going to refuse it anyway.
    let _ = feed_messages(messages, sink);
}

fn feed_messages(messages: &Value<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(messages.raw);
    if !scanner.enter(b'[') {
        return Ok(());
    }
    let mut had_root = false;
    while scanner.next_item(b']')? {
        if !scanner.enter(b'{') {
            let value = scanner.value()?;
            sink.mark(mark::JSON);
            feed_json(&value, sink);
            if value.is_cut {
                return Ok(());
            }
            sink.end_of_message();
            continue;
        }
        let mut message = Message::default();
        let end = message.read(&mut scanner);
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

/// What of a message goes into the prompt. Of keys that are written twice the last one counts, as in the engines.
#[derive(Default)]
struct Message<'a> {
    role: Option<Value<'a>>,
    content: Option<Value<'a>>,
    tool_calls: Option<Value<'a>>,
    tool_call_id: Option<Value<'a>>,
    name: Option<Value<'a>>,
}

impl<'a> Message<'a> {
    /// Reads the members of the object that `scanner` has entered, up to its end.
    fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Halt> {
        while let Some((key, value)) = scanner.member()? {
            if let Some(field) = self.field(key) {
                *field = Some(value);
            }
        }
        Ok(())
    }

    fn field(&mut self, key: Text<'_>) -> Option<&mut Option<Value<'a>>> {
        if key.is(b"role") {
            Some(&mut self.role)
        } else if key.is(b"content") {
            Some(&mut self.content)
        } else if key.is(b"tool_calls") {
            Some(&mut self.tool_calls)
        } else if key.is(b"tool_call_id") {
            Some(&mut self.tool_call_id)
        } else if key.is(b"name") {
            Some(&mut self.name)
        } else {
            None
        }
    }

    fn is_from_user(&self) -> bool {
        self.role.and_then(|role| role.text()).is_some_and(|role| role.is(b"user"))
    }

    /// Feeds the message; of one that is not whole, all before the first field that may yet come or go on.
    ///
    /// A role that may yet come behind a long content is taken to be the user's: what is so long nearly always is, and
    /// clients that sort their keys would go unrecognized else.
    fn feed(&self, is_whole: bool, sink: &mut impl PromptSink) {
        sink.mark(mark::ROLE);
        let is_long = |content: Value<'_>| content.is_cut && content.raw.len() >= ROLE_GUESS_BYTES_MIN;
        let is_role_to_come = !is_whole && self.role.is_none() && self.content.is_some_and(is_long);
        if is_role_to_come {
            sink.text(b"user");
        }
        let fields = [
            (None, &self.role),
            (Some(mark::CONTENT), &self.content),
            (Some(mark::TOOL_CALLS), &self.tool_calls),
            (Some(mark::TOOL_CALL_ID), &self.tool_call_id),
            (Some(mark::NAME), &self.name),
        ];
        for (kind, value) in fields {
            let Some(value) = value.filter(|value| !value.is_cut_scalar()) else {
                let is_role = kind.is_none();
                if is_whole || (is_role && is_role_to_come) { continue } else { return }
            };
            if value.is_null() {
                continue;
            }
            if let Some(kind) = kind {
                sink.mark(kind);
            }
            match kind {
                Some(mark::CONTENT) if value.kind == Kind::Array => {
                    let _ = feed_parts(&value, sink);
                }
                Some(mark::TOOL_CALLS) => feed_json(&value, sink),
                _ => feed_text_or_json(&value, sink),
            }
            if value.is_cut {
                return;
            }
        }
    }
}

/// Feeds a content that is a list of parts. A single text part gives what the same text as plain content gives.
fn feed_parts(parts: &Value<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(parts.raw);
    scanner.enter(b'[');
    let mut is_first = true;
    while scanner.next_item(b']')? {
        if !is_first {
            sink.mark(mark::PART);
        }
        is_first = false;
        if scanner.peek() == Some(b'{') {
            feed_part(&mut scanner, sink)?;
        } else {
            let value = scanner.value()?;
            feed_text_or_json(&value, sink);
        }
    }
    Ok(())
}

/// Feeds the part that comes next: its text, or the whole object if it is none (an image, audio, a file, whatever is
/// invented next).
fn feed_part(scanner: &mut Scanner<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let begin = scanner.offset();
    let (mut kind, mut text) = (None, None);
    scanner.enter(b'{');
    let end = loop {
        match scanner.member() {
            Ok(Some((key, value))) if key.is(b"type") => kind = Some(value),
            Ok(Some((key, value))) if key.is(b"text") => text = Some(value),
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(halt) => break Err(halt),
        }
    };
    // A part without a type is what its keys say, as in vLLM. While the type may yet come, nothing is sure.
    let is_text = match kind.and_then(|kind| kind.whole_text()) {
        Some(kind) => kind.is(b"text"),
        None if end.is_err() => return end,
        None => text.is_some(),
    };
    match text.filter(|text| is_text && text.kind == Kind::String) {
        Some(text) => feed_text(&text, sink),
        None if is_text && end.is_err() => {}
        None => {
            let raw = if end.is_ok() { scanner.since(begin) } else { scanner.rest_from(begin) };
            sink.mark(mark::JSON);
            feed_json(&Value::object(raw, end.is_err()), sink);
        }
    }
    end
}

/// From so many bytes on a content that is cut is taken to be the user's.
const ROLE_GUESS_BYTES_MIN: usize = 16_384;

#[cfg(test)]
mod tests;
