//! Routes with a policy of their own, named in the route's metadata; each policy decides in a real Envoy, and says why.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_harness::client::Reply;
use warmroute_harness::config::{POLL_CLUSTER, http_manager};

use crate::world::{CHAT, World, chat, reason_of, worker_of};

/// The policies that routes choose, by the names that their metadata says.
const POLICIES: [(&str, &str); 6] = [
    ("in-turn", "round-robin"),
    ("roomy", "kv-utilization"),
    ("cached", "prefix-cache"),
    ("sum", "weighted"),
    ("sticky", "session"),
    ("hashed", "prefix-hash"),
];

/// A route for each policy, by the header `x-route`, one with a name that no policy has, and the one without metadata.
fn routes(bootstrap: &mut Value) {
    let routes = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"];
    let default = routes[0].clone();
    let names = POLICIES.iter().map(|(name, _)| *name).chain(["unheard-of"]);
    let mut all: Vec<Value> = names
        .map(|name| {
            let mut route = default.clone();
            let header = json!([{ "name": "x-route", "string_match": { "exact": name } }]);
            route["match"] = json!({ "prefix": "/", "headers": header });
            route["metadata"] = json!({ "filter_metadata": { "warmroute": { "policy": name } } });
            route
        })
        .collect();
    all.push(default);
    *routes = all.into();
}

async fn world(poll: Value) -> Result<World> {
    let policies: Vec<Value> =
        POLICIES.iter().map(|(name, policy)| json!({ "name": name, "policy": policy })).collect();
    let plugin = json!({
        "routePolicies": policies,
        "session": { "header": "x-session-id" },
        "responseHeaders": true,
        "poll": poll,
    });
    World::of(3).plugin(plugin).envoy(|envoy| envoy.edit(routes)).start().await
}

async fn ask(world: &World, route: &str, question: &str) -> Result<Reply> {
    let headers = [("x-route", route), ("x-session-id", "one")];
    world.client().post(CHAT, &headers, chat("s", &[&question.repeat(20)]).to_string()).await
}

fn policy_of(reply: &Reply) -> &str {
    reply.header("x-warmroute-policy").unwrap_or("none told")
}

#[tokio::test]
async fn a_route_chooses_its_policy_and_a_name_that_is_unknown_falls_back() -> Result<()> {
    let world = world(json!({})).await?;
    let mut workers = Vec::new();
    for _ in 0..6 {
        let reply = ask(&world, "in-turn", "the same question to all. ").await?;
        assert_eq!((policy_of(&reply), reason_of(&reply)), ("round-robin", "turn"));
        workers.push(worker_of(&reply)?);
    }
    assert_eq!(workers.iter().collect::<BTreeSet<_>>().len(), 3, "{workers:?}");
    assert_eq!(workers[..3], workers[3..]);
    assert_eq!(world.count("route_policy_unknown_total").await?, 0);

    for (route, unknown) in [("unheard-of", 1), ("no-such-route", 1), ("", 1)] {
        let reply = ask(&world, route, "a question of its own. ").await?;
        worker_of(&reply)?;
        assert_eq!(policy_of(&reply), "hybrid", "{route}");
        assert_eq!(world.count("route_policy_unknown_total").await?, unknown, "{route}");
    }
    world.end().await
}

#[tokio::test]
async fn each_policy_decides_and_says_why() -> Result<()> {
    let world = world(json!({ "cluster": POLL_CLUSTER, "intervalMs": 100 })).await?;
    world.wait_gauge("known_workers", 3).await?;
    let reasons = [
        ("in-turn", ["turn", "turn"]),
        ("roomy", ["kv_room", "kv_room"]),
        ("cached", ["cold", "warm"]),
        ("sum", ["score", "score"]),
        ("sticky", ["session", "session"]),
        ("hashed", ["home", "home"]),
    ];
    for (route, reasons) in reasons {
        let (_, policy) = POLICIES.iter().find(|(name, _)| *name == route).context("a policy")?;
        for reason in reasons {
            world.wait_scrapes(1).await?;
            let reply = ask(&world, route, &format!("a question of {route} alone. ")).await?;
            worker_of(&reply)?;
            assert_eq!((policy_of(&reply), reason_of(&reply)), (*policy, reason), "{route}");
            let picks = reply.header("x-warmroute-picks").context("no picks")?;
            assert_eq!(picks.split(',').collect::<BTreeSet<_>>().len(), 3, "{picks}");
        }
    }
    world.end().await
}

#[tokio::test]
async fn a_pool_is_one_whichever_route_leads_there() -> Result<()> {
    // What one policy sent somewhere, another finds there; policies that do not ask the index do not teach it.
    let world = world(json!({})).await?;
    let cached = worker_of(&ask(&world, "cached", "who knows this one? ").await?)?;
    let reply = ask(&world, "", "who knows this one? ").await?;
    assert_eq!((worker_of(&reply)?, reason_of(&reply)), (cached, "warm"));
    world.end().await
}
