//! What breaks around the gateway: workers that die, hang or tell nonsense, clients that leave, answers of Envoy's own.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};
use warmroute_harness::client::{Reply, Socket, body};
use warmroute_harness::config::{POLL_CLUSTER, http_manager};
use worker_sim::{Faults, MetricsFault};

use crate::world::{CHAT, World, chat, slow, wait_until};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Each prompt has its home and stays there, however many come; answers tell the decision.
fn by_prefix() -> Value {
    json!({ "policy": { "name": "prefix-hash", "loadFloorRequests": 1_000 }, "responseHeaders": true })
}

fn tokens(mut request: Value, max_tokens: u32) -> Value {
    request["max_tokens"] = max_tokens.into();
    request
}

/// Which of the world's workers answered.
fn worker_of(world: &World, reply: &Reply) -> Result<usize> {
    ensure!(reply.status == 200, "status {}: {}\n{}", reply.status, reply.text(), world.envoy.log_tail());
    let address = reply.header("x-worker").context("no worker answered")?;
    world.workers.iter().position(|worker| worker.addr().to_string() == address).context("a worker of another world")
}

/// Sends `count` requests, one after the other and each on a connection of its own; none may have the worker `gone`
/// among its picks.
async fn all_keep_away(world: &World, gone: usize, count: usize, request: &Value) -> Result<()> {
    let gone = world.workers[gone].addr().to_string();
    for _ in 0..count {
        let reply = world.client().post_json(CHAT, request).await?;
        worker_of(world, &reply)?;
        let picks = reply.header("x-warmroute-picks").context("no decision")?;
        ensure!(!picks.contains(&gone), "{gone} is picked: {picks}");
    }
    Ok(())
}

/// Sends `count` requests at once, each on a connection of its own.
fn send_all(world: &World, count: usize, request: &Value) -> JoinSet<Result<Reply>> {
    let mut flight = JoinSet::new();
    for _ in 0..count {
        let (client, request) = (world.client(), request.clone());
        flight.spawn(async move { client.post_json(CHAT, &request).await });
    }
    flight
}

#[tokio::test]
async fn a_dead_workers_requests_go_to_the_next_pick_and_it_is_used_again_when_it_is_back() -> Result<()> {
    let mut world = World::of(3).plugin(by_prefix()).sim(&slow(10)).start().await?;
    let request = chat("the system", &["hello"]);
    let home = worker_of(&world, &world.client().post_json(CHAT, &request).await?)?;

    let mut flight = send_all(&world, 6, &tokens(request.clone(), 150));
    wait_until("all are at their home", || world.workers[home].stats().running == 6).await?;
    world.workers[home].stop().await;
    while let Some(reply) = flight.join_next().await {
        assert_ne!(worker_of(&world, &reply??)?, home);
    }
    assert_eq!(world.count("answered_later_pick_total").await?, 6);

    world.wait_gauge("available_workers", 2).await?;
    world.wait_scrapes(2).await?;
    all_keep_away(&world, home, 10, &request).await?;
    assert_eq!(world.count("answered_later_pick_total").await?, 6);

    let address = world.workers[home].addr();
    world.workers[home].start_at(address)?;
    world.wait_gauge("available_workers", 3).await?;
    world.wait_scrapes(2).await?;
    for _ in 0..4 {
        assert_eq!(worker_of(&world, &world.client().post_json(CHAT, &request).await?)?, home);
    }
    world.end().await
}

#[tokio::test]
async fn a_hanging_worker_is_left_and_what_hangs_there_is_tried_elsewhere() -> Result<()> {
    let mut plugin = by_prefix();
    plugin["poll"] = json!({ "cluster": POLL_CLUSTER, "intervalMs": 100, "timeoutMs": 300 });
    let world = World::of(3).plugin(plugin).envoy(|envoy| envoy.per_try_timeout_ms(800)).start().await?;
    let request = chat("the system", &["hello"]);
    let home = worker_of(&world, &world.client().post_json(CHAT, &request).await?)?;

    world.workers[home].set_faults(Faults { hang: true, ..Faults::default() })?;
    let mut flight = send_all(&world, 6, &request);
    while let Some(reply) = flight.join_next().await {
        assert_ne!(worker_of(&world, &reply??)?, home);
    }
    assert!(world.count("answered_later_pick_total").await? > 0);

    world.wait_gauge("available_workers", 2).await?;
    world.wait_scrapes(2).await?;
    all_keep_away(&world, home, 10, &request).await?;

    world.workers[home].set_faults(Faults::default())?;
    world.wait_gauge("available_workers", 3).await?;
    // It failed requests too, so it is left alone for a second or, if one found it hanging again, for two.
    let deadline = Instant::now() + Duration::from_secs(10);
    while worker_of(&world, &world.client().post_json(CHAT, &request).await?)? != home {
        ensure!(Instant::now() < deadline, "it serves, and gets no requests");
        sleep(Duration::from_millis(50)).await;
    }
    world.end().await
}

