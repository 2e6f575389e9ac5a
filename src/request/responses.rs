//! OpenAI's responses API: `POST …/responses`.
//!
//! The prompt: tools and effort, `instructions` as a system message, what the server remembers by name
//! (`previous_response_id`, `conversation`, a stored `prompt`), then `input`: a text of the user, or items. Where a chat can
//! say the same the same is fed: calls of functions and their outputs are messages of the assistant and of a tool.
//!
//! Sources: OpenAI API reference, "Create a model response"; vLLM, `vllm/entrypoints/openai/responses/protocol.py`.

use super::format::Format;
use super::json::feed_text_or_json;
use super::mark;
use super::message::{Message, feed_message_of, feed_odd};
use super::preamble::Preamble;
use super::scan::{Halt, Kind, Scanner, Value};
use super::shape::{Field, Form, Shape};
use super::text::Text;
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Responses<'a> {
    preamble: Preamble<'a>,
    reasoning: Option<Value<'a>>,
    instructions: Option<Value<'a>>,
    previous_response_id: Option<Value<'a>>,
    conversation: Option<Value<'a>>,
    stored_prompt: Option<Value<'a>>,
    input: Option<Value<'a>>,
}

impl<'a> Format<'a> for Responses<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        Some(match key {
            b"input" => &mut self.input,
            b"instructions" => &mut self.instructions,
            b"previous_response_id" => &mut self.previous_response_id,
            b"conversation" => &mut self.conversation,
            b"prompt" => &mut self.stored_prompt,
            b"reasoning" => &mut self.reasoning,
            _ => return self.preamble.member(key),
        })
    }

    fn holds_prompt(&self) -> bool {
        match self.input {
            Some(input) => matches!(input.kind, Kind::String | Kind::Array),
            None => self.stored_prompt.is_some_and(|prompt| prompt.kind == Kind::Object) || self.preamble.is_front(),
        }
    }

    fn feed(&self, is_open: bool, sink: &mut impl PromptSink) {
        let is_front = is_open && self.input.is_none() && self.stored_prompt.is_none();
        let effort = self.reasoning.and_then(|reasoning| last_member(&reasoning, b"effort"));
        let preamble = Preamble { reasoning_effort: effort.or(self.preamble.reasoning_effort), ..self.preamble };
        if !preamble.feed(is_front, sink) {
            return;
        }
        if let Some(instructions) = &self.instructions
            && !feed_message_of(b"system", instructions, sink)
        {
            return;
        }
        for remembered in [&self.previous_response_id, &self.conversation, &self.stored_prompt] {
            let Some(remembered) = remembered.filter(|value| !value.is_null() || value.is_cut) else { continue };
            if !remembered.is_cut_scalar() {
                sink.mark(mark::PREVIOUS);
                feed_text_or_json(&remembered, sink);
            }
            if remembered.is_cut {
                return;
            }
        }
        if let Some(input) = &self.input {
            feed_input(input, sink);
        }
    }

    fn previous_response(&self) -> Option<Text<'a>> {
        self.previous_response_id?.whole_text()
    }
}

/// The last value of `key` in an object that is whole.
fn last_member<'a>(object: &Value<'a>, key: &[u8]) -> Option<Value<'a>> {
    let mut scanner = Scanner::new(object.raw);
    let mut found = None;
    if scanner.enter(b'{') {
        while let Ok(Some((name, value))) = scanner.member() {
            if name.is(key) {
                found = Some(value);
            }
        }
    }
    found.filter(|_| !object.is_cut)
}

fn feed_input(input: &Value<'_>, sink: &mut impl PromptSink) {
    if input.kind == Kind::Array {
        // What is malformed within the items ends the prompt there: the engine is going to refuse it anyway.
        let _ = feed_items(input, sink);
    } else if feed_message_of(b"user", input, sink) {
        sink.end_of_root();
    }
}

fn feed_items(items: &Value<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(items.raw);
    scanner.enter(b'[');
    let mut had_root = false;
    while scanner.next_item(b']')? {
        if scanner.peek() != Some(b'{') {
            feed_odd(&mut scanner, sink)?;
            continue;
        }
        let is_from_user = feed_item(&mut scanner, sink)?;
        sink.end_of_message();
        if !had_root && is_from_user {
            had_root = true;
            sink.end_of_root();
        }
    }
    Ok(())
}

/// Feeds the item that comes next; returns whether it is a message of the user.
///
/// An item is a message if it has a role: only messages do, and their type may be left out. Of an item that is cut before
/// role or type nothing is fed.
fn feed_item(scanner: &mut Scanner<'_>, sink: &mut impl PromptSink) -> Result<bool, Halt> {
    let mut again = scanner.clone();
    let mut message = Message::default();
    let mut kind = None;
    scanner.enter(b'{');
    let end = loop {
        match scanner.member() {
            Ok(Some((key, value))) => {
                if !message.take(key, value) && key.is(b"type") {
                    kind = value.whole_text();
                }
            }
            Ok(None) => break Ok(()),
            Err(halt) => break Err(halt),
        }
    };
    let is_message = |kind: Text<'_>| kind.is(b"message");
    if message.has_role() || kind.map_or_else(|| end.is_err() && message.is_long(), is_message) {
        message.feed(end.is_ok(), sink);
        return end.map(|()| message.is_from_user());
    }
    match kind {
        None if end.is_err() => {}
        Some(kind) if kind.is(b"function_call") => {
            sink.mark(mark::ROLE);
            sink.text(b"assistant");
            sink.mark(mark::TOOL_CALLS);
            sink.mark(mark::TOOL_CALL);
            FUNCTION_CALL.feed_next(&mut again, 1, sink)?;
        }
        Some(kind) if kind.is(b"function_call_output") => {
            sink.mark(mark::ROLE);
            sink.text(b"tool");
            OUTPUT.feed_next(&mut again, 1, sink)?;
        }
        _ => {
            sink.mark(mark::ROLE);
            ITEM.feed_next(&mut again, 1, sink)?;
        }
    }
    end.map(|()| false)
}

/// Names and states of items are the server's, and no part of a prompt.
const FUNCTION_CALL: Shape = Shape {
    fields: &[
        Field::new(b"call_id", mark::TOOL_CALL_ID, Form::Text),
        Field::new(b"name", mark::NAME, Form::Text),
        Field::new(b"arguments", mark::ARGUMENTS, Form::JsonText),
    ],
    ignored: &[b"type", b"id", b"status"],
};

const OUTPUT: Shape = Shape {
    fields: &[
        Field::new(b"output", mark::CONTENT, Form::Content),
        Field::new(b"call_id", mark::TOOL_CALL_ID, Form::Text),
    ],
    ignored: &[b"type", b"id", b"status"],
};

/// Any other item: what the model thought, calls of tools that the server has, a reference to an item.
const ITEM: Shape = Shape {
    fields: &[
        Field::new(b"type", mark::KIND, Form::Text),
        Field::new(b"content", mark::CONTENT, Form::Content),
        Field::new(b"summary", mark::REASONING, Form::Content),
        Field::new(b"call_id", mark::TOOL_CALL_ID, Form::Text),
        Field::new(b"output", mark::CONTENT, Form::Content),
    ],
    ignored: &[b"status"],
};
