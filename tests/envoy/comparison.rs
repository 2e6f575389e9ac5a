//! What the plugin's cost is compared with does what it is taken for: the same decisions, or none at all.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use warmroute_endpoint_picker::start;
use warmroute_harness::client::{Client, channel_body};
use warmroute_harness::config::{EnvoyConfig, WORKER_CLUSTER};
use warmroute_harness::envoy::Envoy;
use worker_sim::WorkerSim;

use crate::world::{CHAT, COMPLETIONS, WAIT_MAX, chat, instant, worker_of};

const WORKERS: usize = 4;

fn workers() -> Result<Vec<WorkerSim>> {
    (0..WORKERS).map(|_| WorkerSim::start(instant())).collect()
}

fn addresses(workers: &[WorkerSim]) -> Vec<SocketAddr> {
    workers.iter().map(WorkerSim::addr).collect()
}

/// Nobody scrapes: a decision then depends on the requests only.
fn plugin(workers: &[WorkerSim]) -> Value {
    let rows: Vec<Value> = workers.iter().map(|worker| json!({ "address": worker.addr() })).collect();
    json!({ "pools": [{ "cluster": WORKER_CLUSTER, "workers": rows }] })
}

/// Who answers each turn of some conversations, one request at a time.
async fn converse(envoy: &Envoy) -> Result<Vec<String>> {
    let client = Client::http1(envoy.address());
    let mut answered = Vec::new();
    for turn in 0..3 {
        for conversation in 0..12 {
            let system = format!("System prompt {}. ", conversation % 3).repeat(80);
            let said = |part| format!("Part {part} of {conversation}. ").repeat(80);
            let turns: Vec<String> = (0..=2 * turn).map(said).collect();
            let body = chat(&system, &turns.iter().map(String::as_str).collect::<Vec<_>>());
            answered.push(worker_of(&client.post_json(CHAT, &body).await?)?);
        }
    }
    Ok(answered)
}

#[tokio::test]
async fn the_endpoint_picker_decides_as_the_plugin_does() -> Result<()> {
    let workers = workers()?;
    let plugin = plugin(&workers);
    let envoy =
        Envoy::start(EnvoyConfig::warmroute(plugin.clone()).workers(addresses(&workers)).concurrency(1)).await?;
    let by_plugin = converse(&envoy).await?;
    for reads_usage in [false, true] {
        let picker = start(plugin.to_string().as_bytes(), "127.0.0.1:0".parse()?)?;
        let config = EnvoyConfig::ext_proc(picker.address()).workers(addresses(&workers)).concurrency(1);
        let envoy = Envoy::start(if reads_usage { config.picker_reads_usage() } else { config }).await?;
        assert_eq!(converse(&envoy).await?, by_plugin, "reads usage: {reads_usage}");
        let deadline = Instant::now() + WAIT_MAX;
        while picker.standing().pool.requests > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        let (pool, counts) = (picker.standing().pool, picker.standing().counts);
        assert_eq!((pool.requests, counts.cached_tokens > 0), (0, reads_usage), "{counts:?}");
    }
    Ok(())
}

#[tokio::test]
async fn without_its_endpoint_picker_envoy_serves_nothing() -> Result<()> {
    let workers = workers()?;
    let picker = start(plugin(&workers).to_string().as_bytes(), "127.0.0.1:0".parse()?)?;
    let envoy = Envoy::start(EnvoyConfig::ext_proc(picker.address()).workers(addresses(&workers))).await?;
    let client = Client::http1(envoy.address());
    assert_eq!(client.post_json(CHAT, &chat("s", &["q"])).await?.status, 200);
    drop(picker);
    assert_eq!(client.post_json(CHAT, &chat("s", &["q"])).await?.status, 500);
    Ok(())
}

#[tokio::test]
async fn the_filter_that_does_nothing_lets_everything_pass_and_decides_nothing() -> Result<()> {
    let workers = workers()?;
    let envoy = Envoy::start(EnvoyConfig::no_op().workers(addresses(&workers)).concurrency(1)).await?;
    let content = json!({ "model": "sim", "max_tokens": 4, "prompt": "word ".repeat(40_000) }).to_string();
    for client in [Client::http1(envoy.address()), Client::http2(envoy.address())] {
        assert_eq!(client.get("/v1/models").await?.status, 200);
        let whole = client.post(COMPLETIONS, &[], content.clone()).await?;
        let (mut sender, body) = channel_body();
        let pieces = content.clone();
        let send = async move {
            for piece in pieces.as_bytes().chunks(64_000) {
                sender.send_data(piece.to_vec().into()).await?;
            }
            anyhow::Ok(())
        };
        let headers = [("content-type", "application/json")];
        let (in_pieces, sent) = tokio::join!(client.send("POST", COMPLETIONS, &headers, body), send);
        sent?;
        // The same prompt, and in turn to different workers.
        assert_ne!(worker_of(&whole)?, worker_of(&in_pieces?)?);
    }
    Ok(())
}
