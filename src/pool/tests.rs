//! Tests of the pool: which load a candidate shows, who is a candidate, and what is in flight.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::config::HealthConfig;
use crate::schedule::policy::LEAST_LOAD;
use crate::schedule::policy::testing::default_policy;
use crate::schedule::{Branch, POLICIES, Query};
use crate::worker::LoadReport;

const NOW: Timestamp = Timestamp::from_ms(1_000_000);
/// This VM, in the in-flight page.
const OWNER: u64 = 1;
const AGE_MAX_MS: u64 = 5_000;
const SIZES: RequestSizes = RequestSizes { bytes_per_token: 4.0, uncached_tokens: 100.0, adapter: None };

fn poll() -> PollConfig {
    PollConfig { cluster: "poll".into(), report_age_ms_max: AGE_MAX_MS, failures_max: 2, ..PollConfig::default() }
}

/// Calls `with` with the rules of this configuration of scrapes and the defaults of all others.
fn with_rules<T>(poll: &PollConfig, with: impl FnOnce(&Rules<'_>) -> T) -> T {
    with(&Rules { poll, health: &HealthConfig::default() })
}

fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|worker| format!("10.0.0.{}:8000", worker + 1)).collect()
}

/// A pool whose page knows all of its workers.
fn pool(workers: usize, change: impl FnOnce(&mut Fleet)) -> Pool {
    let addresses = addresses(workers);
    let mut pool = Pool::new("llm", &addresses, 1, OWNER);
    let mut fleet = Fleet::default();
    fleet.admit(addresses.iter().map(String::as_str), NOW);
    change(&mut fleet);
    pool.set_fleet(fleet);
    pool
}

fn report(fleet: &mut Fleet, worker: usize, waiting: f64, running: f64, own_in_flight: u32) {
    let report = LoadReport { waiting: Some(waiting), running: Some(running), ..LoadReport::default() };
    let address = addresses(worker + 1).pop().unwrap();
    fleet.record_report(&address, DatedReport { taken_at: NOW, report }, own_in_flight, 0);
}

fn in_flight(pool: &mut Pool, requests: &[u32]) -> InflightPage {
    for (worker, &requests) in requests.iter().enumerate() {
        pool.hold(WorkerId(worker as u16), Held { requests, ..Held::default() });
    }
    let mut page = InflightPage::open(None).unwrap();
    page.write_slot(OWNER, pool.held(), NOW);
    page
}

fn loads(pool: &mut Pool, page: &InflightPage, now: Timestamp) -> Vec<f64> {
    page.add_up(OWNER, &pool.held, now, &mut pool.totals);
    with_rules(&poll(), |rules| pool.collect_candidates(&Query::default(), &SIZES, rules, now));
    pool.candidates.iter().map(|candidate| candidate.load_requests).collect()
}

fn decide(pool: &mut Pool) -> (Vec<u16>, bool) {
    let policy = default_policy(&LEAST_LOAD);
    let page = InflightPage::open(None).unwrap();
    let decision =
        with_rules(&poll(), |rules| pool.decide(policy.as_ref(), &Query::default(), &SIZES, &page, rules, NOW))
            .unwrap();
    assert_eq!(decision.branch, Branch::LeastLoad);
    let mut ids: Vec<u16> = decision.picks.as_slice().iter().map(|worker| worker.0).collect();
    ids.sort_unstable();
    (ids, decision.is_panic)
}

#[test]
fn a_request_counts_once_whether_the_report_has_it_or_not() {
    struct Case {
        name: &'static str,
        own_now: u32,
        own_at_report: u32,
        reported: f64,
        load: f64,
    }
    const CASES: &[Case] = &[
        Case { name: "all of the report is ours", own_now: 3, own_at_report: 3, reported: 3.0, load: 3.0 },
        Case { name: "others have two there", own_now: 3, own_at_report: 3, reported: 5.0, load: 5.0 },
        Case { name: "ours since the report count at once", own_now: 6, own_at_report: 3, reported: 3.0, load: 6.0 },
        Case { name: "ours that ended since do not linger", own_now: 0, own_at_report: 3, reported: 3.0, load: 0.0 },
        Case { name: "ours not yet in the engine", own_now: 3, own_at_report: 3, reported: 1.0, load: 3.0 },
    ];
    for case in CASES {
        let mut pool = pool(1, |fleet| report(fleet, 0, case.reported, 0.0, case.own_at_report));
        let page = in_flight(&mut pool, &[case.own_now]);
        assert_eq!(loads(&mut pool, &page, NOW), [case.load], "{}", case.name);
    }
}

