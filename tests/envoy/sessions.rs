//! Sessions that clients name: they stay at a worker, wherever the name stands, unless it is too loaded.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::{Value, json};
use warmroute_harness::client::Reply;

use crate::held::hold_many_with;
use crate::world::{CHAT, World, chat, reason_of, slow, worker_of};

const SESSIONS: usize = 24;

fn plugin() -> Value {
    let session = json!({ "header": "x-session-id", "cookie": "session", "bodyKey": "user" });
    json!({ "policy": "session", "session": session, "responseHeaders": true })
}

/// Where a session is named.
#[derive(Clone, Copy, Debug)]
enum Place {
    Header,
    Cookie,
    BodyKey,
}

async fn ask(world: &World, place: Place, session: usize, turn: usize) -> Result<Reply> {
    let name = format!("session {session}");
    // Another prompt each time: only the name can keep them together.
    let mut request = chat(&format!("prompt {turn} of {session}"), &["hello"]);
    let cookie = format!("theme=dark; session={name}; session2=other");
    let header = match place {
        Place::Header => vec![("x-session-id", name.as_str()), ("cookie", "session=another")],
        Place::Cookie => vec![("cookie", cookie.as_str())],
        Place::BodyKey => {
            request["user"] = name.clone().into();
            vec![]
        }
    };
    world.client().post(CHAT, &header, request.to_string()).await
}

#[tokio::test]
async fn a_session_stays_at_its_worker_wherever_it_is_named() -> Result<()> {
    let world = World::of(4).plugin(plugin()).start().await?;
    let mut homes: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    let mut requests = 0;
    for (turn, place) in [Place::Header, Place::Cookie, Place::BodyKey, Place::Header].into_iter().enumerate() {
        for session in 0..SESSIONS {
            let reply = ask(&world, place, session, turn).await?;
            homes.entry(session).or_default().insert(worker_of(&reply)?);
            assert_eq!(reason_of(&reply), "session", "{place:?}");
            requests += 1;
        }
    }
    assert!(homes.values().all(|workers| workers.len() == 1), "{homes:?}");
    // 24 sessions over 4 workers: one is left without any in a run of four hundred, and then three have them.
    assert!(homes.values().flatten().collect::<BTreeSet<_>>().len() >= 3, "{homes:?}");
    assert_eq!(world.count("decision_session_total").await?, requests);
    world.end().await
}

#[tokio::test]
async fn a_session_too_large_for_its_worker_spills_over_and_comes_back() -> Result<()> {
    let world = World::of(4).plugin(plugin()).sim(&slow(50)).start().await?;
    let home = worker_of(&ask(&world, Place::Header, 0, 0).await?)?;
    let held =
        hold_many_with(&world, 40, &[("x-session-id", "session 0")], |user| chat("s", &[&format!("user {user}")]))
            .await?;
    // The default bound at the 40th request: ceil(1.5 * 40 / 4).
    assert_eq!(held.by_worker[&home], 15, "{:?}", held.by_worker);
    assert!(held.by_worker.values().all(|&count| count <= 15), "{:?}", held.by_worker);
    assert_eq!(world.count("decision_session_spill_total").await?, 40 - 15);
    drop(held);
    world.wait_inflight_zero().await?;
    assert_eq!(worker_of(&ask(&world, Place::Header, 0, 1).await?)?, home);
    world.end().await
}

#[tokio::test]
async fn requests_without_a_session_go_to_the_least_loaded() -> Result<()> {
    let world = World::of(4).plugin(plugin()).sim(&slow(50)).start().await?;
    // An empty name is none.
    let held =
        hold_many_with(&world, 20, &[("x-session-id", "")], |user| chat("s", &[&format!("user {user}")])).await?;
    assert_eq!(held.by_worker.values().copied().collect::<Vec<_>>(), [5; 4], "{:?}", held.by_worker);
    assert_eq!(world.count("decision_no_session_total").await?, 20);
    drop(held);
    world.end().await
}

#[tokio::test]
async fn the_policy_without_a_place_where_sessions_are_named_is_refused() -> Result<()> {
    let world = World::of(2).start().await?;
    for session in [None, Some(json!({})), Some(json!({ "header": "" })), Some(json!({ "header": "X-Session" }))] {
        let mut plugin = world.plugin.clone();
        plugin["policy"] = "session".into();
        if let Some(session) = &session {
            plugin["session"] = session.clone();
        }
        assert!(!world.envoy.apply_plugin_config(&plugin).await?, "{session:?} is taken");
    }
    assert!(world.envoy.log().contains("session is missing"), "{}", world.envoy.log_tail());
    worker_of(&world.client().post_json(CHAT, &chat("s", &["hello"])).await?)?;
    world.end().await
}
