//! One HTTP stream, event by event, without a network.

use bytes::Bytes;
use serde_json::json;

use crate::picker::{self, Counts};
use crate::stream::{DESTINATION_HEADER, Stream};
use crate::wire::{
    HeaderMap, HeaderValue, HttpBody, HttpHeaders, OVERWRITE_IF_EXISTS_OR_ADD, PartResponse, ProcessingRequest,
    ProtocolConfiguration, Request, Response,
};

const WORKERS: [&str; 3] = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"];

/// Makes the picker of this test's thread.
fn install(policy: &str) {
    let workers: Vec<_> = WORKERS.iter().map(|address| json!({ "address": address })).collect();
    let config = json!({ "policy": { "name": policy }, "pools": [{ "cluster": "llm", "workers": workers }] });
    picker::install(config.to_string().as_bytes()).expect("a configuration that is accepted");
}

fn headers(pairs: &[(&str, &str)], end_of_stream: bool) -> HttpHeaders {
    let header = |&(name, value): &(&str, &str)| HeaderValue {
        key: name.into(),
        raw_value: value.to_owned().into(),
        ..HeaderValue::default()
    };
    HttpHeaders { headers: Some(HeaderMap { headers: pairs.iter().map(header).collect() }), end_of_stream }
}

fn body(text: impl Into<Bytes>) -> HttpBody {
    HttpBody { body: text.into(), end_of_stream: true }
}

fn chat(question: &str) -> String {
    let messages = [json!({ "role": "user", "content": question.repeat(200) })];
    json!({ "model": "m", "messages": messages }).to_string()
}

/// Sends an event; what the answer sets the destination to.
fn send(stream: &mut Stream, request: Request) -> Option<String> {
    send_first(stream, request, None)
}

fn send_first(stream: &mut Stream, request: Request, response_body_mode: Option<i32>) -> Option<String> {
    let protocol_config = response_body_mode.map(|response_body_mode| ProtocolConfiguration { response_body_mode });
    let answer = stream.handle(ProcessingRequest { request: Some(request), protocol_config }).expect("an answer");
    let (Response::RequestHeaders(PartResponse { response })
    | Response::RequestBody(PartResponse { response })
    | Response::ResponseHeaders(PartResponse { response })
    | Response::ResponseBody(PartResponse { response })) = answer.response.expect("an answer to some event");
    let set = response?.header_mutation?.set_headers;
    assert_eq!((set.len(), set[0].append_action), (1, OVERWRITE_IF_EXISTS_OR_ADD));
    let header = set[0].header.clone().expect("a header");
    assert_eq!(header.key, DESTINATION_HEADER);
    Some(String::from_utf8(header.raw_value.to_vec()).expect("text"))
}

fn post(stream: &mut Stream, question: &str) -> String {
    let head = headers(&[(":method", "POST"), (":path", "/v1/chat/completions")], false);
    assert_eq!(send(stream, Request::RequestHeaders(head)), None, "the prompt is not known yet");
    send(stream, Request::RequestBody(body(chat(question)))).expect("a decision")
}

fn in_flight() -> u32 {
    picker::with(|picker| picker.status().requests).expect("a picker")
}

fn counts() -> Counts {
    picker::with(|picker| picker.counts).expect("a picker")
}

#[test]
fn a_prompt_goes_where_it_was_and_is_counted_until_its_stream_ends() {
    install("hybrid");
    let mut stream = Stream::default();
    let first = post(&mut stream, "a long question. ");
    let worker = first.split(',').next().expect("one address at least").to_owned();
    assert!(WORKERS.contains(&worker.as_str()), "{first}");
    assert_eq!(in_flight(), 1);
    assert_eq!(send(&mut stream, Request::ResponseHeaders(headers(&[(":status", "200")], false))), None);
    assert_eq!(in_flight(), 1);
    drop(stream);
    assert_eq!(in_flight(), 0);

    let again = post(&mut Stream::default(), "a long question. ");
    assert_eq!(again.split(',').next(), Some(worker.as_str()), "{again}");
    assert_eq!(in_flight(), 0, "an unanswered stream has ended too");
    assert_eq!(counts().routed, 2);
}

#[test]
fn what_is_no_inference_request_passes() {
    struct Case {
        name: &'static str,
        head: HttpHeaders,
        body: Option<&'static str>,
        unrouted: u64,
    }
    let chat_path = (":path", "/v1/chat/completions");
    let cases = [
        Case { name: "GET", head: headers(&[(":method", "GET"), chat_path], true), body: None, unrouted: 0 },
        Case {
            name: "another path",
            head: headers(&[(":method", "POST"), (":path", "/upload")], false),
            body: Some(r#"{"model":"m","prompt":"p"}"#),
            unrouted: 0,
        },
        Case { name: "no body", head: headers(&[(":method", "POST"), chat_path], true), body: None, unrouted: 1 },
        Case {
            name: "no JSON",
            head: headers(&[(":method", "POST"), chat_path], false),
            body: Some("hello"),
            unrouted: 1,
        },
    ];
    for case in cases {
        install("hybrid");
        let mut stream = Stream::default();
        assert_eq!(send(&mut stream, Request::RequestHeaders(case.head)), None, "{}", case.name);
        if let Some(text) = case.body {
            assert_eq!(send(&mut stream, Request::RequestBody(body(text))), None, "{}", case.name);
        }
        drop(stream);
        assert_eq!((in_flight(), counts().unrouted), (0, case.unrouted), "{}", case.name);
    }
}

#[test]
fn a_policy_that_needs_no_prompt_is_asked_before_the_body() {
    install("round-robin");
    let mut stream = Stream::default();
    let head = headers(&[(":method", "POST"), (":path", "/v1/completions")], false);
    assert!(send(&mut stream, Request::RequestHeaders(head)).is_some());
    assert_eq!(send(&mut stream, Request::RequestBody(body(chat("q")))), None);
}

#[test]
fn usage_is_read_where_the_answers_body_is_sent() {
    const ANSWER: &str =
        r#"{"usage":{"prompt_tokens":900,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":512}}}"#;
    install("hybrid");
    let mut stream = Stream::default();
    let head = headers(&[(":method", "POST"), (":path", "/v1/chat/completions")], false);
    send_first(&mut stream, Request::RequestHeaders(head), Some(1));
    send(&mut stream, Request::RequestBody(body(chat("a question. ")))).expect("a decision");
    send(&mut stream, Request::ResponseHeaders(headers(&[(":status", "200")], false)));
    let (begin, end) = ANSWER.split_at(ANSWER.len() / 2);
    send(&mut stream, Request::ResponseBody(HttpBody { body: begin.into(), end_of_stream: false }));
    send(&mut stream, Request::ResponseBody(body(end)));
    drop(stream);
    assert_eq!(counts().cached_tokens, 512);
}

#[test]
fn one_pool_it_must_be() {
    let pool = |cluster| json!({ "cluster": cluster, "workers": [{ "address": "10.0.0.1:80" }] });
    let config = json!({ "pools": [pool("a"), pool("b")] }).to_string();
    let error = picker::install(config.as_bytes()).expect_err("two pools are refused").to_string();
    assert!(error.contains("has 2 elements"), "{error}");
}
