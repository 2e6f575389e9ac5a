//! The model that a body asks for chooses the route, and is replaced where it is an alias: in a real Envoy, with routes
//! that know nothing of bodies.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use hyper::body::Bytes;
use serde_json::{Value, json};
use warmroute_harness::artefacts::Artefacts;
use warmroute_harness::client::{Reply, channel_body};
use warmroute_harness::config::{EnvoyConfig, PLUGIN, POLL_CLUSTER, WORKER_CLUSTER, cluster, http_manager};
use xxhash_rust::xxh3::xxh3_64;

use crate::world::{CHAT, World, chat};

const HEADER: &str = "x-gateway-model-name";

/// Two workers in the cluster of all routes, one more in the cluster `large`, where the route of the model `large` leads.
fn two_pools(bootstrap: &mut Value) {
    let Some(llm) = cluster(bootstrap, WORKER_CLUSTER) else { return };
    let endpoints = llm["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array().cloned().unwrap_or_default();
    let with = |name: &str, workers: &[Value]| {
        let mut part = llm.clone();
        part["name"] = name.into();
        part["load_assignment"] = json!({ "cluster_name": name, "endpoints": [{ "lb_endpoints": workers }] });
        part
    };
    let large = with("large", &endpoints[2..]);
    *llm = with(WORKER_CLUSTER, &endpoints[..2]);
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.push(large);
    }
    let routes = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"];
    let mut default = routes[0].clone();
    // Room for what the plugin waits for and a whole read of the connection, as in `envoy/minimal.yaml`.
    default["request_body_buffer_limit"] = (2 << 20).into();
    let mut to_large = default.clone();
    to_large["match"]["headers"] = json!([{ "name": HEADER, "string_match": { "exact": "large" } }]);
    to_large["route"]["cluster"] = "large".into();
    to_large["metadata"] = json!({ "filter_metadata": { "warmroute": { "policy": "drawn" } } });
    *routes = json!([to_large, default]);
}

/// The plugin once more, in front of the one that chooses workers: it only reads models. Between the two stands a filter
/// that looks at its route, for Envoy chooses a route anew only when somebody does.
fn reader() -> Result<[Value; 2]> {
    let artefacts = Artefacts::find()?;
    let plugin = json!({
        "name": "models",
        "root_id": "models",
        "allow_on_headers_stop_iteration": true,
        "failure_policy": "FAIL_RELOAD",
        "vm_config": {
            "vm_id": PLUGIN,
            "runtime": "envoy.wasm.runtime.v8",
            "code": { "local": { "filename": artefacts.wasm()? } },
        },
        "configuration": {
            "@type": "type.googleapis.com/google.protobuf.Struct",
            "value": { "modelHeader": HEADER },
        },
    });
    let filter = |name: &str, message: &str, mut config: Value| {
        config["@type"] = format!("type.googleapis.com/envoy.extensions.filters.http.{name}.v3.{message}").into();
        json!({ "name": name, "typed_config": config })
    };
    Ok([
        filter("wasm", "Wasm", json!({ "config": plugin })),
        filter("header_mutation", "HeaderMutation", json!({ "mutations": {} })),
    ])
}

/// Three workers in two pools; `plugin` says what it is to know of models.
async fn world(plugin: Value, filters: impl IntoIterator<Item = Value>) -> Result<World> {
    let filters: Vec<Value> = filters.into_iter().collect();
    let world = World::of(3)
        .plugin(json!({ "poll": {} }))
        .envoy(|envoy| filters.into_iter().fold(envoy.edit(two_pools), EnvoyConfig::filter_before))
        .start()
        .await?;
    let workers = world.plugin["pools"][0]["workers"].as_array().context("the workers")?.clone();
    let mut plugin = plugin;
    let large_models = if plugin.get("modelHeader").is_some() { json!(["large"]) } else { json!([]) };
    plugin["pools"] = json!([
        { "cluster": WORKER_CLUSTER, "workers": workers[..2] },
        { "cluster": "large", "workers": workers[2..], "models": large_models },
    ]);
    plugin["poll"] = json!({ "cluster": POLL_CLUSTER, "intervalMs": 100 });
    plugin["responseHeaders"] = true.into();
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    world.wait_count("polls_sent_total", 1).await?;
    Ok(world)
}

