//! Which bodies are requests, and what they say.

use super::*;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_path_means_an_api_only_byte_by_byte() {
    use Api::{ChatCompletions, Completions};
    const CASES: &[(&[u8], Option<Api>)] = &[
        (b"/v1/chat/completions", Some(ChatCompletions)),
        (b"/v1/completions", Some(Completions)),
        (b"/v1/completions?a=/v1/chat/completions?", Some(Completions)),
        (b"/openai/v1/chat/completions", Some(ChatCompletions)),
        (b"/chat/completions", None),
        (b"/v1/chat/completions/", None),
        (b"/v1/Chat/completions", None),
        (b"/v1//completions", None),
        (b"/v1/models", None),
        (b"/v1", None),
        (b"?/v1/completions", None),
        (b"/v1/completions\xff", None),
        (b"", None),
    ];
    let prefixes = ["/v1".to_owned(), "/openai/v1".to_owned()];
    for &(path, api) in CASES {
        assert_eq!(Api::from_path(path, &prefixes), api, "{}", String::from_utf8_lossy(path));
        assert_eq!(Api::from_path(path, &[]), None);
    }
    assert_eq!(Api::from_path(b"/chat/completions", &[String::new()]), Some(ChatCompletions));
    assert_eq!(Api::from_path(b"/v1/completions", &[String::new()]), None);
}

#[test]
fn what_a_body_says_is_found() {
    let body = "\u{feff} {\"x\":{\"model\":\"no\"},\"m\\u006fdel\":\"a\\/b\",\"stream\": true ,\"messages\":[],\"cache_salt\":\"s\"} \n";
    let request = parse(Api::ChatCompletions, body.as_bytes(), false).unwrap();
    assert_eq!(request.model.raw(), br"a\/b");
    assert_eq!(&*request.model.decoded(), b"a/b");
    assert_eq!(&*request.cache_salt.unwrap().decoded(), b"s");
    assert!(!request.tells_usage && !request.is_truncated);
}

#[test]
fn of_keys_written_twice_the_last_counts() {
    let body = br#"{"model":"a","stream":true,"prompt":"x","model":"b","stream":false}"#;
    let request = parse(Api::Completions, body, false).unwrap();
    assert!(request.model.is(b"b") && request.tells_usage);
}

