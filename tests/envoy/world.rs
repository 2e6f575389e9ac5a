//! One test's world: simulated workers in this process, and a real Envoy with the plugin in front of them.
//!
//! ```ignore
//! let world = World::of(4).plugin(json!({ "policy": "least-load" })).start().await?;
//! let reply = world.client().post_json(CHAT, &chat("system", &["hi"])).await?;
//! assert_eq!(world.served().iter().sum::<u64>(), 1);
//! world.end().await
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use warmroute_harness::client::{Client, Reply};
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, WORKER_CLUSTER, http_manager};
use warmroute_harness::envoy::Envoy;
use worker_sim::{RequestRecord, SimConfig, StatsSnapshot, Timing, WorkerSim};

/// A routed path.
pub(crate) const CHAT: &str = "/v1/chat/completions";
/// The other routed path.
pub(crate) const COMPLETIONS: &str = "/v1/completions";
/// How long a condition is waited for: generous, as the machine may be busy.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);
/// Between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What a world is to be; made by [`World::of`].
pub(crate) struct Setup {
    sims: Vec<SimConfig>,
    plugin: Value,
    envoy: Box<dyn FnOnce(EnvoyConfig) -> EnvoyConfig>,
}

/// Running workers and a running Envoy with two worker threads. Dropping it ends them.
pub(crate) struct World {
    /// In the order of the plugin's config. A test may stop, restart or break them.
    pub(crate) workers: Vec<WorkerSim>,
    /// For log, histograms and pushes of a new config.
    pub(crate) envoy: Envoy,
    /// The plugin's config as it is in use, for pushes of a changed one.
    pub(crate) plugin: Value,
}

impl Setup {
    /// Keys of the plugin's config. `pools` are added unless named, and so is `poll` (every 100 ms).
    ///
    /// Where it matters that a request finds all workers idle, `"poll": {}`: a scrape that takes longer than a whole
    /// request, as only these engines can be fast enough for, may show it as somebody else's.
    pub(crate) fn plugin(mut self, plugin: Value) -> Self {
        self.plugin = plugin;
        self
    }

    /// The workers' engine. Unless set it answers at once (time scale 0).
    pub(crate) fn sim(mut self, sim: &SimConfig) -> Self {
        self.sims.fill(sim.clone());
        self
    }

    /// Changes Envoy's config.
    pub(crate) fn envoy(mut self, change: impl FnOnce(EnvoyConfig) -> EnvoyConfig + 'static) -> Self {
        self.envoy = Box::new(change);
        self
    }

    /// Starts everything; returns when Envoy takes requests.
    pub(crate) async fn start(self) -> Result<World> {
        let workers = self.sims.into_iter().map(WorkerSim::start).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<SocketAddr> = workers.iter().map(WorkerSim::addr).collect();
        let mut plugin = self.plugin;
        if plugin.get("pools").is_none() {
            let rows: Vec<Value> = addresses.iter().map(|address| json!({ "address": address })).collect();
            plugin["pools"] = json!([{ "cluster": WORKER_CLUSTER, "workers": rows }]);
        }
        if plugin.get("poll").is_none() {
            plugin["poll"] = json!({ "cluster": POLL_CLUSTER, "intervalMs": 100 });
        }
        let config = EnvoyConfig::warmroute(plugin.clone()).workers(addresses).concurrency(2);
        let envoy = Envoy::start((self.envoy)(config)).await?;
        Ok(World { workers, envoy, plugin })
    }
}

impl World {
    /// A world of so many workers.
    pub(crate) fn of(workers: usize) -> Setup {
        Setup { sims: vec![instant(); workers], plugin: json!({}), envoy: Box::new(|config| config) }
    }

    /// A new HTTP/1.1 client, with connections of its own.
    pub(crate) fn client(&self) -> Client {
        Client::http1(self.envoy.address())
    }

    /// What each worker saw.
    pub(crate) fn stats(&self) -> Vec<StatsSnapshot> {
        self.workers.iter().map(WorkerSim::stats).collect()
    }

    /// Inference requests that each worker got, retries included.
    pub(crate) fn served(&self) -> Vec<u64> {
        self.workers.iter().map(|worker| worker.stats().requests).collect()
    }

    /// The requests that arrived anywhere, by worker.
    pub(crate) fn arrived(&self) -> Vec<RequestRecord> {
        self.workers.iter().flat_map(|worker| worker.stats().recent).collect()
    }

    /// A counter of the plugin: `count("routed_total")` is `wasmcustom.warmroute_routed_total`.
    pub(crate) async fn count(&self, name: &str) -> Result<u64> {
        self.envoy.stat(&format!("wasmcustom.warmroute_{name}")).await
    }

