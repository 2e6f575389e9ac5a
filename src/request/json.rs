//! Feeds a JSON value as it means, not as it is spaced.

use super::media::{Media, feed_media};
use super::scan::{Kind, Scanner, Value, find_quote_or_backslash, is_white_space};
use super::text::Escape;
use crate::prefix::PromptSink;

/// Feeds `value` as compact JSON: no white space outside strings, escapes decoded, numbers as written, keys in the
/// order of the body.
///
/// Only `\"` and `\\` stay escaped, so that no string can pretend to be structure. A cut value feeds a prefix of what
/// the whole one would.
pub(super) fn feed_json(value: &Value<'_>, sink: &mut impl PromptSink) {
    feed_strings_and_rest(value, false, sink);
}

/// The same for a value of which nothing is known: of long strings that are data and no text the digests are fed.
pub(super) fn feed_unknown_json(value: &Value<'_>, sink: &mut impl PromptSink) {
    feed_strings_and_rest(value, true, sink);
}

/// A string of which so many bytes look like base64 or a URL of data is no text.
const DATA_BYTES_MIN: usize = 4_096;

/// Whether a string is data and no text: a picture in base64 costs an engine a thousandth of what it would as text.
/// `None` if it is cut before one can tell.
fn is_data(string: &Value<'_>) -> Option<bool> {
    let text = string.text()?;
    let (mut bytes, mut is_text) = (0, false);
    // A byte takes six to write at the most, and an escape that is cut is dropped.
    text.first(DATA_BYTES_MIN * 6 + 12).decode(|chunk| {
        let looked_at = chunk.get(..DATA_BYTES_MIN - bytes).unwrap_or(chunk);
        let is_of_data = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_.,:;".contains(byte);
        is_text = is_text || !looked_at.iter().all(is_of_data);
        bytes += looked_at.len();
    });
    if !is_text && bytes < DATA_BYTES_MIN && text.is_cut() { None } else { Some(!is_text && bytes >= DATA_BYTES_MIN) }
}

/// `finds_data`: feeds the digests of strings that are [data](is_data), and a string that may yet be such is not fed.
fn feed_strings_and_rest(value: &Value<'_>, finds_data: bool, sink: &mut impl PromptSink) {
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
            if is_in_string
                && finds_data
                && let Ok(string) = Scanner::new(raw.get(at..).unwrap_or_default()).value()
            {
                match is_data(&string) {
                    Some(false) => {}
                    None => return feed_range(raw, begin, at, sink),
                    Some(true) => {
                        feed_range(raw, begin, at, sink);
                        feed_media(Media::File, &string, sink);
                        at += string.raw.len();
                        begin = at;
                        is_in_string = false;
                        continue;
                    }
                }
            }
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

/// Feeds a string's text plainly, and any other value as JSON of which nothing is known behind a mark.
pub(super) fn feed_text_or_json(value: &Value<'_>, sink: &mut impl PromptSink) {
    if value.kind == Kind::String {
        feed_text(value, sink);
    } else if !value.is_cut_scalar() {
        sink.mark(super::mark::JSON);
        feed_unknown_json(value, sink);
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

    fn fed_unknown(json: &str) -> Recorder {
        let mut recorder = Recorder::default();
        feed_unknown_json(&Scanner::new(json.as_bytes()).value().unwrap(), &mut recorder);
        recorder
    }

    #[test]
    fn long_data_where_nothing_is_known_are_no_text() {
        let data = "aB3+".repeat(25_000);
        let fed = fed_unknown(&format!(r#"{{"a" : "{data}", "b":[1]}}"#));
        assert!(fed.text_bytes().len() < data.len() / 5, "{} bytes", fed.text_bytes().len());
        assert!(fed.written().starts_with(r#"{"a":<31>"#) && fed.written().ends_with(r#","b":[1]}"#));
        let escaped = data.replace('B', "\\u0042");
        assert_eq!(fed_unknown(&format!(r#"{{"a":"{escaped}","b":[1]}}"#)), fed);
        assert_ne!(fed_unknown(&format!(r#"{{"a":"{}","b":[1]}}"#, data.replace("3+aB3+a", "3+aB4+a"))), fed);
        let texts =
            [&data[..DATA_BYTES_MIN - 1], &"word ".repeat(2_000), &"語".repeat(4_000), &data.replacen('3', " ", 1)];
        for text in texts {
            let json = format!(r#"["{text}"]"#);
            assert_eq!(fed_unknown(&json).written(), json);
        }
    }

    #[test]
    fn a_cut_value_with_data_feeds_a_prefix() {
        let data = "aB\\u0042/".repeat(9_000);
        let json = format!(r#"{{"x" : "short", "a":"{data}","t":"t t", "b":"{}"}}"#, &data[..700]);
        let whole = fed_unknown(&json);
        for cut in (1..json.len()).filter(|cut| cut % 97 == 0 || *cut < 60 || *cut > json.len() - 900) {
            let part = fed_unknown(&json[..cut]);
            assert!(whole.symbols.starts_with(&part.symbols), "cut at {cut}");
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
