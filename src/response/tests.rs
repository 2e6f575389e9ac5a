//! What `usage` reads as: captured answers cut anywhere, hostile text, and laws over random JSON and random bytes.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use serde_json::{Map, Value, json};

use super::*;
use crate::rng::Rng;

const CAPTURED: &[(&str, &str, [u32; 3])] = &[
    ("chat", include_str!("../../tests/testdata/vllm-0.32.0-chat.json"), [400, 8, 0]),
    ("chat, cached", include_str!("../../tests/testdata/vllm-0.32.0-chat-cached.json"), [400, 8, 384]),
    ("stream", include_str!("../../tests/testdata/vllm-0.32.0-chat-stream-usage.txt"), [400, 8, 384]),
    (
        "continuous usage",
        include_str!("../../tests/testdata/vllm-0.32.0-chat-stream-continuous-usage.txt"),
        [400, 8, 384],
    ),
];

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Usage> {
    let mut reader = UsageReader::default();
    pieces.into_iter().for_each(|piece| reader.feed(piece));
    reader.usage()
}

fn usage(prompt: impl Into<Option<u32>>, completion: impl Into<Option<u32>>, cached: impl Into<Option<u32>>) -> Usage {
    Usage { prompt_tokens: prompt.into(), completion_tokens: completion.into(), cached_tokens: cached.into() }
}

/// Reads `answer` whole, byte by byte and cut in two at every byte; all must give the same.
fn read_however_cut(answer: &[u8]) -> Option<Usage> {
    let whole = read([answer]);
    assert_eq!(read(answer.chunks(1)), whole, "byte by byte: {}", String::from_utf8_lossy(answer));
    for at in 0..=answer.len() {
        let (first, second) = answer.split_at(at);
        assert_eq!(read([first, second]), whole, "cut at {at}: {}", String::from_utf8_lossy(answer));
    }
    whole
}

#[test]
fn captured_answers_tell_their_usage_however_they_are_cut() {
    for (name, answer, [prompt, completion, cached]) in CAPTURED {
        let want = Some(usage(*prompt, *completion, *cached));
        assert_eq!(read_however_cut(answer.as_bytes()), want, "{name}");
        assert_eq!(read([answer.replace('\n', "\r\n").as_bytes()]), want, "{name}, CR LF");
        assert_eq!(read([answer.replace("data: [DONE]\n\n", "").as_bytes()]), want, "{name}, without [DONE]");
        assert_eq!(read([answer.replace("data: ", "data:").as_bytes()]), want, "{name}, without the space");
        assert_eq!(read([answer.replace("\n\n", "\n").as_bytes()]), want, "{name}, without empty lines");
    }
}

#[test]
fn the_last_complete_usage_counts() {
    let stream = CAPTURED[3].1;
    let mut reader = UsageReader::default();
    let mut told = Vec::new();
    for event in stream.split_inclusive("\n\n") {
        reader.feed(event.as_bytes());
        told.push(reader.usage().unwrap());
    }
    let counts: Vec<Option<u32>> = told.iter().map(|usage| usage.completion_tokens).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8].map(Some));
    assert_eq!((told[8].cached_tokens, told[9].cached_tokens), (None, Some(384)));
}