/// As [`world`], with one plugin that reads models and chooses workers.
async fn world_with_aliases(models: Value) -> Result<World> {
    world(json!({ "modelHeader": HEADER, "models": models }), []).await
}

fn asking(model: &str, question: &str) -> String {
    let mut body = chat("be brief", &[question]);
    body["model"] = model.into();
    body.to_string()
}

fn picks_of(reply: &Reply) -> &str {
    reply.header("x-warmroute-picks").unwrap_or("none told")
}

/// Sends a body without saying how long it is, in pieces that cut names, escapes and characters.
async fn in_pieces(world: &World, content: &str) -> Result<Reply> {
    let (mut sender, stream) = channel_body();
    let client = world.client();
    let feed = async {
        for piece in content.as_bytes().chunks(7) {
            sender.send_data(Bytes::copy_from_slice(piece)).await?;
        }
        drop(sender);
        anyhow::Ok(())
    };
    let (reply, fed) = tokio::join!(client.send("POST", CHAT, &[], stream), feed);
    fed?;
    reply
}

/// The hash by which a worker notes a body.
fn hash(content: &str) -> String {
    format!("{:016x}", xxh3_64(content.as_bytes()))
}

/// Requests go where the model of their body leads, and nowhere else, whatever the client says.
async fn the_model_chooses(world: &World) -> Result<()> {
    let large = world.workers[2].addr().to_string();
    let cases = [("large", "", true), ("small", "", false), ("small", "large", false), ("large", "small", true)];
    for (model, header, is_large) in cases {
        let headers: &[(&str, &str)] = if header.is_empty() { &[] } else { &[(HEADER, header)] };
        let reply = world.client().post(CHAT, headers, asking(model, "hello")).await?;
        assert_eq!(reply.status, 200, "{model} {header}");
        assert_eq!(reply.header("x-worker") == Some(&large), is_large, "{model} {header}");
        // It was decided in the pool of the new route.
        assert_eq!(picks_of(&reply) == large, is_large, "{model} {header}: {}", picks_of(&reply));
    }
    assert_eq!(world.count("answered_other_total").await?, 0);
    // A body without a prompt has a model all the same; and a model that no header may hold chooses nothing.
    let loads = world.client().post("/api/generate", &[], r#"{"model":"large"}"#).await?;
    assert_eq!((loads.status, loads.header("x-worker")), (200, Some(&*large)), "{}", loads.text());
    for model in ["a\nb", &"long ".repeat(100)] {
        let reply = world.client().post(CHAT, &[(HEADER, "large")], asking(model, "hello")).await?;
        assert_eq!((reply.status, reply.header("x-worker") == Some(&large)), (200, false), "{model}");
    }
    // A body without a model, or that is none, goes where no model leads.
    let before = world.served();
    for body in [r#"{"messages":[]}"#, "no JSON", ""] {
        world.client().post(CHAT, &[(HEADER, "large")], body.to_owned()).await?;
        world.client().post("/echo", &[(HEADER, "large")], body.to_owned()).await?;
    }
    assert_eq!(world.served()[2], before[2]);
    Ok(())
}

#[tokio::test]
async fn the_bodys_model_chooses_the_route_and_a_clients_header_does_not() -> Result<()> {
    let world = world_with_aliases(json!([])).await?;
    the_model_chooses(&world).await?;
    let compressed = [("content-encoding", "gzip")];
    world.client().post(CHAT, &compressed, "compressed").await?;
    // One that is compressed, two names that no header may hold, a chat without a model, and no JSON; a request without a
    // body has nothing to read.
    assert_eq!(world.count("model_unread_total").await?, 5);
    world.end().await
}

#[tokio::test]
async fn a_header_that_was_removed_chooses_no_policy() -> Result<()> {
    let policies = json!([{ "name": "drawn", "policy": "random" }]);
    let world = world(json!({ "modelHeader": HEADER, "routePolicies": policies }), []).await?;
    for (model, header) in [("large", "large"), ("large", "small"), ("small", "small")] {
        let reply = world.client().post(CHAT, &[(HEADER, header)], asking(model, "hello")).await?;
        let policy = reply.header("x-warmroute-policy");
        assert!(reply.status == 200 && policy != Some("random"), "{model} {header}: {policy:?}");
    }
    world.end().await
}

#[tokio::test]
async fn a_plugin_in_front_that_only_reads_models_needs_no_pools_and_no_list_of_their_models() -> Result<()> {
    let world = world(json!({}), reader()?).await?;
    the_model_chooses(&world).await?;
    world.end().await
}

#[tokio::test]
async fn an_alias_is_replaced_and_every_other_byte_stays() -> Result<()> {
    let world = world_with_aliases(json!([{ "name": "gpt", "targets": [{ "name": "large" }] }])).await?;
    let body = "{ \"messages\" : [{\"role\":\"user\",\"content\":\"gpt \\u00e9 \u{e9}\"}],\n \
                \"model\" : \"g\\u0070t\" , \"seed\": 12345678901234567890 }";
    let sent = body.replace("g\\u0070t", "large");
    for is_chunked in [false, true] {
        let before = world.arrived().len();
        let reply = if is_chunked {
            in_pieces(&world, body).await?
        } else {
            world.client().post(CHAT, &[], body.to_owned()).await?
        };
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("x-worker"), Some(&*world.workers[2].addr().to_string()));
        let arrived = world.arrived();
        assert_eq!(arrived.len(), before + 1);
        let record = &arrived[before];
        assert_eq!((record.model.as_deref(), record.body_bytes), (Some("large"), sent.len()));
        assert_eq!(record.body_xxh3, hash(&sent));
    }
    assert_eq!(world.count("model_replaced_total").await?, 2);
    world.end().await
}

