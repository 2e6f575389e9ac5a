//! How much of the prompts is found in the caches: with one thread or two, across a change of the binary, and against
//! Envoy's own load balancing. Times are measured by the demo; here only what no busy machine can change is asserted.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::Value;
use tokio::task::JoinSet;
use warmroute_harness::artefacts::Artefacts;
use warmroute_harness::client::Client;
use warmroute_harness::config::{EnvoyConfig, PlainPolicy};
use warmroute_harness::envoy::Envoy;
use worker_sim::{SimConfig, WorkerSim};

use crate::world::{CHAT, World, chat, instant};

const WORKERS: usize = 4;
/// No multiple of the workers: else round robin would lead each conversation to the same worker by chance.
const CONVERSATIONS: usize = 30;
const TURNS: usize = 6;
/// Clients at a time, each with a connection of its own.
const CLIENTS: usize = 4;

/// A turn of a conversation under one of four shared system prompts; what was said before is repeated, as chats do.
fn turn(conversation: usize, number: usize) -> Value {
    let system = format!("System prompt {}. {}", conversation % 4, "It holds for many conversations. ".repeat(60));
    let said = |turn| format!("Part {turn} of {conversation}: {}", "it is about this and that. ".repeat(60));
    let turns: Vec<String> = (0..=2 * number).map(said).collect();
    chat(&system, &turns.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Turn by turn, with all clients at once within each.
async fn converse(clients: &[Client], turns: std::ops::Range<usize>) -> Result<()> {
    for number in turns {
        let mut flight = JoinSet::new();
        // Each turn of a conversation comes over another connection, so mostly to another thread, than the one before.
        for (first, client) in clients.iter().cycle().skip(number).take(clients.len()).enumerate() {
            let client = client.clone();
            flight.spawn(async move {
                for conversation in (first..CONVERSATIONS).step_by(CLIENTS) {
                    let reply = client.post_json(CHAT, &turn(conversation, number)).await?;
                    ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
                }
                Ok(())
            });
        }
        while let Some(done) = flight.join_next().await {
            done??;
        }
    }
    Ok(())
}

/// Cached and all prompt tokens so far.
fn tokens(workers: &[WorkerSim]) -> [u64; 2] {
    let stats: Vec<_> = workers.iter().map(WorkerSim::stats).collect();
    [stats.iter().map(|stats| stats.cached_tokens).sum(), stats.iter().map(|stats| stats.prompt_tokens).sum()]
}

/// Percent of the prompt tokens since `before` that were cached.
fn hit_percent(before: [u64; 2], after: [u64; 2]) -> f64 {
    (after[0] - before[0]) as f64 * 100.0 / (after[1] - before[1]) as f64
}

/// An engine that is fast, but not so fast that requests never meet.
fn engine() -> SimConfig {
    let mut sim = instant();
    sim.timing.time_scale = 0.1;
    sim
}

/// What a run with the plugin found cached: in all turns, and in those from the fourth on.
struct HitPercent {
    all: f64,
    later: f64,
}

/// `swap`: another binary takes over after the third turn.
async fn run(threads: u32, swap: bool) -> Result<HitPercent> {
    let world = World::of(WORKERS).sim(&engine()).envoy(move |envoy| envoy.concurrency(threads)).start().await?;
    let clients: Vec<Client> = (0..CLIENTS).map(|_| world.client()).collect();
    converse(&clients, 0..TURNS / 2).await?;
    let middle = tokens(&world.workers);
    if swap {
        let mut code = fs::read(Artefacts::find()?.wasm()?)?;
        // An empty custom section named "x": other bytes, hence another VM, and the same plugin.
        code.extend_from_slice(&[0, 2, 1, b'x']);
        let path = world.envoy.directory().join("other.wasm");
        fs::write(&path, code)?;
        let before = world.envoy.config_updates().await?;
        world.envoy.push_plugin(&world.plugin, &path)?;
        world.envoy.wait_config(before.accepted + 1, before.rejected + 1).await?;
    }
    converse(&clients, TURNS / 2..TURNS).await?;
    let end = tokens(&world.workers);
    world.end().await?;
    Ok(HitPercent { all: hit_percent([0, 0], end), later: hit_percent(middle, end) })
}

async fn run_plain(policy: PlainPolicy) -> Result<f64> {
    let workers = (0..WORKERS).map(|_| WorkerSim::start(engine())).collect::<Result<Vec<_>>>()?;
    let addresses = workers.iter().map(WorkerSim::addr);
    let envoy = Envoy::start(EnvoyConfig::plain(policy).workers(addresses)).await?;
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::http1(envoy.address())).collect();
    converse(&clients, 0..TURNS).await?;
    Ok(hit_percent([0, 0], tokens(&workers)))
}

#[tokio::test]
async fn threads_and_a_change_of_the_binary_cost_no_hits() -> Result<()> {
    let (one, two, swapped) = (run(1, false).await?, run(2, false).await?, run(2, true).await?);
    println!(
        "one thread {:.1} %, two {:.1} %; later turns {:.1} %, with a swap {:.1} %",
        one.all, two.all, two.later, swapped.later
    );
    assert!((one.all - two.all).abs() <= 3.0, "{:.1} % with one thread, {:.1} % with two", one.all, two.all);
    assert!(swapped.later >= two.later - 3.0, "{:.1} % after a swap, {:.1} % without", swapped.later, two.later);
    Ok(())
}

#[tokio::test]
async fn more_is_found_cached_than_with_envoys_own_balancing() -> Result<()> {
    let ours = run(2, false).await?.all;
    for policy in [PlainPolicy::RoundRobin, PlainPolicy::LeastRequest] {
        let theirs = run_plain(policy).await?;
        println!("hybrid {ours:.1} %, {policy:?} {theirs:.1} %");
        assert!(ours > theirs + 10.0, "hybrid {ours:.1} %, {policy:?} {theirs:.1} %");
    }
    Ok(())
}
