//! The path under which Envoy is asked for some of its clusters.

use std::fmt::Write as _;

/// `path`, with a filter for the clusters of these names if that is of a size that any Envoy takes.
///
/// `/clusters` takes `filter`, a regular expression (RE2) for parts of names; Envoys before that ignore it and tell all of
/// their clusters. A path that has a filter is left as it is.
///
/// ```
/// let path = warmroute::discovery::question("/clusters?format=json", ["llm", "a.b"].into_iter());
/// assert_eq!(path, "/clusters?format=json&filter=%5E%28%3F%3Allm%7Ca%5C%2Eb%29%24");
/// ```
#[must_use]
pub fn question<'n>(path: &str, clusters: impl Iterator<Item = &'n str>) -> String {
    let (_, parameters) = path.split_once('?').unwrap_or((path, ""));
    if parameters.split('&').any(|parameter| parameter.starts_with(FILTER)) {
        return path.to_owned();
    }
    let mut expression = "^(?:".to_owned();
    for (index, name) in clusters.enumerate() {
        if index > 0 {
            expression.push('|');
        }
        push_literal(&mut expression, name);
    }
    expression.push_str(")$");
    let joint = if path.contains('?') { '&' } else { '?' };
    let mut asked = format!("{path}{joint}{FILTER}");
    for byte in expression.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' => asked.push(char::from(byte)),
            // To a string writing never fails.
            _ => _ = write!(asked, "%{byte:02X}"),
        }
    }
    if asked.len() > QUESTION_BYTES_MAX { path.to_owned() } else { asked }
}

/// The expression that matches just `name`. As RE2's own `QuoteMeta`: a backslash before all that is ASCII and no part of
/// a word; the byte 0 needs a form of its own.
fn push_literal(expression: &mut String, name: &str) {
    for character in name.chars() {
        match character {
            '\0' => expression.push_str("\\x00"),
            '0'..='9' | 'A'..='Z' | 'a'..='z' | '_' => expression.push(character),
            _ if character.is_ascii() => expression.extend(['\\', character]),
            _ => expression.push(character),
        }
    }
}

const FILTER: &str = "filter=";

/// Far below the 60 KB of headers that Envoy takes. Where the names of all pools are longer, all clusters are asked for.
const QUESTION_BYTES_MAX: usize = 16 * 1024;