#[test]
fn what_is_missing_odd_or_cut_is_no_model_and_no_salt() {
    for body in [&br#"{"prompt":"x"}"#[..], br#"{"prompt":"x","model":null,"cache_salt":1,"stream":"true"}"#] {
        let request = parse(Api::Completions, body, false).unwrap();
        assert!(request.model.is_empty() && request.cache_salt.is_none() && request.tells_usage);
    }
    assert!(parse(Api::Completions, br#"{"prompt":"x","model":"lla"#, true).unwrap().model.is_empty());
    assert!(parse(Api::Completions, br#"{"prompt":"x","cache_salt":"t"#, true).unwrap().cache_salt.is_none());
}

#[test]
fn bodies_that_are_no_requests_are_refused_with_the_place() {
    use ParseError::{Empty, Malformed, NoPrompt, NotAnObject};
    const CASES: &[(&[u8], ParseError)] = &[
        (b"", Empty),
        (b" \r\n", Empty),
        (b"\xef\xbb\xbf", Empty),
        (b"[]", NotAnObject),
        (b"\"prompt\"", NotAnObject),
        (b"prompt=x", NotAnObject),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", NotAnObject),
        (b"\xff\xfe{\x00", NotAnObject),
        (b"{\x00}", Malformed { offset: 1 }),
        (b"{", Malformed { offset: 1 }),
        (b"{\"prompt\":\"x\"", Malformed { offset: 13 }),
        (b"{\"prompt\":\"x", Malformed { offset: 12 }),
        (b"{\"prompt\":\"x\\", Malformed { offset: 13 }),
        (b"{\"prompt\":[\"x\"", Malformed { offset: 14 }),
        (b"{\"prompt\":12", Malformed { offset: 12 }),
        (b"{\"prompt\":\"x\",}", Malformed { offset: 14 }),
        (b"{\"prompt\":\"x\"}}", Malformed { offset: 14 }),
        (b"{\"prompt\":\"x\"} {}", Malformed { offset: 15 }),
        (b"{\"prompt\":}", Malformed { offset: 10 }),
        (b"{\"prompt\" \"x\"}", Malformed { offset: 10 }),
        (b"{'prompt':\"x\"}", Malformed { offset: 1 }),
        (b"{\"prompt\":\"x\" \"y\":1}", Malformed { offset: 14 }),
        (b"{\"a\":x,\"prompt\":\"x\"}", Malformed { offset: 5 }),
        (b"{}", NoPrompt),
        (b"{\"messages\":[]}", NoPrompt),
        (b"{\"prompt\":null}", NoPrompt),
        (b"{\"prompt\":{\"prompt\":\"x\"}}", NoPrompt),
    ];
    for &(body, error) in CASES {
        let name = String::from_utf8_lossy(body);
        assert_eq!(parse(Api::Completions, body, false).unwrap_err(), error, "{name}");
        // What only the end makes wrong is no error where the end was not seen.
        let is_at_end = error == Malformed { offset: body.len() };
        let of_truncated = parse(Api::Completions, body, true);
        assert_eq!(
            of_truncated.err().filter(|&error| error != NoPrompt).is_some(),
            !is_at_end && error != NoPrompt,
            "{name}"
        );
    }
    assert_eq!(parse(Api::ChatCompletions, b"{\"messages\":\"x\"}", false).unwrap_err(), NoPrompt);
    assert_eq!(parse(Api::ChatCompletions, b"{\"tools\":[]}", false).unwrap_err(), NoPrompt);
}

#[test]
fn a_depth_bomb_is_refused_and_never_recursed_into() {
    for open in ["[", "{\"a\":", "[{\"messages\":["] {
        let bomb = format!("{{\"messages\":{}", open.repeat(1 << 20));
        for is_truncated in [false, true] {
            let error = parse(Api::ChatCompletions, bomb.as_bytes(), is_truncated).unwrap_err();
            assert!(matches!(error, ParseError::TooDeep { offset } if offset < 10_000), "{error}");
        }
    }
}

#[test]
fn errors_are_one_line() {
    const CASES: &[(ParseError, &str)] = &[
        (ParseError::Empty, "body is empty"),
        (ParseError::NotAnObject, "body is not a JSON object"),
        (ParseError::Malformed { offset: 3 }, "body is malformed JSON at byte 3"),
        (ParseError::TooDeep { offset: 3 }, "body nests deeper than 512 levels at byte 3"),
        (ParseError::NoPrompt, "body holds no prompt"),
    ];
    for (error, text) in CASES {
        assert_eq!(error.to_string(), *text);
    }
}

#[test]
fn an_answer_tells_its_usage_unless_it_is_a_stream_that_was_not_asked_to() {
    const CASES: &[(&str, bool)] = &[
        (r#"{"prompt":"x"}"#, true),
        (r#"{"prompt":"x","stream":false}"#, true),
        (r#"{"prompt":"x","stream":true}"#, false),
        (r#"{"stream_options":{"include_usage":true},"prompt":"x","stream":true}"#, true),
        (r#"{"prompt":"x","stream":true,"stream_options":{"include_usage":false}}"#, false),
        (r#"{"prompt":"x","stream":true,"stream_options":{"include_usage":false,"include_\u0075sage":true}}"#, true),
        (r#"{"prompt":"x","stream":true,"stream_options":null}"#, false),
        (r#"{"prompt":"x","stream":true,"stream_options":["include_usage",true]}"#, false),
    ];
    for &(body, want) in CASES {
        assert_eq!(parse(Api::Completions, body.as_bytes(), false).unwrap().tells_usage, want, "{body}");
    }
    let cut = r#"{"prompt":"x","stream":true,"stream_opt"#;
    assert!(parse(Api::Completions, cut.as_bytes(), true).unwrap().tells_usage, "what is not known yet may come");
}
