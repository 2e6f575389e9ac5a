//! The requests of a run: chats with shared system prompts, the same bytes for every path.

use bytes::Bytes;
use warmroute::rng::{Rng, mix};

use crate::lockstep::STREAMS_MAX;

/// Different bodies, unless they would need more memory than [`BODIES_BYTES_MAX`].
const BODIES_MAX: usize = STREAMS_MAX;
const BODIES_BYTES_MAX: usize = 64 << 20;
const SYSTEM_PROMPTS_MAX: usize = 64;
/// So many bodies share a system prompt at least, however few there are.
const SHARERS_MIN: usize = 4;

/// What a set of requests looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of each body, exactly; 1024 at least.
    pub body_bytes: usize,
    /// Events of text that a streamed answer has; 0: the answer is one JSON text.
    pub stream_chunks: u32,
}

/// All bodies of a shape, each a whole HTTP request.
pub(crate) fn requests(shape: Shape) -> Vec<Bytes> {
    bodies(shape).enumerate().map(|(number, body)| request(number, &body)).collect()
}

/// Where [`stamp`] writes: the beginning of the system prompt.
pub(crate) fn stamp_position(request: &[u8]) -> Option<usize> {
    const KEY: &[u8] = br#""content":""#;
    Some(memchr::memmem::find(request, KEY)? + KEY.len())
}

/// Makes another prompt of a request, different from its first byte on.
pub(crate) fn stamp(request: &mut [u8], position: usize, number: u64) {
    let digits = format!("{number:016x}");
    if let Some(place) = request.get_mut(position..position + digits.len()) {
        place.copy_from_slice(digits.as_bytes());
    }
}

fn request(number: usize, body: &str) -> Bytes {
    let length = body.len();
    // What the OpenAI clients send, and the session that those routers ask for that keep a session in place.
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\naccept: application/json\r\n\
         content-type: application/json\r\nuser-agent: warmroute-bench\r\nauthorization: Bearer none\r\n\
         x-session-id: {number}\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head, body.to_owned()].concat().into()
}

fn bodies(shape: Shape) -> impl Iterator<Item = String> {
    let count = BODIES_MAX.min(BODIES_BYTES_MAX / shape.body_bytes);
    let system_prompts = SYSTEM_PROMPTS_MAX.min(count / SHARERS_MIN);
    // Each in its turn, shifted every time, or a connection would always get the same few.
    let system_prompt = move |number| ((number + number / system_prompts) % system_prompts) as u64;
    (0..count).map(move |number| body(shape, number, system_prompt(number)))
}

/// What a streaming worker has to know, at the end of the last message: the stream's number and how many events it is to
/// have. The text is all that every router hands on; sglang-router drops `user`, renames `max_tokens`, and forwards few
/// headers.
fn stream_mark(number: usize, chunks: u32) -> String {
    format!("{STREAM_MARK}{number} of {chunks}]")
}

/// The number and the events of [`stream_mark`], if there is one in `text`.
pub(crate) fn parse_stream_mark(text: &[u8]) -> Option<(usize, u64)> {
    let mark = text.get(memchr::memmem::rfind(text, STREAM_MARK.as_bytes())? + STREAM_MARK.len()..)?;
    let mark = std::str::from_utf8(mark.get(..memchr::memchr(b']', mark)?)?).ok()?;
    let (number, chunks) = mark.split_once(" of ")?;
    Some((number.parse().ok()?, chunks.parse().ok()?))
}

const STREAM_MARK: &str = "[stream ";

