//! Conversations that go on by the name of a response, over a store in memory.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::flow_tests::{Gateway, NOW, text, usage};
use super::*;
use crate::config::HealthConfig;
use crate::exchange::{Exchange, Source};
use crate::request::Api;
use crate::response::response_hash;
use crate::schedule::{Branch, Decision};
use crate::shared::PageKind;
use crate::shared::fleet::Fleet;
use crate::worker::{DatedReport, LoadReport, WorkerId};

const POLICIES: &[&str] = &[r#""round-robin""#, r#""least-load""#, r#""random""#, r#""hybrid""#, r#""prefix-hash""#];

fn hash(name: &str) -> u64 {
    response_hash(name.as_bytes()).unwrap()
}

/// Decides about a request of the Responses API.
fn ask(gateway: &mut Gateway, vm: usize, input: &str, previous: Option<&str>) -> (Exchange, Decision) {
    let previous = previous.map_or_else(|| "null".to_owned(), |name| format!(r#""{name}""#));
    let body = format!(r#"{{"model":"m","previous_response_id":{previous},"input":"{input}"}}"#);
    let router = &mut gateway.routers[vm];
    let reading = router.read_prompt(Api::Responses, &Body::whole(body.as_bytes()), None).unwrap();
    let ask = Ask {
        is_read: true,
        prompt_bytes: reading.prompt_bytes,
        is_whole: true,
        previous: reading.previous,
        ..Ask::default()
    };
    let mut exchange = Exchange::default();
    let decision = router.decide(&mut gateway.store, &ask, &mut exchange, gateway.now).unwrap();
    (exchange, decision)
}

fn first(decision: &Decision) -> WorkerId {
    decision.picks.first().unwrap()
}

/// Makes a worker fail its requests until it is left alone.
fn let_fail(gateway: &mut Gateway, worker: WorkerId) {
    while !gateway.learned(worker).failures.is_ejected(gateway.now, &HealthConfig::default()) {
        let (mut exchange, _) = ask(gateway, 0, "anything", None);
        gateway.answer(&mut exchange, Source::Worker(worker), 503);
        gateway.finish(&mut exchange, None);
        gateway.now = gateway.now.plus_ms(10);
    }
}

#[test]
fn every_turn_goes_to_the_worker_that_holds_the_one_before_whatever_the_policy_and_the_vm() {
    for policy in POLICIES {
        let mut gateway = Gateway::new(4, 2, policy);
        let mut holders = Vec::new();
        for user in 0..20 {
            let (mut exchange, decision) = ask(&mut gateway, 0, &format!("I am user {user}"), None);
            assert_ne!(decision.branch, Branch::PreviousResponse, "{policy}");
            let mut holder = first(&decision);
            gateway.answer(&mut exchange, Source::Worker(holder), 200);
            gateway.routers[0].note_response(&mut gateway.store, 0, holder, hash(&format!("resp_{user}_0")));
            holders.push(holder);
            for turn in 1..5 {
                let vm = (user + turn) % 2;
                let (_, decision) = ask(&mut gateway, vm, "and now?", Some(&format!("resp_{user}_{}", turn - 1)));
                let got = (first(&decision), decision.branch);
                assert_eq!(got, (holder, Branch::PreviousResponse), "{policy}, user {user}, turn {turn}");
                // A draw may give the same worker twice.
                assert!(decision.picks.as_slice().len() >= 2, "{policy}: others stay behind it for retries");
                // The host tried another, and that one made the next response.
                if turn == 3 {
                    holder = decision.picks.as_slice()[1];
                }
                gateway.routers[vm].note_response(&mut gateway.store, 0, holder, hash(&format!("resp_{user}_{turn}")));
            }
        }
        holders.dedup();
        assert!(holders.len() > 1, "{policy}: the users are on several workers");
    }
}

#[test]
fn a_holder_that_cannot_be_asked_does_not_come_first() {
    for policy in POLICIES {
        let mut gateway = Gateway::new(4, 2, policy);
        let holder = WorkerId(2);
        gateway.routers[0].note_response(&mut gateway.store, 0, holder, hash("resp_1"));
        let follow_up = |gateway: &mut Gateway| ask(gateway, 1, "and now?", Some("resp_1")).1;
        assert_eq!(first(&follow_up(&mut gateway)), holder, "{policy}");
        let_fail(&mut gateway, holder);
        let decision = follow_up(&mut gateway);
        assert!(first(&decision) != holder && decision.branch != Branch::PreviousResponse, "{policy}: it is failing");
        gateway.now = gateway.now.plus_ms(600_000);
        assert_eq!(first(&follow_up(&mut gateway)), holder, "{policy}: it is tried again");
    }
}

/// What a scrape tells of a worker that says nothing of its start.
fn report(now: Timestamp) -> DatedReport {
    DatedReport { report: LoadReport { running: Some(1.0), ..LoadReport::default() }, taken_at: now }
}

#[test]
fn a_worker_that_may_have_restarted_is_tried_for_no_other_can_hold_the_response() {
    for policy in POLICIES {
        let mut gateway = Gateway::new(4, 1, policy);
        gateway.routers[0].note_response(&mut gateway.store, 0, WorkerId(1), hash("resp_1"));
        let mut fleet = gateway.routers[0].pool(0).unwrap().fleet().clone();
        fleet.record_report("10.0.0.2:80", report(NOW), 0, 0);
        fleet.record_failure("10.0.0.2:80");
        fleet.record_failure("10.0.0.2:80");
        fleet.record_report("10.0.0.2:80", report(NOW.plus_ms(1_000)), 0, 0);
        assert_eq!(fleet.worker(WorkerId(1)).unwrap().generation, 1, "for the cache it is another life");
        gateway.now = NOW.plus_ms(1_100);
        gateway.routers[0].pool_mut(0).unwrap().set_fleet(fleet);
        let (_, decision) = ask(&mut gateway, 0, "and now?", Some("resp_1"));
        assert_eq!((first(&decision), decision.branch), (WorkerId(1), Branch::PreviousResponse), "{policy}");
    }
}

#[test]
fn a_worker_that_was_given_the_id_of_another_holds_nothing_of_it() {
    let mut gateway = Gateway::new(4, 1, r#""round-robin""#);
    gateway.routers[0].note_response(&mut gateway.store, 0, WorkerId(1), hash("resp_1"));
    let fleet_of = |addresses: [&str; 4]| {
        let mut fleet = Fleet::default();
        fleet.admit(addresses.into_iter(), NOW);
        fleet
    };
    // The rows of the second and the fourth have changed places.
    let fleet = fleet_of(["10.0.0.1:80", "10.0.0.4:80", "10.0.0.3:80", "10.0.0.2:80"]);
    gateway.routers[0].pool_mut(0).unwrap().set_fleet(fleet);
    let branches: Vec<Branch> = (0..4).map(|_| ask(&mut gateway, 0, "and now?", Some("resp_1")).1.branch).collect();
    assert_eq!(branches, [Branch::Turn; 4]);
    gateway.routers[0].note_response(&mut gateway.store, 0, WorkerId(3), hash("resp_1"));
    assert_eq!(first(&ask(&mut gateway, 0, "and now?", Some("resp_1")).1), WorkerId(3), "the first has left");
}

#[test]
fn who_makes_a_response_of_a_name_that_another_has_does_not_take_it_over() {
    let mut gateway = Gateway::new(4, 2, r#""round-robin""#);
    gateway.routers[0].note_response(&mut gateway.store, 0, WorkerId(1), hash("resp_1"));
    for thief in [0, 2, 3] {
        let writes = gateway.store.writes;
        gateway.routers[1].note_response(&mut gateway.store, 0, WorkerId(thief), hash("resp_1"));
        assert_eq!(gateway.store.writes, writes, "nothing to write");
        assert_eq!(first(&ask(&mut gateway, 0, "and now?", Some("resp_1")).1), WorkerId(1));
    }
}

#[test]
fn those_that_continue_a_response_that_nobody_is_known_to_hold_meet() {
    let mut gateway = Gateway::new(8, 2, r#""session""#);
    for name in ["resp_a", "resp_b", "resp_c"] {
        let workers: Vec<WorkerId> =
            (0..6).map(|number| first(&ask(&mut gateway, number % 2, "and now?", Some(name)).1)).collect();
        assert!(workers.iter().all(|worker| *worker == workers[0]), "{name}: {workers:?}");
    }
}

#[test]
fn what_follows_a_response_is_no_prompt_of_its_own() {
    let mut gateway = Gateway::hybrid(4);
    gateway.routers[0].note_response(&mut gateway.store, 0, WorkerId(2), hash("resp_1"));
    let input = text("the same words", 8_000);
    let (mut exchange, _) = ask(&mut gateway, 0, &input, Some("resp_1"));
    gateway.answer(&mut exchange, Source::Worker(WorkerId(2)), 200);
    // The engine counts the stored conversation too: that would be eight times as many tokens for each byte.
    assert_eq!(gateway.finish(&mut exchange, usage(16_000, Some(14_000))), None);
    let keys: Vec<String> = gateway.store.iter().map(|(key, _)| key.to_owned()).collect();
    assert!(keys.iter().all(|key| !key.contains("/index/") && !key.contains("/trunk/")), "{keys:?}");
    let (_, decision) = ask(&mut gateway, 0, &input, None);
    assert_eq!((decision.branch, decision.matched_tokens), (Branch::Cold, 0));
}

#[test]
fn a_follow_up_costs_one_page_read_and_an_answer_one_page_written() {
    let mut gateway = Gateway::new(4, 1, r#""least-load""#);
    let costs = |gateway: &mut Gateway, previous| {
        let before = (gateway.store.reads, gateway.store.writes);
        ask(gateway, 0, "and now?", previous);
        (gateway.store.reads - before.0, gateway.store.writes - before.1)
    };
    costs(&mut gateway, None);
    let (reads, writes) = costs(&mut gateway, None);
    assert_eq!(costs(&mut gateway, Some("resp_1")), (reads + 1, writes));
    let before = (gateway.store.reads, gateway.store.writes);
    gateway.routers[0].note_response(&mut gateway.store, 0, WorkerId(2), hash("resp_1"));
    assert_eq!((gateway.store.reads, gateway.store.writes), (before.0 + 1, before.1 + 1));
    assert_eq!(costs(&mut gateway, Some("resp_1")), (reads + 1, writes));
}

#[test]
fn pages_of_a_newer_version_are_left_alone_and_follow_ups_are_routed_all_the_same() {
    let mut gateway = Gateway::new(4, 1, r#""round-robin""#);
    let newer = [b"WRRE".as_slice(), &[0xff, 0x7f]].concat();
    for page in 0..crate::shared::responses::PAGES {
        assert!(gateway.store.set(&format!("{}/{page}", PageKind::Responses.key("llm")), &newer, 0));
    }
    gateway.routers[0].note_response(&mut gateway.store, 0, WorkerId(2), hash("resp_1"));
    let (_, decision) = ask(&mut gateway, 0, "and now?", Some("resp_1"));
    assert_eq!(decision.branch, Branch::Turn);
    assert_eq!(gateway.routers[0].take_incidents().newer, 2);
    assert!(gateway.store.iter().filter(|(key, _)| key.contains("/responses/")).all(|(_, bytes)| bytes == newer));
}

#[test]
fn what_names_no_response_continues_none() {
    let mut router = Gateway::new(2, 1, r#""hybrid""#).routers.remove(0);
    for (body, want) in [
        (r#"{"input":"a","previous_response_id":"resp_1"}"#, Some("resp_1")),
        (r#"{"previous_response_id":"resp_1","input":"a"}"#, Some("resp_1")),
        (r#"{"previous_response_id":"resp_1","input":[{"role":"user","content":"a"}]}"#, Some("resp_1")),
        (r#"{"previous_response_id":"\u0072esp_1","input":"a"}"#, Some("resp_1")),
        (r#"{"previous_response_id":null,"input":"a"}"#, None),
        (r#"{"previous_response_id":"","input":"a"}"#, None),
        (r#"{"previous_response_id":7,"input":"a"}"#, None),
        (r#"{"metadata":{"previous_response_id":"resp_1"},"input":"a"}"#, None),
        (r#"{"input":"a"}"#, None),
    ] {
        let reading = router.read_prompt(Api::Responses, &Body::whole(body.as_bytes()), None).unwrap();
        assert_eq!(reading.previous, want.map(hash), "{body}");
    }
    let chat = r#"{"messages":[{"role":"user","content":"a"}],"previous_response_id":"resp_1"}"#;
    let reading = router.read_prompt(Api::ChatCompletions, &Body::whole(chat.as_bytes()), None).unwrap();
    assert_eq!(reading.previous, None, "another API has no such thing");
}

#[test]
fn a_response_that_the_server_is_told_not_to_keep_has_no_name_to_note() {
    let mut router = Gateway::new(2, 1, r#""hybrid""#).routers.remove(0);
    for (body, want) in [
        (r#"{"input":"a","store":false}"#, false),
        (r#"{"store" : false ,"input":"a"}"#, false),
        (r#"{"input":"a","store":true,"store":false}"#, false),
        (r#"{"input":"a","store":false,"store":true}"#, true),
        (r#"{"input":"a","store":null}"#, true),
        (r#"{"input":"a","store":"false"}"#, true),
        (r#"{"input":"a","metadata":{"store":false}}"#, true),
        (r#"{"input":"a"}"#, true),
    ] {
        let reading = router.read_prompt(Api::Responses, &Body::whole(body.as_bytes()), None).unwrap();
        assert_eq!(reading.keeps_response, want, "{body}");
    }
    for (cut, want) in [(r#"{"store":false,"input":"a"#, false), (r#"{"input":"a","store":fal"#, true)] {
        let reading = router.read_prompt(Api::Responses, &Body::cut(cut.as_bytes(), None), None).unwrap();
        assert_eq!(reading.keeps_response, want, "{cut}");
    }
}
