//! Each router's words, from a hop that is trusted.

use worker_sim::Faults;

use super::*;

/// Headers that name the worker `number`, and whether an engine behind is to see them.
fn words(world: &World, number: usize) -> Vec<(&'static str, String, bool)> {
    vec![
        ("x-warmroute-target-worker", address(world, number), false),
        ("x-warmroute-target-worker", format!("Pod-{number}"), false),
        ("x-gateway-destination-endpoint", address(world, number), false),
        ("x-worker-instance-id", format!("pod-{number}"), true),
        ("x-dynamo-worker-instance-id", format!("pod-{number}"), true),
        ("X-SMG-Target-Worker", number.to_string(), false),
    ]
}

#[tokio::test]
async fn every_router_s_words_are_obeyed_and_go_on_only_where_an_engine_reads_them() -> Result<()> {
    for mode in MODES {
        let world = world(mode, json!({})).await?;
        let mut directed = 0;
        for number in [2, 0, 1] {
            for (header, value, goes_on) in words(&world, number) {
                let reply = trusted(&world, &[(header, &value)]).await?;
                assert_eq!(server(&world, &reply)?, number, "{mode} {header}: {value}");
                assert_eq!(reply.header("x-warmroute-worker"), Some(&*address(&world, number)), "{header}");
                assert_eq!(reply.header("x-warmroute-reason"), None, "only with responseHeaders");
                let sent_on = if goes_on { vec![(header.to_ascii_lowercase(), value)] } else { vec![] };
                assert_eq!(hints_of_last(&world, number)?, sent_on, "{mode} {header}");
                directed += 1;
            }
        }
        assert_eq!(world.count("directed_total").await?, directed);
        assert_eq!(world.count("decision_directed_total").await?, directed);
        assert_eq!(world.count("hints_removed_total").await?, 0);
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_list_is_tried_in_its_order() -> Result<()> {
    let world = world("strict", json!({})).await?;
    let list = format!("{}, {}", address(&world, 2), address(&world, 1));
    for header in ["x-warmroute-target-worker", "x-gateway-destination-endpoint"] {
        assert_eq!(server(&world, &trusted(&world, &[(header, &list)]).await?)?, 2, "{header}");
    }
    let unknown_first = format!("10.255.255.1:80,pod-9,{}", address(&world, 1));
    let reply = trusted(&world, &[("x-warmroute-target-worker", &unknown_first)]).await?;
    assert_eq!(server(&world, &reply)?, 1);
    world.end().await
}

#[tokio::test]
async fn a_wish_that_cannot_be_fulfilled_is_refused_with_the_reason_or_ignored() -> Result<()> {
    let cases = [
        ("x-warmroute-target-worker", "pod-9", "unknown_worker"),
        ("x-warmroute-target-worker", "10.255.255.1:80", "unknown_worker"),
        ("x-gateway-destination-endpoint", "10.255.255.1:80", "unknown_worker"),
        ("x-gateway-destination-endpoint", "not an address", "malformed_hint"),
        ("x-gateway-destination-endpoint-subset", "10.255.255.1:80,10.255.255.2", "subset_empty"),
        ("x-gateway-destination-endpoint-subset", "", "malformed_hint"),
        ("x-worker-instance-id", "99", "unknown_worker"),
        ("x-smg-target-worker", "3", "unknown_worker"),
        ("x-smg-target-worker", "-1", "malformed_hint"),
    ];
    let world = world("strict", json!({})).await?;
    for (header, value, reason) in cases {
        let reply = trusted(&world, &[(header, value)]).await?;
        assert_eq!((reply.status, reply.header("x-warmroute-reason")), (503, Some(reason)), "{header}: {value}");
        assert_eq!(reply.json()?["error"]["code"], *reason);
    }
    assert_eq!(world.served(), [0, 0, 0]);
    assert_eq!(world.count("directed_refused_total").await?, cases.len() as u64);
    world.end().await?;
    let world = super::world("soft", json!({})).await?;
    for (header, value, _) in cases {
        let reply = trusted(&world, &[(header, value)]).await?;
        server(&world, &reply).with_context(|| format!("{header}: {value}"))?;
    }
    assert_eq!(world.served(), [3, 3, 3], "the policy decides, and its turn goes on");
    assert_eq!(world.count("directed_ignored_total").await?, cases.len() as u64);
    world.end().await
}

#[tokio::test]
async fn what_is_said_twice_and_not_the_same_is_not_believed_and_goes_no_further() -> Result<()> {
    let world = world("strict", json!({})).await?;
    for (header, first, second) in [
        ("x-warmroute-target-worker", "pod-1", "pod-2"),
        ("x-worker-instance-id", "pod-1", ""),
        ("x-dp-rank", "0", "1"),
    ] {
        let reply = trusted(&world, &[(header, first), (header, second)]).await?;
        assert_eq!((reply.status, reply.header("x-warmroute-reason")), (503, Some("malformed_hint")), "{header}");
    }
    let endpoint = address(&world, 2);
    let twice = [("x-gateway-destination-endpoint", &*endpoint), ("x-gateway-destination-endpoint", &*endpoint)];
    assert_eq!(server(&world, &trusted(&world, &twice).await?)?, 2, "the same twice is once");
    world.end().await?;
    let world = super::world("soft", json!({})).await?;
    let reply = trusted(&world, &[("x-dp-rank", "0"), ("x-dp-rank", "1")]).await?;
    assert_eq!(hints_of_last(&world, server(&world, &reply)?)?, []);
    world.end().await
}

#[tokio::test]
async fn within_a_subset_the_policy_chooses_and_a_filter_may_say_it_in_metadata() -> Result<()> {
    let world = world("strict", json!({})).await?;
    let subset = format!("{},{}", address(&world, 0), address(&world, 2));
    for _ in 0..6 {
        let reply = trusted(&world, &[("x-gateway-destination-endpoint-subset", &subset)]).await?;
        assert_ne!(server(&world, &reply)?, 1);
    }
    assert_eq!(world.served(), [3, 0, 3]);
    assert_eq!(world.count("decision_turn_total").await?, 6);
    world.end().await?;
    let nobody = [json!(["127.0.0.1:1", "127.0.0.2"]), json!("127.0.0.1:1,127.0.0.2"), json!([]), json!("")];
    for (number, value) in nobody.into_iter().enumerate() {
        metadata_subset(MODES[number % 2], value.clone()).await?;
        metadata_subset(MODES[(number + 1) % 2], value).await?;
    }
    Ok(())
}

/// The gateway's own metadata, which need no trust: another filter writes them.
async fn metadata_subset(mode: &str, value: Value) -> Result<()> {
    let said = value.to_string();
    let filter = json!({
        "name": "envoy.filters.http.set_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
            "metadata": [{
                "metadata_namespace": "envoy.lb.subset_hint",
                "value": { "x-gateway-destination-endpoint-subset": value },
            }],
        },
    });
    let trust = json!({ "trust": { "metadata": true, "secretHeader": SECRET.0, "secrets": [SECRET.1] } });
    let world = world_behind(mode, trust, |envoy| envoy.filter_before(filter)).await?;
    let replies = [
        stranger(&world, &[]).await?,
        // What a request says beside it does not lift it, understood or not.
        trusted(&world, &[("x-smg-target-worker", "-1")]).await?,
        trusted(&world, &[("x-warmroute-target-worker", "pod-1")]).await?,
        world.client().send("GET", "/v1/models", &[], body("")).await?,
    ];
    for reply in replies {
        let got = (reply.status, reply.header("x-warmroute-reason"));
        assert_eq!(got, (503, Some("subset_empty")), "{mode} {said}: {}", reply.text());
    }
    world.end().await
}

#[tokio::test]
async fn a_rank_is_one_of_the_pool_s_or_goes_on_to_the_engine() -> Result<()> {
    let world = world("strict", json!({})).await?;
    for header in ["x-dynamo-dp-rank", "x-dp-rank", "x-data-parallel-rank"] {
        let reply = trusted(&world, &[(header, "1")]).await?;
        let worker = server(&world, &reply)?;
        assert_eq!(hints_of_last(&world, worker)?, [(header.to_owned(), "1".to_owned())]);
    }
    assert_eq!(world.count("directed_total").await?, 0);
    let mut rows = rows(&world);
    for (rank, row) in rows.iter_mut().enumerate() {
        row["dataParallelRank"] = rank.into();
    }
    let mut ranked = world.plugin.clone();
    ranked["pools"][0]["workers"] = rows.into();
    assert!(world.envoy.apply_plugin_config(&ranked).await?);
    for rank in [2, 0, 1] {
        let reply = trusted(&world, &[("x-data-parallel-rank", &rank.to_string())]).await?;
        assert_eq!(server(&world, &reply)?, rank);
    }
    let reply = trusted(&world, &[("x-data-parallel-rank", "7")]).await?;
    assert_eq!(reply.header("x-warmroute-reason"), Some("worker_unavailable"));
    world.end().await
}

#[tokio::test]
async fn a_routing_key_keeps_requests_together_and_beats_the_session_header() -> Result<()> {
    let session = json!({ "policy": "session", "session": { "header": "x-session-id" } });
    let world = world("strict", session).await?;
    let home = server(&world, &trusted(&world, &[("x-smg-routing-key", "a")]).await?)?;
    for number in 0..12 {
        let name = format!("session {number}");
        let reply = trusted(&world, &[("x-smg-routing-key", "a"), ("x-session-id", &name)]).await?;
        assert_eq!(server(&world, &reply)?, home);
    }
    let mut homes = Vec::new();
    for number in 0..12 {
        let name = format!("session {number}");
        let reply = stranger(&world, &[("x-smg-routing-key", "a"), ("x-session-id", &name)]).await?;
        homes.push(server(&world, &reply)?);
    }
    assert!(homes.iter().any(|other| *other != home), "strangers are kept by their session: {homes:?}");
    world.end().await
}

#[tokio::test]
async fn a_worker_that_is_dead_or_another_pool_s_cannot_be_had() -> Result<()> {
    let mut world = world_behind("strict", json!({}), |envoy| envoy.edit(third_worker_apart)).await?;
    let rows = rows(&world);
    let mut plugin = world.plugin.clone();
    plugin["pools"] = json!([
        { "cluster": WORKER_CLUSTER, "workers": rows[..2] },
        { "cluster": "other", "workers": rows[2..] },
    ]);
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    let third = address(&world, 2);
    for value in ["pod-2", &third] {
        let reply = trusted(&world, &[("x-warmroute-target-worker", value)]).await?;
        assert_eq!(reply.header("x-warmroute-reason"), Some("unknown_worker"), "{value}");
    }
    world.workers[1].stop().await;
    for _ in 0..4 {
        let reply = trusted(&world, &[("x-warmroute-target-worker", "pod-1")]).await?;
        assert_eq!((reply.status, reply.header("x-worker")), (503, None), "refused between two scrapes");
    }
    world.wait_gauge("available_workers", 1).await?;
    // Each thread learns of it with its tick; before that as after it, nobody else answers in its place.
    let deadline = tokio::time::Instant::now() + crate::world::WAIT_MAX;
    let mut refused = 0;
    while refused < 8 {
        let reply = trusted(&world, &[("x-warmroute-target-worker", "pod-1,pod-9")]).await?;
        assert_eq!((reply.status, reply.header("x-worker")), (503, None), "{}", reply.text());
        let is_refused = reply.header("x-warmroute-reason") == Some("worker_unavailable");
        refused = if is_refused { refused + 1 } else { 0 };
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "{}: {}", reply.status, reply.text());
    }
    let reply = trusted(&world, &[("x-warmroute-target-worker", "pod-1,pod-0")]).await?;
    assert_eq!(server(&world, &reply)?, 0, "the next in the list");
    world.wait_inflight_zero().await
}

