//! Requests for LoRA adapters over a store in memory: what is sent is known to all VMs before any scrape tells.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::flow_tests::{Gateway, NOW, text};
use super::*;
use crate::exchange::{Exchange, Source};
use crate::request::Api;
use crate::shared::adapters::AdaptersPage;
use crate::worker::{AdapterHash, AdapterList, Adapters, DatedReport, LoadReport, WorkerId};

/// A gateway over workers that serve the base model "m" and take one adapter each, if any.
fn gateway(workers: usize, takes_adapters: bool) -> Gateway {
    let mut gateway = Gateway::new(workers, 2, r#""hybrid""#);
    let mut fleet = gateway.routers[0].pool(0).unwrap().fleet().clone();
    for worker in 0..workers {
        let adapters = Adapters { max: takes_adapters.then_some(1), ..Adapters::UNTOLD };
        let models = AdapterList::from_iter([AdapterHash::of(b"m")]);
        let report = LoadReport { waiting: Some(0.0), adapters, models, ..LoadReport::default() };
        let address = format!("10.0.0.{}:80", worker + 1);
        fleet.record_report(&address, DatedReport { taken_at: NOW, report }, 0, 0);
    }
    gateway.routers.iter_mut().for_each(|router| router.pool_mut(0).unwrap().set_fleet(fleet.clone()));
    gateway.now = NOW.plus_ms(1);
    gateway
}

fn decide(gateway: &mut Gateway, vm: usize, model: &str, prompt: &str) -> (Exchange, WorkerId) {
    let body = format!(r#"{{"model":"{model}","prompt":"{prompt}"}}"#);
    let router = &mut gateway.routers[vm];
    let reading = router.read_prompt(Api::Completions, &Body::whole(body.as_bytes()), None).unwrap();
    let ask = Ask {
        is_read: true,
        prompt_bytes: reading.prompt_bytes,
        is_whole: true,
        adapter: reading.adapter,
        ..Ask::default()
    };
    let mut exchange = Exchange::default();
    let decision = router.decide(&mut gateway.store, &ask, &mut exchange, gateway.now).unwrap();
    (exchange, decision.picks.first().unwrap())
}

/// Adapter and worker of all sendings that the page has.
fn sendings(gateway: &mut Gateway) -> Vec<(AdapterHash, WorkerId)> {
    let key = gateway.routers[0].pool(0).unwrap().keys().adapters.clone();
    let page = AdaptersPage::open(gateway.store.get(&key).0).unwrap();
    page.sendings().map(|sending| (sending.adapter, sending.worker)).collect()
}

#[test]
fn a_burst_for_one_adapter_between_two_scrapes_stays_together_whoever_sends_it() {
    for adapter in ["a", "b", "c", "d"] {
        let mut gateway = gateway(4, true);
        let first = decide(&mut gateway, 0, adapter, "first").1;
        for request in 0..6 {
            gateway.now = gateway.now.plus_ms(1);
            let worker = decide(&mut gateway, request % 2, adapter, &text(&format!("user {request}"), 60)).1;
            assert_eq!(worker, first, "{adapter}, request {request}");
        }
        // As many for the base model as there are workers find them by their load, wherever the adapter is.
        let mut workers: Vec<_> = (0..3).map(|user| decide(&mut gateway, 0, "m", &format!("user {user}")).1).collect();
        workers.sort_unstable();
        workers.dedup();
        assert!(workers.len() == 3 && !workers.contains(&first), "{adapter}: {workers:?}");
    }
}

#[test]
fn each_of_several_adapters_gets_a_worker_of_its_own() {
    let mut gateway = gateway(4, true);
    let mut homes = Vec::new();
    for round in 0..3 {
        for (place, adapter) in ["a", "b", "c", "d"].into_iter().enumerate() {
            gateway.now = gateway.now.plus_ms(1);
            let (mut exchange, worker) = decide(&mut gateway, place % 2, adapter, &format!("round {round}"));
            gateway.answer(&mut exchange, Source::Worker(worker), 200);
            gateway.finish(&mut exchange, None);
            homes.push(worker);
        }
    }
    let (first, later) = homes.split_at(4);
    assert!((0..4).all(|worker| first.contains(&WorkerId(worker))), "{first:?}");
    assert_eq!([first, first].concat(), later, "and comes back to it");
}

#[test]
fn only_a_request_that_may_be_for_an_adapter_costs_a_read() {
    let reads = |takes_adapters, model| {
        let mut gateway = gateway(2, takes_adapters);
        decide(&mut gateway, 0, model, "warms up");
        let before = (gateway.store.reads, gateway.store.writes);
        decide(&mut gateway, 0, model, "is counted");
        (gateway.store.reads - before.0, gateway.store.writes - before.1)
    };
    let plain = reads(false, "m");
    assert_eq!(reads(false, "another"), plain, "nobody takes adapters");
    assert_eq!(reads(true, "m"), plain, "the base model");
    assert_eq!(reads(true, "a"), (plain.0 + 1, plain.1), "an adapter; what was sent 0 ms ago is not written again");
}

#[test]
fn who_did_not_serve_did_not_load_and_who_did_has() {
    struct Case {
        name: &'static str,
        /// Of the request's picks: who answers; `None` = the host itself.
        answers: Option<usize>,
        status: u32,
        loaded: Option<usize>,
    }
    let cases = [
        Case { name: "served", answers: Some(0), status: 200, loaded: Some(0) },
        Case { name: "no such model", answers: Some(0), status: 404, loaded: None },
        Case { name: "failed", answers: Some(0), status: 500, loaded: None },
        Case { name: "another served it", answers: Some(1), status: 200, loaded: Some(1) },
        Case { name: "another failed as well", answers: Some(1), status: 503, loaded: None },
        Case { name: "nobody was reached", answers: None, status: 503, loaded: None },
    ];
    for case in cases {
        let mut gateway = gateway(3, true);
        let (mut exchange, _) = decide(&mut gateway, 0, "a", "hello");
        let picks = exchange.decision().unwrap().picks;
        let source = match case.answers {
            Some(answers) => Source::Worker(picks.as_slice()[answers]),
            None => Source::Host { tried: picks.first() },
        };
        gateway.answer(&mut exchange, source, case.status);
        let want: Vec<_> = case.loaded.iter().map(|&pick| (AdapterHash::of(b"a"), picks.as_slice()[pick])).collect();
        assert_eq!(sendings(&mut gateway), want, "{}", case.name);
    }
}

#[test]
fn a_request_given_up_before_its_first_byte_takes_its_sending_back() {
    for (is_answered, has_first_byte, is_kept) in [(false, false, false), (true, false, true), (true, true, true)] {
        let mut gateway = gateway(3, true);
        let (mut exchange, worker) = decide(&mut gateway, 0, "a", "hello");
        if is_answered {
            gateway.answer(&mut exchange, Source::Worker(worker), 200);
        }
        if has_first_byte {
            gateway.routers[0].first_byte(&mut gateway.store, 0, &mut exchange, gateway.now);
        }
        gateway.routers[0].end(&mut gateway.store, 0, &mut exchange, None, gateway.now);
        assert_eq!(sendings(&mut gateway).len(), usize::from(is_kept), "{is_answered} {has_first_byte}");
    }
}

#[test]
fn one_refusal_does_not_take_back_what_others_were_served_or_sent() {
    let mut gateway = gateway(3, true);
    let (mut refused, worker) = decide(&mut gateway, 0, "a", "first");
    gateway.now = gateway.now.plus_ms(60);
    let (mut served, same) = decide(&mut gateway, 1, "a", "second");
    assert_eq!(same, worker);
    gateway.answer(&mut refused, Source::Worker(worker), 400);
    assert_eq!(sendings(&mut gateway), [(AdapterHash::of(b"a"), worker)], "the other one is on its way");
    gateway.answer(&mut served, Source::Worker(worker), 200);
    gateway.now = gateway.now.plus_ms(60);
    let (mut refused, same) = decide(&mut gateway, 0, "a", "third");
    assert_eq!(same, worker);
    gateway.answer(&mut refused, Source::Worker(worker), 400);
    assert_eq!(sendings(&mut gateway), [(AdapterHash::of(b"a"), worker)]);
}

#[test]
fn a_page_that_a_newer_version_wrote_is_left_alone() {
    let mut gateway = gateway(2, true);
    let key = gateway.routers[0].pool(0).unwrap().keys().adapters.clone();
    let newer = b"WRAD\xff\xff and whatever they keep".to_vec();
    gateway.store.set(&key, &newer, 0);
    let (mut exchange, worker) = decide(&mut gateway, 0, "a", "hello");
    gateway.answer(&mut exchange, Source::Worker(worker), 500);
    assert_eq!(gateway.store.get(&key).0, Some(newer));
    assert!(gateway.routers[0].take_incidents().newer > 0);
}
