//! The members of a body that say where it goes: read, or wiped out.

use std::ops::Range;

use super::scan::{Halt, Kind, Scanner, Value};
use super::text::{SHORT_BYTES_MAX, Text};

/// Which members of a body say where it goes.
#[derive(Clone, Copy, Debug)]
pub struct HintKeys<'k> {
    /// Those at its top.
    pub top: &'k [&'k [u8]],
    /// The member at its top that is an object with more of them.
    pub extension: &'k [u8],
    /// Those within that one.
    pub within: &'k [&'k [u8]],
}

/// Calls `see` with each member at the top of `body`, and each within the object `extension` there, as far as they are there:
/// with whether it is within, its key, and its raw value. The value is `None` where the end of `body` cuts it or the object
/// that it is in, for what follows may say otherwise.
pub fn each_member<'b>(body: &'b [u8], extension: &[u8], mut see: impl FnMut(bool, &[u8], Option<&'b [u8]>)) {
    let mut scanner = Scanner::new(body);
    scanner.enter(b'{');
    while let Ok(Some((name, value))) = scanner.member() {
        let whole = |value: &Value<'b>, is_cut: bool| if is_cut || value.is_cut { None } else { Some(value.raw) };
        if value.kind == Kind::Object && name.is(extension) {
            let mut inner = Scanner::new(value.raw);
            inner.enter(b'{');
            while let Ok(Some((name, member))) = inner.member() {
                see(true, name.short(&mut [0; SHORT_BYTES_MAX]), whole(&member, value.is_cut));
            }
        } else {
            see(false, name.short(&mut [0; SHORT_BYTES_MAX]), whole(&value, false));
        }
    }
}

/// Overwrites with spaces the members of `body` that say where it goes, and an `extension` that is neither an object nor
/// `null`: readers that take objects may take arrays for them, in the order of their fields. Every other byte stays as it was
/// and where it was, and JSON stays JSON, also where `body` ends before its last value does: of that nothing is wiped.
/// Returns how many members were, and whether all was read.
pub fn wipe_hints(body: &mut [u8], keys: &HintKeys<'_>) -> (usize, bool) {
    let mut wiper = Wiper { keys, ranges: Vec::new(), members: 0, is_whole: true };
    wiper.is_whole &= wiper.find(body, 0, true).is_ok();
    let Wiper { ranges, members, is_whole, .. } = wiper;
    for range in ranges {
        if let Some(bytes) = body.get_mut(range) {
            bytes.fill(b' ');
        }
    }
    (members, is_whole)
}

/// Finds what is to be wiped of one body.
struct Wiper<'k> {
    keys: &'k HintKeys<'k>,
    ranges: Vec<Range<usize>>,
    members: usize,
    is_whole: bool,
}

impl Wiper<'_> {
    /// Notes what is to be wiped of one object, which begins at `offset` of the body. A member goes with the comma before it,
    /// and where all before it go, the first that stays loses its own.
    ///
    /// Where the bytes end behind a member, that one stays: whether a comma follows is not known.
    fn find(&mut self, object: &[u8], offset: usize, is_top: bool) -> Result<(), Halt> {
        let mut scanner = Scanner::new(object);
        if !scanner.enter(b'{') {
            return Ok(());
        }
        let (mut begin, mut have_gone, mut has_stayed) = (scanner.offset(), false, false);
        loop {
            let member = scanner.member();
            let end = scanner.offset();
            if let Ok(Some((name, value))) = &member {
                let is_extension = is_top && name.is(self.keys.extension);
                if is_extension && value.kind == Kind::Object {
                    let is_whole = self.find(value.raw, offset + end.saturating_sub(value.raw.len()), false).is_ok();
                    self.is_whole &= is_whole;
                }
                let goes = if is_extension { !is_extensible(value) } else { self.is_hint(name, is_top) };
                if goes && scanner.peek().is_some() {
                    self.ranges.push(offset + begin..offset + end);
                    self.members += 1;
                    have_gone = true;
                    begin = end;
                    continue;
                }
            }
            if let Ok(None) = member {
                return Ok(());
            }
            if have_gone && !has_stayed {
                self.ranges.extend(comma_at(object, begin).map(|at| offset + at..offset + at + 1));
            }
            has_stayed = true;
            member?;
            begin = end;
        }
    }

    fn is_hint(&self, name: &Text<'_>, is_top: bool) -> bool {
        let keys = if is_top { self.keys.top } else { self.keys.within };
        keys.iter().any(|key| name.is(key))
    }
}

