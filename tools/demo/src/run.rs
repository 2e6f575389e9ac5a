//! One run: fresh workers, a fresh Envoy, the workload, and what came of it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute::schedule::Branch;
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, PlainPolicy, WORKER_CLUSTER};
use warmroute_harness::envoy::Envoy;
use warmroute_harness::peers::{Peer, PeerKind};
use warmroute_report::statistics::{Distribution, share};
use worker_sim::{SimConfig, Timing, WorkerSim};

use crate::drive::{Answer, SESSION_HEADER, drive, patient_client, send};
use crate::workload::Workload;

/// How many workers there are.
pub(crate) const WORKERS: usize = 4;
/// KV cache of each, in blocks of 16 tokens: 96 k tokens, which at 128 kB a token are 12 GB.
const KV_BLOCKS: usize = 6_000;

/// Who chooses the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Balancer<'a> {
    /// The plugin with this policy.
    Warmroute(&'a str),
    /// Envoy's own.
    Envoy(PlainPolicy),
    /// Another router, with one of its policies.
    Peer(PeerKind, &'a str),
}

/// What all runs of one comparison have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    /// Stretches all time.
    pub(crate) time_scale: f64,
    /// Envoy's worker threads.
    pub(crate) envoy_threads: u32,
    /// Each request names its chat, in [`SESSION_HEADER`].
    pub(crate) with_session: bool,
    /// The engines render prompts to tokens for who asks: vLLM's --enable-scale-out.
    pub(crate) with_render: bool,
    /// Where Envoy's configuration is saved.
    pub(crate) files: &'a Path,
}

/// What routes, while it runs.
enum Gateway {
    Envoy(Box<Envoy>),
    Peer(Peer),
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Requests sent.
    pub(crate) requests: usize,
    /// Those that failed.
    pub(crate) errors: usize,
    /// What went wrong, each error once.
    pub(crate) error_texts: Vec<String>,
    /// Times to the first byte of content, of the requests without errors.
    pub(crate) ttft_ms: Distribution,
    /// Times to the end of the answer, of the same requests.
    pub(crate) latency_ms: Distribution,
    /// In the order of the plugin's config.
    pub(crate) workers: Vec<WorkerOutcome>,
    /// How often the plugin decided for which reason; empty without the plugin.
    pub(crate) decisions: Vec<(Branch, u64)>,
    /// Of the requests with `usage`: what the plugin predicted, and what came true. `None` without the plugin.
    pub(crate) prediction: Option<Prediction>,
    /// How often another router decided for which reason, in its own words.
    pub(crate) peer_decisions: Vec<String>,
    /// One more request and its answer; only with the plugin.
    pub(crate) example: Option<Answer>,
    /// The most that a request was sent after its time.
    pub(crate) late_ms_max: f64,
    /// Share of the run that the engines spent on prompts, 0 to 1, mean of the workers.
    pub(crate) prefill_share: f64,
}

/// Prompt tokens that the plugin believed to be cached where it sent them, and those that were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// Believed.
    pub(crate) predicted_tokens: u64,
    /// True, by the engines' `usage`.
    pub(crate) cached_tokens: u64,
}

/// One worker's part of it.
#[derive(Debug)]
pub(crate) struct WorkerOutcome {
    /// Where it listened.
    pub(crate) address: SocketAddr,
    /// Requests that it got.
    pub(crate) requests: u64,
    /// Tokens of their prompts.
    pub(crate) prompt_tokens: u64,
    /// Those of them that were in its cache.
    pub(crate) cached_tokens: u64,
    /// Most requests that waited in its queue at once.
    pub(crate) queue_max: usize,
}

impl Outcome {
    /// Cached tokens by prompt tokens over all workers, 0 to 1.
    pub(crate) fn cache_hit_rate(&self) -> f64 {
        let sum = |of: fn(&WorkerOutcome) -> u64| self.workers.iter().map(of).sum();
        share(sum(|worker| worker.cached_tokens), sum(|worker| worker.prompt_tokens))
    }
}

/// The engine that each worker simulates.
pub(crate) fn engine(time_scale: f64) -> SimConfig {
    SimConfig { kv_blocks: KV_BLOCKS, timing: Timing { time_scale, ..Timing::default() }, ..SimConfig::default() }
}

