//! What two builds of the core must agree on to the bit: the native one (replay, tests) and the one in the gateway.
//!
//! Gateways that do not talk agree on a prefix's home only if they hash alike, and old and new binaries read each
//! other's pages. A change of any page's value here is a change of what its bytes mean: raise its version and `LAYOUT`.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use warmroute::config::Config;
use warmroute::exchange::Exchange;
use warmroute::request::Api;
use warmroute::rng::mix;
use warmroute::router::{Ask, Body, Router};
use warmroute::schedule::rendezvous_weight;
use warmroute::shared::fleet::Fleet;
use warmroute::shared::lease::{LeaseStep, next_step};
use warmroute::shared::store::MemoryStore;
use warmroute::time::Timestamp;
use xxhash_rust::xxh3::xxh3_64;

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

const CONFIG: &[u8] = br#"{"pools": [{"cluster": "llm", "workers": [
    {"address": "10.0.0.1:8000"}, {"address": "10.0.0.2:8000"}, {"address": "10.0.0.3:8000"}, {"address": "[2001:db8::1]:8000"}]}]}"#;

fn router() -> Router {
    let config = Config::from_bytes(CONFIG).expect("is valid");
    let mut router = Router::new(config, 7, 11);
    let mut fleet = Fleet::default();
    fleet.admit(router.pool(0).expect("has a pool").addresses(), NOW);
    router.pool_mut(0).expect("has a pool").set_fleet(fleet);
    router
}

/// Decides 64 chats one after the other, each held in flight, and hashes all picks and the pages that remain.
#[test]
fn a_run_of_decisions_is_the_same_everywhere() {
    let (mut router, mut store) = (router(), MemoryStore::default());
    let mut picks = Vec::new();
    for turn in 0..64 {
        let (system, user) = ("You are helpful. ".repeat(1 + turn % 3 * 40), turn % 16);
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"h\u00e9llo {user}"}}]}}"#
        );
        let reading =
            router.read_prompt(Api::ChatCompletions, &Body::whole(body.as_bytes()), None).expect("is readable");
        let ask = Ask { is_read: true, is_whole: true, prompt_bytes: reading.prompt_bytes, ..Ask::default() };
        let now = NOW.plus_ms(turn as u64 * 10);
        let decision = router.decide(&mut store, &ask, &mut Exchange::default(), now).expect("has workers");
        picks.extend(decision.picks.as_slice().iter().flat_map(|worker| worker.0.to_le_bytes()));
    }
    router.flush(&mut store, 0, NOW.plus_ms(700));
    let picks = xxh3_64(&picks);
    let pages: Vec<(String, u64)> = store.iter().map(|(key, bytes)| (key.to_owned(), xxh3_64(bytes))).collect();
    let all = xxh3_64(format!("{pages:?}").as_bytes());
    assert_eq!([picks, all], GOLDEN_RUN, "all pages of layout 2: {picks:#018x} {all:#018x} {pages:#?}");
}

#[test]
fn pages_have_the_same_bytes_everywhere() {
    let fleet = xxh3_64(&router().pool(0).expect("has a pool").fleet().encode());
    let lease = match next_step(None, 7, 5, NOW, 1_000).expect("is free") {
        LeaseStep::Write(page) => xxh3_64(&page),
        other => panic!("a free lease is taken, got {other:?}"),
    };
    assert_eq!([fleet, lease], GOLDEN_PAGES, "fleet page version 4, lease page version 2: {fleet:#018x} {lease:#018x}");
}

#[test]
fn a_prefix_has_the_same_home_everywhere() {
    let weights = [(0, 0), (1, 2), (u64::MAX, 1)].map(|(prefix, identity)| rendezvous_weight(prefix, mix(identity)));
    assert_eq!(weights, GOLDEN_WEIGHTS, "{weights:#018x?}");
}

const GOLDEN_RUN: [u64; 2] = [0x3809_b248_7027_7d99, 0x7bba_2a92_c294_c61d];
const GOLDEN_PAGES: [u64; 2] = [0x8a86_7591_6d1b_0d9f, 0x9950_8d0c_dedd_ac9e];
const GOLDEN_WEIGHTS: [u64; 3] = [0, 0x3ec2_d42f_3a45_cc6e, 0xf375_9af4_852e_5904];