    /// A gauge of the pool: `gauge("inflight_requests")`. Set on the polling VM's tick, so it lags.
    pub(crate) async fn gauge(&self, name: &str) -> Result<u64> {
        self.envoy.stat(&gauge_name(name)).await
    }

    /// Waits until a gauge of the pool has this value. An error after [`WAIT_MAX`].
    pub(crate) async fn wait_gauge(&self, name: &str, want: u64) -> Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let value = self.gauge(name).await?;
            if value == want {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} is {value}, not {want}; log:\n{}", self.envoy.log_tail());
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Waits until a counter of the plugin is at least `at_least`. An error after [`WAIT_MAX`].
    pub(crate) async fn wait_count(&self, name: &str, at_least: u64) -> Result<u64> {
        self.envoy.wait_stat(&format!("wasmcustom.warmroute_{name}"), at_least, WAIT_MAX).await
    }

    /// Waits until each worker has been scraped `rounds` times more: every thread has ticked since, and gauges are
    /// younger than this call.
    pub(crate) async fn wait_scrapes(&self, rounds: u64) -> Result<()> {
        let scrapes = rounds * self.workers.len() as u64;
        let before = self.count("polls_sent_total").await?;
        self.wait_count("polls_sent_total", before + scrapes + 1).await.map(drop)
    }

    /// Waits until nothing is counted as in flight, in any worker thread.
    pub(crate) async fn wait_inflight_zero(&self) -> Result<()> {
        self.wait_gauge("inflight_requests", 0).await
    }

    /// Ends a test: nothing may be left in flight, and no VM may have crashed on the way.
    pub(crate) async fn end(self) -> Result<()> {
        if self.count("polls_sent_total").await? > 0 {
            // Else the gauge may be older than the last requests.
            self.wait_scrapes(1).await?;
        }
        self.wait_inflight_zero().await?;
        let stats = self.envoy.stats().await?;
        let crashes: Vec<_> = stats.iter().filter(|(name, _)| name.contains("vm_reload")).collect();
        ensure!(!crashes.is_empty(), "this Envoy counts reloads of VMs under another name");
        for (name, value) in crashes {
            ensure!(*value == 0, "{name} is {value}; log:\n{}", self.envoy.log_tail());
        }
        Ok(())
    }
}

/// The worker that answered with 200.
pub(crate) fn worker_of(reply: &Reply) -> Result<String> {
    ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
    Ok(reply.header("x-worker").context("no worker answered")?.to_owned())
}

/// Why it was picked; only with `responseHeaders`.
pub(crate) fn reason_of(reply: &Reply) -> &str {
    reply.header("x-warmroute-reason").unwrap_or("none told")
}

/// Waits until `is_so`, which is looked at again and again. An error that says `what` after [`WAIT_MAX`].
pub(crate) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        ensure!(Instant::now() < deadline, "not so after {WAIT_MAX:?}: {what}");
        sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

/// A worker that answers at once.
pub(crate) fn instant() -> SimConfig {
    SimConfig { timing: Timing { time_scale: 0.0, ..Timing::default() }, ..SimConfig::default() }
}

/// A worker that needs `step_ms` for every token, however many requests it has.
pub(crate) fn slow(step_ms: u32) -> SimConfig {
    let timing = Timing {
        step_base_us: f64::from(step_ms) * 1_000.0,
        prefill_us_per_token: 0.0,
        decode_us_per_seq: 0.0,
        time_scale: 1.0,
    };
    SimConfig { timing, ..SimConfig::default() }
}

/// A chat body: a system prompt, and then user and assistant in turn.
pub(crate) fn chat(system: &str, turns: &[&str]) -> Value {
    let turns = turns.iter().zip(["user", "assistant"].into_iter().cycle());
    let turns = turns.map(|(content, role)| json!({ "role": role, "content": content }));
    let messages: Vec<Value> = std::iter::once(json!({ "role": "system", "content": system })).chain(turns).collect();
    json!({ "model": "sim", "max_tokens": 4, "messages": messages })
}

/// What a route of large bodies needs. Envoy asks the plugin only after it has put a new piece to the buffered ones, so
/// its limit must have room for what the plugin waits for and a whole read of the connection; the default is just the
/// connection's limit, and then a body that begins slowly and goes on fast is answered 413.
pub(crate) fn with_room(envoy: EnvoyConfig) -> EnvoyConfig {
    envoy.edit(|bootstrap| {
        let route = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0];
        route["request_body_buffer_limit"] = (2 << 20).into();
    })
}

fn gauge_name(name: &str) -> String {
    format!("wasmcustom.warmroute_pool.{WORKER_CLUSTER}.{name}")
}
