//! Requests that somebody sends to do harm.

use std::time::Duration;

use warmroute::rng::Rng;
use warmroute_harness::client::{Socket, body};
use warmroute_harness::config::DESTINATION_HEADER;

use super::conversation::Conversation;
use super::exchange::{CHAT, DIGEST, JSON, digest, header, told};
use super::{Outcome, User};

/// How long Envoy may take to refuse or to answer.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What has to become of a request with a hostile head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// It is strange and well-formed: 200.
    Answer,
    /// 4xx, or the connection is closed.
    Refusal,
}

/// A head, and what has to become of it with a good body of the length that it is given.
struct Head {
    want: Want,
    lines: fn(usize) -> String,
}

const HEADS: &[Head] = &[
    // 0xff is written in its place: a string holds no such bytes.
    Head {
        want: Want::Answer,
        lines: |length| format!("x-session-id: a\u{1}\u{1}b\r\ncookie: \u{1}\r\ncontent-length: {length}"),
    },
    Head {
        want: Want::Answer,
        lines: |length| format!("{DESTINATION_HEADER}: 127.0.0.1:1\r\ncontent-length: {length}"),
    },
    Head {
        want: Want::Answer,
        lines: |length| {
            format!("{DESTINATION_HEADER}: \r\n{DESTINATION_HEADER}: nowhere,,:,[::]:99999\r\ncontent-length: {length}")
        },
    },
    Head {
        want: Want::Answer,
        lines: |length| format!("x-session-id: {}\r\ncontent-length: {length}", "long".repeat(5_000)),
    },
    Head { want: Want::Refusal, lines: |_| "content-length: 99999999999999999999999999".to_owned() },
    Head { want: Want::Refusal, lines: |_| "content-length: -1".to_owned() },
    Head { want: Want::Refusal, lines: |length| format!("content-length: {length}\r\ncontent-length: 7") },
    Head { want: Want::Refusal, lines: |length| format!("content-length: {length}\r\ntransfer-encoding: chunked") },
    Head { want: Want::Refusal, lines: |length| format!("x: {}\r\ncontent-length: {length}", "long".repeat(30_000)) },
    Head { want: Want::Refusal, lines: |length| format!("{}content-length: {length}", "x: y\r\n".repeat(500)) },
    Head { want: Want::Refusal, lines: |_| "transfer-encoding: chunked\r\nx: y\r\n\r\nzz\r\n".to_owned() },
    Head { want: Want::Refusal, lines: |length| format!(": no name\r\ncontent-length: {length}") },
];

impl User {
    /// A body that is no good; it has to reach a worker as it is, whose answer it gets.
    pub(super) async fn hostile_body(&mut self) -> Outcome {
        let sent = hostile_body(&mut self.rng);
        let want = digest(&sent);
        let stream = match self.client.open("POST", CHAT, &[JSON], body(sent)).await {
            Ok(stream) => stream,
            Err(error) => return Outcome::Lost(format!("{error:#}")),
        };
        match (stream.status, header(&stream, DIGEST)) {
            (200 | 400, got) if got == want => {
                // What a worker refuses it may as well cut.
                let status = stream.status;
                let _ = stream.finish().await;
                if status == 200 { Outcome::Answered } else { Outcome::Refused }
            }
            (200 | 400, got) if !got.is_empty() => {
                Outcome::Corrupt(format!("the worker got {got:?}, sent was {want:?}"))
            }
            _ => Outcome::Lost(told(stream).await),
        }
    }

    /// A head that is no good, before a good body, over a connection of its own.
    pub(super) async fn hostile_head(&mut self) -> Outcome {
        let head = &HEADS[self.rng.below(HEADS.len() as u32) as usize];
        let mut conversation = Conversation::new(&mut self.rng);
        conversation.ask(&mut self.rng);
        let body = conversation.body(false, 2);
        let lines = (head.lines)(body.len());
        let bytes =
            format!("POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n{lines}\r\n\r\n").into_bytes();
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| if byte == 1 { 0xff } else { byte }).collect();
        let answer = async {
            let mut socket = Socket::connect(self.shared.gateway).await?;
            socket.write(&[&bytes, body.as_bytes()].concat()).await?;
            socket.read_rest(SILENCE_MAX).await
        };
        let shown = || lines.chars().take(60).collect::<String>();
        match (head.want, answer.await) {
            (Want::Answer, Ok(answer)) if answer.starts_with("HTTP/1.1 200") => {
                match answer.contains(&digest(body.as_bytes())) {
                    true => Outcome::Answered,
                    false => Outcome::Corrupt(format!("{}: {answer:.300}", shown())),
                }
            }
            (Want::Refusal, Ok(answer)) if answer.is_empty() || answer.starts_with("HTTP/1.1 4") => Outcome::Refused,
            // Closed while the rest was written.
            (Want::Refusal, Err(_)) => Outcome::Refused,
            (_, answer) => Outcome::Lost(format!("{}: {answer:.300?}", shown())),
        }
    }
}

fn hostile_body(rng: &mut Rng) -> Vec<u8> {
    let mut conversation = Conversation::new(rng);
    conversation.ask(rng);
    let mut valid = conversation.body(false, 1).into_bytes();
    let at = rng.below(valid.len() as u32) as usize;
    match rng.below(10) {
        0 => valid.truncate(at),
        1 => valid[at] ^= 1 << rng.below(8),
        2 => return (0..rng.below(3_000)).map(|_| rng.below(256) as u8).collect(),
        3 => return nested(rng),
        4 => return format!(r#"{{"messages":[{{"role":"user","content":"{}"#, "\\u0041".repeat(20_000)).into(),
        5 => return format!(r#"{{"max_tokens":1e{0},"model":-{0},"messages":[{0}]}}"#, "9".repeat(2_000)).into(),
        6 => return br#"{"model":7,"messages":{"role":[]},"stream":{},"prompt":[null,[1],"a"],"tools":"x"}"#.into(),
        7 => return br#"{"messages":[{"role":"user","content":"\ud800 \uZZ \x"}]}"#.into(),
        8 => return [b"\xef\xbb\xbf", &valid[..]].concat(),
        _ => return [b"[", &valid[..], b",", &valid[..], b"]"].concat(),
    }
    valid
}

/// Depths up to a hundred thousand, closed or not.
fn nested(rng: &mut Rng) -> Vec<u8> {
    let depth = [10, 129, 1_000, 100_000][rng.below(4) as usize];
    let (open, close) = if rng.below(2) == 0 { ("[", "]") } else { ("{\"a\":", "}") };
    let close = if rng.below(2) == 0 { close.repeat(depth) } else { String::new() };
    format!(r#"{{"messages":{}1{close}}}"#, open.repeat(depth)).into()
}