/// Whether an extension is what it should be.
fn is_extensible(value: &Value<'_>) -> bool {
    value.kind == Kind::Object || value.is_null()
}

/// Where the comma is that comes next, if it does.
fn comma_at(object: &[u8], begin: usize) -> Option<usize> {
    let rest = object.get(begin..)?;
    let next = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
    (rest.get(next) == Some(&b',')).then_some(begin + next)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use serde_json::Value as Json;

    use super::*;
    use crate::rng::Rng;

    const KEYS: HintKeys<'_> = HintKeys { top: &[b"room", b"rank"], extension: b"ext", within: &[b"id", b"rank"] };

    fn wipe(body: &str) -> (String, usize, bool) {
        let mut bytes = body.as_bytes().to_vec();
        let (members, is_whole) = wipe_hints(&mut bytes, &KEYS);
        assert_eq!(bytes.len(), body.len());
        (String::from_utf8(bytes).unwrap(), members, is_whole)
    }

    #[test]
    fn what_is_wiped_leaves_the_rest_where_it_is() {
        const CASES: &[(&str, &str, usize)] = &[
            (r#"{"ext":{"id":7}}"#, r#"{"ext":{      }}"#, 1),
            (r#"{"ext":{"id":7,"a":1}}"#, r#"{"ext":{       "a":1}}"#, 1),
            (r#"{"ext":{"a":1 , "id":7}}"#, r#"{"ext":{"a":1         }}"#, 1),
            (r#"{"ext":{"a":1,"id":7,"b":2}}"#, r#"{"ext":{"a":1       ,"b":2}}"#, 1),
            (r#"{"ext":{"id":7,"rank":1,"b":2,"id":9}}"#, r#"{"ext":{                "b":2       }}"#, 3),
            (r#"{"ext":{"\u0069d":{"x":[",}"]} ,"b":2}}"#, r#"{"ext":{                        "b":2}}"#, 1),
            (r#"{"e\u0078t":{"id":7},"ext":{"rank":1}}"#, r#"{"e\u0078t":{      },"ext":{        }}"#, 2),
            (r#"{"id":1,"other":{"id":7,"room":1}}"#, r#"{"id":1,"other":{"id":7,"room":1}}"#, 0),
            (r#"{"x":"ext","a":{"ext":{"id":1}}}"#, r#"{"x":"ext","a":{"ext":{"id":1}}}"#, 0),
            (r#"{"room":1,"a":2}"#, r#"{         "a":2}"#, 1),
            (r#"{"a":2,"r\u0061nk":3}"#, r#"{"a":2              }"#, 1),
            (
                r#"{"room":[1,2] , "rank":{"a":1},"ext":{"id":7}}"#,
                r#"{                              "ext":{      }}"#,
                3,
            ),
        ];
        for (body, want, members) in CASES {
            assert_eq!(wipe(body), ((*want).to_owned(), *members, true), "{body}");
            let json: Json = serde_json::from_str(want).unwrap();
            assert!(json.is_object());
        }
    }

    #[test]
    fn an_extension_that_is_no_object_goes_whole_for_readers_that_take_arrays_for_objects() {
        for value in ["[null,null,null,702]", r#"[{"id":1}]"#, "[7]", "[]", "1", r#""""#, r#""text""#, "true", "-1e5"] {
            let body = format!(r#"{{"a":1,"ext": {value} ,"b":2,"e\u0078t":{value}}}"#);
            let (got, members, is_whole) = wipe(&body);
            assert_eq!((members, is_whole, got.replace(' ', "").as_str()), (2, true, r#"{"a":1,"b":2}"#), "{body}");
        }
        assert_eq!(wipe(r#"{"ext":null,"a":1,"ext": {} }"#).1, 0);
    }

    #[test]
    fn of_a_body_that_is_cut_it_is_told_that_more_may_come() {
        let (body, members, is_whole) = wipe(r#"{"ext":{"id":7},"messages":[{"ro"#);
        assert_eq!((body.as_str(), members, is_whole), (r#"{"ext":{      },"messages":[{"ro"#, 1, false));
        for body in [r#"{"messages":[],"ext":{"id":7"#, r#"{"a":1,"ext":[null,nul"#, r#"{"room":7"#, r#"{"room":{}"#] {
            assert_eq!(wipe(body), (body.to_owned(), 0, false));
        }
    }

    /// Whether `got` is `sent` but for members that say where it goes.
    fn lacks_only_hints(got: &Json, sent: &Json) -> bool {
        let is_kept = |key: &str, keys: &[&[u8]]| !keys.contains(&key.as_bytes());
        let (got, sent) = (got.as_object().unwrap(), sent.as_object().unwrap());
        let is_same = |key: &str, value: &Json| match (got.get(key), value.as_object()) {
            (None, _) => !is_kept(key, KEYS.top) || (key == "ext" && !value.is_object()),
            (Some(got), Some(object)) if key == "ext" => object.iter().all(|(key, value)| match got.get(key) {
                None => !is_kept(key, KEYS.within),
                Some(got) => got == value,
            }),
            (Some(got), _) => got == value,
        };
        got.keys().all(|key| sent.contains_key(key)) && sent.iter().all(|(key, value)| is_same(key, value))
    }

    #[test]
    fn wherever_a_body_is_cut_it_is_whole_json_with_what_follows() {
        let bodies = [
            r#"{"ext":{"id":702,"rank":1,"a":[1],"b":{"id":2}},"room":17,"messages":[{"role":"user"}],"rank":3}"#,
            r#"{"room":17,"rank":[1,2],"ext":{"a":"}","id":[{}] , "rank" : null},"messages":[]}"#,
            r#" { "a":1,"ext":[null,null,702],"rank":{"x":"\"}"},"b":true } "#,
            r#"{"rank":null,"ext":{"id":"\\","rank":12}}"#,
        ];
        for body in bodies {
            let sent: Json = serde_json::from_str(body).unwrap();
            for cut in 0..=body.len() {
                let (front, _, is_whole) = wipe(&body[..cut]);
                let text = front + &body[cut..];
                let got: Json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("at {cut}: {error}: {text}"));
                assert!(lacks_only_hints(&got, &sent), "at {cut}: {text}");
                // Of no byte at all nobody knows that it is an object.
                assert_eq!(is_whole, cut >= body.trim_end().len() || body[..cut].trim().is_empty(), "at {cut}");
            }
            assert_eq!(wipe(&wipe(body).0).1, 0, "nothing is left of {body}");
        }
    }

    #[test]
    fn random_objects_lose_the_wiped_members_and_nothing_else() {
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let space = |rng: &mut Rng| " ".repeat(rng.below(3) as usize);
            let keys = ["id", "rank", "a", "b", "ident"];
            let members: Vec<String> = (0..rng.below(7))
                .map(|number| {
                    let key = keys[rng.below(5) as usize];
                    let (left, right) = (space(&mut rng), space(&mut rng));
                    format!("{left}\"{key}\"{right}:{left}[{number},\"}},\"]{right}")
                })
                .collect();
            let object = format!("{{{}}}", members.join(","));
            let (got, ..) = wipe(&format!(r#"{{"x":[1], "ext":{object}, "y":"ü"}}"#));
            let kept: Vec<&String> =
                members.iter().filter(|member| !member.contains("\"id\"") && !member.contains("\"rank\"")).collect();
            let kept = kept.iter().map(|member| member.as_str()).collect::<Vec<_>>().join(",");
            let want = format!(r#"{{"x":[1], "ext":{{{kept}}}, "y":"ü"}}"#);
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&got), bare(&want), "seed {seed}: {object}");
        }
    }
}
