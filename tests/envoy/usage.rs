//! What an engine says of a request is read however its answer is cut in pieces, and nothing else is taken for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use http_body_util::channel::Channel;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Response, server::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::yield_now;
use warmroute_harness::client::Client;
use warmroute_harness::config::{EnvoyConfig, WORKER_CLUSTER};
use warmroute_harness::envoy::Envoy;

use crate::world::{CHAT, WAIT_MAX, chat};

/// Answers `content` in pieces: in the nth answer of n bytes each, and each a chunk of its own.
async fn piecemeal_worker(content: &'static str) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let answers = Arc::new(AtomicUsize::new(0));
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let answers = Arc::clone(&answers);
            let connection = http1::Builder::new().serve_connection(
                TokioIo::new(stream),
                service_fn(move |_| {
                    let piece_bytes = answers.fetch_add(1, Ordering::Relaxed) + 1;
                    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
                    tokio::spawn(async move {
                        for piece in content.as_bytes().chunks(piece_bytes) {
                            let _ = sender.send_data(Bytes::from_static(piece)).await;
                            yield_now().await;
                        }
                    });
                    async { Ok::<_, Infallible>(Response::new(body)) }
                }),
            );
            tokio::spawn(connection);
        }
    });
    Ok(address)
}

const WHOLE: &str = concat!(
    r#"{"id":"1","choices":[{"message":{"content":"\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":7}} \u00e4"}}],"#,
    r#""usage":{"prompt_tokens":900,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":512}}}"#,
);

const STREAMED: &str = concat!(
    "data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"usage\\\":{\\\"cached_tokens\\\":9}}\"}}],\"usage\":null}\n\n",
    ": a comment\r\n\r\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":900,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":512}}}\n\n",
    "data: [DONE]\n\n",
);

#[tokio::test]
async fn usage_is_found_wherever_the_answer_is_cut() -> Result<()> {
    const ANSWERS: u64 = 40;
    for content in [WHOLE, STREAMED] {
        let worker = piecemeal_worker(content).await?;
        let plugin =
            json!({ "pools": [{ "cluster": WORKER_CLUSTER, "workers": [{ "address": worker.to_string() }] }] });
        let envoy = Envoy::start(EnvoyConfig::warmroute(plugin).worker(worker).concurrency(1)).await?;
        let client = Client::http1(envoy.address());
        let question = "a question that is long enough to be remembered. ".repeat(20);
        for _ in 0..ANSWERS {
            let reply = client.post_json(CHAT, &chat("s", &[&question])).await?;
            assert_eq!((reply.status, reply.text().as_str()), (200, content), "the answer itself is not touched");
        }
        let cached = "wasmcustom.warmroute_cached_tokens_total";
        assert_eq!(envoy.wait_stat(cached, ANSWERS * 512, WAIT_MAX).await?, ANSWERS * 512);
    }
    Ok(())
}
