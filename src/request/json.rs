//! Feeds a JSON value as it means, not as it is spaced.

use super::scan::{Kind, Value, find_quote_or_backslash, is_white_space};
use super::text::Escape;
use crate::prefix::PromptSink;

/// Feeds `value` as compact JSON: no white space outside strings, escapes decoded, numbers as written, keys in the
/// order of the body.
///
/// Only `\"` and `\\` stay escaped, so that no string can pretend to be structure. A cut value feeds a prefix of what
/// the whole one would.
pub(super) fn feed_json(value: &Value<'_>, sink: &mut impl PromptSink) {
    if value.is_cut_scalar() {
        return;
    }
    let raw = value.raw;
    // What lies between `begin` and `at` is fed as it stands, in one piece.
    let (mut begin, mut at) = (0, 0);
    let mut is_in_string = false;
    while let Some(&byte) = raw.get(at) {
        if !is_in_string {
            is_in_string = byte == b'"';
            if is_white_space(byte) {
                feed_range(raw, begin, at, sink);
                begin = at + 1;
            }
            at += 1;
            continue;
        }
        let Some(found) = raw.get(at..).and_then(find_quote_or_backslash) else { break };
        at += found;
        let escape = raw.get(at..).unwrap_or_default();
        if escape.first() == Some(&b'"') {
            is_in_string = false;
            at += 1;
            continue;
        }
        match Escape::read(escape, value.is_cut) {
            Escape::Char { char: '"' | '\\', escape_bytes: 2 } | Escape::Unknown => at += 2,
            Escape::Char { char, escape_bytes } => {
                feed_range(raw, begin, at, sink);
                if matches!(char, '"' | '\\') {
                    sink.text(b"\\");
                }
                sink.text(char.encode_utf8(&mut [0; 4]).as_bytes());
                at += escape_bytes;
                begin = at;
            }
            Escape::Incomplete => return feed_range(raw, begin, at, sink),
        }
    }
    feed_range(raw, begin, raw.len(), sink);
}

/// Feeds a string's text plainly, and any other value as JSON behind a mark.
pub(super) fn feed_text_or_json(value: &Value<'_>, sink: &mut impl PromptSink) {
    if value.kind == Kind::String {
        feed_text(value, sink);
    } else if !value.is_cut_scalar() {
        sink.mark(super::mark::JSON);
        feed_json(value, sink);
    }
}

/// Feeds what a string says; nothing if the value is none.
pub(super) fn feed_text(value: &Value<'_>, sink: &mut impl PromptSink) {
    if let Some(text) = value.text() {
        text.decode(|chunk| sink.text(chunk));
    }
}

fn feed_range(raw: &[u8], begin: usize, end: usize, sink: &mut impl PromptSink) {
    if let Some(run) = raw.get(begin..end)
        && !run.is_empty()
    {
        sink.text(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::recorder::Recorder;
    use crate::request::scan::Scanner;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn fed(json: &[u8]) -> Vec<u8> {
        let mut recorder = Recorder::default();
        feed_json(&Scanner::new(json).value().unwrap(), &mut recorder);
        recorder.text_bytes()
    }

    #[test]
    fn json_is_fed_compact_and_decoded_but_never_ambiguous() {
        const CASES: &[(&str, &[u8], &str)] = &[
            ("white space goes", b"{ \"a\" :\t[ 1 ,\r\n2.50 , null ] }", r#"{"a":[1,2.50,null]}"#),
            ("white space in strings stays", br#"[ " a  b " ]"#, r#"[" a  b "]"#),
            ("escapes are decoded", br#"["\u0041\n\/\ud83d\ude00\ud83d"]"#, "[\"A\n/😀\u{fffd}\"]"),
            ("quotes stay escaped", br#"["a\",\"b"]"#, r#"["a\",\"b"]"#),
            ("however they are escaped", br#"["a\u0022,\u0022b\u005c"]"#, r#"["a\",\"b\\"]"#),
            ("unknown escapes stay", br#"["\x\u12"]"#, r#"["\x\u12"]"#),
        ];
        for &(name, json, want) in CASES {
            assert_eq!(String::from_utf8_lossy(&fed(json)), want, "{name}");
        }
    }

    #[test]
    fn a_cut_value_feeds_a_prefix() {
        let json = r#"{"a" : ["\u0041 \" \\ \ud83d\ude00 \ud83d", 12 , true ], "b\n":{ } }"#.as_bytes();
        let whole = fed(json);
        for cut in 1..json.len() {
            assert!(whole.starts_with(&fed(&json[..cut])), "cut at {cut}");
        }
    }
}
