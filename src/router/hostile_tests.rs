//! What clients, failing workers and lagging threads must not be able to do to the routing of others.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::flow_tests::{Gateway, NOW, text, usage};
use super::*;
use crate::config::HealthConfig;
use crate::exchange::{Exchange, Source};
use crate::request::Api;
use crate::schedule::Branch;
use crate::shared::PageKind;
use crate::shared::fleet::Fleet;
use crate::shared::learned::LearnedPage;
use crate::worker::{DatedReport, LoadReport, WorkerId};

/// Requests on their way and when each is answered, milliseconds.
#[derive(Default)]
struct Open(Vec<(u64, Exchange)>);

impl Open {
    fn answer_until(&mut self, ms: u64, gateway: &mut Gateway) {
        while self.0.first().is_some_and(|(at_ms, _)| *at_ms <= ms) {
            let (_, mut exchange) = self.0.remove(0);
            let worker = exchange.decision().unwrap().picks.first().unwrap();
            gateway.answer(&mut exchange, Source::Worker(worker), 200);
            gateway.finish(&mut exchange, None);
        }
    }
}

fn cooling(gateway: &mut Gateway, workers: u16) -> usize {
    let now = gateway.now;
    (0..workers)
        .filter(|worker| gateway.learned(WorkerId(*worker)).failures.is_ejected(now, &HealthConfig::default()))
        .count()
}

#[test]
fn refused_prompts_do_not_age_the_cache() {
    let mut gateway = Gateway::hybrid(1);
    let prompt = text("a prompt", 8_000);
    gateway.serve(&prompt);
    let before = gateway.learned(WorkerId(0)).odometer;
    for number in 0..8 {
        let (mut exchange, _) = gateway.decide(0, &text(&format!("too long {number}"), 250_000));
        gateway.answer(&mut exchange, Source::Worker(WorkerId(0)), 400);
        gateway.finish(&mut exchange, None);
    }
    assert_eq!((gateway.learned(WorkerId(0)).odometer, gateway.serve(&prompt).1), (before, Branch::Warm));
}

#[test]
fn a_refused_prompt_takes_nothing_from_another_that_begins_like_it() {
    let mut gateway = Gateway::hybrid(1);
    let shared = text("the system prompt", 600);
    let mine = format!("{shared}{}", text("my conversation", 3_000));
    gateway.serve(&mine);
    let before = gateway.decide(0, &mine).1.matched_tokens;
    let (mut exchange, _) = gateway.decide(0, &format!("{shared}{}", text("garbage", 500)));
    gateway.answer(&mut exchange, Source::Worker(WorkerId(0)), 400);
    gateway.finish(&mut exchange, None);
    assert_eq!(gateway.decide(0, &mine).1.matched_tokens, before);
    assert!(before > 800, "{before}");
}

#[test]
fn a_request_that_fails_everywhere_shuts_one_worker_at_the_most() {
    let mut gateway = Gateway::hybrid(4);
    for _ in 0..3 {
        let (mut exchange, decision) = gateway.decide(0, &text("poison", 400));
        let last = *decision.picks.as_slice().last().unwrap();
        gateway.answer(&mut exchange, Source::Worker(last), 500);
        gateway.finish(&mut exchange, None);
    }
    assert!(cooling(&mut gateway, 4) <= 1);
}

#[test]
fn a_client_that_provokes_errors_does_not_drive_the_others_onto_few_workers() {
    for every_ms in [30, 100, 300, 1_000] {
        let (mut gateway, mut open, mut window) = (Gateway::hybrid(8), Open::default(), Vec::new());
        for ms in 0..10_000_u64 {
            gateway.now = gateway.now.plus_ms(1);
            open.answer_until(ms, &mut gateway);
            if ms % 20 == 0 {
                let (exchange, decision) = gateway.decide(0, &text(&format!("user {ms}"), 4_000));
                window.push(decision.picks.first().unwrap());
                open.0.push((ms + 2_000, exchange));
            }
            if ms % every_ms == every_ms / 2 {
                let (mut exchange, decision) = gateway.decide(0, &text(&format!("poison {ms}"), 400));
                let last = *decision.picks.as_slice().last().unwrap();
                gateway.answer(&mut exchange, Source::Worker(last), 500);
                gateway.finish(&mut exchange, None);
            }
            if window.len() == 50 {
                let most = (0..8).map(|id| window.iter().filter(|worker| worker.0 == id).count()).max().unwrap();
                // A quarter of the workers is always left, and then gets all: at the worst half of a second's requests.
                assert!(most <= 25, "one of 8 workers got {most} of 50 requests, with an error every {every_ms} ms");
                window.clear();
            }
        }
    }
}

