//! The ladder of failing: each step is reached, counted, and told in the answer where the operator wants it told.

use anyhow::Result;
use serde_json::{Value, json};
use warmroute_harness::client::Reply;
use warmroute_harness::config::{POLL_CLUSTER, WORKER_CLUSTER};
use worker_sim::{Faults, MetricsFault};

use crate::world::{CHAT, World, chat};

fn rung(reply: &Reply) -> (u16, &str) {
    (reply.status, reply.header("x-warmroute-rung").unwrap_or("none told"))
}

fn plugin(keys: &Value) -> Value {
    let mut plugin = json!({ "policy": "hybrid", "responseHeaders": true });
    for (key, value) in keys.as_object().into_iter().flatten() {
        plugin[key] = value.clone();
    }
    plugin
}

const GZIPPED: [(&str, &str); 1] = [("content-encoding", "gzip")];

#[tokio::test]
async fn each_step_down_is_taken_counted_and_told() -> Result<()> {
    let poll = json!({ "cluster": "warmroute_poll", "intervalMs": 50, "reportMaxAgeMs": 300, "timeoutMs": 100 });
    let world = World::of(2).plugin(plugin(&json!({ "poll": poll }))).start().await?;
    let client = world.client();
    world.wait_gauge("known_workers", 2).await?;
    world.wait_scrapes(2).await?;

    let reply = client.post_json(CHAT, &chat("s", &["hello"])).await?;
    assert_eq!(rung(&reply), (200, "full"));
    let reply = client.post(CHAT, &GZIPPED, "whatever").await?;
    assert_eq!(rung(&reply).1, "no_index");
    let reply = client.post(CHAT, &[], "no JSON").await?;
    assert_eq!(rung(&reply).1, "no_decision");
    assert!(reply.header("x-warmroute-picks").is_none() && reply.header("x-worker").is_some(), "{reply:?}");

    for worker in &world.workers {
        worker.set_faults(Faults { metrics: MetricsFault::NotFound, ..Faults::default() })?;
    }
    world.wait_gauge("known_workers", 0).await?;
    world.wait_scrapes(2).await?;
    let reply = client.post_json(CHAT, &chat("s", &["hello again"])).await?;
    assert_eq!(rung(&reply), (200, "no_reports"));
    for worker in &world.workers {
        worker.set_faults(Faults::default())?;
    }
    world.wait_gauge("known_workers", 2).await?;
    world.wait_scrapes(2).await?;
    assert_eq!(rung(&client.post_json(CHAT, &chat("s", &["and again"])).await?), (200, "full"));

    for (name, want) in [("full", 2), ("no_index", 1), ("no_reports", 1), ("no_decision", 1)] {
        assert_eq!(world.count(&format!("ladder_{name}_total")).await?, want, "{name}");
    }
    assert_eq!(world.count("refused_undecided_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn closed_means_that_what_cannot_be_decided_is_refused_with_its_reason() -> Result<()> {
    let world = World::of(2).plugin(plugin(&json!({ "failureMode": "closed" }))).start().await?;
    let client = world.client();
    for (body, want) in [("no JSON", "unreadable"), ("", "no_body")] {
        let reply = client.post(CHAT, &[], body).await?;
        assert_eq!((reply.status, reply.header("x-warmroute-reason")), (503, Some(want)), "{body:?}");
        assert_eq!(reply.json()?["error"]["code"], want);
        assert_eq!((rung(&reply), reply.header("x-worker")), ((503, "no_decision"), None));
    }
    // What is decided with less than all is decided, and what is no inference request passes.
    assert_eq!(rung(&client.post(CHAT, &GZIPPED, "whatever").await?).1, "no_index");
    assert_eq!(client.get("/health").await?.status, 200);
    assert_eq!(client.post_json(CHAT, &chat("s", &["hello"])).await?.status, 200);
    assert_eq!(world.count("refused_undecided_total").await?, 2);
    assert_eq!(world.count("ladder_no_decision_total").await?, 2);
    assert_eq!(world.served().iter().sum::<u64>(), 2);
    world.end().await
}

#[tokio::test]
async fn closed_means_503_where_discovery_finds_no_workers() -> Result<()> {
    // What is asked for the workers has no host to be asked.
    let discovery = json!({ "cluster": POLL_CLUSTER, "intervalMs": 100 });
    let keys = json!({ "failureMode": "closed", "discovery": discovery, "pools": [{ "cluster": WORKER_CLUSTER }] });
    let world = World::of(1).plugin(plugin(&keys)).start().await?;
    world.wait_count("discoveries_failed_total", 1).await?;
    let reply = world.client().post_json(CHAT, &chat("s", &["hello"])).await?;
    assert_eq!((rung(&reply), reply.header("x-warmroute-reason")), ((503, "no_decision"), Some("no_workers")));
    assert_eq!(world.count("ladder_no_decision_total").await?, 1);
    assert_eq!(world.count("refused_undecided_total").await?, 1);
    assert_eq!(world.served(), [0]);
    Ok(())
}
