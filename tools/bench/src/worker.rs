//! Workers that answer at once and always the same: what is left of a burst's cost is the router's.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use memchr::memmem;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::answer;
use crate::http1::Connection;
use crate::lockstep::Lockstep;
use crate::prompt::parse_stream_mark;

/// So much of a body's beginning and of its end is looked at: routers that write it anew put other keys first.
const LOOK_BYTES: usize = 1024;

/// Listening workers; dropping them closes all of their connections.
pub(crate) struct Workers {
    /// Where they listen.
    pub addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    metrics: Bytes,
    lockstep: Arc<Lockstep>,
    scrapes: AtomicU64,
}

impl Workers {
    /// So many workers, each with the same `/metrics` page; they run on the runtime that this is called from.
    pub(crate) async fn start(count: usize, metrics_page: &[u8], lockstep: Arc<Lockstep>) -> Result<Self> {
        let metrics = answer::whole("200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics_page);
        let shared = Arc::new(Shared { metrics, lockstep, scrapes: AtomicU64::new(0) });
        let (mut addresses, mut accepting) = (Vec::new(), JoinSet::new());
        for _ in 0..count {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.push(listener.local_addr()?);
            accepting.spawn(accept(listener, Arc::clone(&shared)));
        }
        // Dropping the set ends its tasks, so one task holds it.
        let accepting = tokio::spawn(async move { while accepting.join_next().await.is_some() {} });
        Ok(Self { addresses, shared, accepting })
    }

    /// Metrics pages served so far.
    pub(crate) fn scrapes(&self) -> u64 {
        self.shared.scrapes.load(Ordering::Relaxed)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(serve(stream, Arc::clone(&shared))); }
                Err(error) => eprintln!("a worker cannot accept: {error}"),
            },
            // A router that closes or breaks a connection is the reader's matter: an answer is missing there.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) -> Result<()> {
    let mut connection = Connection::new(stream)?;
    let (mut body, mut completion) = (Body::default(), (0, Bytes::new()));
    while let Some(mut head) = connection.request_head().await? {
        body.clear();
        while let Some(piece) = connection.next_piece(&mut head.framing).await? {
            body.add(piece);
        }
        match head.target.as_str() {
            "POST /v1/chat/completions" => match body.stream() {
                Some((number, chunks)) => stream_answer(&mut connection, &shared, &body, number, chunks).await?,
                None => {
                    // Bodies of one run are about as long as each other, so the answer is nearly always the last one.
                    if completion.0 != body.prompt_tokens() || completion.1.is_empty() {
                        completion = (body.prompt_tokens(), answer::completion(body.prompt_tokens()));
                    }
                    connection.write(&completion.1).await?;
                }
            },
            "GET /metrics" => {
                shared.scrapes.fetch_add(1, Ordering::Relaxed);
                connection.write(&shared.metrics).await?;
            }
            target => connection.write(&other(target)).await?,
        }
    }
    Ok(())
}

/// What sglang-router and vllm-router ask before and between requests.
fn other(target: &str) -> Bytes {
    let json = match target {
        "GET /health" | "GET /health_generate" => "{}",
        "GET /v1/models" => r#"{"object":"list","data":[{"id":"sim","object":"model","owned_by":"vllm"}]}"#,
        "GET /get_server_info" | "GET /server_info" => {
            r#"{"model_path":"sim","served_model_name":"sim","version":"0"}"#
        }
        "GET /get_model_info" | "GET /model_info" => r#"{"model_path":"sim","is_generation":true}"#,
        _ => return answer::whole("404 Not Found", "application/json", br#"{"error":{"message":"not served"}}"#),
    };
    answer::whole("200 OK", "application/json", json.as_bytes())
}

async fn stream_answer(
    connection: &mut Connection,
    shared: &Shared,
    body: &Body,
    number: usize,
    chunks: u64,
) -> Result<()> {
    let before = shared.lockstep.so_far(number);
    let token = answer::token_event();
    connection.write(answer::STREAM_HEAD).await?;
    for chunk in 1..=chunks {
        connection.write(&token).await?;
        shared.lockstep.wait(number, before + chunk).await;
    }
    if body.wants_usage() {
        connection.write(&answer::usage_event(body.prompt_tokens(), chunks)).await?;
        shared.lockstep.wait(number, before + chunks + 1).await;
    }
    connection.write(&answer::done_event()).await?;
    connection.write(answer::STREAM_END).await
}

/// What is remembered of a request's body.
#[derive(Default)]
struct Body {
    bytes: u64,
    begin: Vec<u8>,
    end: Vec<u8>,
}

impl Body {
    fn clear(&mut self) {
        self.bytes = 0;
        self.begin.clear();
        self.end.clear();
    }

    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let to_begin = (LOOK_BYTES - self.begin.len()).min(piece.len());
        let (begin, rest) = piece.split_at(to_begin);
        self.begin.extend_from_slice(begin);
        let rest = &rest[rest.len().saturating_sub(LOOK_BYTES)..];
        let too_many = (self.end.len() + rest.len()).saturating_sub(LOOK_BYTES);
        self.end.drain(..too_many.min(self.end.len()));
        self.end.extend_from_slice(rest);
    }

    fn prompt_tokens(&self) -> u64 {
        self.bytes / 4
    }

    /// Number and events of the stream that the body asks for.
    fn stream(&self) -> Option<(usize, u64)> {
        let text = self.looked_at();
        memmem::find(&text, br#""stream":true"#)?;
        parse_stream_mark(&text)
    }

    fn wants_usage(&self) -> bool {
        memmem::find(&self.looked_at(), br#""include_usage":true"#).is_some()
    }

    /// Beginning and end; what is between them may be missing.
    fn looked_at(&self) -> Vec<u8> {
        [self.begin.as_slice(), &self.end].concat()
    }
}

/// A `/metrics` page as vLLM serves it, padded to so many bytes as a real one has by its histograms.
pub(crate) async fn metrics_page(bytes: usize) -> Result<Vec<u8>> {
    let config = worker_sim::SimConfig { metrics_filler_bytes: bytes, ..worker_sim::SimConfig::default() };
    let simulated = worker_sim::WorkerSim::start(config)?;
    let reply = warmroute_harness::client::Client::http1(simulated.addr()).get("/metrics").await?;
    anyhow::ensure!(reply.status == 200, "the simulated worker's metrics: status {}", reply.status);
    Ok(reply.body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_known_by_its_beginning_and_its_end() {
        let keys = r#""stream":true,"text":"[stream 42 of 7]""#;
        let long = "x".repeat(5_000);
        for text in
            [format!("{{{keys},\"p\":\"{long}\"}}"), format!("{{\"p\":\"{long}\",{keys}}}"), format!("{{{keys}}}")]
        {
            for step in [1, 7, 1_000, 100_000] {
                let mut body = Body::default();
                text.as_bytes().chunks(step).for_each(|piece| body.add(piece));
                assert_eq!(body.stream(), Some((42, 7)), "{} bytes by {step}", text.len());
                assert_eq!(body.prompt_tokens(), text.len() as u64 / 4);
                body.clear();
                assert_eq!(body.stream(), None);
            }
        }
    }

    #[tokio::test]
    async fn the_metrics_page_is_vllms_and_as_long_as_asked() {
        let page = metrics_page(20_000).await.unwrap();
        assert!((20_000..20_300).contains(&page.len()), "{}", page.len());
        assert!(memmem::find(&page, b"vllm:num_requests_running{").is_some());
    }
}