#[tokio::test]
async fn an_alias_in_a_body_beyond_the_scan_limit_is_replaced_in_its_first_part() -> Result<()> {
    let world =
        world_with_aliases(json!([{ "name": "gpt", "targets": [{ "name": "a-much-longer-name-than-before" }] }]))
            .await?;
    let text = "long ".repeat(400_000);
    let body = format!(r#"{{"model":"gpt","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let sent = body.replace("\"gpt\"", "\"a-much-longer-name-than-before\"");
    let reply = world.client().post(CHAT, &[], body).await?;
    let arrived = world.arrived();
    let record = arrived.last().with_context(|| format!("nothing arrived: {}", reply.text()))?;
    assert_eq!(record.body_xxh3, hash(&sent));
    world.end().await
}

#[tokio::test]
async fn a_canary_gets_its_share_of_conversations_and_each_keeps_its_model() -> Result<()> {
    let world = world_with_aliases(json!([{
        "name": "gpt",
        "targets": [{ "name": "small", "weight": 60 }, { "name": "large", "weight": 40 }],
    }]))
    .await?;
    let mut models: BTreeMap<String, usize> = BTreeMap::new();
    for conversation in 0..40 {
        let question = format!("question {conversation}");
        let turns = ["first", "second"].map(|turn| (turn, [&question, "answer", turn]));
        let mut seen = Vec::new();
        for (turn, texts) in turns {
            let texts: &[&str] = if turn == "first" { &[texts[0]] } else { &[texts[0], texts[1], texts[2]] };
            let mut body = chat("be brief", texts);
            body["model"] = "gpt".into();
            let reply = world.client().post_json(CHAT, &body).await?;
            let is_large = reply.header("x-worker") == Some(&*world.workers[2].addr().to_string());
            seen.push(if is_large { "large" } else { "small" }.to_owned());
        }
        assert_eq!(seen[0], seen[1], "conversation {conversation} keeps its model");
        *models.entry(seen[0].clone()).or_default() += 1;
    }
    // Of 40 conversations 16 on average; fewer than 5 or more than 28 come about once in 10,000 drawings.
    let large = models.get("large").copied().unwrap_or_default();
    assert!((5..=28).contains(&large), "{models:?}");
    let arrived: Vec<_> = world.arrived().into_iter().filter_map(|record| record.model).collect();
    assert!(arrived.iter().all(|model| model != "gpt"), "{arrived:?}");
    world.end().await
}
