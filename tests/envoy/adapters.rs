//! LoRA adapters: requests go where their adapter is, also while it is idle, and base-model requests do not care.
//!
//! The engines count how often they load an adapter: that is what affinity saves.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use warmroute_harness::config::POLL_CLUSTER;
use worker_sim::{SimConfig, Timing};

use crate::held::hold_many;
use crate::world::{CHAT, World, chat, reason_of, worker_of};

const WORKERS: usize = 3;

/// An engine that takes so many adapters, answers at once, and needs some time to load one.
fn engine(max_loras: usize) -> SimConfig {
    let timing = Timing { step_base_us: 1_000.0, prefill_us_per_token: 0.0, decode_us_per_seq: 0.0, time_scale: 1.0 };
    SimConfig { max_loras, adapter_load_us: 20_000.0, timing, ..SimConfig::default() }
}

/// The same with steps that take so long that requests stay.
fn slow_engine(max_loras: usize) -> SimConfig {
    let engine = engine(max_loras);
    SimConfig { timing: Timing { step_base_us: 50_000.0, ..engine.timing }, ..engine }
}

/// Three workers that are scraped often, and of which one has told that it takes adapters: engines do so from their first
/// request on.
async fn world(policy: Value, engine: &SimConfig) -> Result<World> {
    world_of_threads(2, policy, engine).await
}

async fn world_of_threads(threads: u32, policy: Value, engine: &SimConfig) -> Result<World> {
    let poll = json!({ "cluster": POLL_CLUSTER, "intervalMs": 50 });
    let plugin = json!({ "policy": policy, "poll": poll, "responseHeaders": true });
    let world = World::of(WORKERS).sim(engine).plugin(plugin);
    let world = world.envoy(move |config| config.concurrency(threads)).start().await?;
    ask(&world, "sim", "warm-up").await?;
    world.wait_scrapes(2).await?;
    Ok(world)
}

/// A prompt that nobody had before, for a model or an adapter.
fn request(model: &str, user: &str) -> Value {
    let mut request = chat(&format!("You are helping {user}."), &["hello"]);
    request["model"] = model.into();
    request
}

async fn ask(world: &World, model: &str, user: &str) -> Result<String> {
    worker_of(&world.client().post_json(CHAT, &request(model, user)).await?)
}

fn adapter_loads(world: &World) -> u64 {
    world.stats().iter().map(|stats| stats.adapter_loads).sum()
}

#[tokio::test]
async fn an_adapter_is_found_again_where_it_is_loaded_and_idle() -> Result<()> {
    // Of two threads one may be so late to read the first reports that it takes the adapter for a base model.
    let world = world_of_threads(1, "hybrid".into(), &engine(1)).await?;
    let mut homes = BTreeSet::new();
    for user in 0..30 {
        homes.insert(ask(&world, "sql", &format!("user {user}")).await?);
        if user % 5 == 0 {
            // Nothing runs: reports tell of no adapter at all.
            world.wait_scrapes(2).await?;
        }
    }
    assert_eq!((homes.len(), adapter_loads(&world)), (1, 1), "{homes:?}");
    world.end().await
}

#[tokio::test]
async fn a_burst_for_one_adapter_does_not_load_it_everywhere() -> Result<()> {
    let world = world("hybrid".into(), &slow_engine(1)).await?;
    let held = hold_many(&world, 6, |user| request("sql", &format!("user {user}"))).await?;
    // 6 requests are less work than loading it once more; two threads may both be the first.
    ensure!(held.by_worker.len() <= 2, "{:?}", held.by_worker);
    assert!(adapter_loads(&world) <= 2, "{:?}", held.by_worker);
    drop(held);
    world.end().await
}

#[tokio::test]
async fn base_model_requests_neither_seek_nor_shun_adapters() -> Result<()> {
    let world = world("hybrid".into(), &slow_engine(1)).await?;
    let home = ask(&world, "sql", "the first").await?;
    world.wait_scrapes(2).await?;
    let held = hold_many(&world, 3 * WORKERS, |user| request("sim", &format!("user {user}"))).await?;
    assert_eq!(held.by_worker.len(), WORKERS, "{:?}", held.by_worker);
    let range = 2..=4;
    assert!(held.by_worker.values().all(|count| range.contains(count)), "{home} has it: {:?}", held.by_worker);
    assert_eq!(adapter_loads(&world), 1);
    drop(held);
    world.end().await
}

/// Sends requests for two adapters in turn, and tells how often one had to be loaded.
async fn loads_under(policy: &str) -> Result<u64> {
    let world = world(policy.into(), &engine(1)).await?;
    for user in 0..60 {
        let adapter = if user % 2 == 0 { "sql" } else { "law" };
        ask(&world, adapter, &format!("user {user}")).await?;
        if user % 10 == 0 {
            world.wait_scrapes(1).await?;
        }
    }
    let loads = adapter_loads(&world);
    world.end().await?;
    Ok(loads)
}

#[tokio::test]
async fn two_adapters_on_three_workers_settle_and_load_far_less_than_by_turns() -> Result<()> {
    let (affine, by_turns) = (loads_under("hybrid").await?, loads_under("round-robin").await?);
    // One load each, and one more if a thread's reports are behind.
    assert!(affine <= 3, "{affine} loads");
    // Three workers in turn, two adapters in turn: each request finds the other adapter.
    assert!(by_turns >= 10 * affine, "{by_turns} loads by turns, {affine} by affinity");
    Ok(())
}

#[tokio::test]
async fn a_worker_that_has_the_adapter_but_is_overloaded_yields_to_another() -> Result<()> {
    let world = world("hybrid".into(), &slow_engine(2)).await?;
    let home = ask(&world, "sql", "the first").await?;
    world.wait_scrapes(2).await?;
    let held = hold_many(&world, 60, |user| request("sql", &format!("user {user}"))).await?;
    let at_home = held.by_worker.get(&home).copied().unwrap_or_default();
    // Loading it is worth some 1000 tokens, which is what a dozen requests more there cost; then others have it too.
    assert!(held.by_worker.len() >= 2, "{:?}", held.by_worker);
    assert!((12..45).contains(&at_home), "{at_home} at home: {:?}", held.by_worker);
    let loads = adapter_loads(&world);
    assert!(loads <= 4, "{loads} loads");
    drop(held);
    world.end().await
}

#[tokio::test]
async fn the_filter_and_the_scorer_of_the_weighted_policy_keep_adapters_together_too() -> Result<()> {
    for parts in [
        json!({ "name": "weighted", "filters": [{ "type": "lora-affinity-filter" }], "scorers": [{ "type": "active-request-scorer" }] }),
        json!({ "name": "weighted", "scorers": [{ "type": "lora-affinity-scorer", "weight": 2 }, { "type": "active-request-scorer" }] }),
    ] {
        let world = world(parts, &engine(1)).await?;
        for user in 0..30 {
            let adapter = if user % 2 == 0 { "sql" } else { "law" };
            let reply = world.client().post_json(CHAT, &request(adapter, &format!("user {user}"))).await?;
            assert_eq!((reply.status, reason_of(&reply)), (200, "score"), "{}", world.plugin);
        }
        let loads = adapter_loads(&world);
        assert!(loads <= 4, "{loads} loads with {}", world.plugin);
        world.end().await?;
    }
    Ok(())
}
