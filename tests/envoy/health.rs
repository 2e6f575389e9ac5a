//! Who is out of use and for how long: ejection by share, back-off, drain, panic, and what never counts.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};
use warmroute_harness::client::{Stream, body};
use warmroute_harness::config::http_manager;
use worker_sim::Faults;

use crate::world::{CHAT, WAIT_MAX, World, chat, slow, wait_until};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

fn errors(error_rate: f64) -> Faults {
    Faults { error_rate, ..Faults::default() }
}

/// Sends one request; its status.
async fn send(world: &World) -> Result<u16> {
    Ok(world.client().post_json(CHAT, &chat("s", &["hello"])).await?.status)
}

/// Sends requests until `is_so`.
async fn send_until(world: &World, what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so().await? {
        ensure!(Instant::now() < deadline, "not so after {WAIT_MAX:?}: {what}; log:\n{}", world.envoy.log_tail());
        for _ in 0..6 {
            send(world).await?;
        }
    }
    Ok(())
}

/// Waits until `worker` is sent requests again.
async fn wait_served(world: &World, worker: usize) -> Result<()> {
    let before = world.served()[worker];
    send_until(world, "it is used again", async || Ok(world.served()[worker] >= before + 5)).await
}

#[tokio::test]
async fn a_worker_that_fails_half_of_its_requests_is_ejected_by_its_share_and_comes_back_with_the_first_success()
-> Result<()> {
    let health = json!({ "consecutiveFailures": 100, "failurePercent": 30, "ejectionMs": 3_000 });
    let world = World::of(3).plugin(json!({ "policy": "round-robin", "health": health })).start().await?;
    let flaky = 1;
    world.workers[flaky].set_faults(errors(0.5))?;
    send_until(&world, "it is ejected", async || Ok(world.count("ejections_total").await? > 0)).await?;
    world.wait_gauge("ejected_workers", 1).await?;
    assert_eq!(world.gauge("available_workers").await?, 2);
    let served = world.served()[flaky];
    for _ in 0..12 {
        assert_eq!(send(&world).await?, 200);
    }
    assert_eq!(world.served()[flaky], served, "nothing is sent there");

    world.workers[flaky].set_faults(Faults::default())?;
    wait_served(&world, flaky).await?;
    world.wait_gauge("ejected_workers", 0).await?;
    world.end().await
}

#[tokio::test]
async fn a_worker_that_stays_broken_is_tried_ever_less_often() -> Result<()> {
    let world =
        World::of(2).plugin(json!({ "policy": "round-robin", "health": { "ejectionMs": 200 } })).start().await?;
    world.workers[0].set_faults(errors(1.0))?;
    let (start, mut failed_ms) = (Instant::now(), Vec::new());
    while failed_ms.len() < 7 {
        ensure!(start.elapsed() < WAIT_MAX, "failed only at {failed_ms:?}");
        if send(&world).await? == 500 {
            failed_ms.push(start.elapsed().as_millis());
        }
    }
    // Three in a row, and then one after at least 200, 400, 800 and 1600 ms.
    let pauses: Vec<u128> = failed_ms.windows(2).map(|pair| pair[1] - pair[0]).skip(2).collect();
    for (pause, at_least) in pauses.iter().zip([195, 395, 795, 1_595]) {
        assert!(*pause >= at_least, "{pauses:?}");
    }
    assert_eq!(world.count("ejections_total").await?, 5);
    world.end().await
}

async fn open_stream(world: &World) -> Result<Stream> {
    let mut request = chat("s", &["go on"]);
    request["stream"] = true.into();
    request["max_tokens"] = 150.into();
    let mut stream = world.client().open("POST", CHAT, JSON, body(request.to_string())).await?;
    ensure!(stream.status == 200, "status {}", stream.status);
    stream.next().await?;
    Ok(stream)
}

/// The plugin's configuration with these workers draining.
fn draining(world: &World, workers: &[usize]) -> Value {
    let mut plugin = world.plugin.clone();
    let addresses: Vec<String> = workers.iter().map(|worker| world.workers[*worker].addr().to_string()).collect();
    plugin["pools"][0]["draining"] = json!(addresses);
    plugin
}

#[tokio::test]
async fn a_worker_that_drains_finishes_its_streams_and_gets_nothing_new() -> Result<()> {
    let world = World::of(3).plugin(json!({ "policy": "round-robin" })).sim(&slow(10)).start().await?;
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(open_stream(&world).await?);
    }
    let before = world.served();
    assert_eq!(before, [2, 2, 2]);
    assert!(world.envoy.apply_plugin_config(&draining(&world, &[1])).await?);
    world.wait_gauge("draining_workers", 1).await?;
    assert_eq!(world.gauge("available_workers").await?, 2);
    // Each thread takes the new configuration when it gets to it.
    world.wait_scrapes(3).await?;
    let drained_at = world.served()[1];
    for _ in 0..12 {
        assert_eq!(send(&world).await?, 200);
    }
    assert_eq!(world.served()[1], drained_at);
    for stream in streams {
        let text = stream.finish().await?.text();
        assert!(text.ends_with("data: [DONE]\n\n"), "the stream ends with {:?}", text.lines().last());
    }
    // Where all drain, one of them is better than none.
    assert!(world.envoy.apply_plugin_config(&draining(&world, &[0, 1, 2])).await?);
    world.wait_gauge("draining_workers", 3).await?;
    assert_eq!(send(&world).await?, 200);
    assert!(world.envoy.apply_plugin_config(&world.plugin).await?);
    world.wait_gauge("draining_workers", 0).await?;
    wait_served(&world, 1).await?;
    world.end().await
}

