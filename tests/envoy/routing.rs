//! Where requests go: each policy in a real Envoy whose threads share what they know.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::json;
use warmroute_harness::client::{Client, Reply, body};
use warmroute_harness::config::{DESTINATION_HEADER, http_manager};

use crate::held::{hold, hold_many};
use crate::world::{CHAT, World, chat, slow, wait_until, worker_of};

/// How many worker threads of Envoy have had connections from clients.
async fn threads_used(world: &World) -> Result<usize> {
    let stats = world.envoy.stats().await?;
    let is_thread = |name: &str| {
        name.starts_with("listener.127") && name.contains(".worker_") && name.ends_with(".downstream_cx_total")
    };
    Ok(stats.iter().filter(|(name, count)| is_thread(name) && **count > 0).count())
}

#[tokio::test]
async fn a_conversation_stays_with_its_worker_and_finds_ever_more_in_its_cache() -> Result<()> {
    const CONVERSATIONS: usize = 48;
    const TURNS: usize = 6;
    let world = World::of(4).plugin(json!({ "poll": {} })).start().await?;
    let mut turns: Vec<Vec<String>> = vec![Vec::new(); CONVERSATIONS];
    let mut homes: Vec<String> = Vec::new();
    let mut cached_before = vec![0; CONVERSATIONS];
    // Turn by turn over all conversations, as many users at once would do it, each time over a new connection.
    for turn in 0..TURNS {
        for (index, turns) in turns.iter_mut().enumerate() {
            let system = format!("You are assistant number {index}. {}", "Answer briefly. ".repeat(30));
            turns.push(format!("This is question {turn}, and it is not a short one either, so that blocks fill."));
            let spoken: Vec<&str> = turns.iter().map(String::as_str).collect();
            let reply = world.client().post_json(CHAT, &chat(&system, &spoken)).await?;
            let worker = worker_of(&reply)?;
            let answer = reply.json()?;
            let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().context("no usage")?;
            if turn == 0 {
                homes.push(worker);
            } else {
                assert_eq!(worker, homes[index], "conversation {index}, turn {turn}");
                assert!(cached > cached_before[index], "conversation {index}, turn {turn}: {cached} tokens cached");
            }
            cached_before[index] = cached;
            turns.push(answer["choices"][0]["message"]["content"].as_str().context("no answer")?.to_owned());
        }
    }
    // 48 prompts over 4 workers: one is left without any in 4 of a million runs.
    assert_eq!(homes.iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(threads_used(&world).await?, 2);
    let requests = u64::try_from(CONVERSATIONS * TURNS)?;
    // No two of them begin alike, so a first turn finds nothing, and every other one what the turn before it left.
    assert_eq!(world.count("decision_cold_total").await?, u64::try_from(CONVERSATIONS)?);
    assert_eq!(world.count("decision_warm_total").await?, requests - u64::try_from(CONVERSATIONS)?);
    assert_eq!(world.count("answered_first_pick_total").await?, requests);
    world.end().await
}

#[tokio::test]
async fn a_hot_prefix_spills_over_when_its_worker_is_at_its_bound() -> Result<()> {
    let world = World::of(4).sim(&slow(50)).plugin(json!({ "policy": "prefix-hash" })).start().await?;
    let hot = chat("The one prompt that everybody sends today.", &["What is new?"]);
    let home = worker_of(&world.client().post_json(CHAT, &hot).await?)?;
    world.wait_inflight_zero().await?;

    let held = hold_many(&world, 40, |_| hot.clone()).await?;
    // The default bound, loadFactor 1.25, at the 40th request: ceil(1.25 * 40 / 4).
    assert_eq!(held.by_worker[&home], 13, "{:?}", held.by_worker);
    assert!(held.by_worker.values().all(|&count| count <= 13), "{:?}", held.by_worker);
    let spilled = world.count("decision_spill_total").await?;
    assert_eq!(spilled + world.count("decision_home_total").await?, 41);
    assert_eq!(spilled, 40 - 13);

    drop(held);
    world.wait_inflight_zero().await?;
    assert_eq!(worker_of(&world.client().post_json(CHAT, &hot).await?)?, home, "idle again, so home again");
    world.end().await
}

#[tokio::test]
async fn a_system_prompt_that_everybody_shares_pulls_nobody_to_one_worker() -> Result<()> {
    const MEASURED: usize = 240;
    let world = World::of(4).plugin(json!({ "policy": "prefix-hash" })).start().await?;
    let system = "You are the assistant of a company with many rules. ".repeat(160);
    let question = |user: usize| format!("I am user {user}, and this is my question.");
    let client = world.client();
    // The trunk is learned place by place from the traffic.
    for user in 0..150 {
        worker_of(&client.post_json(CHAT, &chat(&system, &[&question(user)])).await?)?;
    }
    let mut homes = Vec::new();
    for user in 1_000..1_000 + MEASURED {
        let reply = world.client().post_json(CHAT, &chat(&system, &[&question(user)])).await?;
        homes.push(worker_of(&reply)?);
    }
    for worker in homes.iter().collect::<BTreeSet<_>>() {
        let share = homes.iter().filter(|home| *home == worker).count();
        // Half the fair share is 4.5 standard deviations away.
        assert!(share >= MEASURED / 8, "{worker} got {share} of {MEASURED}");
    }
    assert_eq!(homes.iter().collect::<BTreeSet<_>>().len(), 4);
    for (home, user) in homes.iter().zip(1_000..).take(40) {
        let turns = [&question(user), "an answer", "and my next question"];
        assert_eq!(worker_of(&world.client().post_json(CHAT, &chat(&system, &turns)).await?)?, *home, "user {user}");
    }
    world.end().await
}

#[tokio::test]
async fn round_robin_is_one_round_for_all_threads() -> Result<()> {
    let world = World::of(4).plugin(json!({ "policy": "round-robin" })).start().await?;
    let mut last = Vec::new();
    for _ in 0..40 {
        last.push(worker_of(&world.client().post_json(CHAT, &chat("same", &["same"])).await?)?);
    }
    assert_eq!(world.served(), [10; 4]);
    assert_eq!(last[..4].iter().collect::<BTreeSet<_>>().len(), 4);
    assert!(last.chunks(4).all(|round| round == &last[..4]), "{last:?}");
    assert_eq!(threads_used(&world).await?, 2);
    for counter in ["requests_total", "routed_total", "decision_turn_total", "answered_first_pick_total"] {
        assert_eq!(world.count(counter).await?, 40, "{counter}");
    }
    world.end().await
}

#[tokio::test]
async fn random_uses_all_workers_alike() -> Result<()> {
    let world = World::of(4).plugin(json!({ "policy": "random" })).start().await?;
    let clients: Vec<Client> = (0..4).map(|_| world.client()).collect();
    for client in clients.iter().cycle().take(240) {
        worker_of(&client.post_json(CHAT, &chat("same", &["same"])).await?)?;
    }
    // Half the fair share is 4.5 standard deviations away.
    assert!(world.served().iter().all(|&served| served >= 30), "{:?}", world.served());
    assert_eq!(world.served().iter().sum::<u64>(), 240);
    for counter in ["routed_total", "decision_drawn_total", "answered_first_pick_total"] {
        assert_eq!(world.count(counter).await?, 240, "{counter}");
    }
    world.end().await
}

#[tokio::test]
async fn least_load_sees_what_others_send_to_a_worker() -> Result<()> {
    let world = World::of(4).sim(&slow(50)).plugin(json!({ "policy": "least-load" })).start().await?;
    // Past the gateway, so that only the worker's own report can tell.
    let mut foreign = Vec::new();
    for _ in 0..8 {
        foreign.push(hold(Client::http1(world.workers[0].addr()), chat("other", &["traffic"])).await?);
    }
    wait_until("the engine runs what came past the gateway", || world.stats()[0].running == 8).await?;
    // Scrapes go round the workers: a whole round begun after this point has brought the news.
    let scrapes = world.count("polls_succeeded_total").await?;
    world.envoy.wait_stat("wasmcustom.warmroute_polls_succeeded_total", scrapes + 12, crate::world::WAIT_MAX).await?;

    let held = hold_many(&world, 21, |user| chat("mine", &[&format!("user {user}")])).await?;
    // 8 of others against 7 of ours: the busy worker is nobody's least loaded yet.
    assert_eq!(held.by_worker.values().copied().collect::<Vec<_>>(), [7, 7, 7], "{:?}", held.by_worker);
    assert_eq!(world.served()[0], 8);
    assert_eq!(world.count("decision_least_load_total").await?, 21);
    drop((held, foreign));
    world.end().await
}

#[tokio::test]
async fn threads_agree_to_the_request_on_what_is_in_flight() -> Result<()> {
    let plugin = json!({ "policy": "least-load" });
    let world = World::of(4).sim(&slow(50)).plugin(plugin).envoy(|envoy| envoy.concurrency(4)).start().await?;
    let mut held = hold_many(&world, 40, |user| chat("all", &[&format!("user {user}")])).await?;
    assert_eq!(held.by_worker.values().copied().collect::<Vec<_>>(), [10; 4], "{:?}", held.by_worker);
    assert!(threads_used(&world).await? > 1);
    world.wait_gauge("inflight_requests", 40).await?;
    // Streams that the client breaks off, wherever they are, leave the count one by one.
    for left in [25, 1] {
        held.streams.truncate(left);
        world.wait_gauge("inflight_requests", u64::try_from(left)?).await?;
    }
    drop(held);
    assert_eq!(world.count("decision_least_load_total").await?, 40);
    world.end().await
}

#[tokio::test]
async fn a_client_cannot_choose_its_worker_by_the_destination_header() -> Result<()> {
    // Without Envoy's own removal of the header, so that the plugin alone stands in the way; and with workers that, so to
    // say, echo it.
    let world = World::of(4).plugin(json!({ "policy": "round-robin" })).envoy(|envoy| {
        envoy.edit(|bootstrap| {
            let manager = http_manager(bootstrap);
            manager["early_header_mutation_extensions"] = json!([]);
            manager["route_config"]["virtual_hosts"][0]["routes"][0]["response_headers_to_add"] =
                json!([{ "header": { "key": DESTINATION_HEADER, "value": "10.1.1.1:80" } }]);
        })
    });
    let world = world.start().await?;
    let wanted = world.workers[0].addr().to_string();
    let request = chat("same", &["same"]).to_string();
    let once = vec![(DESTINATION_HEADER, wanted.as_str())];
    let twice = vec![(DESTINATION_HEADER, wanted.as_str()); 2];
    let nowhere = vec![(DESTINATION_HEADER, "127.0.0.1:1"), ("X-Gateway-Destination-Endpoint", wanted.as_str())];
    for headers in [&once, &twice, &nowhere] {
        let before = world.served();
        for _ in 0..8 {
            let reply = world.client().post(CHAT, headers, request.clone()).await?;
            worker_of(&reply)?;
            assert_eq!(reply.header(DESTINATION_HEADER), None);
        }
        let after = world.served();
        assert!(before.iter().zip(&after).all(|(before, after)| after - before == 2), "{before:?} {after:?}");
    }
    for (method, path) in [("GET", CHAT), ("GET", "/other"), ("POST", "/other"), ("GET", "/v1/models")] {
        for headers in [&once, &twice, &nowhere] {
            let mut workers = BTreeSet::new();
            let client = world.client();
            for _ in 0..4 {
                workers.insert(worker_of(&client.send(method, path, headers, body("")).await?)?);
            }
            // One connection is one thread, and Envoy's fallback policy goes round on each.
            assert_eq!(workers.len(), 4, "{method} {path} {headers:?}");
        }
    }
    let arrived = world.arrived();
    assert!(arrived.len() >= 24 + 36, "{}", arrived.len());
    assert!(arrived.iter().all(|request| request.destination_endpoint.is_none()));
    world.end().await
}

#[tokio::test]
async fn answers_tell_the_decision_only_when_they_are_to() -> Result<()> {
    let world = World::of(2).plugin(json!({ "poll": {} })).start().await?;
    let request = chat("same", &["the same long question again and again. ".repeat(10).as_str()]);
    let reply = world.client().post_json(CHAT, &request).await?;
    let told = |reply: &Reply| reply.headers.keys().any(|name| name.as_str().starts_with("x-warmroute"));
    assert!(!told(&reply), "{:?}", reply.headers);
    let home = worker_of(&reply)?;

    let mut plugin = world.plugin.clone();
    plugin["responseHeaders"] = true.into();
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    // Each thread takes a new config in its own time: twenty in a row have met both.
    let (mut reply, mut told_in_a_row) = (reply, 0);
    for _ in 0..2_000 {
        reply = world.client().post_json(CHAT, &request).await?;
        told_in_a_row = if told(&reply) { told_in_a_row + 1 } else { 0 };
        if told_in_a_row == 20 {
            break;
        }
    }
    assert_eq!(worker_of(&reply)?, home);
    assert_eq!(reply.header("x-warmroute-worker"), Some(home.as_str()));
    assert_eq!(reply.header("x-warmroute-policy"), Some("hybrid"));
    assert_eq!(reply.header("x-warmroute-reason"), Some("warm"));
    let picks = reply.header("x-warmroute-picks").context("no picks")?;
    assert!(picks.starts_with(&home), "{picks}");
    // What was not decided is not explained, but who answered is told.
    let reply = world.client().post(CHAT, &[], "no JSON").await?;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("x-warmroute-worker"), reply.header("x-worker"));
    assert_eq!(reply.header("x-warmroute-picks"), None);
    assert!(!told(&world.client().get("/v1/models").await?));
    world.end().await
}

#[tokio::test]
async fn the_list_has_three_workers_and_retries_walk_it_in_order() -> Result<()> {
    // Without scrapes nobody is known to be down, so the dead stay first on the list.
    let plugin = json!({ "responseHeaders": true, "poll": {} });
    let mut world = World::of(5).plugin(plugin).start().await?;
    let request = chat("same", &["same"]);
    let first = world.client().post_json(CHAT, &request).await?;
    let picks = first.header("x-warmroute-picks").context("no picks")?.to_owned();
    let list: Vec<&str> = picks.split(',').collect();
    assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), 3, "{picks}");
    assert_eq!(list[0], worker_of(&first)?);
    for tried in 0..2 {
        let worker = world.workers.iter_mut().find(|worker| worker.addr().to_string() == list[tried]);
        worker.context("picked from outside the pool")?.stop().await;
        let reply = world.client().post_json(CHAT, &request).await?;
        assert_eq!(reply.header("x-warmroute-picks").map(|now| now.starts_with(list[0])), Some(true));
        assert_eq!(worker_of(&reply)?, list[tried + 1]);
    }
    assert_eq!(world.count("answered_later_pick_total").await?, 2);
    world.end().await
}