#[test]
fn unknown_is_never_better_than_known() {
    let mut pool = pool(3, |fleet| {
        report(fleet, 0, 4.0, 3.0, 0);
        report(fleet, 1, 0.0, 2.0, 0);
    });
    let page = in_flight(&mut pool, &[0, 0, 1]);
    assert_eq!(loads(&mut pool, &page, NOW), [7.0, 2.0, 8.0]);
}

#[test]
fn a_report_that_is_too_old_is_not_used() {
    let mut pool = pool(2, |fleet| report(fleet, 0, 9.0, 9.0, 0));
    let page = in_flight(&mut pool, &[1, 1]);
    assert_eq!(loads(&mut pool, &page, NOW.plus_ms(AGE_MAX_MS - 1)), [19.0, 19.0]);
    assert_eq!(loads(&mut pool, &page, NOW.plus_ms(AGE_MAX_MS)), [1.0, 1.0]);
}

#[test]
fn a_report_without_requests_tells_nothing_of_load() {
    let mut pool = pool(1, |fleet| {
        let report = LoadReport { kv_usage: Some(0.5), ..LoadReport::default() };
        fleet.record_report("10.0.0.1:8000", DatedReport { taken_at: NOW, report }, 0, 0);
    });
    let page = in_flight(&mut pool, &[2]);
    assert_eq!(loads(&mut pool, &page, NOW), [2.0]);
    assert!(!pool.candidates[0].is_known);
}

#[test]
fn a_worker_that_fails_its_scrapes_is_left_until_it_answers_again() {
    let fail = |fleet: &mut Fleet, times| (0..times).for_each(|_| fleet.record_failure("10.0.0.1:8000"));
    assert_eq!(decide(&mut pool(2, |fleet| fail(fleet, 1))), (vec![0, 1], false));
    assert_eq!(decide(&mut pool(2, |fleet| fail(fleet, 2))), (vec![1], false));
    assert_eq!(
        decide(&mut pool(2, |fleet| {
            fail(fleet, 2);
            report(fleet, 0, 0.0, 0.0, 0);
        })),
        (vec![0, 1], false)
    );
}

#[test]
fn without_scrapes_earlier_failures_do_not_count() {
    let mut pool = pool(2, |fleet| (0..3).for_each(|_| fleet.record_failure("10.0.0.1:8000")));
    let page = InflightPage::open(None).unwrap();
    page.add_up(OWNER, &[], NOW, &mut pool.totals);
    with_rules(&PollConfig::default(), |rules| pool.collect_candidates(&Query::default(), &SIZES, rules, NOW));
    assert_eq!(pool.candidates.len(), 2);
}

#[test]
fn when_all_have_failed_all_are_tried() {
    let mut pool = pool(1, |fleet| (0..3).for_each(|_| fleet.record_failure("10.0.0.1:8000")));
    assert_eq!(decide(&mut pool), (vec![0], true));
}

#[test]
fn a_pool_without_workers_decides_nothing() {
    let policy = default_policy(&LEAST_LOAD);
    let page = InflightPage::open(None).unwrap();
    let mut pool = Pool::new("llm", &[], 1, OWNER);
    let decide = |rules: &Rules<'_>| pool.decide(policy.as_ref(), &Query::default(), &SIZES, &page, rules, NOW);
    assert_eq!(with_rules(&poll(), decide), None);
}

#[test]
fn only_configured_workers_are_candidates_though_the_page_knows_more() {
    let mut pool = Pool::new("llm", &addresses(2)[1..], 1, OWNER);
    let mut fleet = Fleet::default();
    fleet.admit(addresses(2).iter().map(String::as_str), NOW);
    pool.set_fleet(fleet);
    assert_eq!(decide(&mut pool), (vec![1], false));
}

#[test]
fn workers_are_found_where_they_are_now() {
    let mut pool = pool(2, |_| {});
    assert_eq!(pool.find("10.0.0.2:8000"), Some(WorkerId(1)));
    let mut other = Fleet::default();
    other.admit(["10.0.0.2:8000", "10.0.0.1:8000"].into_iter(), NOW);
    pool.set_fleet(other);
    assert_eq!(pool.find("10.0.0.2:8000"), Some(WorkerId(0)));
    assert_eq!(pool.find("10.0.0.9:8000"), None);
}

#[test]
fn what_is_in_flight_outlives_a_page_that_was_lost() {
    let mut pool = pool(2, |_| {});
    pool.hold(WorkerId(1), Held { requests: 1, ..Held::default() });
    pool.set_fleet(Fleet::default());
    assert_eq!(pool.held().iter().map(|held| held.requests).sum::<u32>(), 1);
}

