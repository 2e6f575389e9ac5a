//! Envoy starts, balances without the plugin, and stops: what every other test takes for granted.

use std::net::SocketAddr;

use anyhow::Result;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Response, server::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use warmroute_harness::client::Client;
use warmroute_harness::config::{EnvoyConfig, PlainPolicy};
use warmroute_harness::envoy::Envoy;

/// Answers everything with its own address.
async fn echo_worker() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |_| async move {
                Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(address.to_string()))))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok(address)
}

#[tokio::test]
async fn plain_envoy_alternates_between_workers() -> Result<()> {
    let workers = [echo_worker().await?, echo_worker().await?];
    // One thread, as each has a turn of its own.
    let envoy = Envoy::start(EnvoyConfig::plain(PlainPolicy::RoundRobin).workers(workers).concurrency(1)).await?;
    let client = Client::http1(envoy.address());
    let mut served = Vec::new();
    for _ in 0..4 {
        let reply = client.post_json("/v1/completions", &json!({ "prompt": "hi" })).await?;
        assert_eq!(reply.status, 200, "{}", envoy.log_tail());
        served.push(reply.text().parse::<SocketAddr>()?);
    }
    assert_ne!(served[0], served[1]);
    assert_eq!(served[..2], served[2..]);
    assert_eq!(envoy.stat("cluster.llm.upstream_rq_200").await?, 4);
    Ok(())
}
