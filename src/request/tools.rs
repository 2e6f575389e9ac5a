//! Tool definitions and tool calls, in the forms that all APIs have in common.

use super::json::feed_text_or_json;
use super::mark;
use super::scan::{Kind, Scanner, Value};
use super::shape::{Field, Form, Shape, feed_list};
use crate::prefix::PromptSink;

/// Feeds tool definitions. OpenAI's two forms (with `function` around the definition and without), Anthropic's and
/// Ollama's give the same, for they say the same.
///
/// The order of keys within `parameters` stays, as chat templates print the schema as it came.
///
/// Sources: OpenAI API reference, "Create chat completion" and "Create a model response", `tools`; Anthropic API
/// reference, "Messages", `tools`; Ollama `docs/api.md`, "Chat request (with tools)".
pub(super) fn feed_tools(tools: &Value<'_>, sink: &mut impl PromptSink) {
    sink.mark(mark::TOOLS);
    feed_list(tools, mark::TOOL, &TOOL, sink);
}

/// Feeds the tool definitions that a message brings along.
///
/// Source: vLLM, `vllm/entrypoints/chat_utils.py`, developer messages.
pub(super) fn feed_message_tools(tools: &Value<'_>, sink: &mut impl PromptSink) {
    sink.mark(mark::MESSAGE_TOOLS);
    feed_list(tools, mark::TOOL, &TOOL, sink);
}

/// Feeds a message's `function_call`.
///
/// Source: OpenAI API reference, "Create chat completion", assistant messages, `function_call` (deprecated).
pub(super) fn feed_function_call(call: &Value<'_>, sink: &mut impl PromptSink) {
    sink.mark(mark::FUNCTION_CALL);
    if call.kind == Kind::Object {
        let _ = CALLED.feed_next(&mut Scanner::new(call.raw), 1, sink);
    } else {
        feed_text_or_json(call, sink);
    }
}

/// Feeds a message's tool calls.
pub(super) fn feed_tool_calls(calls: &Value<'_>, sink: &mut impl PromptSink) {
    sink.mark(mark::TOOL_CALLS);
    feed_list(calls, mark::TOOL_CALL, &CALL, sink);
}

/// What a tool says of itself, but its type.
const DEFINITION: Shape = Shape {
    fields: &[
        Field::new(b"name", mark::NAME, Form::Text),
        Field::new(b"description", mark::DESCRIPTION, Form::Text),
        Field::new(b"parameters", mark::PARAMETERS, Form::Json),
        Field::bare(b"strict", Form::Other),
    ],
    ignored: &[b"cache_control"],
};

const TOOL: Shape = Shape {
    fields: &[
        Field::new(b"type", mark::KIND, USUAL_TOOL),
        Field::bare(b"function", Form::Object(&DEFINITION, None)),
        Field::new(b"name", mark::NAME, Form::Text),
        Field::new(b"description", mark::DESCRIPTION, Form::Text),
        Field::new(b"parameters", mark::PARAMETERS, Form::Json),
        Field::new(b"input_schema", mark::PARAMETERS, Form::Json),
        Field::bare(b"strict", Form::Other),
    ],
    ignored: &[b"cache_control"],
};

/// Anthropic's word for a function is `custom`, and mostly left out.
const USUAL_TOOL: Form = Form::TextUnless(&[b"function", b"custom"]);

/// A call as in OpenAI's messages and Ollama's, whose arguments are an object and no string.
const CALL: Shape = Shape {
    fields: &[
        Field::new(b"id", mark::TOOL_CALL_ID, Form::Text),
        Field::new(b"type", mark::KIND, USUAL_TOOL),
        Field::bare(b"function", Form::Object(&CALLED, None)),
    ],
    ignored: &[b"index"],
};

/// Which function is called, and with what.
const CALLED: Shape = Shape {
    fields: &[Field::new(b"name", mark::NAME, Form::Text), Field::new(b"arguments", mark::ARGUMENTS, Form::JsonText)],
    ignored: &[b"index"],
};
