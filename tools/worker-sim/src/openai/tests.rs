//! The wire shapes: which prompts are one and the same, what is refused, and what the answers look like.

use serde_json::Value;

use super::*;

fn parse(api: Api, body: &str) -> Result<Inference, ApiError> {
    Inference::parse(api, body.as_bytes(), &SimConfig::default())
}

fn answer(api: Api) -> Answer {
    Answer {
        api,
        id: 7,
        created_s: 1_795_955_105,
        model_json: "\"tiny\"".to_owned(),
        output_seed: 1,
        prompt_tokens: 400,
        block_size_tokens: 32,
        details: true,
        zero_details: true,
        response: None,
    }
}

fn event(chunk: &str) -> Value {
    let data = chunk.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
    serde_json::from_str(data).unwrap()
}

#[test]
fn a_prompt_is_about_four_bytes_a_token() {
    for (api, body, want_tokens) in [
        (Api::Completion, r#"{"prompt":"aaaabbbbc"}"#, 3),
        (Api::Completion, r#"{"prompt":["aaaa","bbbb"]}"#, 2),
        (Api::Completion, r#"{"prompt":[1,2,3]}"#, 3),
        (Api::Completion, r#"{"prompt":[[1,2],[3]]}"#, 3),
        (Api::Completion, r#"{"prompt":""}"#, 1),
        // role 1, text 2, end 1, and 3 for the role of the answer
        (Api::Chat, r#"{"messages":[{"role":"user","content":"aaaabbbb"}]}"#, 7),
        (Api::Chat, r#"{"messages":[{"role":"user","content":null}]}"#, 5),
    ] {
        assert_eq!(parse(api, body).unwrap().prompt.tokens, want_tokens, "{body}");
    }
}

#[test]
fn spelling_of_the_json_does_not_change_the_prompt() {
    let long = "x".repeat(80);
    let hashes = |body: String| parse(Api::Chat, &body).unwrap().prompt.hashes;
    let base = hashes(format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{long}"}}]}}"#));
    for same in [
        format!(r#"{{"messages":[{{"content":"{long}","role":"user"}}],"model":"m","temperature":0}}"#),
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"\u0078{}"}}]}}"#, &long[1..]),
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"text","text":"{long}"}}]}}]}}"#),
    ] {
        assert_eq!(hashes(same), base);
    }
    for other in [
        format!(r#"{{"model":"n","messages":[{{"role":"user","content":"{long}"}}]}}"#),
        format!(r#"{{"model":"m","messages":[{{"role":"tool","content":"{long}"}}]}}"#),
        format!(r#"{{"model":"m","tools":[1],"messages":[{{"role":"user","content":"{long}"}}]}}"#),
        format!(r#"{{"model":"m","cache_salt":"s","messages":[{{"role":"user","content":"{long}"}}]}}"#),
    ] {
        assert_ne!(hashes(other)[0], base[0]);
    }
}

#[test]
fn lengths_and_stream_options_are_read() {
    let read = |more: &str| parse(Api::Completion, &format!(r#"{{"prompt":"a"{more}}}"#)).unwrap();
    assert_eq!((read("").max_tokens, read("").stream), (16, None));
    assert_eq!(read(r#","max_tokens":3"#).max_tokens, 3);
    assert_eq!(read(r#","max_tokens":3,"max_completion_tokens":5"#).max_tokens, 5);
    assert_eq!(read(r#","stream":true,"stream_options":null"#).stream, Some(StreamOptions::default()));
    assert!(read(r#","stream":true,"stream_options":{"include_usage":true}"#).stream.unwrap().include_usage);
}

#[test]
fn bad_requests_get_vllms_error_shape() {
    let strict = SimConfig { strict_model: true, ..SimConfig::default() };
    for (body, status, param) in [
        ("{", 400, "body.1"),
        ("", 400, "body.0"),
        (r#"{"messages":3}"#, 400, "body"),
        (r#"{"model":"sim"}"#, 400, "body.messages"),
        (r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":0}"#, 400, "max_tokens"),
        (r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":400000}"#, 400, "input_tokens"),
        (r#"{"messages":[{"role":"user","content":"a"}],"model":"nope"}"#, 404, "model"),
    ] {
        let error = Inference::parse(Api::Chat, body.as_bytes(), &strict).unwrap_err();
        let json: Value = serde_json::from_str(&error.body).unwrap();
        assert_eq!((error.status, &json["error"]["param"]), (status, &param.into()), "{body}: {json}");
        assert_eq!(json["error"]["code"], status);
    }
    assert_eq!(Inference::parse(Api::Chat, b"{\"a\":\"\xff\"}", &strict).unwrap_err().status, 400);
}

#[test]
fn a_whole_answer_has_text_and_usage() {
    for (api, object, text) in [
        (Api::Chat, "chat.completion", "/choices/0/message/content"),
        (Api::Completion, "text_completion", "/choices/0/text"),
    ] {
        let json: Value = serde_json::from_str(&answer(api).whole(8, 384)).unwrap();
        assert_eq!(json["object"], object);
        assert_eq!(json.pointer(text).unwrap().as_str().unwrap().len(), 8 * 4);
        let usage = &json["usage"];
        assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&400.into(), &408.into()));
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 384);
        assert_eq!(json["choices"][0]["finish_reason"], "length");
    }
}

#[test]
fn an_engine_may_tell_of_cached_tokens_always_of_hits_only_or_never() {
    for (details, zero_details, cached_tokens, want) in [
        (true, true, 384, Some(384)),
        (true, true, 0, Some(0)),
        (true, false, 384, Some(384)),
        (true, false, 0, None),
        (false, true, 384, None),
    ] {
        let answer = Answer { details, zero_details, ..answer(Api::Chat) };
        let told = |json: &Value| json["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        let whole: Value = serde_json::from_str(&answer.whole(8, cached_tokens)).unwrap();
        let chunk = event(&answer.usage_chunk(8, cached_tokens));
        assert_eq!((told(&whole), told(&chunk)), (want, want), "{details} {zero_details} {cached_tokens}");
        // vLLM writes null into a whole answer and leaves nulls out of a stream.
        let keys = [&whole, &chunk].map(|json| json["usage"].get("prompt_tokens_details").is_some());
        assert_eq!(keys, [true, want.is_some()]);
    }
}

#[test]
fn stream_chunks_look_like_the_captured_ones() {
    let (answer, options) = (answer(Api::Chat), StreamOptions::default());
    let role = event(&answer.role_chunk(options).unwrap());
    assert_eq!(role["object"], "chat.completion.chunk");
    assert_eq!(role["choices"][0]["delta"]["role"], "assistant");
    let token = event(&answer.token_chunk(1, false, options));
    assert!(token["choices"][0]["finish_reason"].is_null() && token.get("usage").is_none());
    let last = event(&answer.token_chunk(8, true, options));
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    let usage = event(&answer.usage_chunk(8, 384));
    assert_eq!(usage["choices"], Value::Array(Vec::new()));
    assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 384);
    let running = StreamOptions { continuous_usage_stats: true, ..options };
    assert_eq!(event(&answer.token_chunk(2, false, running))["usage"]["total_tokens"], 402);
}
