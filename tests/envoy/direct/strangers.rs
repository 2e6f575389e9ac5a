//! What strangers say of where they go: gone before anything reads it, and never answered.

use std::time::Duration;

use warmroute_harness::client::Socket;

use super::*;

/// All headers of all routers, with values that would be obeyed.
fn all(world: &World) -> Vec<(&'static str, String)> {
    let (endpoint, number) = (address(world, 2), "2".to_owned());
    vec![
        ("x-warmroute-target-worker", "pod-2".into()),
        ("x-gateway-destination-endpoint", endpoint.clone()),
        ("x-gateway-destination-endpoint-subset", endpoint.clone()),
        ("x-gateway-destination-endpoint-served", endpoint.clone()),
        ("x-prefiller-host-port", endpoint.clone()),
        ("x-llm-d-prefiller-host-port", endpoint.clone()),
        ("x-encoder-hosts-ports", endpoint.clone()),
        ("x-llm-d-encoder-hosts-ports", endpoint.clone()),
        ("x-kv-cache-source-host-port", endpoint.clone()),
        ("x-llm-d-kv-cache-source-host-port", endpoint.clone()),
        ("x-data-parallel-host-port", endpoint),
        ("x-dynamo-worker-instance-id", "pod-2".into()),
        ("x-worker-instance-id", "pod-2".into()),
        ("x-dynamo-dp-rank", number.clone()),
        ("x-dp-rank", number.clone()),
        ("x-data-parallel-rank", number.clone()),
        ("x-dynamo-prefill-instance-id", number.clone()),
        ("x-prefill-instance-id", number.clone()),
        ("x-dynamo-prefill-dp-rank", number.clone()),
        ("x-prefill-dp-rank", number.clone()),
        ("x-dynamo-routing-mode", "disaggregated".into()),
        ("x-smg-target-worker", number.clone()),
        ("x-smg-routing-key", number),
    ]
}