#[tokio::test]
async fn where_all_but_one_fail_each_request_is_served_by_that_one() -> Result<()> {
    let retry_all = |bootstrap: &mut Value| {
        let route = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
        route["retry_policy"]["retry_on"] = "5xx".into();
    };
    // The workers that fail at once look idle, and of five with one mark each none stays out.
    let world = World::of(5)
        .plugin(json!({ "policy": "least-load" }))
        .envoy(move |envoy| envoy.edit(retry_all))
        .start()
        .await?;
    for worker in &world.workers[1..] {
        worker.set_faults(errors(1.0))?;
    }
    let mut failed = 0;
    send_until(&world, "four are ejected", async || {
        failed += usize::from(send(&world).await? != 200);
        Ok(world.count("ejections_total").await? >= 4)
    })
    .await?;
    let panics = world.count("all_unavailable_total").await?;
    for number in 0..200 {
        assert_eq!(send(&world).await?, 200, "request {number}");
    }
    assert!(world.count("all_unavailable_total").await? > panics, "too few are ready, and all are used");
    for worker in &world.workers[1..] {
        worker.set_faults(Faults::default())?;
    }
    send_until(&world, "all are in use", async || Ok(world.gauge("available_workers").await? == 5)).await?;
    world.end().await
}

#[tokio::test]
async fn what_is_the_clients_or_the_gateways_doing_ejects_nobody() -> Result<()> {
    let timeout = |bootstrap: &mut Value| {
        let route = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
        route["timeout"] = "0.3s".into();
    };
    let health = json!({ "consecutiveFailures": 1, "failurePercent": 1 });
    let world = World::of(2)
        .plugin(json!({ "policy": "round-robin", "health": health }))
        .sim(&slow(20))
        .envoy(move |envoy| envoy.edit(timeout))
        .start()
        .await?;
    let mut long = chat("s", &["hello"]);
    long["max_tokens"] = 5_000.into();
    let mut wrong = chat("s", &["hello"]);
    wrong["max_tokens"] = (-1).into();
    for _ in 0..4 {
        let refused = world.client().post_json(CHAT, &wrong).await?.status;
        assert!((400..500).contains(&refused), "status {refused}");
        assert_eq!(world.client().post_json(CHAT, &long).await?.status, 504, "it takes too long");
        let leaving = world.client();
        let leave = tokio::time::timeout(Duration::from_millis(100), leaving.post_json(CHAT, &long)).await;
        assert!(leave.is_err(), "the client leaves before the answer");
    }
    wait_until("the workers are idle", || world.stats().iter().all(|stats| stats.running == 0)).await?;
    world.wait_scrapes(2).await?;
    assert_eq!((world.count("ejections_total").await?, world.gauge("available_workers").await?), (0, 2));
    assert!(world.count("unanswered_total").await? >= 4);
    world.end().await
}

#[tokio::test]
async fn a_worker_that_answers_503_while_it_starts_is_used_soon_after() -> Result<()> {
    for poll in [json!({}), json!({ "cluster": warmroute_harness::config::POLL_CLUSTER, "intervalMs": 100 })] {
        let plugin =
            json!({ "policy": "least-load", "poll": poll, "health": { "ejectionMs": 200, "ejectionMaxMs": 800 } });
        let world = World::of(3).plugin(plugin).start().await?;
        let starting = 2;
        let began = Instant::now();
        world.workers[starting].set_faults(Faults { start_delay_ms: 1_500, ..Faults::default() })?;
        while began.elapsed() < Duration::from_millis(1_500) {
            assert_eq!(send(&world).await?, 200, "its next pick serves each");
        }
        let before = world.served()[starting];
        let took = loop {
            send(&world).await?;
            if world.served()[starting] >= before + 5 {
                break began.elapsed() - Duration::from_millis(1_500);
            }
            ensure!(began.elapsed() < WAIT_MAX, "it is not used");
            sleep(Duration::from_millis(2)).await;
        };
        // At the most as long as it may be out of use, and what noise there is.
        assert!(took < Duration::from_millis(2_500), "used again after {took:?}, poll {poll}");
        world.wait_inflight_zero().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_that_dies_within_its_answers_is_held_to_have_failed_them() -> Result<()> {
    let plugin =
        json!({ "policy": "round-robin", "poll": {}, "health": { "ejectionMs": 60_000, "ejectionMaxMs": 60_000 } });
    let mut world = World::of(3).plugin(plugin).sim(&slow(10)).start().await?;
    let mut streams = Vec::new();
    for _ in 0..9 {
        streams.push(open_stream(&world).await?);
    }
    assert_eq!(world.served(), [3, 3, 3]);
    world.workers[0].stop().await;
    world.wait_count("ejections_total", 1).await?;
    let retried = world.count("answered_later_pick_total").await?;
    for _ in 0..6 {
        assert_eq!(send(&world).await?, 200);
    }
    assert_eq!(world.count("answered_later_pick_total").await?, retried, "nothing was sent there");
    drop(streams);
    world.wait_inflight_zero().await
}
