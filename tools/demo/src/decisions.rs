//! `decisions`: how long the plugin takes to decide, in its VM in a real Envoy: `warmroute_decision_us`.
//!
//! Chats of several turns, warm and cold ones mixed, are sent in a closed loop over a few connections to one worker
//! thread. The engines answer at once, so that the machine's time is Envoy's as far as possible; what else runs on it
//! shows in the upper percentiles.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};
use warmroute::rng::Rng;
use warmroute::schedule::Branch;
use warmroute_harness::client::Client;
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, WORKER_CLUSTER};
use warmroute_harness::envoy::Envoy;
use warmroute_report::statistics::share;
use warmroute_report::table::Table;
use worker_sim::{SimConfig, Timing, WorkerSim};

use crate::policies;

/// What is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct Flags {
    /// Requests of each run
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Simulated workers
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// Connections, with one request at a time on each
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Mean bytes of a body
    #[arg(long, default_value_t = 4_096)]
    body_bytes: usize,
    /// A run for each of these, one after the other
    #[arg(long, value_delimiter = ',', default_value = "hybrid,prefix-hash,least-load", value_parser = policies())]
    policies: Vec<String>,
    /// How often each run is repeated
    #[arg(long, default_value_t = 2)]
    repeat: usize,
}

/// One run's times, microseconds; the plugin rounds each down.
#[derive(Debug)]
struct Times {
    decisions: u64,
    mean_us: f64,
    percentile_us: [f64; PERCENTILES.len()],
    body_bytes_mean: f64,
    /// Answers a second.
    rate_per_s: f64,
    /// Reasons and their share of the decisions.
    reasons: Vec<(&'static str, f64)>,
}

const PERCENTILES: [&str; 4] = ["P50", "P75", "P90", "P99"];

/// Shared beginnings of chats, as applications have them; one chat in [`OWN_SYSTEM_PROMPT`] shares none and begins cold.
const SYSTEM_PROMPTS: u64 = 5;
const OWN_SYSTEM_PROMPT: u32 = 3;
/// User's messages of a chat.
const TURNS: usize = 7;
/// Chats that are open at a time on one connection.
const OPEN_CHATS: u32 = 50;
/// A quarter of the mean body is the system prompt.
const SYSTEM_SHARE: usize = 4;

/// Runs and prints.
///
/// # Errors
/// When Envoy does not start, a request fails, or the histogram is not there.
pub(crate) async fn measure(flags: &Flags) -> Result<()> {
    ensure!(flags.requests > 0 && flags.workers > 0 && flags.connections > 0, "nothing to do");
    println!("load average before: {}", load_average());
    let mut table =
        Table::new(&["policy", "decisions", "mean", "p50", "p75", "p90", "p99", "body", "requests/s", "reasons"]);
    for policy in (0..flags.repeat).flat_map(|_| &flags.policies) {
        let times = run(flags, policy).await?;
        let us = |value: f64| format!("{value:.1} us");
        let [p50, p75, p90, p99] = times.percentile_us.map(us);
        let reasons: Vec<String> =
            times.reasons.iter().map(|(name, share)| format!("{name} {:.0} %", share * 100.0)).collect();
        table.row([
            policy.clone(),
            times.decisions.to_string(),
            us(times.mean_us),
            p50,
            p75,
            p90,
            p99,
            format!("{:.0} B", times.body_bytes_mean),
            format!("{:.0}", times.rate_per_s),
            reasons.join(", "),
        ]);
    }
    println!("{table}");
    println!("load average after: {}", load_average());
    println!("Each time is from the read body to the decision, in the VM, rounded down to whole microseconds.");
    println!("Policies that need no prompt read no body: least-load is what the rest of a decision costs.");
    Ok(())
}

async fn run(flags: &Flags, policy: &str) -> Result<Times> {
    let timing = Timing { time_scale: 0.0, ..Timing::default() };
    let sim = SimConfig { timing, ..SimConfig::default() };
    let workers = (0..flags.workers).map(|_| WorkerSim::start(sim.clone())).collect::<Result<Vec<_>>>()?;
    let addresses: Vec<SocketAddr> = workers.iter().map(WorkerSim::addr).collect();
    let rows: Vec<Value> = addresses.iter().map(|address| json!({ "address": address })).collect();
    let plugin = json!({
        "policy": policy,
        "pools": [{ "cluster": WORKER_CLUSTER, "workers": rows }],
        "poll": { "cluster": POLL_CLUSTER },
    });
    let envoy = Envoy::start(EnvoyConfig::warmroute(plugin).workers(addresses).concurrency(1)).await?;

    let (left, start) = (Arc::new(AtomicUsize::new(flags.requests)), Instant::now());
    let mut connections = JoinSet::new();
    for number in 0..flags.connections {
        let (client, left) = (Client::http1(envoy.address()), Arc::clone(&left));
        connections.spawn(converse(client, left, number, flags.body_bytes));
    }
    while let Some(done) = connections.join_next().await {
        done??;
    }
    let seconds = start.elapsed().as_secs_f64();
    // Histograms show what has been flushed.
    sleep(Duration::from_millis(600)).await;
    times(&envoy, flags.requests as f64 / seconds).await
}

/// A chat in progress: its messages, and how many the user has written.
struct Chat {
    messages: Vec<Value>,
    turns: usize,
}

/// Holds chats over one connection until no request is left.
async fn converse(client: Client, left: Arc<AtomicUsize>, number: usize, body_bytes: usize) -> Result<()> {
    let mut rng = Rng::new(number as u64);
    let mut open: Vec<Chat> = Vec::new();
    let system_bytes = body_bytes / SYSTEM_SHARE;
    // The mean chat has half of its turns, each of a question and an answer.
    let message_bytes = (body_bytes - system_bytes) / TURNS;
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let at = rng.below(OPEN_CHATS) as usize;
        if at >= open.len() || open.get(at).is_some_and(|chat| chat.turns == TURNS) {
            let shared = Rng::new(u64::MAX - rng.next_u64() % SYSTEM_PROMPTS);
            let mut author = if rng.below(OWN_SYSTEM_PROMPT) == 0 { Rng::new(rng.next_u64()) } else { shared };
            let system = text(&mut author, system_bytes);
            let chat = Chat { messages: vec![json!({ "role": "system", "content": system })], turns: 0 };
            match open.get_mut(at) {
                Some(ended) => *ended = chat,
                None => open.push(chat),
            }
        }
        let at = at.min(open.len() - 1);
        let chat = open.get_mut(at).context("an open chat")?;
        chat.messages.push(json!({ "role": "user", "content": text(&mut rng, message_bytes) }));
        chat.turns += 1;
        let request = json!({ "model": "sim", "max_tokens": 1, "messages": chat.messages });
        let reply = client.post_json("/v1/chat/completions", &request).await?;
        ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
        chat.messages.push(json!({ "role": "assistant", "content": text(&mut rng, message_bytes) }));
    }
    Ok(())
}

