//! Many requests at once: what they share must not pull them to one worker, and what they cost is counted at once.

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinSet;
use warmroute_harness::config::POLL_CLUSTER;
use worker_sim::{SimConfig, Timing};

use crate::held::hold_many;
use crate::world::{CHAT, World, chat, slow, worker_of};

/// An engine that takes some time over a long prompt, and little over anything else.
fn prefilling() -> SimConfig {
    let timing = Timing { step_base_us: 5_000.0, prefill_us_per_token: 80.0, decode_us_per_seq: 0.0, time_scale: 1.0 };
    SimConfig { timing, ..SimConfig::default() }
}

#[tokio::test]
async fn siblings_with_a_long_prefix_spread_and_are_all_answered() -> Result<()> {
    const SIBLINGS: usize = 12;
    let world = World::of(4).sim(&prefilling()).start().await?;
    // 6000 tokens: half a second at each worker that has to compute it.
    let prefix = "Everything that the planner has found out so far. ".repeat(480);
    let mut flight = JoinSet::new();
    for sibling in 0..SIBLINGS {
        let (client, request) = (world.client(), chat(&prefix, &[&format!("Do part {sibling} of it.")]));
        flight.spawn(async move { worker_of(&client.post_json(CHAT, &request).await?) });
    }
    while let Some(answered) = flight.join_next().await {
        answered??;
    }
    let served = world.served();
    // All at the first one's worker would be what following the cache alone does; three each is what time asks for.
    assert!(served.iter().all(|served| (1..=5).contains(served)), "{served:?}");
    assert_eq!(served.iter().sum::<u64>(), SIBLINGS as u64);
    world.end().await
}

#[tokio::test]
async fn a_burst_of_cold_prompts_within_one_scrape_interval_is_spread_evenly() -> Result<()> {
    const REQUESTS: usize = 40;
    let poll = json!({ "cluster": POLL_CLUSTER, "intervalMs": 10_000, "reportMaxAgeMs": 60_000 });
    let world = World::of(4).sim(&slow(50)).plugin(json!({ "poll": poll })).start().await?;
    let held = hold_many(&world, REQUESTS, |user| {
        chat(&format!("User {user}. {}", "Nobody has asked this before. ".repeat(40)), &["hello"])
    })
    .await?;
    assert_eq!(world.count("decision_cold_total").await?, REQUESTS as u64);
    // Ten each, but for those that were through their prompt before the last came.
    assert!(
        held.by_worker.len() == 4 && held.by_worker.values().all(|held| (8..=12).contains(held)),
        "{:?}",
        held.by_worker
    );
    drop(held);
    // Without a scrape in this time no gauge is set: the engines themselves show that all have left.
    crate::world::wait_until("the workers are idle", || world.stats().iter().all(|stats| stats.running == 0)).await
}
