//! One run: Envoy with the measuring build, workers that answer at once, and chats in a closed loop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use warmroute::stage::Stage;
use warmroute_harness::artefacts::repository_root;
use warmroute_harness::client::Client;
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, WORKER_CLUSTER};
use warmroute_harness::envoy::Envoy;
use warmroute_micro::inputs;
use worker_sim::{SimConfig, Timing, WorkerSim};

/// What is run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Flags {
    /// Requests of each round
    #[arg(long, default_value_t = 200)]
    requests: usize,
    /// Rounds of each run; the quietest is shown, for whatever else runs on the machine only adds
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Sizes of bodies, a run for each
    #[arg(long, value_delimiter = ',', default_value = "4096,65536,225280")]
    pub(crate) body_bytes: Vec<usize>,
    /// Workers, which answer at once
    #[arg(long, default_value_t = 64)]
    workers: usize,
    /// The policy
    #[arg(long, default_value = "hybrid")]
    policy: String,
    /// Tokens of each answer: a chunk of the stream for each
    #[arg(long, default_value_t = 16)]
    answer_tokens: usize,
}

/// What a round has measured, all of it in sum and not per request.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) body_bytes: usize,
    pub(crate) workers: usize,
    pub(crate) policy: String,
    pub(crate) requests: usize,
    pub(crate) seconds: f64,
    /// How much each of the plugin's counters grew.
    pub(crate) counters: BTreeMap<String, u64>,
}

/// Different prompts in turn: each is sent several times, so that most are found in the index, as turns of a chat are.
const PROMPTS: usize = 40;

pub(crate) async fn run(flags: &Flags, body_bytes: usize) -> Result<Run> {
    ensure!(flags.requests > 0 && flags.workers > 0, "nothing to do");
    let wasm = repository_root().join("target/warmroute-stages.wasm");
    ensure!(wasm.is_file(), "{}: not there; `make micro` builds it", wasm.display());
    let timing = Timing { time_scale: 0.0, ..Timing::default() };
    let sim = SimConfig { timing, ..SimConfig::default() };
    let workers = (0..flags.workers).map(|_| WorkerSim::start(sim.clone())).collect::<Result<Vec<_>>>()?;
    let addresses: Vec<SocketAddr> = workers.iter().map(WorkerSim::addr).collect();
    let rows: Vec<Value> = addresses.iter().map(|address| json!({ "address": address })).collect();
    let plugin = json!({
        "policy": flags.policy,
        "pools": [{ "cluster": WORKER_CLUSTER, "workers": rows }],
        "poll": { "cluster": POLL_CLUSTER },
    });
    let config = EnvoyConfig::warmroute(plugin).workers(addresses).concurrency(1).plugin_file(&wasm);
    let envoy = Envoy::start(config).await?;
    let bodies =
        (0..PROMPTS as u64).map(|seed| body(body_bytes, seed, flags.answer_tokens)).collect::<Result<Vec<_>>>()?;
    let client = Client::http1(envoy.address());

    send(&client, &bodies, PROMPTS).await?;
    let mut quietest: Option<Run> = None;
    let mut before = settled(&envoy, PROMPTS).await?;
    for round in 1..=flags.rounds {
        let started = Instant::now();
        send(&client, &bodies, flags.requests).await?;
        let seconds = started.elapsed().as_secs_f64();
        let after = settled(&envoy, PROMPTS + round * flags.requests).await?;
        let grown =
            |(name, value): (&String, &u64)| (name.clone(), value - before.get(name).copied().unwrap_or_default());
        let counters: BTreeMap<String, u64> = after.iter().map(grown).collect();
        let run = Run {
            body_bytes,
            workers: flags.workers,
            policy: flags.policy.clone(),
            requests: flags.requests,
            seconds,
            counters,
        };
        if quietest.as_ref().is_none_or(|quietest| run.streams_ns() < quietest.streams_ns()) {
            quietest = Some(run);
        }
        before = after;
    }
    quietest.context("no rounds")
}

impl Run {
    /// The time of all stages of streams.
    fn streams_ns(&self) -> u64 {
        let stages = Stage::ALL.iter().filter(|stage| !stage.is_of_root());
        let time = |stage: &Stage| self.counters.get(&format!("warmroute_stage_{}_ns_total", stage.name()));
        stages.filter_map(time).sum()
    }
}

/// A chat that asks for a stream with `usage` at its end.
fn body(bytes: usize, seed: u64, answer_tokens: usize) -> Result<Vec<u8>> {
    let mut body: Value = serde_json::from_slice(&inputs::chat_body(bytes, seed))?;
    let members = body.as_object_mut().context("a body is an object")?;
    members.insert("max_tokens".to_owned(), json!(answer_tokens));
    members.insert("stream".to_owned(), json!(true));
    members.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    Ok(body.to_string().into_bytes())
}

/// One request after the other: nothing of one is in another's time.
async fn send(client: &Client, bodies: &[Vec<u8>], requests: usize) -> Result<()> {
    let headers = [("content-type", "application/json")];
    for body in bodies.iter().cycle().take(requests) {
        let reply = client.post("/v1/chat/completions", &headers, body.clone()).await?;
        ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
    }
    Ok(())
}

/// The plugin's counters once so many streams are in them: it adds to them on its ticks.
async fn settled(envoy: &Envoy, streams: usize) -> Result<BTreeMap<String, u64>> {
    let deleted = format!("wasmcustom.warmroute_stage_{}_calls_total", Stage::Delete.name());
    envoy.wait_stat(&deleted, streams as u64, Duration::from_secs(10)).await?;
    let stats = envoy.stats().await?;
    let own = stats.into_iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("wasmcustom.")?;
        let is_time = name.starts_with("warmroute_stage_") || name.starts_with("warmroute_host_call_");
        is_time.then(|| (name.to_owned(), value))
    });
    Ok(own.collect())
}
