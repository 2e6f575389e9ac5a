//! The same JSON written otherwise, for tests: other white space, other escapes, keys in another order.

use super::scan::{Scanner, is_white_space};
use crate::rng::Rng;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Values that a chat template prints as they came: there the order of keys means something.
const VERBATIM: &[&str] = &[
    "parameters",
    "input_schema",
    "input",
    "arguments",
    "documents",
    "chat_template_kwargs",
    "features",
    "session_params",
    "citations",
];

/// `json` with the keys of all objects shuffled, but for those whose order means something.
pub(super) fn shuffled(json: &str, rng: &mut Rng) -> String {
    let mut written = String::new();
    shuffle(json.trim(), "", rng, &mut written);
    written
}

fn shuffle(json: &str, key: &str, rng: &mut Rng, written: &mut String) {
    let mut scanner = Scanner::new(json.as_bytes());
    let is_object = scanner.peek() == Some(b'{');
    // The input of the responses API and of embeddings is a list of items, that of Anthropic's tools an object.
    if (VERBATIM.contains(&key) && is_object) || !(is_object || scanner.peek() == Some(b'[')) {
        written.push_str(json);
        return;
    }
    if !is_object {
        scanner.enter(b'[');
        let mut separator = '[';
        while let Some(item) = scanner.element().unwrap() {
            written.push(separator);
            separator = ',';
            // Documents to rank are no documents for a template.
            shuffle(std::str::from_utf8(item.raw).unwrap(), key, rng, written);
        }
        if separator == '[' {
            written.push('[');
        }
        written.push(']');
        return;
    }
    scanner.enter(b'{');
    let mut members = Vec::new();
    while let Some((key, value)) = scanner.member().unwrap() {
        members.push((std::str::from_utf8(key.raw()).unwrap(), std::str::from_utf8(value.raw).unwrap()));
    }
    for index in (1..members.len()).rev() {
        members.swap(index, rng.below(index as u32 + 1) as usize);
    }
    written.push('{');
    for (index, (key, value)) in members.into_iter().enumerate() {
        written.push_str(if index == 0 { "\"" } else { ",\"" });
        written.push_str(key);
        written.push_str("\":");
        shuffle(value, key, rng, written);
    }
    written.push('}');
}

/// `json` with other white space and other escapes.
pub(super) fn respelled(json: &str, rng: &mut Rng) -> String {
    let (mut written, mut is_in_string, mut chars) = (String::new(), false, json.trim().chars());
    while let Some(char) = chars.next() {
        if !is_in_string {
            is_in_string = char == '"';
            if u8::try_from(char).is_ok_and(is_white_space) {
                continue;
            }
            let is_structure = matches!(char, '{' | '}' | '[' | ']' | ',' | ':');
            let space = if is_structure { ["", " ", "\n\t", "\r\n"][rng.below(4) as usize] } else { "" };
            written.push_str(space);
            written.push(char);
            written.push_str(space);
            continue;
        }
        match char {
            '"' => {
                is_in_string = false;
                written.push('"');
            }
            '\\' => {
                written.push('\\');
                let escaped = chars.next();
                written.extend(escaped);
                if escaped == Some('u') {
                    written.extend(chars.by_ref().take(4));
                }
            }
            '/' if rng.below(2) == 0 => written.push_str("\\/"),
            char if char.is_ascii() && rng.below(8) == 0 => written.push_str(&format!("\\u{:04X}", u32::from(char))),
            char => written.push(char),
        }
    }
    written
}

#[test]
fn respelling_changes_the_spelling_only() {
    let (json, mut rng) = (r#"{"a": [1, {"b": "x/y\n\u00e9", "c": null}], "d": "ééé"}"#, Rng::new(1));
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    for _ in 0..50 {
        let (shuffled, respelled) = (shuffled(json, &mut rng), respelled(json, &mut rng));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shuffled).unwrap(), value);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&respelled).unwrap(), value);
        assert!(respelled != json);
    }
}