/// A retry of whatever these workers fail; and callers of this machine are no strangers to Envoy, so that they may say how
/// often.
fn retries_500(bootstrap: &mut Value) {
    let manager = http_manager(bootstrap);
    manager["use_remote_address"] = true.into();
    manager["internal_address_config"] = json!({ "cidr_ranges": [{ "address_prefix": "127.0.0.0", "prefix_len": 8 }] });
    let route = &mut manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
    route["retry_policy"]["retriable_status_codes"] = json!([500, 503]);
}

#[tokio::test]
async fn nobody_else_serves_what_is_directed_strictly_or_within_a_subset() -> Result<()> {
    for mode in MODES {
        let world = world_behind(mode, json!({}), |envoy| envoy.edit(retries_500)).await?;
        for failing in &world.workers[1..] {
            failing.set_faults(Faults { error_rate: 1.0, ..Faults::default() })?;
        }
        let reply = trusted(&world, &[("x-warmroute-target-worker", "pod-1")]).await?;
        if mode == "strict" {
            assert_eq!((reply.status, world.served()), (500, vec![0, 1, 0]));
        } else {
            assert_eq!(
                (server(&world, &reply)?, world.served()[1]),
                (0, 1),
                "a soft wish does not keep it from others"
            );
        }
        let before = world.served();
        let subset = format!("{},{}", address(&world, 1), address(&world, 2));
        let within = ("x-gateway-destination-endpoint-subset", &*subset);
        let reply = trusted(&world, &[within]).await?;
        let served = world.served();
        assert_eq!(
            (reply.status, served[0], served[1..].iter().sum::<u64>()),
            (500, before[0], before[1] + before[2] + 2)
        );
        // A hop that wants less gets less.
        let reply = trusted(&world, &[within, ("x-envoy-max-retries", "0")]).await?;
        assert_eq!((reply.status, world.served().iter().sum::<u64>()), (500, served.iter().sum::<u64>() + 1));
        let reply = world.client().send("GET", "/echo", &[within, SECRET], body("")).await?;
        assert_eq!(reply.json()?["headers"].get("x-envoy-max-retries"), None, "Envoy's own");
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_rank_that_says_nothing_of_a_worker_does_not_open_what_is_closed() -> Result<()> {
    let world = world("soft", json!({ "failureMode": "closed" })).await?;
    for (content, want) in [("no JSON", "unreadable"), ("", "no_body")] {
        let reply = world.client().post(CHAT, &[SECRET, ("x-data-parallel-rank", "1")], content).await?;
        assert_eq!((reply.status, reply.header("x-warmroute-reason")), (503, Some(want)));
        let reply = world.client().post(CHAT, &[SECRET, ("x-warmroute-target-worker", "pod-1")], content).await?;
        assert_eq!(reply.header("x-worker"), Some(&*address(&world, 1)), "{content}");
    }
    world.end().await
}

#[tokio::test]
async fn a_request_without_a_prompt_goes_where_it_says_too() -> Result<()> {
    let world = world("strict", json!({})).await?;
    let hint = [("x-warmroute-target-worker", "pod-2"), SECRET];
    for (method, path, content) in
        [("GET", "/v1/models", ""), ("POST", CHAT, ""), ("POST", CHAT, "no JSON"), ("POST", "/tokenize", "{}")]
    {
        let reply = world.client().send(method, path, &hint, body(content)).await?;
        assert_eq!(reply.header("x-worker"), Some(&*address(&world, 2)), "{method} {path} {content}: {}", reply.text());
    }
    let unknown = [("x-warmroute-target-worker", "pod-9"), SECRET];
    let reply = world.client().send("GET", "/v1/models", &unknown, body("")).await?;
    assert_eq!((reply.status, reply.header("x-warmroute-reason")), (503, Some("unknown_worker")));
    world.end().await
}

#[tokio::test]
async fn http2_says_the_same() -> Result<()> {
    let world = world("strict", json!({})).await?;
    let client = Client::http2(world.envoy.address());
    let headers = [("x-warmroute-target-worker", "pod-2"), SECRET];
    let reply = client.post(CHAT, &headers, chat("s", &["x"]).to_string()).await?;
    assert_eq!(server(&world, &reply)?, 2);
    world.end().await
}
