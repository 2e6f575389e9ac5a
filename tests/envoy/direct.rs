//! Trusted hops name their workers, in the words of several routers, and are obeyed or refused; strangers are not heard.

mod body;
mod strangers;
mod trust;
mod words;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_harness::client::{Client, Reply, body};
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, WORKER_CLUSTER, cluster, http_manager};

use crate::world::{CHAT, World, chat};

const SECRET: (&str, &str) = ("x-hop-secret", "0123456789abcdef");

/// What `directRouting` says.
const MODES: [&str; 2] = ["soft", "strict"];

/// Takes out what removes the destination header before any filter sees it: where trusted hops speak the Gateway API's
/// words, the plugin has to see it.
fn lets_destinations_in(bootstrap: &mut Value) {
    http_manager(bootstrap)["early_header_mutation_extensions"] = json!([]);
}

/// Three workers, `pod-0` to `pod-2`, and a secret by which hops are trusted.
async fn world(mode: &str, more: Value) -> Result<World> {
    world_behind(mode, more, |envoy| envoy).await
}

async fn world_behind(
    mode: &str,
    more: Value,
    change: impl FnOnce(EnvoyConfig) -> EnvoyConfig + 'static,
) -> Result<World> {
    let mut world = World::of(3)
        .plugin(json!({ "poll": {} }))
        .envoy(move |envoy| change(envoy.edit(lets_destinations_in)))
        .start()
        .await?;
    let mut plugin = json!({
        "policy": "round-robin",
        "directRouting": mode,
        "trust": { "secretHeader": SECRET.0, "secrets": [SECRET.1] },
        "poll": { "cluster": POLL_CLUSTER, "intervalMs": 100 },
        "pools": [{ "cluster": WORKER_CLUSTER, "workers": rows(&world) }],
    });
    if let (Value::Object(plugin), Value::Object(more)) = (&mut plugin, more) {
        plugin.extend(more);
    }
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    // All threads have the names once the workers are scraped.
    world.wait_scrapes(2).await?;
    world.plugin = plugin;
    Ok(world)
}

fn rows(world: &World) -> Vec<Value> {
    let row = |(number, worker): (usize, &worker_sim::WorkerSim)| json!({ "address": worker.addr(), "name": format!("pod-{number}") });
    world.workers.iter().enumerate().map(row).collect()
}

/// A second cluster with the third worker, and in the first the other two.
fn third_worker_apart(bootstrap: &mut Value) {
    let Some(llm) = cluster(bootstrap, WORKER_CLUSTER) else { return };
    let mut other = llm.clone();
    let endpoints = llm["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array().cloned().unwrap_or_default();
    llm["load_assignment"]["endpoints"][0]["lb_endpoints"] = endpoints[..2].into();
    other["name"] = "other".into();
    other["load_assignment"]["cluster_name"] = "other".into();
    other["load_assignment"]["endpoints"][0]["lb_endpoints"] = endpoints[2..].into();
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.push(other);
    }
}

fn address(world: &World, worker: usize) -> String {
    world.workers[worker].addr().to_string()
}

/// A chat with these headers, and the secret.
async fn trusted(world: &World, headers: &[(&str, &str)]) -> Result<Reply> {
    stranger(world, &[headers, &[SECRET]].concat()).await
}

/// A chat with these headers.
async fn stranger(world: &World, headers: &[(&str, &str)]) -> Result<Reply> {
    world.client().post(CHAT, headers, chat("be brief", &["hello"]).to_string()).await
}

/// The number of the worker that answered.
fn server(world: &World, reply: &Reply) -> Result<usize> {
    anyhow::ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
    let answered = reply.header("x-worker").context("no worker answered")?;
    world.workers.iter().position(|worker| worker.addr().to_string() == answered).context("an unknown worker")
}

/// What the last request that arrived anywhere still said of where it goes.
fn hints_of_last(world: &World, worker: usize) -> Result<Vec<(String, String)>> {
    Ok(world.workers[worker].stats().recent.last().context("nothing arrived")?.hints.clone())
}
