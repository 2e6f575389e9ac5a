//! One well-formed request and its answer, to the last byte.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::time::Instant;
use warmroute_harness::client::{Reply, Stream, body};
use xxhash_rust::xxh3::xxh3_64;

use super::{Outcome, User};

pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const JSON: (&str, &str) = ("content-type", "application/json");
/// What the simulated workers tell of the body that they got.
pub(super) const DIGEST: &str = "x-body-digest";

/// As the simulated workers compute it.
pub(super) fn digest(body: &[u8]) -> String {
    format!("{:016x}-{}", xxh3_64(body), body.len())
}

impl User {
    /// Sends a chat, reads the answer to its end and judges it; the text that was answered.
    pub(super) async fn exchange(&mut self, sent: String, is_stream: bool) -> (Outcome, Option<String>) {
        let (start, want) = (Instant::now(), digest(sent.as_bytes()));
        let session = format!("session-{}", self.rng.below(40));
        let headers = [JSON, ("x-session-id", session.as_str())];
        let stream = match self.client.open("POST", CHAT, &headers, body(sent)).await {
            Ok(stream) => stream,
            Err(error) => return (Outcome::Lost(format!("{error:#}")), None),
        };
        let worker = header(&stream, "x-worker");
        if stream.status != 200 || worker.is_empty() {
            return (Outcome::Lost(told(stream).await), None);
        }
        let got = header(&stream, DIGEST);
        if got != want {
            return (Outcome::Corrupt(format!("the worker got {got:?}, sent was {want:?}")), None);
        }
        let broken = match stream.finish().await {
            Ok(reply) => match if is_stream { streamed(&reply) } else { whole(&reply) } {
                Ok(text) => return (Outcome::Answered, Some(text)),
                // Envoy ends what it cannot finish with a reset, but a client need not see the difference.
                Err(what) => what,
            },
            Err(error) => format!("{error:#}"),
        };
        (self.cut(&worker, start, &broken), None)
    }

    /// An answer that broke off: only the worker's fault excuses it.
    pub(super) fn cut(&self, worker: &str, since: Instant, broken: &str) -> Outcome {
        let address = worker.parse::<SocketAddr>();
        match address.is_ok_and(|address| self.shared.journal.was_broken(address, since)) {
            true => Outcome::Cut,
            false => Outcome::Lost(format!("the answer of {worker}, which was well, broke off: {broken}")),
        }
    }
}

pub(super) fn header(stream: &Stream, name: &str) -> String {
    stream.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// What an answer that should not be says.
pub(super) async fn told(stream: Stream) -> String {
    let (status, worker) = (stream.status, header(&stream, "x-worker"));
    let text = stream.finish().await.map_or_else(|error| format!("{error:#}"), |reply| reply.text());
    format!("status {status} of {}: {text:.200}", if worker.is_empty() { "Envoy" } else { &worker })
}

/// The text of a complete answer in one piece.
fn whole(reply: &Reply) -> Result<String, String> {
    let answer: Value = serde_json::from_slice(&reply.body).map_err(|error| format!("no JSON: {error}"))?;
    let text = answer["choices"][0]["message"]["content"].as_str();
    text.map(str::to_owned).ok_or_else(|| format!("no answer: {:.200}", reply.text()))
}

/// The text of a stream that came to its end.
fn streamed(reply: &Reply) -> Result<String, String> {
    let (events, mut text) = (reply.text(), String::new());
    if !events.ends_with("data: [DONE]\n\n") {
        return Err(format!("no end after {} bytes", events.len()));
    }
    for event in events.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|event| *event != "[DONE]") {
        let event: Value = serde_json::from_str(event).map_err(|error| format!("no JSON: {error}: {event:.200}"))?;
        text += event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &'static str) -> Reply {
        Reply { status: 200, headers: Default::default(), body: body.into(), trailers: None }
    }

    #[test]
    fn a_stream_is_complete_only_with_its_end_and_events_that_are_whole() {
        let event = r#"data: {"choices":[{"delta":{"content":"a"}}]}"#;
        let text = format!("{event}\n\n{event}\n\ndata: {{\"choices\":[],\"usage\":{{}}}}\n\ndata: [DONE]\n\n");
        assert_eq!(streamed(&reply(text.leak())), Ok("aa".to_owned()));
        for broken in ["", "data: {\"choices\":[]}\n\n", "data: {\"cho\n\ndata: [DONE]\n\n"] {
            assert!(streamed(&reply(broken)).is_err(), "{broken}");
        }
        assert_eq!(whole(&reply(r#"{"choices":[{"message":{"content":"b"}}]}"#)), Ok("b".to_owned()));
        assert!(whole(&reply("{\"choices\":[")).is_err());
    }
}
