//! Laws of reading answers, over random JSON and random bytes.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::tests::{CAPTURED, read, usage};
use super::*;
use crate::rng::Rng;

/// Keys that matter, and text that must not.
const WORDS: &[&str] = &[
    "usage",
    "response",
    "message",
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "meta_info",
    "details",
    "generated_tokens",
    "input_length",
    "prefill",
    "timings",
    "cache_n",
    "prompt_n",
    "prompt_eval_count",
    "eval_count",
    "index",
    "\"usage\":{\"prompt_tokens\":9}",
    "a\\",
    "\\\"",
    "{[é\n",
    "",
];

/// Those of them that are objects.
const OBJECTS: &[&str] = &["usage", "response", "message", "prompt_tokens_details", "meta_info", "details", "timings"];

/// A random JSON value with the words in any place.
fn random_json(rng: &mut Rng, depth: u32) -> Value {
    match rng.below(if depth == 0 { 6 } else { 13 }) {
        0 => Value::Null,
        1 => json!(f64::from(rng.below(100)) / 4.0),
        2 => json!(i64::from(rng.below(100)) - 20),
        3 => json!(rng.below(100_000)),
        4 => json!(rng.next_u64() >> rng.below(40)),
        5 => json!(WORDS[rng.below(WORDS.len() as u32) as usize]),
        6 => (0..rng.below(4)).map(|_| random_json(rng, depth - 1)).collect(),
        _ => random_object(rng, depth - 1),
    }
}

fn random_object(rng: &mut Rng, depth: u32) -> Value {
    let mut members = Map::new();
    for word in WORDS {
        if rng.below(4) == 0 {
            // Half of the values are of the kind that counts there.
            let value = match *word {
                _ if depth == 0 || rng.below(2) == 0 => random_json(rng, depth),
                object if OBJECTS.contains(&object) => random_object(rng, depth - 1),
                _ => json!(rng.below(1_000)),
            };
            members.insert((*word).to_owned(), value);
        }
    }
    Value::Object(members)
}

/// What a JSON parser reads: the numbers in their places, those that come later over those before.
#[derive(Default)]
struct Parsed {
    numbers: BTreeMap<&'static str, u32>,
    is_told: bool,
}

impl Parsed {
    fn read(answer: &Value) -> Option<Usage> {
        let mut parsed = Self::default();
        parsed.outermost(answer.as_object()?);
        let is_of_another = whole(answer.get("index")).is_some_and(|index| index > 0);
        let is_partial = is_of_another && answer.get("meta_info").is_some_and(Value::is_object);
        (parsed.is_told && !is_partial).then(|| parsed.usage())
    }

    fn outermost(&mut self, members: &Map<String, Value>) {
        for (key, value) in members {
            match (key.as_str(), value) {
                ("prompt_eval_count", _) => self.is_told |= self.take("prompt", whole(Some(value))),
                ("eval_count", _) => self.is_told |= self.take("completion", whole(Some(value))),
                ("usage", Value::Object(usage)) => self.told_usage(usage),
                ("response" | "message", Value::Object(answer)) => {
                    if let Some(Value::Object(usage)) = answer.get("usage") {
                        self.told_usage(usage);
                    }
                }
                ("meta_info", Value::Object(info)) => {
                    self.is_told = true;
                    self.take("prompt", whole(info.get("prompt_tokens")));
                    self.take("completion", whole(info.get("completion_tokens")));
                    self.take("cached", whole(info.get("cached_tokens")));
                }
                ("details", Value::Object(details)) => {
                    self.is_told = true;
                    self.take("completion", whole(details.get("generated_tokens")));
                    self.take("prompt", whole(details.get("input_length")));
                    let prefill = details.get("prefill").and_then(Value::as_array).into_iter().flatten();
                    let tokens = prefill.filter(|token| token.is_object() || token.is_array()).count() as u32;
                    self.take("prompt", Some(tokens).filter(|tokens| *tokens > 0));
                }
                ("timings", Value::Object(timings)) => {
                    self.is_told = true;
                    self.take("computed", whole(timings.get("prompt_n")));
                    self.take("reused", whole(timings.get("cache_n")));
                }
                _ => {}
            }
        }
    }