fn borrowed<'a>(headers: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[tokio::test]
async fn a_stranger_s_hints_change_no_decision_and_reach_no_worker() -> Result<()> {
    for mode in MODES {
        let world = world(mode, json!({})).await?;
        let all = all(&world);
        let all = borrowed(&all);
        let mut requests = 0;
        // Alone, all at once, all of them doubled: round robin goes on as if nothing had been said.
        let singles = all.iter().map(|header| vec![*header]);
        for headers in singles.chain([all.clone(), [all.clone(), all.clone()].concat()]) {
            let expected = requests % 3;
            let reply = stranger(&world, &headers).await?;
            assert_eq!(server(&world, &reply)?, expected, "{mode} {headers:?}");
            assert_eq!(hints_of_last(&world, expected)?, [], "{mode} {headers:?}");
            assert_eq!(
                world.workers[expected].stats().recent.last().and_then(|record| record.destination_endpoint.clone()),
                None
            );
            let told = reply
                .headers
                .keys()
                .filter(|name| name.as_str().starts_with("x-warmroute") || name.as_str().contains("destination"));
            assert_eq!(told.count(), 0, "{:?}", reply.headers);
            requests += 1;
        }
        assert_eq!(world.count("hints_removed_total").await?, requests as u64);
        for counted in ["directed_total", "directed_ignored_total", "directed_refused_total"] {
            assert_eq!(world.count(counted).await?, 0, "{counted}");
        }
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn neither_case_nor_protocol_nor_another_path_lets_a_hint_through() -> Result<()> {
    let world = world("soft", json!({})).await?;
    let all = all(&world);
    let upper: String = all.iter().map(|(name, value)| format!("{}: {value}\r\n", name.to_ascii_uppercase())).collect();
    let content = chat("s", &["x"]).to_string();
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{upper}{upper}content-length: {}\r\nconnection: close\r\n\r\n{content}",
        content.len()
    );
    let mut socket = Socket::connect(world.envoy.address()).await?;
    socket.write(request.as_bytes()).await?;
    let answer = socket.read_rest(Duration::from_secs(15)).await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let http2 = Client::http2(world.envoy.address());
    let reply = http2.post(CHAT, &borrowed(&all), content).await?;
    assert_eq!(reply.status, 200);
    for (method, path) in [("GET", "/v1/models"), ("POST", "/echo"), ("GET", "/echo")] {
        let reply = http2.send(method, path, &borrowed(&all), body("")).await?;
        assert_eq!(reply.status, 200, "{path}");
        if path == "/echo" {
            let echoed = reply.json()?["headers"].clone();
            assert!(all.iter().all(|(name, _)| echoed.get(name).is_none()), "{echoed}");
        }
    }
    assert!(world.arrived().iter().all(|record| record.hints.is_empty()), "{:?}", world.arrived());
    assert_eq!(world.count("hints_removed_total").await?, 5);
    world.end().await
}

#[tokio::test]
async fn requests_to_clusters_that_are_no_pools_keep_all_but_the_destination() -> Result<()> {
    let world = world_behind("soft", json!({}), |envoy| {
        envoy.edit(third_worker_apart).edit(|bootstrap| {
            let routes = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"];
            routes[0]["route"]["cluster"] = "other".into();
        })
    })
    .await?;
    let all = all(&world);
    let reply = stranger(&world, &borrowed(&all)).await?;
    assert_eq!(server(&world, &reply)?, 2, "the only one there");
    let kept = hints_of_last(&world, 2)?;
    assert_eq!(kept.len(), all.len() - 1, "{kept:?}");
    assert!(kept.iter().all(|(name, _)| name != "x-gateway-destination-endpoint"));
    world.end().await
}

#[tokio::test]
async fn where_the_model_chooses_the_route_strangers_are_heard_no_more() -> Result<()> {
    let models = json!({ "modelHeader": "x-gateway-model-name" });
    let world = world("strict", models).await?;
    let all = all(&world);
    for more in [vec![], vec![("x-gateway-model-name", "sim")]] {
        let reply = stranger(&world, &[borrowed(&all), more].concat()).await?;
        let worker = server(&world, &reply)?;
        let hints = hints_of_last(&world, worker)?;
        assert_eq!(hints, [("x-gateway-model-name".to_owned(), "sim".to_owned())]);
    }
    let pin = ("x-warmroute-target-worker", "pod-2");
    let reply = trusted(&world, &[pin]).await?;
    assert_eq!(server(&world, &reply)?, 2);
    world.end().await
}

#[tokio::test]
async fn a_request_whose_pool_is_not_known_goes_nowhere_unjudged() -> Result<()> {
    let models = json!({ "modelHeader": "x-gateway-model-name" });
    let world = world("strict", models).await?;
    let (pin, model) = (("x-warmroute-target-worker", "pod-2"), ("x-gateway-model-name", "other"));
    let is_refused = |reply: &Reply| (reply.status, reply.header("x-warmroute-reason")) == (503, Some("unknown_pool"));
    let reply = trusted(&world, &[pin, model]).await?;
    assert!(is_refused(&reply), "{}", reply.text());
    for (method, path) in [("GET", "/v1/models"), ("POST", CHAT), ("POST", "/tokenize")] {
        let reply = world.client().send(method, path, &[pin, model, SECRET], body("")).await?;
        assert!(is_refused(&reply), "{path}: {}", reply.text());
    }
    assert_eq!((world.count("directed_refused_total").await?, world.arrived().len()), (4, 0));
    server(&world, &stranger(&world, &[pin, model]).await?)?;
    server(&world, &trusted(&world, &[model]).await?)?;

    let mut soft = world.plugin.clone();
    soft["directRouting"] = "soft".into();
    assert!(world.envoy.apply_plugin_config(&soft).await?);
    let reply = trusted(&world, &[pin, model]).await?;
    assert_eq!(
        hints_of_last(&world, server(&world, &reply)?)?,
        [("x-gateway-model-name".to_owned(), "sim".to_owned())]
    );
    assert_eq!(world.count("directed_ignored_total").await?, 1);

    soft["failureMode"] = "closed".into();
    assert!(world.envoy.apply_plugin_config(&soft).await?);
    for headers in [&[model][..], &[model, pin], &[model, ("content-encoding", "gzip")], &[model, SECRET]] {
        let reply = stranger(&world, headers).await?;
        assert!(is_refused(&reply), "{headers:?}: {}", reply.text());
    }
    server(&world, &stranger(&world, &[]).await?)?;
    assert_eq!(world.client().send("GET", "/v1/models", &[model], body("")).await?.status, 200, "no inference");
    world.end().await
}

#[tokio::test]
async fn a_gateway_behind_this_one_does_not_tell_strangers_who_answered() -> Result<()> {
    let world = world_behind("soft", json!({}), |envoy| {
        envoy.edit(|bootstrap| {
            // As another warmroute would answer that trusts this one.
            let route = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0];
            let told = |name| json!({ "header": { "key": format!("x-warmroute-{name}"), "value": "10.0.0.1:80" } });
            let all: Vec<Value> = ["worker", "picks", "policy", "reason", "rung"].into_iter().map(told).collect();
            route["response_headers_to_add"] = all.into();
        })
    })
    .await?;
    let reply = stranger(&world, &[]).await?;
    let told = reply.headers.keys().filter(|name| name.as_str().starts_with("x-warmroute-"));
    assert_eq!(told.count(), 0, "{:?}", reply.headers);
    let reply = trusted(&world, &[]).await?;
    assert_eq!(reply.header("x-warmroute-worker"), Some(&*address(&world, server(&world, &reply)?)));
    world.end().await
}
