//! Bodies that are valid and mean something: what mutations of bytes alone hardly ever reach.

use crate::choices::Choices;
use crate::document::Node;

/// What an object is: which keys it may have, besides those that nobody knows.
#[derive(Clone, Copy)]
enum Shape {
    Body,
    Message,
    Part,
    Tool,
}

const UNKNOWN_KEYS: &[&str] = &["", "x", "cache_control", "id", "a\"b\\", "\u{e9}"];

impl Shape {
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Body => &[
                "messages",
                "prompt",
                "model",
                "tools",
                "stream",
                "stream_options",
                "cache_salt",
                "user",
                "system",
                "input",
                "instructions",
                "inputs",
                "text",
                "input_ids",
                "token_ids",
                "query",
                "documents",
                "texts",
                "lora_path",
                "extra_key",
                "parameters",
                "chat_template_kwargs",
                "reasoning_effort",
                "previous_response_id",
                "images",
            ],
            Self::Message => &[
                "role",
                "content",
                "tool_calls",
                "tool_call_id",
                "name",
                "reasoning_content",
                "type",
                "call_id",
                "output",
                "arguments",
                "images",
                "thinking",
            ],
            Self::Part => {
                &["type", "text", "image_url", "file", "source", "input_audio", "content", "tool_use_id", "input"]
            }
            Self::Tool => &["type", "function", "name", "description", "parameters", "input_schema", "strict"],
        }
    }
}

const TEXTS: &[&str] = &[
    "user",
    "system",
    "assistant",
    "tool",
    "text",
    "function",
    "image_url",
    "message",
    "function_call_output",
    "a \"quoted\" \\ word\n",
    "\u{e9}\u{20ac}\u{1f600}\u{0}\u{fffd}",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
    "https://example.com/a.png",
    "",
];

/// One of these holds the prompt, so each body has one of them.
const PROMPT_KEYS: &[&str] = &["messages", "prompt", "input", "inputs", "text", "input_ids", "token_ids", "documents"];

/// A body of some format.
pub(crate) fn body(choices: &mut Choices<'_>) -> Node {
    let key = PROMPT_KEYS.get(choices.below(PROMPT_KEYS.len())).copied().unwrap_or_default();
    let mut members = object(choices, Shape::Body, 0).members().to_vec();
    members.retain(|(known, _)| known != key);
    let prompt = (key.to_owned(), value(choices, key, 1));
    members.insert(choices.below(members.len() + 1), prompt);
    Node::Object(members)
}

fn object(choices: &mut Choices<'_>, shape: Shape, depth: usize) -> Node {
    let mut members: Vec<(String, Node)> = Vec::new();
    for _ in 0..=choices.below(6) {
        let keys = if choices.below(6) == 0 { UNKNOWN_KEYS } else { shape.keys() };
        let key = keys.get(choices.below(keys.len())).copied().unwrap_or_default();
        if members.iter().all(|(known, _)| known != key) {
            members.push((key.to_owned(), value(choices, key, depth + 1)));
        }
    }
    Node::Object(members)
}

/// A value as `key` mostly has it.
fn value(choices: &mut Choices<'_>, key: &str, depth: usize) -> Node {
    if depth > DEPTH_MAX {
        return Node::Null;
    }
    if choices.below(8) == 0 {
        return any(choices, depth);
    }
    match key {
        "messages" | "input" => list(choices, |choices| object(choices, Shape::Message, depth)),
        "content" | "system" | "output" if choices.is_set() => {
            list(choices, |choices| object(choices, Shape::Part, depth))
        }
        "tools" | "tool_calls" => list(choices, |choices| object(choices, Shape::Tool, depth)),
        "prompt" | "input_ids" | "token_ids" if choices.is_set() => match choices.below(3) {
            0 => list(choices, number),
            1 => list(choices, text),
            _ => list(choices, |choices| list(choices, number)),
        },
        "documents" | "texts" | "images" => list(choices, text),
        "function" | "image_url" | "source" | "file" | "stream_options" => object(choices, Shape::Tool, depth),
        "stream" | "strict" => Node::Bool(choices.is_set()),
        "parameters" | "input_schema" => any(choices, depth),
        _ => text(choices),
    }
}

fn any(choices: &mut Choices<'_>, depth: usize) -> Node {
    match choices.below(7) {
        0 => Node::Null,
        1 => Node::Bool(choices.is_set()),
        2 => number(choices),
        3 if depth <= DEPTH_MAX => list(choices, |choices| any(choices, depth + 1)),
        4 if depth <= DEPTH_MAX => object(choices, Shape::Part, depth),
        5 if depth <= DEPTH_MAX => object(choices, Shape::Tool, depth),
        _ => text(choices),
    }
}

fn list(choices: &mut Choices<'_>, mut item: impl FnMut(&mut Choices<'_>) -> Node) -> Node {
    Node::List((0..choices.below(4)).map(|_| item(choices)).collect())
}

fn number(choices: &mut Choices<'_>) -> Node {
    let number = i64::from(choices.u32()) - i64::from(choices.byte() % 2) * i64::from(u32::MAX);
    Node::Number((number >> (choices.byte() % 32)).to_string())
}

fn text(choices: &mut Choices<'_>) -> Node {
    let known = TEXTS.get(choices.below(TEXTS.len() * 2)).copied();
    Node::Text(match known {
        Some(text) => text.to_owned(),
        None if choices.below(8) == 0 => "long ".repeat(choices.below(300)),
        None => {
            let bytes = choices.below(24);
            String::from_utf8_lossy(choices.bytes(bytes)).into_owned()
        }
    })
}

/// Beyond, everything is null.
const DEPTH_MAX: usize = 8;
