//! What of a request is read, and what becomes of one that is not: as configured, in a real Envoy.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::world::{CHAT, World, chat, instant, reason_of, slow, worker_of};

/// A turn of an agent whose client puts a line of its own in front of the system prompt, another one each time.
fn billed(number: usize, turns: &[&str]) -> Value {
    let system = format!("x-anthropic-billing-header: cch={number:05}\n{}", "You are an agent. ".repeat(60));
    chat(&system, turns)
}

#[tokio::test]
async fn a_line_that_differs_from_request_to_request_hides_a_conversation_unless_it_is_skipped() -> Result<()> {
    let request = json!({ "skipLines": ["x-anthropic-billing-header:"] });
    for (request, later_reasons) in [(request, ["warm", "warm"]), (json!({}), ["cold", "cold"])] {
        // Without scrapes, which in so short a test might show our own requests as somebody else's.
        let plugin = json!({ "request": request, "responseHeaders": true, "poll": {} });
        let world = World::of(4).plugin(plugin).start().await?;
        let mut replies = Vec::new();
        for (number, turns) in [&["first"][..], &["first", "answer", "second"], &["first"]].iter().enumerate() {
            replies.push(world.client().post_json(CHAT, &billed(number, turns)).await?);
        }
        let reasons: Vec<&str> = replies.iter().map(reason_of).collect();
        assert_eq!((reasons[0], &reasons[1..]), ("cold", &later_reasons[..]));
        if later_reasons == ["warm", "warm"] {
            let workers = replies.iter().map(worker_of).collect::<Result<BTreeSet<_>>>()?;
            assert_eq!(workers.len(), 1, "{workers:?}");
        }
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn requests_that_no_format_reads_pass_or_go_where_the_load_is_least() -> Result<()> {
    for (others, reason) in [("least-load", "least_load"), ("pass", "none told")] {
        let plugin = json!({ "request": { "otherRequests": others }, "responseHeaders": true, "poll": {} });
        let world = World::of(3).sim(&instant()).plugin(plugin).start().await?;
        let replies = [
            world.client().get("/v1/models").await?,
            world.client().post("/echo", &[], "--x\r\n\r\nnot JSON\r\n--x--\r\n").await?,
            world.client().get(CHAT).await?,
        ];
        for reply in &replies {
            assert_eq!(reason_of(reply), reason, "{others}");
        }
        let sent = "--x\r\n\r\nnot JSON\r\n--x--\r\n";
        assert_eq!(replies[1].json()?["body_xxh3"], format!("{:016x}", xxh3_64(sent.as_bytes())));
        assert_eq!(world.count("routed_total").await?, if others == "pass" { 0 } else { 3 });
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn another_request_leaves_a_busy_worker_alone() -> Result<()> {
    let plugin = json!({ "request": { "otherRequests": "least-load" }, "responseHeaders": true, "poll": {} });
    let world = World::of(2).sim(&slow(40)).plugin(plugin).start().await?;
    let client = world.client();
    let generation = tokio::spawn(async move { client.post_json(CHAT, &chat("s", &["a long answer"])).await });
    world.wait_count("routed_total", 1).await?;
    let mut workers = BTreeSet::new();
    for _ in 0..6 {
        let reply = world.client().post("/echo", &[], "x").await?;
        workers.insert(reply.header("x-warmroute-picks").unwrap_or_default().split(',').next().map(str::to_owned));
    }
    let busy = worker_of(&generation.await??)?;
    assert_eq!(workers.len(), 1);
    assert!(!workers.contains(&Some(busy.clone())), "{busy} was busy, and yet one of {workers:?}");
    world.end().await
}