    fn told_usage(&mut self, usage: &Map<String, Value>) {
        self.is_told = true;
        // In the order of the keys: `output_tokens` behind `completion_tokens`.
        let last = usage.get("output_tokens").or_else(|| usage.get("completion_tokens"));
        self.take("completion", whole(last));
        let details = usage.get("prompt_tokens_details").and_then(Value::as_object);
        self.take("cached", whole(details.and_then(|details| details.get("cached_tokens"))));
        for (name, key) in [
            ("prompt", "prompt_tokens"),
            ("input", "input_tokens"),
            ("total", "total_tokens"),
            ("read", "cache_read_input_tokens"),
            ("creation", "cache_creation_input_tokens"),
        ] {
            self.take(name, whole(usage.get(key)));
        }
    }

    fn take(&mut self, name: &'static str, number: Option<u32>) -> bool {
        number.is_some_and(|number| {
            self.numbers.insert(name, number);
            true
        })
    }

    fn usage(&self) -> Usage {
        let get = |name: &str| self.numbers.get(name).copied();
        let sum = |names: &[&str]| {
            let first = u64::from(get(names[0])?);
            let rest: u64 = names[1..].iter().map(|name| u64::from(get(name).unwrap_or_default())).sum();
            u32::try_from(first + rest).ok()
        };
        let total = if get("completion").is_none() { get("total") } else { None };
        let prompt = get("prompt").or_else(|| sum(&["input", "read", "creation"]));
        Usage {
            prompt_tokens: prompt.or_else(|| sum(&["computed", "reused"])).or(total),
            completion_tokens: get("completion"),
            cached_tokens: ["cached", "read", "reused"].into_iter().find_map(get),
        }
    }
}

fn whole(value: Option<&Value>) -> Option<u32> {
    value.and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
}

#[test]
fn random_json_reads_as_a_parser_reads_it() {
    let mut told = [0; 4];
    for seed in 0..1_000 {
        let mut rng = Rng::new(seed);
        let answer = if rng.below(8) == 0 { random_json(&mut rng, 3) } else { random_object(&mut rng, 3) };
        let want = Parsed::read(&answer);
        let compact = answer.to_string();
        let pretty = serde_json::to_string_pretty(&answer).unwrap();
        let events = format!("data: {}\n\n", pretty.replace('\n', "\ndata: "));
        for bytes in [compact.as_bytes(), pretty.as_bytes(), events.as_bytes()] {
            let piece_bytes = 1 + rng.below(20) as usize;
            assert_eq!(read(bytes.chunks(piece_bytes)), want, "seed {seed}, pieces of {piece_bytes}: {answer}");
        }
        if let Some(usage) = want {
            let fields = [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens];
            told[0] += 1;
            fields.iter().zip(&mut told[1..]).for_each(|(field, told)| *told += u32::from(field.is_some()));
        }
    }
    assert!(told.iter().all(|&times| times > 40), "the seeds cover every number: {told:?}");
}

#[test]
fn mutated_bytes_are_survived_in_a_small_state() {
    assert!(size_of::<UsageReader>() <= 320, "{}", size_of::<UsageReader>());
    for seed in 0..4_000 {
        let mut rng = Rng::new(seed);
        let mut answer = CAPTURED[rng.below(4) as usize].1.as_bytes().to_vec();
        for _ in 0..1 + rng.below(8) {
            let at = rng.below(answer.len() as u32) as usize;
            match rng.below(4) {
                0 => answer[at] = rng.below(256) as u8,
                1 => answer[at] = b"\"\\{}[]:,\n"[rng.below(9) as usize],
                2 => drop(answer.remove(at)),
                _ => answer.insert(at, b"\"\\{}[]:,\n"[rng.below(9) as usize]),
            }
        }
        let piece_bytes = 1 + rng.below(300) as usize;
        assert_eq!(read(answer.chunks(piece_bytes)), read([&answer[..]]), "seed {seed}, pieces of {piece_bytes}");
    }
}

#[test]
fn long_keys_and_deep_nesting_are_survived() {
    let long = "k".repeat(1 << 20);
    let deep = ["[".repeat(1 << 20), "]".repeat(1 << 20)].concat();
    let body = format!(r#"{{"{long}":{deep},"usage":{{"{long}":"{long}","x":{deep},"prompt_tokens":7}}}}"#);
    assert_eq!(read(body.as_bytes().chunks(977)), Some(usage(7, None, None)));
}