/// So many bytes of made-up words.
fn text(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 8);
    while text.len() < bytes {
        let letters = rng.next_u64().to_le_bytes();
        text.extend(letters.iter().take(6).map(|letter| char::from(b'a' + letter % 26)));
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

async fn times(envoy: &Envoy, rate_per_s: f64) -> Result<Times> {
    const NAME: &str = "warmroute_decision_us";
    let page = envoy.admin().get("/stats/prometheus?usedonly").await?.text();
    let sums = histogram_sums(&page);
    let of = |name: &str| sums.get(name).copied().with_context(|| format!("{name} is not in Envoy's stats"));
    let (sum, count) = (of("warmroute_decision_us_sum")?, of("warmroute_decision_us_count")?);
    let body_bytes_mean = sums.get("warmroute_body_bytes_sum").copied().unwrap_or_default()
        / sums.get("warmroute_body_bytes_count").copied().unwrap_or(1.0);
    let summary = envoy.histogram(&format!("wasmcustom.{NAME}")).await?.context("no histogram")?;
    let mut percentile_us = [0.0; PERCENTILES.len()];
    for (value, name) in percentile_us.iter_mut().zip(PERCENTILES) {
        *value = percentile(&summary, name).with_context(|| format!("no {name} in {summary}"))?;
    }
    let stats = envoy.stats().await?;
    let decided = |branch: &Branch| stats.get(&format!("wasmcustom.warmroute_decision_{}_total", branch.name()));
    let routed = stats.get("wasmcustom.warmroute_routed_total").copied().unwrap_or(0);
    let shares = Branch::ALL.iter().filter_map(|branch| Some((branch.name(), share(*decided(branch)?, routed))));
    Ok(Times {
        decisions: count as u64,
        mean_us: sum / count,
        percentile_us,
        body_bytes_mean,
        rate_per_s,
        reasons: shares.filter(|(_, share)| *share > 0.0).collect(),
    })
}

/// Sums and counts of a page in the Prometheus format, without their labels.
fn histogram_sums(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let named = lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let name = name.split_once('{').map_or(name, |(name, _)| name);
        Some((name.strip_prefix("envoy_wasmcustom_").unwrap_or(name), value.parse().ok()?))
    });
    named.filter(|(name, _)| name.ends_with("_sum") || name.ends_with("_count")).collect()
}

/// The value since the start, out of `P0(interval,total) P25(...) ...`.
fn percentile(summary: &str, name: &str) -> Option<f64> {
    let cell = summary.split(' ').find_map(|cell| cell.strip_prefix(name)?.strip_prefix('('))?;
    cell.strip_suffix(')')?.split_once(',')?.1.parse().ok()
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "unknown".to_owned(), |line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoys_pages_are_read() {
        let page = "# TYPE warmroute_decision_us histogram\nwarmroute_decision_us_bucket{le=\"5\"} 1\n\
                    warmroute_decision_us_sum{} 40.5\nenvoy_wasmcustom_warmroute_body_bytes_count{} 3\n";
        let sums = histogram_sums(page);
        assert_eq!(sums.get("warmroute_decision_us_sum"), Some(&40.5));
        assert_eq!(sums.get("warmroute_body_bytes_count"), Some(&3.0));
        assert_eq!(sums.len(), 2);
        let summary = "P0(nan,3) P50(nan,12.5) P95(1,20) P99(1,31) P100(nan,41)";
        assert_eq!(PERCENTILES.map(|name| percentile(summary, name)), [Some(12.5), None, None, Some(31.0)]);
    }

    #[test]
    fn texts_are_as_long_as_asked_and_follow_the_seed() {
        let of = |seed| text(&mut Rng::new(seed), 100);
        assert_eq!(of(1).len(), 100);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
