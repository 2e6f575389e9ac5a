//! Requests from decision to end over a store in memory: what each step leaves in the pages.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::exchange::{Answerer, Exchange, Source};
use crate::request::Api;
use crate::response::Usage;
use crate::schedule::{Branch, Decision};
use crate::shared::PageKind;
use crate::shared::fleet::Fleet;
use crate::shared::learned::{LearnedPage, LearnedWorker};
use crate::shared::store::MemoryStore;
use crate::worker::WorkerId;

pub(super) const NOW: Timestamp = Timestamp::from_ms(1_000_000_000);

/// VMs of one gateway over one store, and the time.
pub(super) struct Gateway {
    pub(super) routers: Vec<Router>,
    pub(super) store: MemoryStore,
    pub(super) now: Timestamp,
}

impl Gateway {
    pub(super) fn new(workers: usize, vms: u64, policy: &str) -> Self {
        let addresses: Vec<String> = (0..workers).map(|worker| format!("10.0.0.{}:80", worker + 1)).collect();
        let listed: Vec<String> = addresses.iter().map(|address| format!(r#"{{"address":"{address}"}}"#)).collect();
        let config = format!(
            r#"{{"policy":{policy},"pools":[{{"cluster":"llm","workers":[{}]}}],"session":{{"header":"x-session-id"}}}}"#,
            listed.join(",")
        );
        let mut fleet = Fleet::default();
        fleet.admit(addresses.iter().map(String::as_str), NOW);
        let router = |owner| {
            let mut router = Router::new(Config::from_bytes(config.as_bytes()).unwrap(), owner, owner);
            router.pool_mut(0).unwrap().set_fleet(fleet.clone());
            router
        };
        Self { routers: (1..=vms).map(router).collect(), store: MemoryStore::default(), now: NOW }
    }

    pub(super) fn hybrid(workers: usize) -> Self {
        Self::new(workers, 1, r#""hybrid""#)
    }

    pub(super) fn decide(&mut self, vm: usize, text: &str) -> (Exchange, Decision) {
        let body = format!(r#"{{"model":"m","prompt":"{text}"}}"#);
        let router = &mut self.routers[vm];
        let reading = router.read_prompt(Api::Completions, &Body::whole(body.as_bytes()), None).unwrap();
        let ask = Ask { is_read: true, prompt_bytes: reading.prompt_bytes, is_whole: true, ..Ask::default() };
        let mut exchange = Exchange::default();
        let decision = router.decide(&mut self.store, &ask, &mut exchange, self.now).unwrap();
        (exchange, decision)
    }

    pub(super) fn answer(&mut self, exchange: &mut Exchange, source: Source, status: u32) -> Answerer {
        self.routers[0].answered(&mut self.store, 0, exchange, source, status, self.now)
    }

    pub(super) fn finish(&mut self, exchange: &mut Exchange, usage: Option<Usage>) -> Option<Prediction> {
        self.routers[0].first_byte(&mut self.store, 0, exchange, self.now);
        self.routers[0].end(&mut self.store, 0, exchange, usage, self.now)
    }

    /// A request that goes well, and the tick after it; returns who got it and why.
    pub(super) fn serve(&mut self, text: &str) -> (WorkerId, Branch) {
        let (mut exchange, decision) = self.decide(0, text);
        let worker = decision.picks.first().unwrap();
        self.answer(&mut exchange, Source::Worker(worker), 200);
        self.finish(&mut exchange, None);
        self.routers[0].flush(&mut self.store, 0, self.now);
        (worker, decision.branch)
    }

    /// What the page says of a worker after the next tick.
    pub(super) fn learned(&mut self, worker: WorkerId) -> LearnedWorker {
        self.routers[0].flush(&mut self.store, 0, self.now);
        let page = self.store.get(&self.routers[0].pool(0).unwrap().keys().learned.clone()).0;
        LearnedPage::open(page).unwrap().worker(worker, 0)
    }

    /// What the page says is in flight, after the next tick.
    fn in_flight(&mut self) -> u32 {
        self.routers[0].flush(&mut self.store, 0, self.now);
        let page = self.store.get(&self.routers[0].pool(0).unwrap().keys().inflight.clone()).0;
        let mut totals = vec![Held::default(); 8];
        InflightPage::open(page).unwrap().add_up(u64::MAX, &[], self.now, &mut totals);
        totals.iter().map(|held| held.requests + held.prefilling + held.prefill_tokens).sum()
    }
}

pub(super) fn text(name: &str, bytes: usize) -> String {
    format!("{name} ").repeat(bytes / (name.len() + 1))
}

pub(super) fn usage(prompt_tokens: u32, cached_tokens: Option<u32>) -> Option<Usage> {
    Some(Usage { prompt_tokens: Some(prompt_tokens), completion_tokens: Some(10), cached_tokens })
}

#[test]
fn the_next_turn_goes_where_the_first_one_went_and_so_it_does_in_another_vm() {
    let mut gateway = Gateway::new(4, 2, r#""hybrid""#);
    for user in 0..20 {
        let first = text(&format!("user {user}"), 4_000);
        let (worker, branch) = gateway.serve(&first);
        assert_eq!(branch, Branch::Cold, "user {user}");
        let (_, decision) = gateway.decide(1, &format!("{first} and then"));
        assert_eq!((decision.picks.first(), decision.branch), (Some(worker), Branch::Warm), "user {user}");
        assert!(decision.matched_tokens > 900, "user {user}: {}", decision.matched_tokens);
    }
}

#[test]
fn siblings_follow_a_cached_context_until_it_is_quicker_to_compute_it_again() {
    let mut gateway = Gateway::hybrid(4);
    let shared = text("the long context of all siblings", 16_000);
    let (planner, _) = gateway.serve(&shared);
    let workers: Vec<WorkerId> = (0..120)
        .map(|sibling| gateway.decide(0, &format!("{shared} part {sibling}")).1.picks.first().unwrap())
        .collect();
    let following = workers.iter().take_while(|worker| **worker == planner).count();
    // 4,000 tokens of context against some 80 for each sibling there and its own part.
    assert!((20..80).contains(&following), "{workers:?}");
}

#[test]
fn a_prompt_is_believed_to_be_where_it_was_sent_before_it_is_answered() {
    let mut gateway = Gateway::hybrid(4);
    let prompt = text("a prompt", 8_000);
    let (_, first) = gateway.decide(0, &prompt);
    let (_, second) = gateway.decide(0, &prompt);
    assert_eq!(first.branch, Branch::Cold);
    assert_ne!(second.branch, Branch::Cold, "a millisecond later it is known");
}

#[test]
fn what_was_not_built_is_not_believed() {
    let prompt = text("a prompt", 8_000);
    for (name, status) in [("an error of the worker", 500), ("a request that it refuses", 400)] {
        let mut gateway = Gateway::hybrid(4);
        let (mut exchange, decision) = gateway.decide(0, &prompt);
        gateway.answer(&mut exchange, Source::Worker(decision.picks.first().unwrap()), status);
        gateway.finish(&mut exchange, None);
        assert_eq!(gateway.serve(&prompt).1, Branch::Cold, "{name}");
    }
    let mut gateway = Gateway::hybrid(4);
    let (mut exchange, _) = gateway.decide(0, &prompt);
    gateway.routers[0].end(&mut gateway.store, 0, &mut exchange, None, NOW);
    assert_eq!(gateway.serve(&prompt).1, Branch::Cold, "a client that leaves before the first byte");
    assert_eq!(gateway.in_flight(), 0);
}

#[test]
fn a_retry_gives_the_credit_to_who_answered_and_the_failure_to_who_did_not() {
    let mut gateway = Gateway::hybrid(4);
    let prompt = text("a prompt", 8_000);
    let (mut exchange, decision) = gateway.decide(0, &prompt);
    let [first, second] = [0, 1].map(|pick| decision.picks.as_slice()[pick]);
    assert_eq!(gateway.answer(&mut exchange, Source::Worker(second), 200), Answerer::LaterPick);
    assert_eq!(
        gateway.finish(&mut exchange, usage(2_000, Some(0))),
        Some(Prediction { predicted_tokens: 0, cached_tokens: 0 })
    );
    assert_eq!(gateway.serve(&prompt), (second, Branch::Warm));
    assert_eq!([first, second].map(|worker| gateway.learned(worker).failures.in_a_row), [1, 0]);
    assert_eq!(gateway.in_flight(), 0);
}

#[test]
fn a_worker_that_fails_again_and_again_is_left_alone_and_tried_with_one_request() {
    let mut gateway = Gateway::hybrid(3);
    let bad = WorkerId(1);
    let mut sent_to_bad = 0;
    for request in 0..200 {
        gateway.now = gateway.now.plus_ms(10);
        let (mut exchange, decision) = gateway.decide(0, &text(&format!("request {request}"), 2_000));
        let worker = decision.picks.first().unwrap();
        sent_to_bad += u32::from(worker == bad);
        let status = if worker == bad { 503 } else { 200 };
        gateway.answer(&mut exchange, Source::Worker(worker), status);
        gateway.finish(&mut exchange, None);
    }
    // Three, and one when a second is over; the next would be after two more.
    assert_eq!(sent_to_bad, 4);
    gateway.now = gateway.now.plus_ms(60_000);
    for request in 200..260 {
        gateway.serve(&text(&format!("request {request}"), 2_000));
    }
    assert_eq!(gateway.learned(bad).failures.in_a_row, 0);
}

#[test]
fn a_failing_worker_is_tried_by_one_vm_and_not_by_each() {
    let mut gateway = Gateway::new(3, 4, r#""hybrid""#);
    let bad = WorkerId(1);
    for request in 0..200 {
        gateway.now = gateway.now.plus_ms(1);
        let (mut exchange, decision) = gateway.decide(0, &text(&format!("request {request}"), 2_000));
        let worker = decision.picks.first().unwrap();
        gateway.answer(&mut exchange, Source::Worker(worker), if worker == bad { 503 } else { 200 });
        gateway.finish(&mut exchange, None);
    }
    gateway.now = gateway.now.plus_ms(998);
    // All VMs have looked a moment before its time is over, and decide again when it is.
    let mut tried = 0;
    for ms in 0..4 {
        gateway.now = gateway.now.plus_ms(ms);
        for vm in 0..4 {
            let (mut exchange, decision) = gateway.decide(vm, &text(&format!("probe {ms} {vm}"), 2_000));
            tried += u32::from(decision.picks.first() == Some(bad));
            gateway.routers[vm].end(&mut gateway.store, 0, &mut exchange, None, gateway.now);
        }
    }
    assert!(tried <= 1, "tried {tried} times");
}

#[test]
fn the_host_that_cannot_reach_a_worker_counts_against_it_and_a_client_that_leaves_does_not() {
    let mut gateway = Gateway::hybrid(2);
    let (mut exchange, decision) = gateway.decide(0, &text("one", 2_000));
    let first = decision.picks.first().unwrap();
    gateway.answer(&mut exchange, Source::Host { tried: Some(first) }, 0);
    gateway.routers[0].end(&mut gateway.store, 0, &mut exchange, None, NOW);
    assert_eq!(gateway.learned(first).failures.in_a_row, 1);
    let (mut exchange, decision) = gateway.decide(0, &text("two", 2_000));
    gateway.routers[0].end(&mut gateway.store, 0, &mut exchange, None, NOW);
    let other = decision.picks.first().unwrap();
    assert_eq!(gateway.learned(other).failures.in_a_row, u8::from(other == first));
}

#[test]
fn answers_correct_how_much_a_cache_keeps_and_how_many_bytes_make_a_token() {
    let mut gateway = Gateway::hybrid(1);
    let prompt = text("a long prompt", 40_000);
    for turn in 0..30 {
        // Others' text in between, so that what is missing was touched a while ago.
        gateway.serve(&text(&format!("another prompt {turn}"), 400_000));
        gateway.now = gateway.now.plus_ms(10_000);
        let (mut exchange, decision) = gateway.decide(0, &prompt);
        gateway.answer(&mut exchange, Source::Worker(decision.picks.first().unwrap()), 200);
        gateway.finish(&mut exchange, usage(13_333, Some(0)));
    }
    // Half of the spans that are believed kept at first, by the assumed 400,000 tokens, would be 12,500; one prompt of
    // others is 6,250.
    let factor = gateway.learned(WorkerId(0)).capacity_factor;
    assert!((0.2..0.6).contains(&factor), "{factor}");
    let page = gateway.store.get(&PageKind::Learned.key("llm")).0;
    let bytes_per_token = LearnedPage::open(page).unwrap().bytes_per_token();
    assert!((3.0..3.6).contains(&bytes_per_token), "{bytes_per_token}");
}

#[test]
fn an_answer_without_a_number_means_none_only_from_an_engine_that_tells() {
    let mut gateway = Gateway::hybrid(1);
    let ask = |gateway: &mut Gateway, name: &str, cached| {
        let (mut exchange, _) = gateway.decide(0, &text(name, 4_000));
        gateway.answer(&mut exchange, Source::Worker(WorkerId(0)), 200);
        gateway.finish(&mut exchange, usage(1_000, cached))
    };
    assert_eq!(ask(&mut gateway, "one", None), None);
    let predicted = ask(&mut gateway, "one", Some(960)).unwrap();
    assert!(predicted.predicted_tokens.abs_diff(960) < 64, "{predicted:?}");
    assert_eq!(ask(&mut gateway, "two", None), Some(Prediction { predicted_tokens: 0, cached_tokens: 0 }));
}

#[test]
fn pages_of_a_newer_version_are_left_alone_and_requests_are_routed_all_the_same() {
    let mut gateway = Gateway::hybrid(3);
    for (page, magic) in [(PageKind::Inflight, b"WRIN"), (PageKind::Learned, b"WRLN"), (PageKind::Trunk, b"WRTR")] {
        let bytes = [magic.as_slice(), &[0xff, 0x7f]].concat();
        assert!(gateway.store.set(&page.key("llm"), &bytes, 0));
    }
    gateway.serve(&text("a prompt", 4_000));
    let incidents = gateway.routers[0].take_incidents();
    assert!(incidents.newer >= 3, "{incidents:?}");
    for page in [PageKind::Inflight, PageKind::Learned, PageKind::Trunk] {
        assert_eq!(gateway.store.get(&page.key("llm")).0.unwrap().len(), 6, "{page:?}");
    }
}

#[test]
fn a_policy_that_needs_no_prompt_neither_reads_nor_writes_the_index() {
    let mut gateway = Gateway::new(3, 1, r#""least-load""#);
    gateway.serve(&text("a prompt", 4_000));
    let keys: Vec<String> = gateway.store.iter().map(|(key, _)| key.to_owned()).collect();
    assert_eq!(keys, [PageKind::Inflight.key("llm")]);
}

#[test]
fn what_a_quick_answer_settles_and_teaches_costs_no_access_of_its_own() {
    let mut gateway = Gateway::hybrid(2);
    let usage = Usage { prompt_tokens: Some(500), completion_tokens: Some(640), cached_tokens: Some(0) };
    // A VM is busy from eight requests on that it has in flight besides.
    let others: Vec<Exchange> = (0..8).map(|n| gateway.decide(0, &text(&format!("{n}"), 100)).0).collect();
    let (mut exchange, decision) = gateway.decide(0, &text("first", 2_000));
    let worker = decision.picks.first().unwrap();
    let accesses = (gateway.store.reads, gateway.store.writes);
    gateway.answer(&mut exchange, Source::Worker(worker), 200);
    gateway.finish(&mut exchange, Some(usage));
    assert_eq!((gateway.store.reads, gateway.store.writes), accesses);
    // The next decision tells what is in flight, and the tick what was learned.
    let (_, decision) = gateway.decide(0, &text("second", 2_000));
    let mut totals = [Held::default(); 2];
    let page = gateway.store.get(&gateway.routers[0].pool(0).unwrap().keys().inflight.clone()).0;
    InflightPage::open(page).unwrap().add_up(u64::MAX, &[], NOW, &mut totals);
    assert_eq!(totals.iter().map(|held| held.requests).sum::<u32>() as usize, others.len() + 1);
    let sent = if decision.picks.first() == Some(worker) { 2 * 2_000 / 64 } else { 2_000 / 64 };
    let odometer = gateway.learned(worker).odometer;
    assert!(odometer >= sent + 640 * 3 / 64, "{odometer}");
}

#[test]
fn what_others_learned_is_seen_with_the_first_decision_a_moment_later() {
    let mut gateway = Gateway::new(2, 2, r#""hybrid""#);
    gateway.decide(1, &text("first", 2_000));
    let (mut exchange, _) = gateway.decide(0, &text("bad", 2_000));
    gateway.answer(&mut exchange, Source::Worker(WorkerId(0)), 500);
    let sees = |gateway: &mut Gateway| {
        gateway.decide(1, &text("other", 2_000));
        gateway.routers[1].pool(0).unwrap().failures(WorkerId(0)).has_failed()
    };
    assert!(!sees(&mut gateway), "the copy is a moment old");
    gateway.now = gateway.now.plus_ms(5);
    assert!(sees(&mut gateway));
}

#[test]
fn what_a_slow_answer_settles_is_told_at_once() {
    let mut gateway = Gateway::hybrid(2);
    let mut others: Vec<Exchange> = (0..8).map(|n| gateway.decide(0, &text(&format!("{n}"), 100)).0).collect();
    let (mut exchange, decision) = gateway.decide(0, &text("first", 2_000));
    gateway.answer(&mut exchange, Source::Worker(decision.picks.first().unwrap()), 200);
    gateway.now = gateway.now.plus_ms(50);
    let writes = gateway.store.writes;
    gateway.finish(&mut exchange, None);
    assert_eq!(gateway.store.writes, writes + 1, "the first byte, and not the end right behind it");
    for other in &mut others {
        gateway.routers[0].end(&mut gateway.store, 0, other, None, gateway.now);
    }
    assert_eq!(gateway.in_flight(), 0);
}

#[test]
fn answers_that_no_decision_follows_teach_all_the_same() {
    let mut gateway = Gateway::hybrid(1);
    let usage = Usage { prompt_tokens: Some(250), completion_tokens: Some(64), cached_tokens: Some(0) };
    let mut sent: Vec<Exchange> =
        (0..40).map(|number| gateway.decide(0, &text(&format!("r {number}"), 1_000)).0).collect();
    let before = gateway.learned(WorkerId(0)).odometer;
    for exchange in &mut sent {
        gateway.answer(exchange, Source::Worker(WorkerId(0)), 200);
        gateway.finish(exchange, Some(usage));
    }
    let bytes = sent[0].prompt().bytes as f64 / 250.0 * 64.0;
    assert_eq!(gateway.learned(WorkerId(0)).odometer - before, 40 * (bytes / 64.0) as u32);
}

#[test]
fn a_vm_that_is_not_busy_tells_at_once_that_a_request_has_ended() {
    let mut gateway = Gateway::new(4, 2, r#""hybrid""#);
    for user in 0..20 {
        let prompt = text(&format!("user {user}"), 4_000);
        let (mut exchange, decision) = gateway.decide(0, &prompt);
        let worker = decision.picks.first().unwrap();
        gateway.answer(&mut exchange, Source::Worker(worker), 200);
        gateway.finish(&mut exchange, None);
        let (mut next, decision) = gateway.decide(1, &format!("{prompt} and then"));
        assert_eq!((decision.picks.first(), decision.branch), (Some(worker), Branch::Warm), "user {user}");
        gateway.routers[1].end(&mut gateway.store, 0, &mut next, None, NOW);
    }
}