#[test]
fn the_turn_is_that_of_the_page() {
    let round_robin = POLICIES.iter().find(|policy| policy.name == "round-robin").unwrap();
    let (mut pool, policy) = (pool(3, |_| {}), default_policy(round_robin));
    let mut page = InflightPage::open(None).unwrap();
    let mut firsts = Vec::new();
    for _ in 0..4 {
        let decision =
            with_rules(&poll(), |rules| pool.decide(policy.as_ref(), &Query::default(), &SIZES, &page, rules, NOW))
                .unwrap();
        firsts.push(decision.picks.first().unwrap().0);
        page.advance_turn();
    }
    assert_eq!(firsts, [0, 1, 2, 0]);
}

#[test]
fn a_report_of_the_batch_alone_is_known() {
    let mut pool = pool(1, |fleet| {
        let report = LoadReport { running: Some(3.0), ..LoadReport::default() };
        fleet.record_report("10.0.0.1:8000", DatedReport { taken_at: NOW, report }, 0, 0);
    });
    let page = in_flight(&mut pool, &[0]);
    assert_eq!(loads(&mut pool, &page, NOW), [3.0]);
    assert!(pool.candidates[0].is_known);
}

#[test]
fn what_is_released_is_gone_and_never_goes_below_zero() {
    let mut pool = pool(1, |_| {});
    let request = Held { requests: 1, prefilling: 1, prefill_tokens: 100, context_tokens: 100 };
    pool.hold(WorkerId(0), request);
    pool.release(WorkerId(0), request);
    pool.release(WorkerId(0), request);
    assert_eq!(pool.held(), [Held::default()]);
}

#[test]
fn the_status_counts_all_vms_and_tells_the_oldest_report() {
    let mut pool = pool(3, |fleet| {
        report(fleet, 0, 1.0, 1.0, 0);
        (0..2).for_each(|_| fleet.record_failure("10.0.0.2:8000"));
    });
    let mut page = in_flight(&mut pool, &[2, 0, 1]);
    page.write_slot(2, &[Held { requests: 5, ..Held::default() }], NOW);
    let want = PoolStatus {
        requests: 8,
        workers: 3,
        available_workers: 2,
        known_workers: 1,
        report_age_ms_max: 250,
        ..PoolStatus::default()
    };
    assert_eq!(with_rules(&poll(), |rules| pool.status(&page, rules, NOW.plus_ms(250))), want);
}

#[test]
fn metrics_are_asked_where_they_are_and_a_silent_engine_is_not_asked() {
    let config = |pool: &str| {
        let text = format!(r#"{{"poll": {{"cluster": "poll"}}, "pools": [{{"cluster": "llm", {pool}}}]}}"#);
        crate::config::Config::from_bytes(text.as_bytes()).unwrap()
    };
    let workers = r#""workers": [{"address": "10.0.0.1:80"},
        {"address": "10.0.0.2:80", "metricsAddress": "10.0.0.1:9000", "dataParallelRank": 1}]"#;
    let elsewhere = config(&format!(r#"{workers}, "metrics": {{"path": "/prometheus/metrics"}}"#));
    let mut pool = Pool::configured(&elsewhere.pools[0], false, 1, OWNER);
    let target =
        |worker, address| Some(PollTarget { worker, address, authority: address, path: "/prometheus/metrics" });
    assert_eq!(pool.poll_target(0, &elsewhere.poll), target("10.0.0.1:80", "10.0.0.1:80"));
    assert_eq!(pool.poll_target(1, &elsewhere.poll), target("10.0.0.2:80", "10.0.0.1:9000"));
    assert_eq!(pool.poll_target(2, &elsewhere.poll), None);
    let page = b"vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 4\n";
    let waiting = |pool: &Pool, address| pool.read_page(address, page).map(|report| report.waiting);
    assert_eq!((waiting(&pool, "10.0.0.1:80"), waiting(&pool, "10.0.0.2:80")), (Ok(Some(7.0)), Ok(Some(4.0))));
    assert!(!pool.due_polls(&elsewhere.poll, NOW, &mut Rng::new(1)).is_empty());

    let silent = config(&format!(r#"{workers}, "engine": "none""#));
    let mut pool = Pool::configured(&silent.pools[0], false, 1, OWNER);
    assert_eq!(pool.poll_target(0, &silent.poll).map(|target| target.path), Some("/metrics"));
    assert!(pool.due_polls(&silent.poll, NOW, &mut Rng::new(1)).is_empty());
}
