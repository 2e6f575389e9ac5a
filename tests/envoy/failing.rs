//! Workers that fail fast look idle, and so they would get everything, if failures were not held against them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};
use worker_sim::Faults;

use crate::world::{CHAT, WAIT_MAX, World, chat};

/// A prompt that nobody has seen.
fn fresh(number: usize) -> Value {
    chat(&format!("Request {number}. {}", "It is like no other. ".repeat(40)), &["hello"])
}

/// Sends fresh requests for so long; how many failed, and how many `worker` got.
async fn send_for(world: &World, worker: usize, how_long: Duration, first: usize) -> Result<(usize, u64)> {
    let before = world.served()[worker];
    let (start, client, mut failed, mut sent) = (Instant::now(), world.client(), 0, 0);
    while start.elapsed() < how_long {
        let reply = client.post_json(CHAT, &fresh(first + sent)).await?;
        ensure!([200, 500].contains(&reply.status), "status {}: {}", reply.status, reply.text());
        failed += usize::from(reply.status != 200);
        sent += 1;
    }
    ensure!(sent > 50, "only {sent} requests in {how_long:?} say nothing");
    Ok((failed, world.served()[worker] - before))
}

/// Waits until `worker` is sent requests again.
async fn wait_served(world: &World, worker: usize, first: usize) -> Result<()> {
    let (before, deadline) = (world.served()[worker], Instant::now() + WAIT_MAX);
    let mut number = first;
    while world.served()[worker] < before + 10 {
        ensure!(Instant::now() < deadline, "worker {worker} gets no requests");
        let reply = world.client().post_json(CHAT, &fresh(number)).await?;
        ensure!(reply.status == 200, "status {}", reply.status);
        number += 1;
        sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_that_answers_5xx_at_once_gets_almost_nothing_until_it_recovers() -> Result<()> {
    let world = World::of(3).start().await?;
    let broken = 1;
    world.workers[broken].set_faults(Faults { error_rate: 1.0, ..Faults::default() })?;
    let (failed, served) = send_for(&world, broken, Duration::from_millis(1_000), 0).await?;
    // Three in a row are needed to tell, and after a second one is sent to see.
    assert!(served <= 6 && failed as u64 == served, "{failed} failed, {served} sent there");
    world.workers[broken].set_faults(Faults::default())?;
    wait_served(&world, broken, 10_000).await?;
    world.end().await
}

#[tokio::test]
async fn a_worker_that_refuses_connections_costs_few_retries_though_nobody_scrapes() -> Result<()> {
    // Without scrapes the failed requests alone tell.
    let mut world = World::of(3).plugin(json!({ "poll": {} })).start().await?;
    let gone = 2;
    world.workers[gone].stop().await;
    let (failed, _) = send_for(&world, gone, Duration::from_millis(1_000), 0).await?;
    assert_eq!(failed, 0, "each is answered by its next pick");
    let retried = world.count("answered_later_pick_total").await?;
    assert!((1..=6).contains(&retried), "{retried} requests were sent to nobody first");
    let address = world.workers[gone].addr();
    world.workers[gone].start_at(address)?;
    wait_served(&world, gone, 10_000).await?;
    world.wait_inflight_zero().await
}

#[tokio::test]
async fn an_answer_of_envoy_itself_is_no_success_though_its_status_is_200() -> Result<()> {
    let mut world = World::of(2).start().await?;
    for worker in &mut world.workers {
        worker.stop().await;
    }
    // To what calls itself a gRPC request Envoy's own answers are 200, with the error in another header.
    let headers = [("content-type", "application/grpc")];
    let reply = world.client().post(CHAT, &headers, fresh(1).to_string()).await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    world.wait_count("answered_by_host_total", 1).await?;
    for answered in ["answered_first_pick_total", "answered_later_pick_total", "answered_other_total"] {
        assert_eq!(world.count(answered).await?, 0, "{answered}");
    }
    world.end().await
}
