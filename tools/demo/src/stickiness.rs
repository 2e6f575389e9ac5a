//! Measures, without Envoy, how many later turns of the demo's chats are hashed by another prefix than the turn before.
//!
//! `cargo test -p warmroute-demo stickiness -- --nocapture` prints the figures.

use std::collections::HashMap;

use anyhow::{Context, Result};
use warmroute::config::Config;
use warmroute::request::Api;
use warmroute::router::{Body, Router};
use warmroute::shared::trunk::TrunkPage;

use crate::workload::{Shape, Workload};

/// Later turns of chats, and how many of them changed their key.
#[derive(Default)]
struct Turns {
    moved: u32,
    all: u32,
}

/// The turns in requests 1 to 150, 151 to 300, and after that.
fn measure(seed: u64) -> Result<[Turns; 3]> {
    let workers: Vec<String> = (1..=4).map(|worker| format!(r#"{{"address":"10.0.0.{worker}:8000"}}"#)).collect();
    let config = format!(r#"{{"pools":[{{"cluster":"llm","workers":[{}]}}]}}"#, workers.join(","));
    let mut router = Router::new(Config::from_bytes(config.as_bytes())?, 1, 1);
    let mut trunk = TrunkPage::open(None)?;
    let workload = Workload::generate(&Shape { seed, conversations: 72, rate_per_s: 25.0, duration_s: 100.0 });
    let mut keys = HashMap::new();
    let mut phases = <[Turns; 3]>::default();
    for (number, request) in workload.requests.iter().enumerate() {
        let api = if request.turn.is_some() { Api::ChatCompletions } else { Api::Completions };
        router.read_prompt(api, &Body::whole(&request.body), None).ok().context("a prompt that cannot be read")?;
        let key = router.prefix(0, &mut trunk);
        let before = request.turn.as_ref().and_then(|turn| keys.insert(turn.chat, key));
        if let (Some(before), Some(turns)) = (before, phases.get_mut((number / 150).min(2))) {
            turns.all += 1;
            turns.moved += u32::from(before != key);
        }
    }
    Ok(phases)
}

#[test]
fn chats_stay_where_they_are_once_the_shared_prompts_are_learned() -> Result<()> {
    for seed in 1..=5 {
        let phases = measure(seed)?;
        let told: Vec<String> = phases.iter().map(|turns| format!("{} of {}", turns.moved, turns.all)).collect();
        println!("seed {seed}: requests 1 to 150: {}, 151 to 300: {}, later: {}", told[0], told[1], told[2]);
        let [_, learning, learned] = phases;
        assert!(learning.moved * 4 < learning.all, "seed {seed}: {told:?}");
        assert!(learned.moved * 50 < learned.all, "seed {seed}: {told:?}");
    }
    Ok(())
}
