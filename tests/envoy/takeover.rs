//! A new configuration takes over from one that lives on in its streams.

use anyhow::{Result, ensure};
use serde_json::json;
use warmroute_harness::client::{Stream, body};

use crate::world::{CHAT, World, chat, slow};

/// Streams through so many new connections, so that each worker thread has some.
async fn open_streams(world: &World, count: u32) -> Result<Vec<Stream>> {
    let mut streams = Vec::new();
    for number in 0..count {
        let mut request = chat(&format!("system {number}"), &["go on"]);
        request["stream"] = true.into();
        request["max_tokens"] = 5_000.into();
        let headers = [("content-type", "application/json")];
        let mut stream = world.client().open("POST", CHAT, &headers, body(request.to_string())).await?;
        ensure!(stream.status == 200, "status {}", stream.status);
        stream.next().await?;
        streams.push(stream);
    }
    Ok(streams)
}

#[tokio::test]
async fn workers_of_a_new_configuration_are_polled_at_once_though_streams_keep_the_old_one_alive() -> Result<()> {
    let world = World::of(3).plugin(json!({ "policy": "least-load" })).sim(&slow(20)).start().await?;
    world.wait_gauge("known_workers", 3).await?;
    let mut fewer = world.plugin.clone();
    fewer["pools"][0]["workers"].as_array_mut().map(Vec::pop);

    // Which thread polls is chance, and the main thread has no streams: hence several rounds. The gauges are set by the one
    // that polls: were it still an old configuration, it would speak of its own workers.
    let mut streams = Vec::new();
    for (plugin, workers) in [(&fewer, 2), (&world.plugin, 3)].into_iter().cycle().take(6) {
        streams.extend(open_streams(&world, 6).await?);
        ensure!(world.envoy.apply_plugin_config(plugin).await?, "the configuration is refused");
        world.wait_gauge("known_workers", workers).await?;
    }

    // And the streams of all configurations are still counted.
    world.wait_gauge("inflight_requests", 36).await?;
    drop(streams);
    world.end().await
}
