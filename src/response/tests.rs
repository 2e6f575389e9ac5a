//! What answers of all formats read as, cut anywhere, and hostile text in them.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use serde_json::json;

use super::*;

pub(super) const CAPTURED: &[(&str, &str, [u32; 3])] = &[
    ("chat", include_str!("../../tests/testdata/vllm-0.32.0-chat.json"), [400, 8, 0]),
    ("chat, cached", include_str!("../../tests/testdata/vllm-0.32.0-chat-cached.json"), [400, 8, 384]),
    ("stream", include_str!("../../tests/testdata/vllm-0.32.0-chat-stream-usage.txt"), [400, 8, 384]),
    (
        "continuous usage",
        include_str!("../../tests/testdata/vllm-0.32.0-chat-stream-continuous-usage.txt"),
        [400, 8, 384],
    ),
];

pub(super) fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Usage> {
    let mut reader = UsageReader::default();
    pieces.into_iter().for_each(|piece| reader.feed(piece));
    reader.usage()
}

pub(super) fn usage(
    prompt: impl Into<Option<u32>>,
    completion: impl Into<Option<u32>>,
    cached: impl Into<Option<u32>>,
) -> Usage {
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

macro_rules! sample {
    ($name:literal, $prompt:expr, $completion:expr, $cached:expr) => {
        ($name, include_str!(concat!("../../tests/testdata/answers/", $name)), usage($prompt, $completion, $cached))
    };
}

/// An answer in each format, written from its source: see the README beside them.
fn samples() -> Vec<(&'static str, &'static str, Usage)> {
    vec![
        sample!("responses.json", 400, 8, 384),
        sample!("responses-stream.txt", 400, 8, 384),
        sample!("messages.json", 400, 8, 384),
        sample!("messages-stream.txt", 400, 8, 384),
        sample!("messages-stream-vllm.txt", 400, 8, 384),
        sample!("messages-stream-vllm-without-details.txt", 400, 8, None),
        sample!("embeddings.json", 400, 0, None),
        sample!("rerank.json", 400, None, None),
        sample!("sglang-generate.json", 400, 8, 384),
        sample!("sglang-generate-stream.txt", 400, 8, 384),
        sample!("tgi-generate.json", 5, 8, None),
        sample!("tgi-generate-without-prefill.json", None, 8, None),
        sample!("tgi-generate-stream.txt", 400, 8, None),
        sample!("vllm-generate-stream-usage.txt", 400, 8, 384),
        sample!("ollama-chat.json", 400, 8, None),
        sample!("ollama-chat-stream.txt", 400, 8, None),
        sample!("ollama-generate-stream.txt", 400, 8, None),
        sample!("llamacpp-chat.json", 400, 8, 384),
        sample!("llamacpp-completion.json", 400, 8, 384),
        sample!("llamacpp-completion-stream.txt", 400, 8, 384),
    ]
}

#[test]
fn answers_of_all_formats_tell_their_usage_however_they_are_cut() {
    for (name, answer, want) in samples() {
        assert_eq!(read_however_cut(answer.as_bytes()), Some(want), "{name}");
        assert_eq!(read([answer.replace('\n', "\r\n").as_bytes()]), Some(want), "{name}, CR LF");
        // As the host hands a stream over: some events at a time.
        for events in 1..4 {
            let end = if answer.contains("\n\n") { "\n\n" } else { "\n" };
            let lines: Vec<&str> = answer.split_inclusive(end).collect();
            let pieces: Vec<String> = lines.chunks(events).map(<[&str]>::concat).collect();
            assert_eq!(read(pieces.iter().map(String::as_bytes)), Some(want), "{name}, by {events}");
        }
    }
}

#[test]
fn of_several_prompts_at_once_and_of_what_is_not_counted_nothing_is_told() {
    for (name, answer) in [
        ("a list", include_str!("../../tests/testdata/answers/sglang-generate-batch.json")),
        ("its stream", include_str!("../../tests/testdata/answers/sglang-generate-batch-stream.txt")),
        ("no counts", include_str!("../../tests/testdata/answers/vllm-generate.json")),
    ] {
        assert_eq!(read_however_cut(answer.as_bytes()), None, "{name}");
    }
}

#[test]
fn the_name_of_a_response_is_read_from_its_first_event_and_no_other() {
    const NAME: &str = "resp_5f2e8a91c0d34b7f9e6a1d2c3b4a5968";
    let told = |pieces: &[&[u8]]| {
        let mut reader = UsageReader::default();
        pieces.iter().for_each(|piece| reader.feed(piece));
        reader.response()
    };
    for (name, answer, _) in samples() {
        let want = if name.starts_with("responses") { response_hash(NAME.as_bytes()) } else { None };
        for at in 0..=answer.len() {
            let (first, second) = answer.as_bytes().split_at(at);
            assert_eq!(told(&[first, second]), want, "{name} cut at {at}");
        }
    }
    let stream = include_str!("../../tests/testdata/answers/responses-stream.txt");
    let first = stream.split_inclusive("\n\n").next().unwrap();
    assert!(told(&[first.as_bytes()]).is_some(), "the first event is enough");
    let long = format!("resp_{}", "a".repeat(60));
    for (answer, want) in [
        (json!({ "id": long }), None),
        (json!({ "id": "resp_1", "response": { "id": "resp_2" } }), Some("resp_1")),
        (json!({ "id": "chatcmpl-1", "response": { "id": "resp_2" } }), Some("resp_2")),
        (json!({ "id": "resp_\\" }), None),
        (json!({ "id": 7, "a": { "id": "resp_1" }, "output": [{ "id": "resp_1" }] }), None),
        (json!({ "metadata": { "id": "resp_1" }, "text": "\"id\":\"resp_1\"" }), None),
        (json!({ "previous_response_id": "resp_1" }), None),
    ] {
        let want = want.and_then(|name| response_hash(name.as_bytes()));
        assert_eq!(told(&[answer.to_string().as_bytes()]), want, "{answer}");
        assert_eq!(told(&[format!("data: {answer}\n\n").as_bytes()]), want, "{answer}");
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
            json!({ "message": { "content": text, "a": { "usage": { "prompt_tokens": 9 } } }, "response": text }),
            json!({ "response": { "message": { "usage": { "prompt_tokens": 9 } }, "eval_count": 9, "meta_info": {} } }),
            json!({ "message": [{ "usage": { "prompt_tokens": 9 } }], "meta_info": text, "timings": [{ "prompt_n": 9 }] }),
            json!({ "eval_count": text, "prompt_eval_count": null, "index": 9, "details": [text] }),
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
        "{]\n{\"usage\":{\"prompt_tokens\":9}}",
        "{\"a\":\n{\"usage\":{\"prompt_tokens\":9}}}\n",
        "{\"a\":\"\n{\"usage\":{\"prompt_tokens\":9}}\n",
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