#[test]
fn numbers_count_only_as_whole_numbers_in_their_own_place() {
    for (members, want) in [
        (r#""prompt_tokens":7,"completion_tokens":3"#, usage(7, 3, None)),
        (" \"prompt_tokens\"\t:\r\n 7 , \"completion_tokens\" :3 \n", usage(7, 3, None)),
        (r#""prompt_tokens_details":{"cached_tokens":0}"#, usage(None, None, 0)),
        (r#""prompt_tokens_details":{"audio_tokens":[1,{}],"cached_tokens": 5 ,"x":{}}"#, usage(None, None, 5)),
        (r#""prompt_tokens_details":null"#, usage(None, None, None)),
        (r#""prompt_tokens_details":{"cached_tokens":5},"prompt_tokens_details":{}"#, usage(None, None, None)),
        (r#""prompt_tokens_details":{"cached_tokens":null}"#, usage(None, None, None)),
        (r#""prompt_tokens_details":9"#, usage(None, None, None)),
        (r#""prompt_tokens_details":{"x":{"cached_tokens":9}}"#, usage(None, None, None)),
        (
            r#""completion_tokens_details":{"cached_tokens":9,"prompt_tokens":9},"prompt_tokens":7"#,
            usage(7, None, None),
        ),
        (r#""cached_tokens":9,"usage":{"prompt_tokens":9}"#, usage(None, None, None)),
        (r#""prompt_tokens_details":{"prompt_tokens":9,"completion_tokens":9}"#, usage(None, None, None)),
        (r#""prompt_tokens":4294967295"#, usage(u32::MAX, None, None)),
        (r#""prompt_tokens":4294967296,"completion_tokens":3"#, usage(None, 3, None)),
        (r#""prompt_tokens":123456789012345678901234567890,"completion_tokens":3"#, usage(None, 3, None)),
        (r#""prompt_tokens":1e999,"completion_tokens":3"#, usage(None, 3, None)),
        (r#""prompt_tokens":7.0,"completion_tokens":-3"#, usage(None, None, None)),
        (r#""prompt_tokens":"7","completion_tokens":true"#, usage(None, None, None)),
        (r#""prompt_tokens":[7],"completion_tokens":{"a":3}"#, usage(None, None, None)),
        (r#""prompt_tokens":NaN,"completion_tokens":3"#, usage(None, 3, None)),
        (r#""prompt_tokens":7,"prompt_tokens":"8""#, usage(None, None, None)),
        (
            r#""prompt_tokens_":7,"prompt_token":8,"prompt_tokens_details_and_more":{"cached_tokens":1}"#,
            Usage::default(),
        ),
        ("", Usage::default()),
    ] {
        let body = format!("\u{feff} {{\"id\":\"x\",\"usage\" : {{{members}}},\"n\":[]}}\n");
        assert_eq!(read_however_cut(body.as_bytes()), Some(want), "{body}");
        let body = body.replace(['\r', '\n'], " ").replace('\u{feff}', "");
        assert_eq!(read([format!("data: {body}\r\n\r\n").as_bytes()]), Some(want), "data: {body}");
    }
}

/// Each answer tells of no `usage` by itself, though a client's model wrote it into a text.
#[test]
fn text_and_nested_objects_count_for_nothing() {
    const FAKE: &str = r#""usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":9}}"#;
    let texts = [
        FAKE.to_owned(),
        format!("{{{FAKE}}}"),
        format!("\",{FAKE},\""),
        format!("\\\",{FAKE}"),
        format!("\\\\\",{FAKE}"),
        format!("\\\\\\\\\",{FAKE},\"\\"),
        format!("\"}}]}}\n\ndata: {{{FAKE}}}\n\n"),
        format!("\r\n\r\ndata: {{{FAKE}}}\r\n\r\n"),
        format!("}}}}]]}},{FAKE}"),
        "usage".to_owned(),
        "\\".to_owned(),
        "\"".to_owned(),
    ];
    for text in texts {
        for answer in [
            json!({ "choices": [{ "message": { "content": text } }] }),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "function": { "arguments": text } }] } }] }),
            json!({ "choices": [{ "logprobs": { "content": [{ "token": text, text.as_str(): -0.5 }] } }] }),
            json!({ "model": text, "z": text }),
            json!({ text.as_str(): text, "z": { "prompt_tokens": 9 } }),
            json!({ "a": text.as_str(), "b": ["usage", { "usage": { "prompt_tokens": 9 } }] }),
        ] {
            assert_eq!(read_however_cut(answer.to_string().as_bytes()), None, "{answer}");
            let event = format!("data: {answer}\n\n");
            assert_eq!(read_however_cut(event.as_bytes()), None, "{event}");
            let real = "data: {\"usage\":{\"prompt_tokens\":7}}\n\ndata: [DONE]\n\n";
            assert_eq!(read([event.as_bytes(), real.as_bytes()]), Some(usage(7, None, None)), "{event}");
            let mut answer = answer;
            answer["zzz"] = json!(text);
            answer["usage"] = json!({ "prompt_tokens": 7, "x": text, "prompt_tokens_details": { "x": text } });
            assert_eq!(read_however_cut(answer.to_string().as_bytes()), Some(usage(7, None, None)), "{answer}");
        }
    }
}

#[test]
fn what_is_no_answer_tells_nothing() {
    for answer in [
        "",
        "null",
        "<html>\n\ndata \"usage\":{\"prompt_tokens\":9}",
        r#"[{"usage":{"prompt_tokens":9}}]"#,
        r#""usage":{"prompt_tokens":9}"#,
        r#"{"usage":null}"#,
        r#"{"usage":[{"prompt_tokens":9}]}"#,
        r#"{"usage":"{\"prompt_tokens\":9}"}"#,
        r#"{"a":"usage",{"prompt_tokens":9}}"#,
        r#"{"a" "usage":{"prompt_tokens":9}}"#,
        r#"{"a":1 2,"usage":{"prompt_tokens":9}}"#,
        r#"{"a":},"usage":{"prompt_tokens":9}}"#,
        r#"{"a":1],"usage":{"prompt_tokens":9}}"#,
        r#"{"usage" {"prompt_tokens":9}}"#,
        r#"{} {"usage":{"prompt_tokens":9}}"#,
        r#"{"usage":{"prompt_tokens":9"#,
        r#"{"\u0075sage":{"prompt_tokens":9}}"#,
        ": {\"usage\":{\"prompt_tokens\":9}}\n\n",
        "event: data: {\"usage\":{\"prompt_tokens\":9}}\n\n",
        "data : {\"usage\":{\"prompt_tokens\":9}}\n\n",
        " x\ndata{\"usage\":{\"prompt_tokens\":9}}\n\n",
        "data: [{\"usage\":{\"prompt_tokens\":9}}]\n\n",
    ] {
        assert_eq!(read_however_cut(answer.as_bytes()), None, "{answer}");
    }
}

#[test]
fn a_broken_event_does_not_hide_the_next_one() {
    const NEXT: &str = "data: {\"usage\":{\"prompt_tokens\":7}}\n\n";
    for broken in [
        "data: {\"a\":\"b",
        "data: {\"a\":\"b\\",
        "data: {\"a\":{[",
        "data: {\"usage\":{\"prompt_tokens\":9",
        "dat",
        "data",
        "event: x",
        ": {",
    ] {
        for end in ["\n\n", "\r\n\r\n"] {
            assert_eq!(
                read_however_cut(format!("{broken}{end}{NEXT}").as_bytes()),
                Some(usage(7, None, None)),
                "{broken}"
            );
        }
    }
}

#[test]
fn an_event_may_have_several_lines() {
    let stream = "id: 1\ndata: {\"usage\":\ndata: {\"prompt_tokens\":7\n: comment\ndata: ,\"completion_tokens\":\r\ndata:3}\ndata: }\n\n";
    assert_eq!(read_however_cut(stream.as_bytes()), Some(usage(7, 3, None)));
    // A number ends with its line.
    assert_eq!(read([&b"data: {\"usage\":{\"prompt_tokens\":7\ndata: 7}}\n\n"[..]]), None);
}

/// Keys that matter, and text that must not.
const WORDS: &[&str] = &[
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "\"usage\":{\"prompt_tokens\":9}",
    "a\\",
    "\\\"",
    "{[é\n",
    "",
];

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
        if rng.below(3) == 0 {
            // Half of the values are of the kind that counts there.
            let value = match *word {
                _ if depth == 0 || rng.below(2) == 0 => random_json(rng, depth),
                "usage" | "prompt_tokens_details" => random_object(rng, depth - 1),
                _ => json!(rng.below(1_000)),
            };
            members.insert((*word).to_owned(), value);
        }
    }
    Value::Object(members)
}

/// What a JSON parser reads.
fn parsed_usage(answer: &Value) -> Option<Usage> {
    let told = answer.as_object()?.get("usage")?.as_object()?;
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let details = told.get("prompt_tokens_details").and_then(Value::as_object);
    Some(Usage {
        prompt_tokens: number(told.get("prompt_tokens")),
        completion_tokens: number(told.get("completion_tokens")),
        cached_tokens: number(details.and_then(|details| details.get("cached_tokens"))),
    })
}

#[test]
fn random_json_reads_as_a_parser_reads_it() {
    let mut told = [0; 4];
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let answer = if rng.below(8) == 0 { random_json(&mut rng, 3) } else { random_object(&mut rng, 3) };
        let want = parsed_usage(&answer);
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
    assert!(size_of::<UsageReader>() <= 128, "{}", size_of::<UsageReader>());
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
