//! Whose failure a request's end is, and what a worker's failures lead to.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::flow_tests::{Gateway, text};
use crate::config::HealthConfig;
use crate::exchange::{Exchange, Source};
use crate::schedule::Picks;
use crate::shared::fleet::RECLAIM_MS;
use crate::worker::{Standing, WorkerId};

/// Who answers a request, by its place among the picks.
#[derive(Clone, Copy, Debug)]
enum By {
    Pick(usize),
    /// A worker that was not picked.
    Other,
    Stranger,
    /// The host, after it tried this pick in vain.
    HostAfter(usize),
    Host,
    /// Nobody: the client left.
    Nobody,
}

const WORKERS: u16 = 5;

/// A gateway that asks Envoy for its workers.
fn gateway() -> Gateway {
    Gateway::new(WORKERS.into(), 2, r#""least-load","discovery":{"cluster":"admin"}"#)
}

fn picks_of(exchange: &Exchange) -> Picks {
    exchange.decision().unwrap().picks
}

/// Ends a request so; returns the failures in a row of its three picks and of all others together.
fn failures(gateway: &mut Gateway, from: By, status: u32, attempts: Option<u32>) -> [u8; 4] {
    let (mut exchange, decision) = gateway.decide(0, &text("a request", 400));
    let picks: Vec<WorkerId> = decision.picks.as_slice().to_vec();
    let other = (0..WORKERS).map(WorkerId).find(|worker| !picks.contains(worker)).unwrap();
    let source = match from {
        By::Pick(place) => Some(Source::Worker(picks[place])),
        By::Other => Some(Source::Worker(other)),
        By::Stranger => Some(Source::Stranger),
        By::HostAfter(place) => Some(Source::Host { tried: Some(picks[place]) }),
        By::Host => Some(Source::Host { tried: None }),
        By::Nobody => None,
    };
    if let Some(source) = source {
        exchange.note_attempts(attempts);
        gateway.answer(&mut exchange, source, status);
    }
    gateway.routers[0].end(&mut gateway.store, 0, &mut exchange, None, gateway.now);
    let mut count = |worker: WorkerId| gateway.learned(worker).failures.in_a_row;
    let others = (0..WORKERS).map(WorkerId).filter(|worker| !picks.contains(worker)).map(&mut count).sum();
    [count(picks[0]), count(picks[1]), count(picks[2]), others]
}

#[test]
fn whose_failure_a_request_is() {
    use By::{Host, HostAfter, Nobody, Other, Pick, Stranger};
    struct Case {
        name: &'static str,
        from: By,
        status: u32,
        attempts: Option<u32>,
        want: [u8; 4],
    }
    const CASES: &[Case] = &[
        Case { name: "served", from: Pick(0), status: 200, attempts: None, want: [0; 4] },
        Case { name: "an error of its own", from: Pick(0), status: 500, attempts: None, want: [1, 0, 0, 0] },
        Case { name: "it is starting, or full", from: Pick(0), status: 503, attempts: None, want: [1, 0, 0, 0] },
        Case { name: "not implemented", from: Pick(0), status: 501, attempts: None, want: [0; 4] },
        Case { name: "HTTP version", from: Pick(0), status: 505, attempts: None, want: [0; 4] },
        Case { name: "too long a prompt", from: Pick(0), status: 400, attempts: None, want: [0; 4] },
        Case { name: "too many requests", from: Pick(0), status: 429, attempts: None, want: [0; 4] },
        Case { name: "another served it", from: Pick(1), status: 200, attempts: Some(2), want: [1, 0, 0, 0] },
        Case { name: "the third served it", from: Pick(2), status: 200, attempts: Some(3), want: [1, 1, 0, 0] },
        Case { name: "the host tells no count", from: Pick(2), status: 200, attempts: None, want: [1, 1, 0, 0] },
        Case { name: "the first was unknown to the host", from: Pick(1), status: 200, attempts: Some(1), want: [0; 4] },
        Case { name: "one of two was unknown", from: Pick(2), status: 200, attempts: Some(2), want: [0; 4] },
        Case { name: "all failed it", from: Pick(2), status: 500, attempts: Some(3), want: [0, 0, 1, 0] },
        Case { name: "another refused it", from: Pick(1), status: 400, attempts: Some(2), want: [0; 4] },
        Case { name: "all are full", from: Pick(2), status: 429, attempts: Some(3), want: [0; 4] },
        Case { name: "none implements it", from: Pick(2), status: 501, attempts: None, want: [0; 4] },
        Case { name: "one that was not picked is full", from: Other, status: 429, attempts: Some(4), want: [0; 4] },
        Case {
            name: "all picks failed, another served",
            from: Other,
            status: 200,
            attempts: Some(4),
            want: [1, 1, 1, 0],
        },
        Case { name: "all picks were unknown", from: Other, status: 200, attempts: Some(1), want: [0; 4] },
        Case { name: "nobody knows what was tried", from: Other, status: 200, attempts: None, want: [0; 4] },
        Case { name: "another failed", from: Other, status: 502, attempts: Some(1), want: [0, 0, 0, 1] },
        Case { name: "no worker of the pool", from: Stranger, status: 500, attempts: None, want: [0; 4] },
        Case { name: "refused, or reset", from: HostAfter(0), status: 0, attempts: None, want: [1, 0, 0, 0] },
        Case { name: "reset by the last", from: HostAfter(2), status: 0, attempts: None, want: [0, 0, 1, 0] },
        Case { name: "a time-out, a limit", from: Host, status: 0, attempts: None, want: [0; 4] },
        Case { name: "the client left", from: Nobody, status: 0, attempts: None, want: [0; 4] },
    ];
    for case in CASES {
        let got = failures(&mut gateway(), case.from, case.status, case.attempts);
        assert_eq!(got, case.want, "{}: {:?} with status {}", case.name, case.from, case.status);
    }
}

#[test]
fn a_pick_that_is_not_in_the_cluster_any_more_is_not_blamed() {
    for (attempts, want) in [(None, 1), (Some(2), 1), (Some(1), 0)] {
        let mut gateway = gateway();
        let (mut exchange, _) = gateway.decide(0, &text("a request", 400));
        let [first, second, third] = *picks_of(&exchange).as_slice() else { panic!("three picks") };
        let mut fleet = gateway.routers[0].pool(0).unwrap().fleet().clone();
        fleet.set_standing(first, Standing::Gone, 0);
        gateway.routers[0].pool_mut(0).unwrap().set_fleet(fleet);
        exchange.note_attempts(attempts);
        gateway.answer(&mut exchange, Source::Worker(third), 200);
        let got = [first, second, third].map(|worker| gateway.learned(worker).failures.in_a_row);
        assert_eq!(got, [0, want, 0], "{attempts:?}");
    }
}

/// Lets all VMs know of the worker's next life, or gives its row to another address.
fn begin_next_life(gateway: &mut Gateway, worker: WorkerId, is_given_away: bool) {
    let mut fleet = gateway.routers[0].pool(0).unwrap().fleet().clone();
    let addresses: Vec<String> = fleet.workers().map(|worker| worker.address.clone()).collect();
    let others = || addresses.iter().filter(|address| Some(*address) != addresses.get(usize::from(worker.0)));
    let later = gateway.now.plus_ms(RECLAIM_MS);
    if is_given_away {
        for minute in 1..=RECLAIM_MS / 60_000 {
            fleet.admit(others().map(String::as_str), gateway.now.plus_ms(minute * 60_000));
        }
        fleet.admit(others().map(String::as_str).chain(["10.9.9.9:80"]), later);
        assert_eq!(fleet.find("10.9.9.9:80"), Some(worker));
    } else {
        for tick in 1..10 {
            fleet.admit(others().map(String::as_str), gateway.now.plus_ms(tick * 10_000));
        }
        fleet.admit(addresses.iter().map(String::as_str), gateway.now.plus_ms(100_000));
    }
    assert_eq!(fleet.worker(worker).unwrap().generation, 1);
    for router in &mut gateway.routers {
        router.pool_mut(0).unwrap().set_fleet(fleet.clone());
    }
}

#[test]
fn what_becomes_of_requests_to_an_earlier_life_says_nothing_of_who_has_the_row_now() {
    for is_given_away in [false, true] {
        for is_answered in [true, false] {
            let mut gateway = Gateway::new(3, 1, r#""hybrid""#);
            let mut exchanges: Vec<(Exchange, WorkerId)> = Vec::new();
            while exchanges.iter().filter(|(_, worker)| *worker == WorkerId(1)).count() < 5 {
                let (mut exchange, decision) = gateway.decide(0, &text(&format!("request {}", exchanges.len()), 400));
                let worker = decision.picks.first().unwrap();
                if is_answered {
                    gateway.answer(&mut exchange, Source::Worker(worker), 200);
                    gateway.routers[0].first_byte(&mut gateway.store, 0, &mut exchange, gateway.now);
                }
                exchanges.push((exchange, worker));
            }
            begin_next_life(&mut gateway, WorkerId(1), is_given_away);
            // A request of its own teaches something of the new life.
            gateway.serve(&text("another", 400));
            for (mut exchange, worker) in exchanges {
                if worker == WorkerId(1) && is_answered {
                    gateway.routers[0].broke_off(&mut gateway.store, 0, &exchange, gateway.now);
                } else if worker == WorkerId(1) {
                    gateway.answer(&mut exchange, Source::Host { tried: Some(worker) }, 0);
                }
                gateway.finish(&mut exchange, None);
            }
            gateway.routers[0].refresh(&mut gateway.store, 0, gateway.now);
            let failures = gateway.routers[0].pool(0).unwrap().failures(WorkerId(1));
            let name = format!("given away: {is_given_away}, answered: {is_answered}");
            assert!(!failures.has_failed(), "{name}: {failures:?}");
            assert_eq!(gateway.routers[0].take_incidents().ejections, 0, "{name}");
        }
    }
}

#[test]
fn requests_that_a_full_pool_refuses_one_worker_after_the_other_eject_nobody() {
    let mut gateway = Gateway::new(3, 1, r#""least-load""#);
    for request in 0..20 {
        let (mut exchange, decision) = gateway.decide(0, &text(&format!("request {request}"), 400));
        exchange.note_attempts(Some(3));
        gateway.answer(&mut exchange, Source::Worker(decision.picks.as_slice()[2]), 429);
        gateway.finish(&mut exchange, None);
    }
    assert_eq!(gateway.routers[0].take_incidents().ejections, 0);
    assert!((0..3).all(|worker| !gateway.learned(WorkerId(worker)).failures.has_failed()));
}

#[test]
fn each_ejection_is_counted_once_by_the_vm_whose_write_made_it() {
    let mut gateway = Gateway::new(3, 2, r#""least-load""#);
    let bad = WorkerId(1);
    // Both have requests there, sent before it fails: each VM sees three failures.
    for vm in [0, 1, 0, 1, 0, 1] {
        let (mut exchange, _) = gateway.decide(vm, &text("a request", 400));
        gateway.now = gateway.now.plus_ms(1);
        let Gateway { routers, store, now } = &mut gateway;
        routers[vm].answered(store, 0, &mut exchange, Source::Worker(bad), 503, *now);
    }
    let counted = [0, 1].map(|vm| gateway.routers[vm].take_incidents().ejections);
    assert_eq!((counted.iter().sum::<u32>(), gateway.learned(bad).failures.ejections), (1, 1), "{counted:?}");
    assert_eq!(gateway.routers[0].take_incidents().ejections, 0, "and only once told");
}

#[test]
fn a_worker_that_fails_every_other_request_is_ejected_by_its_share() {
    let mut gateway = Gateway::new(3, 1, r#""round-robin","health":{"failurePercent":40,"consecutiveFailures":50}"#);
    let bad = WorkerId(1);
    let (mut sent, mut is_out) = (0, false);
    for request in 0..200 {
        gateway.now = gateway.now.plus_ms(5);
        let (mut exchange, decision) = gateway.decide(0, &text(&format!("request {request}"), 400));
        let worker = decision.picks.first().unwrap();
        sent += usize::from(worker == bad);
        let status = if worker == bad && sent % 2 == 0 { 500 } else { 200 };
        gateway.answer(&mut exchange, Source::Worker(worker), status);
        gateway.finish(&mut exchange, None);
        let health = HealthConfig { failure_percent: 40, consecutive_failures: 50, ..HealthConfig::default() };
        is_out |= gateway.learned(bad).failures.is_ejected(gateway.now, &health);
        if is_out {
            break;
        }
    }
    assert!(is_out && (10..30).contains(&sent), "{sent} sent there, out: {is_out}");
    // It serves the next one that it is sent, and is in use at once.
    gateway.now = gateway.now.plus_ms(1_000);
    let mut served = 0;
    for request in 0..30 {
        gateway.now = gateway.now.plus_ms(5);
        served += usize::from(gateway.serve(&text(&format!("later {request}"), 400)).0 == bad);
    }
    assert_eq!(served, 10);
    assert!(!gateway.learned(bad).failures.has_failed());
}

#[test]
fn a_healthy_worker_costs_nothing_and_a_single_failure_little() {
    let mut gateway = Gateway::new(2, 1, r#""least-load""#);
    let serve = |gateway: &mut Gateway, status| {
        gateway.now = gateway.now.plus_ms(1);
        let (mut exchange, decision) = gateway.decide(0, &text("a request", 400));
        let writes = gateway.store.writes;
        gateway.answer(&mut exchange, Source::Worker(decision.picks.first().unwrap()), status);
        let writes = gateway.store.writes - writes;
        gateway.finish(&mut exchange, None);
        writes
    };
    assert_eq!((0..50).map(|_| serve(&mut gateway, 200)).sum::<u64>(), 0);
    assert_eq!((0..50).map(|_| serve(&mut gateway, 404)).sum::<u64>(), 0, "nor do requests that are refused");
    assert_eq!(serve(&mut gateway, 500), 1);
    let after = (0..100).map(|_| serve(&mut gateway, 200)).sum::<u64>();
    assert_eq!(after, 1, "that it serves again is told at once, and what follows with other lessons");
}

#[test]
fn an_answer_that_the_worker_breaks_off_is_a_failure_of_its() {
    let mut gateway = Gateway::new(1, 1, r#""least-load""#);
    for broken in 1..=3 {
        let (mut exchange, _) = gateway.decide(0, &text("a request", 400));
        gateway.routers[0].broke_off(&mut gateway.store, 0, &exchange, gateway.now);
        gateway.finish(&mut exchange, None);
        gateway.routers[0].broke_off(&mut gateway.store, 0, &exchange, gateway.now);
        assert_eq!(gateway.learned(WorkerId(0)).failures.in_a_row, broken, "once, and not after the end");
    }
    assert_eq!(gateway.routers[0].take_incidents().ejections, 1);
}
