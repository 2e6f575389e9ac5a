//! Everything that is wrong with a configuration, in words that tell how to set it right.

use std::fmt;

use serde_json::Value;

/// Problems that one error tells; of more only the number is told.
///
/// Enough to set a file right in a few rounds, and short enough for one line of Envoy's log.
pub const PROBLEMS_MAX: usize = 16;

/// Bytes of a value that an error repeats.
const GOT_BYTES_MAX: usize = 80;

/// Why a configuration is refused: all its problems, so that nobody mends them one start at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
    untold: usize,
}

/// One thing that is wrong. Paths are written as in `pools[0].workers[1].address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The text is not JSON.
    NotJson {
        /// What the parser says, and where.
        reason: String,
    },
    /// A value of another type, outside its range, or not well formed.
    Unfit {
        /// The key.
        path: String,
        /// Its value, as [`shorten`] writes it.
        got: String,
        /// What the value must be.
        want: String,
    },
    /// A required key is absent.
    Missing {
        /// The key.
        path: String,
        /// What its value must be.
        want: String,
    },
    /// A name that nothing is registered for.
    UnknownName {
        /// The key.
        path: String,
        /// Its value, as [`shorten`] writes it.
        got: String,
        /// The names that are.
        known: Vec<&'static str>,
    },
    /// A key that nobody reads here.
    UnknownKey {
        /// The key.
        path: String,
        /// The keys that are read here, in the order of the reference page.
        known: Vec<&'static str>,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
}

impl ConfigError {
    /// Adds a problem; beyond [`PROBLEMS_MAX`] it is only counted.
    pub fn add(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.untold += 1;
        }
    }

    /// The problems in the order in which the configuration is read.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Nothing is wrong.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for problem in &self.problems {
            write!(f, "{separator}{problem}")?;
            separator = "; ";
        }
        if self.untold > 0 {
            write!(f, "; and {} more", self.untold)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { reason } => write!(f, "configuration is not JSON: {reason}"),
            Self::Unfit { path, got, want } => write!(f, "{path} is {got}, must be {want}"),
            Self::Missing { path, want } => write!(f, "{path} is missing, must be {want}"),
            Self::UnknownName { path, got, known } => write!(f, "{path} is {got}, known: {}", known.join(", ")),
            Self::UnknownKey { path, known, nearest } => {
                write!(f, "{path} is not a key here")?;
                if let Some(nearest) = nearest {
                    write!(f, ", did you mean \"{nearest}\"?")?;
                } else if !known.is_empty() {
                    f.write_str(",")?;
                }
                if !known.is_empty() {
                    write!(f, " known keys: {}", known.join(", "))?;
                }
                Ok(())
            }
        }
    }
}

/// `value` as compact JSON, cut to `GOT_BYTES_MAX` bytes.
#[must_use]
pub fn shorten(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > GOT_BYTES_MAX {
        let mut end = GOT_BYTES_MAX - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The one of `known` that `written` was probably meant to be.
///
/// Case and separators count for nothing (`interval_ms` is `intervalMs`); else a third of the letters may be wrong.
#[must_use]
pub fn nearest(written: &str, known: &[&'static str]) -> Option<&'static str> {
    let written = letters(written);
    let mut best = None;
    let mut distance_best = (written.len() / 3).max(1) + 1;
    for &name in known {
        let distance = edit_distance(&written, &letters(name));
        if distance < distance_best {
            (best, distance_best) = (Some(name), distance);
        }
    }
    best
}

/// Letters and digits in lower case. No key has more than 64, so more of them are not worth the time of a comparison.
fn letters(name: &str) -> Vec<u8> {
    name.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).take(64).collect()
}

/// Letters to insert, remove or replace to make `a` of `b` (Levenshtein).
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, x) in a.iter().enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        let Some((first, rest)) = row.split_first_mut() else {
            return 0;
        };
        *first = left;
        for (above, y) in rest.iter_mut().zip(b) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *above;
            left = replaced.min(diagonal + 1).min(left + 1);
            *above = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn the_key_that_was_meant_is_found() {
        const KNOWN: &[&str] = &["intervalMs", "timeoutMs", "path", "id"];
        const CASES: &[(&str, Option<&str>)] = &[
            ("intervlMs", Some("intervalMs")),
            ("interval_ms", Some("intervalMs")),
            ("INTERVAL-MS", Some("intervalMs")),
            ("interval", Some("intervalMs")),
            ("timeOut", Some("timeoutMs")),
            ("paht", None),
            ("paths", Some("path")),
            ("ib", Some("id")),
            ("workers", None),
            ("", None),
            ("żółć", None),
        ];
        for (written, meant) in CASES {
            assert_eq!(nearest(written, KNOWN), *meant, "{written}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), KNOWN), None);
    }

    #[test]
    fn values_are_repeated_whole_or_cut_between_characters() {
        assert_eq!(shorten(&serde_json::json!({ "a": [1, "b"] })), "{\"a\":[1,\"b\"]}");
        for length in 70..90 {
            let text = shorten(&Value::from("ż".repeat(length)));
            assert!(
                (GOT_BYTES_MAX - 3..=GOT_BYTES_MAX).contains(&text.len()) && text.ends_with('…'),
                "{length}: {text}"
            );
        }
        assert_eq!(shorten(&Value::from("x".repeat(GOT_BYTES_MAX - 2))).len(), GOT_BYTES_MAX);
    }

    #[test]
    fn many_problems_are_counted_and_not_told() {
        let mut error = ConfigError::default();
        for number in 0..PROBLEMS_MAX + 3 {
            error.add(Problem::Missing { path: format!("k{number}"), want: "there".into() });
        }
        let text = error.to_string();
        assert!(text.starts_with("k0 is missing, must be there; k1 is missing, must be there; "), "{text}");
        assert!(text.ends_with("; k15 is missing, must be there; and 3 more"), "{text}");
    }
}
