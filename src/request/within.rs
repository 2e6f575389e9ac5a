//! The members of one object at the top of a body: read, or wiped out.

use std::ops::Range;

use super::scan::{Halt, Kind, Scanner};
use super::text::SHORT_BYTES_MAX;

/// Calls `see` with the key and the raw value of each member of the object `key` at the top of `body`, as far as it is there.
pub fn each_member_within<'b>(body: &'b [u8], key: &[u8], is_truncated: bool, mut see: impl FnMut(&[u8], &'b [u8])) {
    let _ = objects(body, key, is_truncated, |object, _| {
        let mut scanner = Scanner::new(object);
        scanner.enter(b'{');
        while let Some((name, value)) = scanner.member()? {
            see(name.short(&mut [0; SHORT_BYTES_MAX]), value.raw);
        }
        Ok(())
    });
}

/// Overwrites with spaces the members `wiped` of the object `key` at the top of `body`. Every other byte stays as it was and
/// where it was, and JSON stays JSON. Returns how many were, and whether the object was read to its end, which it is not if
/// `body` ends before.
pub fn wipe_members_within(body: &mut [u8], key: &[u8], wiped: &[&[u8]], is_truncated: bool) -> (usize, bool) {
    let (mut ranges, mut members) = (Vec::new(), 0);
    let is_whole = objects(body, key, is_truncated, |object, offset| {
        members += find_wiped(object, offset, wiped, &mut ranges)?;
        Ok(())
    });
    for range in ranges {
        if let Some(bytes) = body.get_mut(range) {
            bytes.fill(b' ');
        }
    }
    (members, is_whole.is_ok())
}

/// Calls `see` with each object that is the value of the member `key` at the top of `body`, and where it begins.
fn objects<'b>(
    body: &'b [u8],
    key: &[u8],
    is_truncated: bool,
    mut see: impl FnMut(&'b [u8], usize) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let mut scanner = Scanner::new(body);
    if !scanner.enter(b'{') {
        return Ok(());
    }
    loop {
        match scanner.member() {
            Ok(Some((name, value))) if value.kind == Kind::Object && name.is(key) => {
                see(value.raw, scanner.offset().saturating_sub(value.raw.len()))?;
            }
            Ok(Some(_)) => {}
            Ok(None) if is_truncated => return Err(Halt::End { offset: scanner.offset() }),
            Ok(None) => return Ok(()),
            Err(halt) => return Err(halt),
        }
    }
}

/// Notes what is to be wiped of one object, which begins at `offset` of the body; returns how many members. A member goes with
/// the comma before it, and where all before it go, the first that stays loses its own.
fn find_wiped(object: &[u8], offset: usize, wiped: &[&[u8]], ranges: &mut Vec<Range<usize>>) -> Result<usize, Halt> {
    let mut scanner = Scanner::new(object);
    scanner.enter(b'{');
    let (mut begin, mut members, mut has_stayed) = (scanner.offset(), 0, false);
    while let Some((name, _)) = scanner.member()? {
        let end = scanner.offset();
        if wiped.iter().any(|wiped| name.is(wiped)) {
            ranges.push(offset + begin..offset + end);
            members += 1;
        } else if !has_stayed {
            let comma = scanner.since(begin).iter().position(|byte| !byte.is_ascii_whitespace());
            let at = offset + begin + comma.unwrap_or_default();
            if members > 0 {
                ranges.push(at..at + 1);
            }
            has_stayed = true;
        }
        begin = end;
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    const WIPED: &[&[u8]] = &[b"id", b"rank"];

    fn wipe(body: &str, is_truncated: bool) -> (String, usize, bool) {
        let mut bytes = body.as_bytes().to_vec();
        let (members, is_whole) = wipe_members_within(&mut bytes, b"ext", WIPED, is_truncated);
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
            (r#"{"id":1,"other":{"id":7},"ext":[{"id":1}]}"#, r#"{"id":1,"other":{"id":7},"ext":[{"id":1}]}"#, 0),
            (r#"{"ext":"id","a":{"ext":{"id":1}}}"#, r#"{"ext":"id","a":{"ext":{"id":1}}}"#, 0),
        ];
        for (body, want, members) in CASES {
            assert_eq!(wipe(body, false), ((*want).to_owned(), *members, true), "{body}");
            let json: serde_json::Value = serde_json::from_str(want).unwrap();
            assert!(json.is_object());
        }
    }

    #[test]
    fn of_a_body_that_is_cut_it_is_told_that_more_may_come() {
        let (body, members, is_whole) = wipe(r#"{"ext":{"id":7},"messages":[{"ro"#, true);
        assert_eq!((body.as_str(), members, is_whole), (r#"{"ext":{      },"messages":[{"ro"#, 1, false));
        assert!(!wipe(r#"{"messages":[],"ext":{"id":7,"ra"#, true).2);
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
            let (got, ..) = wipe(&format!(r#"{{"x":[1], "ext":{object}, "y":"ü"}}"#), false);
            let kept: Vec<&String> =
                members.iter().filter(|member| !member.contains("\"id\"") && !member.contains("\"rank\"")).collect();
            let kept = kept.iter().map(|member| member.as_str()).collect::<Vec<_>>().join(",");
            let want = format!(r#"{{"x":[1], "ext":{{{kept}}}, "y":"ü"}}"#);
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&got), bare(&want), "seed {seed}: {object}");
        }
    }
}
