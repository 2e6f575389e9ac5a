//! Another version of the plugin, whose pages have another layout: it takes over, and is rolled back.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use warmroute_harness::artefacts::Artefacts;
use warmroute_harness::client::channel_body;

use crate::swap::{Load, created_vms, finish_stream, open_stream, policy_of, swap_to, wait_policy};
use crate::world::{CHAT, WAIT_MAX, World, chat, reason_of, slow};

/// A conversation of one of some tenants, whose prompts have nothing in common.
fn of_tenant(tenant: usize) -> Value {
    chat(&format!("Tenant {tenant} says so. ").repeat(100), &["why?", "because", "go on"])
}

/// Why each of some tenants' conversations went where it went.
async fn reasons(world: &World) -> Result<Vec<String>> {
    let client = world.client();
    let mut reasons = Vec::new();
    for tenant in 0..6 {
        let reply = client.post_json(CHAT, &of_tenant(tenant)).await?;
        ensure!(reply.status == 200, "status {}", reply.status);
        reasons.push(reason_of(&reply).to_owned());
    }
    Ok(reasons)
}

#[tokio::test]
async fn a_version_with_another_layout_begins_its_own_pages_and_a_rollback_finds_the_old_ones() -> Result<()> {
    let plugin = json!({ "policy": "prefix-cache", "responseHeaders": true });
    let mut world = World::of(3).plugin(plugin).sim(&slow(4)).start().await?;
    assert_eq!(reasons(&world).await?, ["cold"; 6]);
    assert_eq!(reasons(&world).await?, ["warm"; 6]);
    let load = Load::start(&world);
    let mut streams = Vec::new();
    for number in 0..8 {
        streams.push(open_stream(&world, &format!("stream {number}"), 900).await?);
    }

    // Binary and configuration in one push, as a roll-out has them.
    let old = world.plugin.clone();
    world.plugin["policy"] = "hybrid".into();
    swap_to(&world, Artefacts::find()?.rehearsal_wasm()?).await?;
    wait_policy(&world, "hybrid").await?;
    assert_eq!(world.wait_count("layout_changes_total", 1).await?, 1);
    assert_eq!(reasons(&world).await?, ["cold"; 6], "nothing of the old pages is believed");
    assert_eq!(reasons(&world).await?, ["warm"; 6], "what it learns itself is");

    world.plugin = old;
    swap_to(&world, Artefacts::find()?.wasm()?).await?;
    wait_policy(&world, "prefix-cache").await?;
    assert_eq!(reasons(&world).await?, ["warm"; 6], "the old pages are as they were left");
    assert_eq!(world.count("page_newer_total").await?, 0);

    let finished: JoinSet<_> = streams.into_iter().map(finish_stream).collect();
    for end in finished.join_all().await {
        end?;
    }
    assert!(load.stop().await? > 0);
    world.end().await
}

#[tokio::test]
async fn a_change_of_config_makes_no_vm_and_a_request_under_way_keeps_the_config_that_it_began_with() -> Result<()> {
    let plugin = json!({ "policy": "round-robin", "responseHeaders": true });
    let world = World::of(2).plugin(plugin).start().await?;
    let vms = created_vms(&world).await?;
    let request = chat("s", &["a question in two parts"]).to_string();
    let (first, second) = request.split_at(request.len() / 2);
    let (mut sender, streamed) = channel_body();
    let client = world.client();
    let headers = [("content-type", "application/json")];
    let asking = tokio::spawn(async move { client.open("POST", CHAT, &headers, streamed).await });
    sender.send_data(first.to_owned().into()).await?;
    // Not before its headers are with the plugin.
    world.envoy.wait_stat("http.gateway.downstream_rq_active", 1, WAIT_MAX).await?;

    let mut changed = world.plugin.clone();
    changed["policy"] = "least-load".into();
    assert!(world.envoy.apply_plugin_config(&changed).await?);
    wait_policy(&world, "least-load").await?;
    sender.send_data(second.to_owned().into()).await?;
    drop(sender);
    let reply = asking.await??.finish().await?;
    assert_eq!((reply.status, policy_of(&reply)), (200, Some("round-robin")));
    // One to try the configuration in; a new binary has one for each thread besides.
    assert_eq!(created_vms(&world).await?, vms + 1, "the threads' VMs are the same");
    world.end().await
}