#[test]
fn all_recover_from_a_blip_under_load() {
    let (mut gateway, mut open, mut panics) = (Gateway::hybrid(4), Open::default(), 0);
    for worker in 0..4 {
        for _ in 0..3 {
            let (mut exchange, _) = gateway.decide(0, &text("blip", 400));
            gateway.answer(&mut exchange, Source::Host { tried: Some(WorkerId(worker)) }, 0);
            gateway.finish(&mut exchange, None);
        }
    }
    assert_eq!(cooling(&mut gateway, 4), 4);
    for ms in 0..10_000_u64 {
        gateway.now = gateway.now.plus_ms(1);
        open.answer_until(ms, &mut gateway);
        if ms % 20 == 0 {
            let (exchange, decision) = gateway.decide(0, &text(&format!("user {ms}"), 4_000));
            panics += u32::from(decision.is_panic);
            open.0.push((ms + 500, exchange));
        }
    }
    assert!(panics < 100, "{panics} of 500");
    assert_eq!(cooling(&mut gateway, 4), 0);
}

#[test]
fn a_success_in_between_starts_anew() {
    let mut gateway = Gateway::hybrid(1);
    let mut all: Vec<Exchange> = (0..6).map(|number| gateway.decide(0, &text(&format!("r {number}"), 400)).0).collect();
    for (number, exchange) in all.iter_mut().enumerate() {
        gateway.answer(exchange, Source::Worker(WorkerId(0)), if number % 2 == 0 { 500 } else { 200 });
    }
    assert_eq!(cooling(&mut gateway, 1), 0);
}