#[tokio::test]
async fn a_metrics_page_that_tells_no_load_is_a_failed_scrape_and_requests_go_on() -> Result<()> {
    let world = World::of(2).plugin(by_prefix()).start().await?;
    let request = chat("the system", &["hello"]);
    world.wait_gauge("known_workers", 2).await?;
    for fault in [MetricsFault::Garbage, MetricsFault::NotFound, MetricsFault::Missing] {
        let failed = world.count("polls_failed_total").await?;
        world.workers[0].set_faults(Faults { metrics: fault, ..Faults::default() })?;
        world.wait_gauge("available_workers", 1).await?;
        assert!(world.count("polls_failed_total").await? >= failed + 2, "{fault:?}");
        world.wait_scrapes(2).await?;
        all_keep_away(&world, 0, 4, &request).await.with_context(|| format!("{fault:?}"))?;
        world.workers[0].set_faults(Faults::default())?;
        world.wait_gauge("available_workers", 2).await?;
    }
    // A page whose numbers are none is of a living worker: its load is unknown, and it goes on serving.
    world.workers[0].set_faults(Faults { metrics: MetricsFault::Nan, ..Faults::default() })?;
    world.wait_gauge("known_workers", 1).await?;
    assert_eq!(world.gauge("available_workers").await?, 2);
    // Where no page tells anything, all workers are as good as each other.
    for worker in &world.workers {
        worker.set_faults(Faults { metrics: MetricsFault::Garbage, ..Faults::default() })?;
    }
    world.wait_gauge("available_workers", 0).await?;
    world.wait_scrapes(2).await?;
    for _ in 0..4 {
        worker_of(&world, &world.client().post_json(CHAT, &request).await?)?;
    }
    assert!(world.count("all_unavailable_total").await? >= 4);
    world.end().await
}

