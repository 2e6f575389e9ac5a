//! Which bodies are requests, and what they say.

use super::*;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

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

#[test]
fn the_models_name_is_told_with_its_place() {
    const CASES: &[(&str, &str)] = &[
        (r#"{"model":"a/b","prompt":"x"}"#, "a/b"),
        (r#"{"prompt":"model", "m\u006fdel" : "a\/b" }"#, r"a\/b"),
        (r#"{"model":"first","prompt":"x","model":"last"}"#, "last"),
        (r#"{"model":"","prompt":"x"}"#, ""),
    ];
    for &(body, raw) in CASES {
        let request = parse(Api::Completions, body.as_bytes(), false).unwrap();
        let span = request.model_span.unwrap();
        assert_eq!((&body[span.clone()], request.model.raw()), (raw, raw.as_bytes()), "{body}");
        assert_eq!((&body[span.start - 1..span.start], &body[span.end..=span.end]), ("\"", "\""), "{body}");
    }
    for body in [r#"{"prompt":"x"}"#, r#"{"prompt":"x","model":null}"#, r#"{"prompt":"x","model":["a"]}"#] {
        assert_eq!(parse(Api::Completions, body.as_bytes(), false).unwrap().model_span, None, "{body}");
    }
    assert_eq!(parse(Api::Completions, br#"{"prompt":"x","model":"lla"#, true).unwrap().model_span, None);
}

#[test]
fn an_adapter_and_what_keeps_caches_apart_are_found_where_they_stand() {
    let said = |api: Api, body: &str| {
        let request = parse(api, body.as_bytes(), false).unwrap();
        let text = |text: Option<Text<'_>>| text.map(|text| String::from_utf8(text.decoded().into_owned()).unwrap());
        [text(request.adapter), text(request.cache_salt), text(request.previous_response)]
            .map(Option::unwrap_or_default)
    };
    const CASES: &[(Api, &str, [&str; 3])] = &[
        (Api::ChatCompletions, r#"{"messages":[],"model":"m"}"#, ["", "", ""]),
        (Api::ChatCompletions, r#"{"messages":[],"lora_path":"l\u0061","extra_key":"k"}"#, ["la", "k", ""]),
        (Api::Completions, r#"{"prompt":"x","cache_salt":"s","extra_key":"k"}"#, ["", "s", ""]),
        (Api::Completions, r#"{"prompt":"x","cache_salt":["s"],"extra_key":"k","lora_path":["l"]}"#, ["", "k", ""]),
        (Api::Generate, r#"{"text":"x","lora_path":"l","parameters":{"adapter_id":"a"}}"#, ["l", "", ""]),
        (Api::Generate, r#"{"inputs":"x","parameters":{"adapter_id":"a"}}"#, ["a", "", ""]),
        (Api::GenerateStream, r#"{"inputs":"x","parameters":{"adapter_id":"a","adapter_id":"b"}}"#, ["b", "", ""]),
        (Api::Generate, r#"{"inputs":"x","parameters":{"adapter_id":null}}"#, ["", "", ""]),
        (Api::Responses, r#"{"input":"x","previous_response_id":"resp_1"}"#, ["", "", "resp_1"]),
        (Api::Completions, r#"{"prompt":"x","previous_response_id":"resp_1"}"#, ["", "", ""]),
    ];
    for &(api, body, want) in CASES {
        assert_eq!(said(api, body), want, "{body}");
    }
}

#[test]
fn which_answers_tell_their_usage_is_each_formats_own() {
    const CASES: &[(Api, &str, bool)] = &[
        (Api::ChatCompletions, r#"{"messages":[],"stream":true}"#, false),
        (Api::Responses, r#"{"input":"x","stream":true}"#, true),
        (Api::Embeddings, r#"{"input":"x"}"#, true),
        (Api::AnthropicMessages, r#"{"messages":[],"stream":true}"#, true),
        (Api::VllmGenerate, r#"{"token_ids":[],"stream":true}"#, false),
        (Api::VllmGenerate, r#"{"token_ids":[],"stream":true,"stream_options":{"include_usage":true}}"#, true),
        (Api::Generate, r#"{"text":"x","stream":true}"#, true),
        (Api::Generate, r#"{"inputs":"x"}"#, true),
        (Api::Generate, r#"{"prompt":"x","stream":true}"#, false),
        (Api::GenerateStream, r#"{"inputs":"x"}"#, false),
        (Api::GenerateStream, r#"{"inputs":"x","parameters":{"details":true}}"#, true),
        (Api::OllamaChat, r#"{"messages":[]}"#, true),
        (Api::OllamaGenerate, r#"{"prompt":"x","stream":true}"#, true),
    ];
    for &(api, body, want) in CASES {
        assert_eq!(parse(api, body.as_bytes(), false).unwrap().tells_usage, want, "{} {body}", api.name());
    }
    let builds: Vec<Api> = Api::ALL.into_iter().filter(|api| !api.builds_cache()).collect();
    assert_eq!(builds, [Api::AnthropicCountTokens]);
}

#[test]
fn each_format_is_fed_in_its_order() {
    const CASES: &[(Api, &str, &str)] = &[
        (Api::Completions, r#"{"suffix":"b","prompt":"a"}"#, "<9>a|!<35>b|"),
        (Api::Embeddings, r#"{"input":[{"text":"a"},"b",[98]]}"#, "<9>a|!<9>b|<10>b\0\0\0|"),
        (Api::Embeddings, r#"{"messages":[{"role":"user","content":"a"}]}"#, "<2>user<3>a|!"),
        (
            Api::Responses,
            r#"{"input":"a","instructions":"i","tools":[{"type":"function","name":"f"}],"previous_response_id":"r","reasoning":{"effort":"low"}}"#,
            "<1><12><8>f<24>low<2>system<3>i|<27>r<2>user<3>a|!",
        ),
        (
            Api::Responses,
            r#"{"input":[{"role":"user","content":"a"},{"type":"reasoning","id":"r","summary":[{"text":"t","type":"summary_text"}]},{"type":"x","y":1}]}"#,
            "<2>user<3>a|!<2><13>reasoning<20><13>summary_text<18>text<19>\"t\"<18>id<19>\"r\"|<2><13>x<18>y<19>1|",
        ),
        (
            Api::AnthropicMessages,
            r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","input":{"a":1},"name":"f","id":"t"}]},
                {"role":"user","content":[{"type":"tool_result","content":"42","tool_use_id":"t"}]}],"system":"s"}"#,
            "<2>system<3>s|<2>assistant<3><20>hm<4><7>t<8>f<17>{\"a\":1}|<2>user<3><7>t<3>42|!",
        ),
        (
            Api::AnthropicMessages,
            r#"{"messages":[{"role":"user","content":[{"type":"document","title":"T","source":{"data":"text","media_type":"text/plain","type":"text"}}]}]}"#,
            "<2>user<3><32>text<8>T|!",
        ),
        (
            Api::VllmGenerate,
            r#"{"token_ids":[97,98],"features":{"mm_hashes": [1]}}"#,
            "<36>{\"mm_hashes\":[1]}<10>a\0\0\0b\0\0\0|!",
        ),
        (Api::Generate, r#"{"text":"a","session_params":{"id": 1},"lora_path":"l"}"#, "<25>l<27>{\"id\":1}<9>a|!"),
        (Api::Generate, r#"{"input_ids":[[97],[98]]}"#, "<10>a\0\0\0|!<10>b\0\0\0|"),
        (Api::Generate, r#"{"inputs":"a","parameters":{"adapter_id":"l"}}"#, "<25>l<9>a|!"),
        (Api::Generate, r#"{"prompt":"a"}"#, "<9>a|!"),
        (Api::Rerank, r#"{"documents":["a",{"text":"b"}],"query":"q"}"#, "<33>q|!<34>a|<34>b|"),
        (Api::Rerank, r#"{"texts":["a"],"query":"q"}"#, "<33>q|!<34>a|"),
        (
            Api::OllamaChat,
            r#"{"messages":[{"role":"tool","tool_name":"f","content":"a","thinking":"t"}],"think":true}"#,
            "<24><5>true<2>tool<3>a<20>t<8>f|",
        ),
        (
            Api::OllamaGenerate,
            r#"{"prompt":"a","system":"s","context":[97],"template":"t","suffix":"b"}"#,
            "<22>t<10>a\0\0\0<2>system<3>s|<2>user<3>a|!<35>b|",
        ),
        (Api::OllamaGenerate, r#"{"prompt":"a","raw":true}"#, "<9>a|!"),
    ];
    for &(api, body, want) in CASES {
        assert_eq!(samples::written(api, body), want, "{} {body}", api.name());
    }
}
