//! Clients who flood the gateway: what that costs in memory, and that others are served on.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::world::{CHAT, World, chat, reason_of, with_room};

/// Resident memory of Envoy, MB.
fn resident_mb(world: &World) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", world.envoy.process_id()))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<u64>()? / 1_024)
}

/// Sends `count` prompts of so many bytes that nobody had before, from eight clients at once.
async fn flood(world: &World, name: &str, count: usize, bytes: usize) -> Result<()> {
    const CLIENTS: usize = 8;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (client, name) = (world.client(), format!("{name}{number}"));
        clients.spawn(async move {
            for request in 0..count / CLIENTS {
                let system = format!("{name} {request} ").repeat(bytes / 20);
                let reply = client.post_json(CHAT, &chat(&system, &["go on"])).await?;
                ensure!(reply.status == 200, "status {}", reply.status);
            }
            Ok(())
        });
    }
    clients.join_all().await.into_iter().collect()
}

#[tokio::test]
async fn a_flood_takes_the_memory_that_it_is_given_and_conversations_go_on() -> Result<()> {
    let plugin = json!({ "policy": "hybrid", "responseHeaders": true, "request": { "scanBytesMax": 65_536 } });
    let world = World::of(2).plugin(plugin).envoy(with_room).start().await?;
    let client = world.client();
    let mine = chat(&"All that we spoke of. ".repeat(100), &["where were we?"]);
    client.post_json(CHAT, &mine).await?;
    flood(&world, "warm-up ", 40, 2_000_000).await?;

    let before_mb = resident_mb(&world)?;
    flood(&world, "huge ", 80, 2_000_000).await?;
    flood(&world, "distinct ", 4_000, 1_500).await?;
    let grown_mb = resident_mb(&world)?.saturating_sub(before_mb);
    println!("{before_mb} MB, and {grown_mb} MB more after 160 MB of huge bodies and 4,000 distinct prompts");
    // The index has 4 MB; the rest is what allocators keep.
    assert!(grown_mb < 32, "{grown_mb} MB more than {before_mb} MB");

    client.post_json(CHAT, &mine).await?;
    assert_eq!(reason_of(&client.post_json(CHAT, &mine).await?), "warm", "a conversation is known again at once");
    world.end().await
}