#[test]
fn where_all_scrapes_fail_a_worker_that_fails_its_requests_still_gets_none() {
    let mut gateway = Gateway::new(3, 1, r#""hybrid","poll":{"cluster":"poll"}"#);
    let mut fleet = gateway.routers[0].pool(0).unwrap().fleet().clone();
    for worker in 1..=3 {
        (0..2).for_each(|_| fleet.record_failure(&format!("10.0.0.{worker}:80")));
    }
    gateway.routers[0].pool_mut(0).unwrap().set_fleet(fleet);
    let (mut open, mut to_bad) = (Open::default(), 0);
    for number in 0..200 {
        gateway.now = gateway.now.plus_ms(10);
        open.answer_until(number * 10, &mut gateway);
        let (mut exchange, decision) = gateway.decide(0, &text(&format!("r {number}"), 2_000));
        if decision.picks.first() == Some(WorkerId(1)) {
            to_bad += 1;
            gateway.answer(&mut exchange, Source::Worker(WorkerId(1)), 503);
            gateway.finish(&mut exchange, None);
        } else {
            open.0.push((number * 10 + 200, exchange));
        }
    }
    assert!(to_bad < 10, "{to_bad} of 200");
}

#[test]
fn a_length_that_is_only_announced_keeps_nobody_away_and_spoils_no_average() {
    let mut gateway = Gateway::hybrid(2);
    let ask = Ask { prompt_bytes: 1_000_000_000_000, ..Ask::default() };
    let mut exchange = Exchange::default();
    let lied = gateway.routers[0].decide(&mut gateway.store, &ask, &mut exchange, NOW).unwrap().picks.first();
    let there =
        (0..300).filter(|number| gateway.decide(0, &text(&format!("r {number}"), 4_000)).1.picks.first() == lied);
    assert!(there.count() > 100);
    let body = format!(r#"{{"model":"m","prompt":"{}"#, text("x", 262_000));
    let reading =
        gateway.routers[0].read_prompt(Api::Completions, &Body::cut(body.as_bytes(), Some(u64::MAX)), None).unwrap();
    let ask = Ask { is_read: true, prompt_bytes: reading.prompt_bytes, ..Ask::default() };
    gateway.routers[0].decide(&mut gateway.store, &ask, &mut exchange, NOW).unwrap();
    let page = LearnedPage::open(gateway.store.get(&PageKind::Learned.key("llm")).0).unwrap();
    assert!(page.uncached_tokens() < 2_000.0, "{}", page.uncached_tokens());
    assert!(exchange.prompt().tokens <= 400_000);
}

#[test]
fn requests_that_the_engine_never_serves_from_its_cache_do_not_shut_the_index() {
    let mut gateway = Gateway::hybrid(1);
    let evaluation = text("few shot examples", 8_000);
    for _ in 0..20 {
        gateway.now = gateway.now.plus_ms(4_000);
        let user = text(&format!("user {:?}", gateway.now), 4_000);
        gateway.serve(&user);
        let (mut exchange, _) = gateway.decide(0, &evaluation);
        gateway.answer(&mut exchange, Source::Worker(WorkerId(0)), 200);
        gateway.finish(&mut exchange, usage(2_000, Some(0)));
    }
    assert_eq!(gateway.learned(WorkerId(0)).capacity_factor, 1.0);
}

#[test]
fn credit_that_moves_carries_no_other_requests_match() {
    let mut gateway = Gateway::hybrid(2);
    let document = text("a long document", 40_000);
    let (holder, _) = gateway.serve(&document);
    let (mut small, _) = gateway.decide(0, &text("small and new", 4_000));
    gateway.decide(0, &document);
    gateway.answer(&mut small, Source::Worker(holder), 200);
    let prediction = gateway.finish(&mut small, usage(1_000, Some(0))).unwrap();
    assert_eq!(prediction.predicted_tokens, 0);
}

#[test]
fn with_a_learned_page_of_a_newer_version_the_index_still_tells() {
    let mut gateway = Gateway::hybrid(4);
    let newer = [b"WRLN".as_slice(), &[0xff, 0x7f]].concat();
    assert!(gateway.store.set(&PageKind::Learned.key("llm"), &newer, 0));
    let prompt = text("a prompt", 4_000);
    gateway.serve(&prompt);
    assert_eq!(gateway.serve(&prompt).1, Branch::Warm);
}

#[test]
fn a_thread_that_is_a_tick_behind_does_not_wipe_what_is_known_of_the_next_life() {
    let mut gateway = Gateway::new(1, 2, r#""hybrid""#);
    let mut fleet: Fleet = gateway.routers[1].pool(0).unwrap().fleet().clone();
    (0..2).for_each(|_| fleet.record_failure("10.0.0.1:80"));
    let dated = DatedReport { taken_at: gateway.now, report: LoadReport::default() };
    fleet.record_report("10.0.0.1:80", dated, 0, 0);
    assert_eq!(fleet.worker(WorkerId(0)).unwrap().generation, 1);
    gateway.routers[1].pool_mut(0).unwrap().set_fleet(fleet);
    let prompt = text("a prompt", 8_000);
    gateway.decide(1, &prompt);
    gateway.decide(0, &text("other", 400));
    assert_ne!(gateway.decide(1, &prompt).1.branch, Branch::Cold);
}

#[test]
fn workers_that_got_no_cold_prompt_for_long_come_first_where_that_is_scored() {
    let mut gateway = Gateway::new(4, 1, r#"{"name":"weighted","scorers":[{"type":"no-hit-lru-scorer","weight":1}]}"#);
    let mut workers: Vec<u16> = Vec::new();
    for number in 0..4 {
        gateway.now = gateway.now.plus_ms(10);
        workers.push(gateway.serve(&text(&format!("cold {number}"), 4_000)).0.0);
    }
    workers.sort_unstable();
    assert_eq!(workers, [0, 1, 2, 3]);
}

#[test]
fn answers_take_room_in_the_cache_and_caches_that_keep_more_are_believed() {
    let mut gateway = Gateway::hybrid(1);
    let ask = |gateway: &mut Gateway, name: &str, usage| {
        gateway.now = gateway.now.plus_ms(10_000);
        let (mut exchange, decision) = gateway.decide(0, &text(name, 40_000));
        gateway.answer(&mut exchange, Source::Worker(WorkerId(0)), 200);
        gateway.finish(&mut exchange, usage);
        decision.branch
    };
    assert_eq!(ask(&mut gateway, "mine", usage(10_000, Some(0))), Branch::Cold);
    let before = gateway.learned(WorkerId(0)).odometer;
    let long_answer =
        usage(10_000, Some(9_990)).map(|usage| crate::response::Usage { completion_tokens: Some(8_000), ..usage });
    ask(&mut gateway, "mine", long_answer);
    assert_eq!(gateway.learned(WorkerId(0)).odometer - before, 8_000 * 4 / 64);
    // 400,000 tokens are assumed: 40 other prompts are more than that, and yet the first is still there.
    for round in 0..3 {
        (0..44).for_each(|other| _ = gateway.serve(&text(&format!("other {round} {other}"), 40_000)));
        ask(&mut gateway, "mine", usage(10_000, Some(9_990)));
    }
    assert!(gateway.learned(WorkerId(0)).capacity_factor > 1.05, "{:?}", gateway.learned(WorkerId(0)));
    (0..44).for_each(|other| _ = gateway.serve(&text(&format!("more {other}"), 40_000)));
    assert_eq!(ask(&mut gateway, "mine", None), Branch::Warm);
}

#[test]
fn a_worker_that_tells_a_small_cache_is_not_believed_to_keep_much() {
    let mut gateway = Gateway::hybrid(1);
    let mut fleet = gateway.routers[0].pool(0).unwrap().fleet().clone();
    let report = LoadReport { kv_blocks: Some(1_000.0), block_tokens: Some(16.0), ..LoadReport::default() };
    fleet.record_report("10.0.0.1:80", DatedReport { taken_at: gateway.now, report }, 0, 0);
    gateway.routers[0].pool_mut(0).unwrap().set_fleet(fleet);
    let first = text("the first", 40_000);
    gateway.serve(&first);
    assert_eq!(gateway.serve(&first).1, Branch::Warm);
    gateway.serve(&text("the second", 80_000));
    assert_eq!(gateway.serve(&first).1, Branch::Cold);
}

#[test]
fn one_request_finds_out_whether_a_worker_serves_again() {
    let mut gateway = Gateway::hybrid(3);
    let bad = WorkerId(1);
    while cooling(&mut gateway, 3) == 0 {
        let (mut exchange, decision) = gateway.decide(0, &text(&format!("{:?}", gateway.now), 400));
        let worker = decision.picks.first().unwrap();
        gateway.answer(&mut exchange, Source::Worker(worker), if worker == bad { 503 } else { 200 });
        gateway.finish(&mut exchange, None);
        gateway.now = gateway.now.plus_ms(10);
    }
    gateway.now = gateway.now.plus_ms(1_000);
    let sent = (0..30).filter(|n| gateway.decide(0, &text(&format!("next {n}"), 4_000)).1.picks.first() == Some(bad));
    assert_eq!(sent.count(), 1);
}

#[test]
fn cold_picks_are_noted_and_warm_ones_are_not() {
    let mut gateway = Gateway::hybrid(1);
    let prompt = text("a prompt", 4_000);
    gateway.serve(&prompt);
    assert_eq!(gateway.learned(WorkerId(0)).cold_pick_at, NOW);
    gateway.now = gateway.now.plus_ms(500);
    gateway.serve(&prompt);
    assert_eq!(gateway.learned(WorkerId(0)).cold_pick_at, NOW);
}