/// A system prompt of three quarters, then a question, its answer and the next question.
fn body(shape: Shape, number: usize, system_prompt: u64) -> String {
    let stream = match shape.stream_chunks {
        0 => r#""max_tokens":1"#.to_owned(),
        chunks => format!(r#""max_tokens":{chunks},"stream":true,"stream_options":{{"include_usage":true}}"#),
    };
    let roles = ["system", "user", "assistant", "user"];
    let compose = |texts: &[String; 4]| {
        let messages: Vec<String> =
            roles.iter().zip(texts).map(|(role, text)| format!(r#"{{"role":"{role}","content":"{text}"}}"#)).collect();
        format!(r#"{{"model":"sim",{stream},"messages":[{}]}}"#, messages.join(","))
    };
    let text_bytes = shape.body_bytes - compose(&Default::default()).len();
    let system_bytes = text_bytes * 3 / 4;
    let turn_bytes = (text_bytes - system_bytes) / 3;
    // Seeds of one kind never meet those of the other.
    let system = text(&mut Rng::new(mix(system_prompt)), system_bytes);
    let own = &mut Rng::new(!mix(number as u64));
    let mark = if shape.stream_chunks > 0 { stream_mark(number, shape.stream_chunks) } else { String::new() };
    let last_bytes = text_bytes - system_bytes - 2 * turn_bytes - mark.len();
    let turns = [turn_bytes, turn_bytes, last_bytes].map(|bytes| text(own, bytes));
    let [question, answer, last] = turns;
    compose(&[system, question, answer, last + &mark])
}

/// So many bytes of made-up words in lines, as they stand between the quotes of a JSON string.
fn text(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        let bits = rng.next_u64();
        let letters = 2 + (bits >> 56) % 6;
        text.extend(bits.to_le_bytes().iter().take(letters as usize).map(|byte| char::from(b'a' + byte % 26)));
        text.push_str(if (bits >> 48).is_multiple_of(12) { ".\\n" } else { " " });
    }
    text.truncate(bytes);
    // Not half an escape.
    if text.ends_with('\\') {
        text.pop();
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::Value;

    use super::*;

    #[test]
    fn bodies_have_their_size_and_share_system_prompts() {
        for (body_bytes, count, system_prompts) in
            [(1 << 10, 512, 64), (4 << 10, 512, 64), (64 << 10, 512, 64), (220 << 10, 297, 64), (1 << 20, 64, 16)]
        {
            let mut seen: HashMap<String, usize> = HashMap::new();
            let mut different = std::collections::HashSet::new();
            for body in bodies(Shape { body_bytes, stream_chunks: 0 }) {
                assert_eq!(body.len(), body_bytes);
                let json: Value = serde_json::from_str(&body).unwrap();
                let system = json["messages"][0]["content"].as_str().unwrap();
                assert!(system.len() > body_bytes / 2 && system.contains('\n'));
                *seen.entry(system.to_owned()).or_default() += 1;
                different.insert(body);
            }
            assert_eq!((different.len(), seen.len()), (count, system_prompts), "{body_bytes}");
        }
    }

    #[test]
    fn a_request_says_its_length_and_a_stream_its_number() {
        let requests = requests(Shape { body_bytes: 1024, stream_chunks: 9 });
        let text = std::str::from_utf8(&requests[7]).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\ncontent-length: 1024"), "{head}");
        let json: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&json["max_tokens"], &json["stream"]), (&9.into(), &true.into()));
        assert_eq!(parse_stream_mark(body.as_bytes()), Some((7, 9)));
        assert_eq!((body.len(), parse_stream_mark(b"[stream 7 of")), (1024, None));
        assert!(body.starts_with(r#"{"model":"#));
    }

    #[test]
    fn a_stamp_makes_another_prompt_of_the_same_length() {
        for request in requests(Shape { body_bytes: 1024, stream_chunks: 0 }) {
            let mut stamped = request.to_vec();
            stamp(&mut stamped, stamp_position(&request).unwrap(), 0x2a);
            let body = std::str::from_utf8(&stamped).unwrap().split_once("\r\n\r\n").unwrap().1;
            let json: Value = serde_json::from_str(body).unwrap();
            assert!(json["messages"][0]["content"].as_str().unwrap().starts_with("000000000000002a"));
            assert_eq!(body.len(), 1024);
        }
    }

    #[test]
    fn texts_never_end_within_an_escape() {
        for bytes in 1..2_000 {
            let text = text(&mut Rng::new(5), bytes);
            assert_eq!(text.len(), bytes);
            serde_json::from_str::<String>(&format!("\"{text}\"")).unwrap();
        }
    }
}