#[tokio::test]
async fn without_scrapes_requests_go_where_the_gateway_itself_has_fewest() -> Result<()> {
    let clusters = [json!({}), json!({ "cluster": "nowhere", "intervalMs": 100 })];
    for (poll, is_refused) in clusters.into_iter().zip([false, true]) {
        let world = World::of(3).plugin(json!({ "policy": "least-load", "poll": poll })).sim(&slow(50)).start().await?;
        let request = tokens(chat("s", &["hello"]), 2_000);
        let mut flight = send_all(&world, 9, &request);
        let even = || world.stats().iter().all(|stats| stats.running == 3);
        wait_until("three requests at each worker", even).await?;
        world.wait_gauge("inflight_requests", 9).await?;
        assert_eq!(world.gauge("available_workers").await?, 3);
        if is_refused {
            world.wait_count("polls_refused_total", 6).await?;
        }
        assert_eq!(
            (world.count("polls_refused_total").await? > 0, world.count("polls_sent_total").await?),
            (is_refused, 0)
        );
        flight.shutdown().await;
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn with_all_workers_down_clients_are_told_and_service_resumes_by_itself() -> Result<()> {
    let mut world = World::of(3).plugin(json!({ "policy": "least-load" })).start().await?;
    for worker in &mut world.workers {
        worker.stop().await;
    }
    let mut at_once = send_all(&world, 8, &chat("s", &["hello"]));
    while let Some(reply) = at_once.join_next().await {
        assert_eq!(reply??.status, 503);
    }
    world.wait_gauge("available_workers", 0).await?;
    world.wait_scrapes(2).await?;
    let mut later = send_all(&world, 8, &chat("s", &["hello"]));
    while let Some(reply) = later.join_next().await {
        assert_eq!(reply??.status, 503);
    }
    assert!(world.count("all_unavailable_total").await? >= 8);
    assert_eq!(world.count("answered_by_host_total").await?, 16);
    world.wait_scrapes(1).await?;
    world.wait_inflight_zero().await?;

    for worker in &mut world.workers {
        let address = worker.addr();
        worker.start_at(address)?;
    }
    world.wait_gauge("available_workers", 3).await?;
    for _ in 0..6 {
        worker_of(&world, &world.client().post_json(CHAT, &chat("s", &["hello"])).await?)?;
    }
    world.end().await
}

/// Begins an upload of `body_bytes`, of which half are sent.
async fn half_upload(world: &World, body_bytes: usize) -> Result<Socket> {
    let start = r#"{"model": "sim", "messages": [{"role": "user", "content": ""#;
    let half = format!("{start}{}", "x".repeat(body_bytes / 2 - start.len()));
    let mut socket = Socket::connect(world.envoy.address()).await?;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: {body_bytes}\r\n\r\n"
    );
    socket.write(head.as_bytes()).await?;
    socket.write(half.as_bytes()).await?;
    Ok(socket)
}

#[tokio::test]
async fn uploads_that_break_off_leave_nothing_in_flight() -> Result<()> {
    const EACH: u64 = 25;
    let mut plugin = by_prefix();
    plugin["request"] = json!({ "scanBytesMax": 4_096 });
    let world = World::of(2).plugin(plugin).start().await?;
    let mut sockets = Vec::new();
    for _ in 0..EACH {
        // Of one the plugin still waits for the body, of the other the body streams to a worker.
        sockets.push(half_upload(&world, 2_048).await?);
        sockets.push(half_upload(&world, 65_536).await?);
    }
    world.wait_count("requests_total", 2 * EACH).await?;
    world.wait_gauge("inflight_requests", EACH).await?;
    drop(sockets);
    world.wait_count("unanswered_total", 2 * EACH).await?;
    world.wait_scrapes(1).await?;
    world.wait_inflight_zero().await?;
    assert_eq!((world.count("routed_total").await?, world.count("unanswered_total").await?), (EACH, 2 * EACH));
    assert_eq!(world.served(), [0, 0]);
    world.end().await
}

#[tokio::test]
async fn clients_that_leave_before_or_within_the_answer_free_their_place() -> Result<()> {
    const EACH: usize = 20;
    let world = World::of(2).plugin(by_prefix()).sim(&slow(20)).start().await?;
    let mut stream = tokens(chat("s", &["hello"]), 5_000);
    let mut waiting = send_all(&world, EACH, &stream);
    stream["stream"] = true.into();
    let mut streams = Vec::new();
    for _ in 0..EACH {
        let mut open = world.client().open("POST", CHAT, JSON, body(stream.to_string())).await?;
        assert!(open.next().await?.is_some_and(|chunk| chunk.starts_with(b"data: ")));
        streams.push(open);
    }
    world.wait_gauge("inflight_requests", 2 * EACH as u64).await?;
    drop(streams);
    waiting.shutdown().await;
    wait_until("the workers are idle", || world.stats().iter().all(|stats| stats.running == 0)).await?;
    world.wait_scrapes(1).await?;
    world.wait_inflight_zero().await?;
    let answered = world.count("answered_first_pick_total").await?;
    assert_eq!((answered, world.count("unanswered_total").await?), (EACH as u64, EACH as u64));
    world.end().await
}

#[tokio::test]
async fn a_workers_error_is_the_clients_to_see_and_is_tried_once() -> Result<()> {
    let world = World::of(2).plugin(by_prefix()).start().await?;
    for worker in &world.workers {
        worker.set_faults(Faults { error_rate: 1.0, ..Faults::default() })?;
    }
    for _ in 0..10 {
        let reply = world.client().post_json(CHAT, &chat("s", &["hello"])).await?;
        assert_eq!((reply.status, reply.text().contains("Injected error.")), (500, true));
    }
    assert_eq!(world.served().iter().sum::<u64>(), 10);
    assert_eq!(world.count("answered_first_pick_total").await?, 10);
    world.end().await
}

#[tokio::test]
async fn what_envoy_itself_answers_is_settled_and_counted_as_such() -> Result<()> {
    let timeout = |bootstrap: &mut Value| {
        http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["timeout"] = "0.5s".into();
    };
    let world = World::of(1)
        .plugin(by_prefix())
        .sim(&slow(20))
        .envoy(move |envoy| envoy.connection_buffer_bytes_max(16_384).retries_max(0).edit(timeout))
        .start()
        .await?;
    let late = world.client().post_json(CHAT, &tokens(chat("s", &["hello"]), 5_000)).await?;
    assert_eq!(late.status, 504, "{}", late.text());
    let long = world.client().post_json(CHAT, &chat("s", &[&"x".repeat(200_000)])).await?;
    assert_eq!(long.status, 413, "{}", long.text());
    world.wait_scrapes(1).await?;
    world.wait_inflight_zero().await?;
    assert_eq!(world.count("answered_by_host_total").await?, 2);
    assert_eq!(world.count("answered_first_pick_total").await?, 0);
    world.end().await
}
