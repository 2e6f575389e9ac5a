//! What a fixed-answer worker says: the bytes of each answer, made once.

use bytes::Bytes;

/// Answers with a body of known length.
pub(crate) fn whole(status: &str, content_type: &str, body: &[u8]) -> Bytes {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat().into()
}

/// A chat completion of one token, with the keys that vLLM 0.32 sends.
pub(crate) fn completion(prompt_tokens: u64) -> Bytes {
    let total = prompt_tokens + 1;
    let body = format!(
        r#"{{"id":"chatcmpl-8648929e6dd60349","object":"chat.completion","created":1795955104,"model":"sim","choices":[{{"index":0,"message":{{"role":"assistant","content":"yes","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}}],"service_tier":null,"system_fingerprint":"fixed-answer","usage":{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":1,"completion_tokens_details":null}},"prompt_logprobs":null,"prompt_token_ids":null,"kv_transfer_params":null}}"#
    );
    whole("200 OK", "application/json", body.as_bytes())
}

/// The head of a streamed answer.
pub(crate) const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    transfer-encoding: chunked\r\n\r\n";
/// The end of a streamed answer.
pub(crate) const STREAM_END: &[u8] = b"0\r\n\r\n";

/// One token.
pub(crate) fn token_event() -> Bytes {
    event(
        r#"{"id":"chatcmpl-8f321120f50263f1","object":"chat.completion.chunk","created":1795955105,"model":"sim","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
    )
}

/// What it used, behind the last token.
pub(crate) fn usage_event(prompt_tokens: u64, completion_tokens: u64) -> Bytes {
    let total = prompt_tokens + completion_tokens;
    event(&format!(
        r#"{{"id":"chatcmpl-8f321120f50263f1","object":"chat.completion.chunk","created":1795955105,"model":"sim","choices":[],"usage":{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{completion_tokens}}}}}"#
    ))
}

/// The last event.
pub(crate) fn done_event() -> Bytes {
    event("[DONE]")
}

/// A server-sent event as one HTTP chunk.
fn event(data: &str) -> Bytes {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn answers_are_json_of_the_usual_size() {
        let answer = completion(1000);
        let text = std::str::from_utf8(&answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!((500..700).contains(&body.len()), "{}", body.len());
        assert!(head.ends_with(&format!("content-length: {}", body.len())));
        let json: Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["usage"]["total_tokens"], 1001);
        assert!(json["usage"].get("prompt_tokens_details").is_none(), "what was cached is not known");
    }

    #[test]
    fn an_event_is_one_chunk_of_its_length() {
        for (chunk, bytes) in [(token_event(), 180..230), (usage_event(10, 2), 180..250), (done_event(), 14..15)] {
            let text = std::str::from_utf8(&chunk).unwrap();
            let (size, rest) = text.split_once("\r\n").unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            assert!(bytes.contains(&size), "{size}");
            assert_eq!(&rest[size..], "\r\n");
            assert!(rest.starts_with("data: ") && rest[..size].ends_with("\n\n"));
        }
    }
}
