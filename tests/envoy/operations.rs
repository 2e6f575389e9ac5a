//! What operators do to a gateway that serves: new configurations, new binaries, restarted workers, several pools.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use warmroute_harness::config::{PluginForm, WORKER_CLUSTER, cluster, http_manager};

use crate::swap::{Load, created_vms, finish_stream, open_stream, policy_of, shared_system, swap_binary, wait_policy};
use crate::world::{CHAT, World, chat, slow};

#[tokio::test]
async fn a_bad_config_is_refused_with_its_reason_and_the_old_one_serves_on() -> Result<()> {
    let world = World::of(2).plugin(json!({ "policy": "round-robin", "responseHeaders": true })).start().await?;
    let load = Load::start(&world);
    let cases = [
        (json!({ "polcy": "random" }), r#"polcy is not a key here, did you mean "policy"?"#),
        (json!({ "request": { "basePaths": "/v1" } }), r#"request.basePaths is "/v1", must be a list of"#),
        (json!({ "poll": { "intervalMs": 1 } }), "poll.intervalMs is 1, must be 50 to 60000"),
        (json!({ "policy": "best" }), r#"policy.name is "best", known: hybrid, "#),
        (
            json!({ "pools": [{ "cluster": "llm", "workers": [{ "address": "vllm-0:8000" }] }] }),
            "pools[0].workers[0].address is",
        ),
    ];
    let accepted = world.envoy.config_updates().await?.accepted;
    for (keys, want) in cases {
        let mut plugin = world.plugin.clone();
        for (key, value) in keys.as_object().into_iter().flatten() {
            plugin[key] = value.clone();
        }
        assert!(!world.envoy.apply_plugin_config(&plugin).await?, "{keys} is taken");
        let log = world.envoy.log();
        assert!(log.contains("configuration refused: ") && log.contains(want), "{want:?} is not in the log:\n{log}");
        wait_policy(&world, "round-robin").await?;
    }
    let updates = world.envoy.config_updates().await?;
    assert_eq!((updates.accepted, updates.rejected), (accepted, 5));
    assert!(load.stop().await? > 0);
    world.end().await
}

#[tokio::test]
async fn a_new_config_takes_effect_without_a_failed_request() -> Result<()> {
    let world = World::of(3).plugin(json!({ "policy": "round-robin", "responseHeaders": true })).start().await?;
    let load = Load::start(&world);
    wait_policy(&world, "round-robin").await?;
    let mut plugin = world.plugin.clone();
    plugin["policy"] = "least-load".into();
    plugin["pools"][0]["workers"].as_array_mut().context("the workers")?.pop();
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    wait_policy(&world, "least-load").await?;
    world.wait_gauge("available_workers", 2).await?;

    let before = world.served();
    wait_policy(&world, "least-load").await?;
    let after = world.served();
    assert_eq!(after[2], before[2], "the worker that left the pool gets no more");
    assert!(after[0] > before[0] && after[1] > before[1]);

    assert!(world.envoy.apply_plugin_config(&world.plugin).await?);
    wait_policy(&world, "round-robin").await?;
    assert!(world.served()[2] > after[2], "back in the pool");
    assert!(load.stop().await? > 0);
    world.end().await
}

/// The worker of each of `count` conversations with the shared system prompt.
async fn homes(world: &World, count: usize) -> Result<Vec<String>> {
    let client = world.client();
    let mut homes = Vec::new();
    for conversation in 0..count {
        let request = chat(&shared_system(), &[&format!("conversation {conversation}"), "yes?", "go on"]);
        let reply = client.post_json(CHAT, &request).await?;
        homes.push(reply.header("x-worker").context("no worker answered")?.to_owned());
    }
    Ok(homes)
}

#[tokio::test]
async fn another_binary_takes_over_without_a_failed_request_and_with_what_the_old_one_knew() -> Result<()> {
    let plugin = json!({ "policy": { "name": "prefix-hash", "loadFloorRequests": 1_000 } });
    let world = World::of(3).plugin(plugin).sim(&slow(4)).start().await?;
    // Learns that the system prompt is everybody's: what a new page would have to learn again.
    homes(&world, 60).await?;
    let before = homes(&world, 12).await?;
    assert!(before.iter().any(|home| *home != before[0]), "the shared prompt decides: {before:?}");

    let load = Load::start(&world);
    let mut streams = Vec::new();
    for number in 0..8 {
        streams.push(open_stream(&world, &format!("stream {number}"), 700).await?);
    }
    let vms = created_vms(&world).await?;
    swap_binary(&world, "second").await?;
    assert!(created_vms(&world).await? > vms, "the other binary got no VM");
    assert_eq!(homes(&world, 12).await?, before);
    let finished: JoinSet<_> = streams.into_iter().map(finish_stream).collect();
    for end in finished.join_all().await {
        end?;
    }
    assert!(load.stop().await? > 0);
    // Sooner than what was forgotten would expire.
    world.wait_scrapes(10).await?;
    assert_eq!(world.gauge("inflight_requests").await?, 0);
    assert_eq!(homes(&world, 12).await?, before);
    assert_eq!(world.count("page_newer_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn streams_that_outlive_their_config_and_their_binary_stay_counted_until_they_end() -> Result<()> {
    let world =
        World::of(2).plugin(json!({ "policy": "round-robin", "responseHeaders": true })).sim(&slow(50)).start().await?;
    let of_first_config = open_stream(&world, "first", 1_500).await?;
    let mut plugin = world.plugin.clone();
    plugin["policy"] = "random".into();
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    let of_first_binary = open_stream(&world, "second", 1_500).await?;
    swap_binary(&world, "second").await?;
    world.wait_gauge("inflight_requests", 2).await?;
    // A slot that no VM keeps alive expires after ten seconds.
    let until = Instant::now() + Duration::from_secs(12);
    while Instant::now() < until {
        assert_eq!(world.gauge("inflight_requests").await?, 2);
        sleep(Duration::from_millis(100)).await;
    }
    drop((of_first_config, of_first_binary));
    // Sooner than what was forgotten would expire.
    world.wait_scrapes(10).await?;
    assert_eq!(world.gauge("inflight_requests").await?, 0);
    world.end().await
}

/// Scrapes a second, over `scrapes` of them.
async fn scrape_rate(world: &World, scrapes: u64) -> Result<f64> {
    let (before, start) = (world.count("polls_sent_total").await?, Instant::now());
    let after = world.wait_count("polls_sent_total", before + scrapes).await?;
    Ok((after - before) as f64 / start.elapsed().as_secs_f64())
}

#[tokio::test]
async fn one_thread_scrapes_for_all_and_another_follows_when_it_is_gone() -> Result<()> {
    let world = World::of(3).plugin(json!({ "policy": "random" })).envoy(|envoy| envoy.concurrency(4)).start().await?;
    world.wait_gauge("known_workers", 3).await?;
    let leases = world.count("lease_taken_total").await?;
    assert!(leases > 0);
    // Three workers every 100 ms are 30 a second; a second thread that scrapes would make it 60.
    let rate = scrape_rate(&world, 60).await?;
    assert!(rate < 45.0, "{rate} scrapes a second");

    let mut plugin = world.plugin.clone();
    plugin["policy"] = "round-robin".into();
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    let leases = world.wait_count("lease_taken_total", leases + 1).await?;
    let rate = scrape_rate(&world, 40).await?;
    assert!(rate < 45.0, "{rate} scrapes a second after the new config");

    swap_binary(&world, "second").await?;
    world.wait_count("lease_taken_total", leases + 1).await?;
    let rate = scrape_rate(&world, 40).await?;
    assert!(rate < 45.0, "{rate} scrapes a second after the new binary");
    world.wait_gauge("known_workers", 3).await?;
    world.end().await
}

#[tokio::test]
async fn a_config_as_json_text_is_as_good_as_a_struct() -> Result<()> {
    let plugin = json!({ "policy": { "name": "prefix-hash", "loadFactor": 1.5 }, "responseHeaders": true });
    for form in [PluginForm::Text, PluginForm::Struct] {
        let world = World::of(1).plugin(plugin.clone()).envoy(move |envoy| envoy.plugin_form(form)).start().await?;
        let reply = world.client().post_json(CHAT, &chat("s", &["hello"])).await?;
        assert_eq!((reply.status, policy_of(&reply)), (200, Some("prefix-hash")), "{form:?}");
        world.end().await?;
    }
    Ok(())
}

/// Splits the four workers in two clusters, and adds a third cluster of all. Routes lead there by path or by header.
fn three_clusters(bootstrap: &mut Value) {
    let Some(llm) = cluster(bootstrap, WORKER_CLUSTER) else { return };
    let endpoints = |cluster: &Value| cluster["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array().cloned();
    let all = endpoints(llm).unwrap_or_default();
    let part = |name: &str, workers: &[Value]| {
        let mut part = llm.clone();
        part["name"] = name.into();
        part["load_assignment"] = json!({ "cluster_name": name, "endpoints": [{ "lb_endpoints": workers }] });
        part
    };
    let (code, plain) = (part("code", &all[2..]), part("plain", &all));
    *llm = part(WORKER_CLUSTER, &all[..2]);
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.extend([code, plain]);
    }
    let to = |cluster: &str| json!({ "cluster": cluster, "prefix_rewrite": "/" });
    let by_header =
        |name: &str| json!({ "prefix": "/", "headers": [{ "name": "x-pool", "string_match": { "exact": name } }] });
    let routes = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"];
    let default = routes[0].clone();
    *routes = json!([
        { "match": { "prefix": "/code/" }, "route": to("code") },
        { "match": by_header("code"), "route": to("code") },
        { "match": by_header("plain"), "route": to("plain") },
        default,
    ]);
}

#[tokio::test]
async fn each_pool_is_balanced_on_its_own_and_other_clusters_are_left_alone() -> Result<()> {
    let world = World::of(4)
        .plugin(json!({ "policy": "random", "responseHeaders": true }))
        .envoy(|envoy| envoy.edit(three_clusters))
        .start()
        .await?;
    let mut plugin = world.plugin.clone();
    let workers = plugin["pools"][0]["workers"].as_array().context("the workers")?.clone();
    plugin["pools"] = json!([
        { "cluster": WORKER_CLUSTER, "workers": workers[..2] },
        { "cluster": "code", "workers": workers[2..] },
    ]);
    plugin["request"] = json!({ "basePaths": ["/v1", "/code"] });
    plugin["policy"] = "round-robin".into();
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    wait_policy(&world, "round-robin").await?;

    let before = world.served();
    let code_path = format!("/code{CHAT}");
    let rounds = [(CHAT, "", [4, 4, 0, 0]), (&code_path, "", [4, 4, 4, 4]), (CHAT, "code", [4, 4, 8, 8])];
    for (path, pool, want) in rounds {
        for _ in 0..8 {
            let reply = world.client().post(path, &[("x-pool", pool)], chat("s", &["hello"]).to_string()).await?;
            assert_eq!((reply.status, policy_of(&reply)), (200, Some("round-robin")), "{path} {pool}");
        }
        let served: Vec<u64> = world.served().iter().zip(&before).map(|(after, before)| after - before).collect();
        assert_eq!(served, want, "{path} {pool}");
    }
    let requests = world.count("requests_total").await?;
    let plain = world.client().post(CHAT, &[("x-pool", "plain")], chat("s", &["hello"]).to_string()).await?;
    assert_eq!((plain.status, policy_of(&plain)), (200, None));
    assert_eq!(world.count("requests_total").await?, requests);
    assert_eq!(world.count("answered_other_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn workers_that_restart_in_place_cost_no_request() -> Result<()> {
    let world = World::of(3).plugin(json!({ "policy": "least-load" })).start().await?;
    let load = Load::start(&world);
    for round in 0..6 {
        world.workers[round % 3].restart();
        world.wait_scrapes(1).await?;
    }
    assert!(load.stop().await? > 0);
    world.wait_gauge("known_workers", 3).await?;
    let before = world.served();
    let load = Load::start(&world);
    world.wait_scrapes(2).await?;
    load.stop().await?;
    assert!(world.served().iter().zip(before).all(|(after, before)| *after > before), "all are in use again");
    world.end().await
}
