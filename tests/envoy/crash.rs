//! A VM that dies, as no input can make it: what that does to other streams, and that the gateway mends itself.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use warmroute_harness::artefacts::Artefacts;

use crate::swap::{finish_stream, open_stream};
use crate::world::{CHAT, WAIT_MAX, World, chat, reason_of, slow};

/// Streams that are open when a VM dies. Both threads have some of them, but for one run in thousands of billions.
const STREAMS: usize = 40;

/// Waits until so many new connections in a row are served, and tells how long that took and how many were not.
async fn wait_served(world: &World) -> Result<(Duration, u32)> {
    let (begun_at, mut in_a_row, mut refused) = (Instant::now(), 0, 0);
    let mut mended_at = begun_at;
    while in_a_row < 20 {
        let status = world.client().post_json(CHAT, &chat("s", &["are you there?"])).await?.status;
        ensure!([200, 503].contains(&status), "status {status}");
        ensure!(begun_at.elapsed() < WAIT_MAX, "not served again; log:\n{}", world.envoy.log_tail());
        if status == 200 {
            in_a_row += 1;
        } else {
            (in_a_row, refused, mended_at) = (0, refused + 1, Instant::now());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok((mended_at - begun_at, refused))
}

#[tokio::test]
async fn a_vm_that_dies_cuts_the_streams_of_its_thread_only_and_comes_back_with_all_that_was_known() -> Result<()> {
    let plugin = json!({ "policy": "hybrid", "responseHeaders": true });
    let wasm = Artefacts::find()?.rehearsal_wasm()?.to_path_buf();
    let world =
        World::of(3).plugin(plugin).sim(&slow(10)).envoy(move |config| config.plugin_file(&wasm)).start().await?;
    let known = chat(&"All know this. ".repeat(200), &["do they?"]);
    world.client().post_json(CHAT, &known).await?;
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        streams.push(open_stream(&world, &format!("stream {number}"), 300).await?);
    }
    world.wait_gauge("inflight_requests", STREAMS as u64).await?;

    let crash = world.client().post(CHAT, &[("x-rehearse-crash", "1")], known.to_string()).await?;
    assert_eq!(crash.status, 503);
    let (mended_after, refused) = wait_served(&world).await?;
    let finished: JoinSet<_> = streams.into_iter().map(finish_stream).collect();
    let cut = finished.join_all().await.iter().filter(|end| end.is_err()).count();
    println!("{cut} of {STREAMS} streams cut; {refused} requests refused in the {mended_after:?} after the crash");
    assert!((1..STREAMS).contains(&cut), "{cut} of {STREAMS} streams are cut");
    assert!(mended_after < Duration::from_secs(5), "served again only after {mended_after:?}");

    let reply = world.client().post_json(CHAT, &known).await?;
    assert_eq!((reply.status, reason_of(&reply)), (200, "warm"), "the index outlives the VM");
    // What the dead VM had in flight expires; its place as the one that scrapes is another's.
    world.wait_gauge("inflight_requests", 0).await?;
    world.wait_scrapes(2).await?;
    let stats = world.envoy.stats().await?;
    let reloads: u64 =
        stats.iter().filter(|(name, _)| name.ends_with("vm_reload_success")).map(|(_, count)| count).sum();
    assert_eq!(reloads, 1);
    Ok(())
}