/// Runs the workload. Whatever happens, nothing it started is left running. With the plugin, Envoy's configuration is
/// saved below the setting's `files`.
///
/// # Errors
/// When workers or Envoy do not start, or Envoy stops answering; failed requests are counted instead.
pub(crate) async fn run(balancer: Balancer<'_>, workload: &Workload, setting: &Setting<'_>) -> Result<Outcome> {
    let Setting { time_scale, with_session, .. } = *setting;
    let sim = SimConfig { enable_scale_out: setting.with_render, ..engine(time_scale) };
    let workers = (0..WORKERS).map(|_| WorkerSim::start(sim.clone())).collect::<Result<Vec<_>>>()?;
    let addresses: Vec<SocketAddr> = workers.iter().map(WorkerSim::addr).collect();
    let gateway = Gateway::start(balancer, addresses, setting).await?;
    let client = patient_client(gateway.address());
    let mut measured = drive(&client, workload, time_scale, with_session).await?;

    let mut outcome = Outcome {
        requests: workload.requests.len(),
        errors: measured.errors.len(),
        ttft_ms: Distribution::new(measured.ttft_ms),
        latency_ms: Distribution::new(measured.latency_ms),
        workers: workers.iter().map(worker_outcome).collect(),
        late_ms_max: measured.late_ms_max,
        ..Outcome::default()
    };
    measured.errors.sort_unstable();
    measured.errors.dedup();
    outcome.error_texts = measured.errors;
    outcome.prefill_share = prefill_share(&outcome.workers, time_scale, measured.wall_s);
    if let (Balancer::Warmroute(_), Gateway::Envoy(envoy)) = (balancer, &gateway) {
        let stats = envoy.stats().await.context("Envoy's stats; has it crashed?")?;
        let count = |branch: Branch| {
            let name = format!("wasmcustom.warmroute_decision_{}_total", branch.name());
            (branch, stats.get(&name).copied().unwrap_or(0))
        };
        let tokens = |name: &str| stats.get(&format!("wasmcustom.warmroute_{name}")).copied().unwrap_or(0);
        outcome.prediction = Some(Prediction {
            predicted_tokens: tokens("predicted_cached_tokens_total"),
            cached_tokens: tokens("cached_tokens_total"),
        });
        outcome.decisions = Branch::ALL.into_iter().map(count).filter(|(_, decisions)| *decisions > 0).collect();
        // After the counts were read, so that they are the workload's alone.
        outcome.example = Some(send(&client, &workload.example, with_session).await.context("the example")?);
    }
    if let Gateway::Peer(peer) = &gateway {
        outcome.peer_decisions = peer.decisions().await.context("the router's metrics")?;
    }
    Ok(outcome)
}

impl Gateway {
    async fn start(balancer: Balancer<'_>, workers: Vec<SocketAddr>, setting: &Setting<'_>) -> Result<Self> {
        let config = match balancer {
            Balancer::Warmroute(policy) => {
                EnvoyConfig::warmroute(plugin_config(policy, &workers, setting.with_session))
            }
            Balancer::Envoy(policy) => EnvoyConfig::plain(policy),
            Balancer::Peer(kind, policy) => return Ok(Self::Peer(Peer::start(kind, policy, &workers).await?)),
        };
        let envoy = Envoy::start(config.workers(workers).concurrency(setting.envoy_threads)).await?;
        if matches!(balancer, Balancer::Warmroute(_)) {
            save_config(envoy.directory(), setting.files).context("saving Envoy's configuration")?;
        }
        Ok(Self::Envoy(Box::new(envoy)))
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Envoy(envoy) => envoy.address(),
            Self::Peer(peer) => peer.address(),
        }
    }
}

fn plugin_config(policy: &str, workers: &[SocketAddr], with_session: bool) -> Value {
    let workers: Vec<Value> = workers.iter().map(|address| json!({ "address": address })).collect();
    json!({
        "session": { "header": if with_session { SESSION_HEADER } else { "" } },
        "policy": policy,
        "pools": [{ "cluster": WORKER_CLUSTER, "workers": workers }],
        "poll": { "cluster": POLL_CLUSTER },
        "responseHeaders": true,
    })
}

fn worker_outcome(worker: &WorkerSim) -> WorkerOutcome {
    let stats = worker.stats();
    WorkerOutcome {
        address: worker.addr(),
        requests: stats.requests,
        prompt_tokens: stats.prompt_tokens,
        cached_tokens: stats.cached_tokens,
        queue_max: stats.queue_max,
    }
}

fn prefill_share(workers: &[WorkerOutcome], time_scale: f64, wall_s: f64) -> f64 {
    let computed: u64 = workers.iter().map(|worker| worker.prompt_tokens.saturating_sub(worker.cached_tokens)).sum();
    let prefill_s = computed as f64 * Timing::default().prefill_us_per_token * time_scale / 1e6;
    prefill_s / (workers.len() as f64 * wall_s)
}

/// Copies what Envoy was started with to `files/envoy.json`, and the watched file to where that then says it is.
fn save_config(from: &Path, files: &Path) -> Result<()> {
    let used = fs::read_to_string(from.join("envoy.json"))?;
    // The run's directory is removed with the run; with the new place Envoy can load the copy.
    let used = used.replace(&from.display().to_string(), &files.display().to_string());
    fs::create_dir_all(files.join("ecds"))?;
    fs::write(files.join("envoy.json"), used)?;
    fs::copy(from.join("ecds/warmroute.json"), files.join("ecds/warmroute.json"))?;
    Ok(())
}
