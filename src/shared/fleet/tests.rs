//! Tests of the fleet and its page: ids, restarts and absences, the foreign share, any bytes.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::rng::Rng;
use crate::worker::{AdapterHash, Adapters};

const NOW: Timestamp = Timestamp::from_ms(1_000_000);
const A: &str = "127.0.0.1:8000";
const B: &str = "[2001:db8::1]:8000";

fn dated(ms: u64, waiting: f64, started_at_s: f64) -> DatedReport {
    let report = LoadReport { waiting: Some(waiting), started_at_s: Some(started_at_s), ..LoadReport::default() };
    DatedReport { taken_at: NOW.plus_ms(ms), report }
}

fn fleet() -> Fleet {
    let mut fleet = Fleet::default();
    assert!(fleet.admit([A, B].into_iter(), NOW));
    fleet
}

#[test]
fn a_fleet_comes_back_from_its_page() {
    let mut fleet = fleet();
    let mut report = dated(5, 3.0, 100.0);
    let adapters = |count: u32| (1..=count).map(AdapterHash).collect();
    report.report.adapters = Adapters { max: Some(4), running: adapters(17), waiting: adapters(2) };
    fleet.record_report(B, report, 2, 1);
    fleet.record_failure(A);
    assert!(fleet.foreign_share().is_some());
    assert_eq!(Fleet::decode(Some(&fleet.encode())), Ok(fleet));
}

#[test]
fn ids_are_stable_and_admission_is_idempotent() {
    let mut fleet = fleet();
    assert!(!fleet.admit([B, A].into_iter(), NOW));
    assert!(fleet.admit(["127.0.0.1:9000"].into_iter(), NOW));
    assert_eq!((fleet.find(A), fleet.find(B)), (Some(WorkerId(0)), Some(WorkerId(1))));
    assert_eq!(fleet.find("127.0.0.1:9000"), Some(WorkerId(2)));
    assert_eq!(fleet.find("10.0.0.1:1"), None);
}

#[test]
fn a_worker_never_scraped_has_no_report_and_an_old_report_does_not_count() {
    let mut fleet = fleet();
    fleet.record_report(A, dated(0, 0.0, 1.0), 0, 0);
    let fresh = |id, ms| fleet.worker(WorkerId(id)).unwrap().fresh_report(NOW.plus_ms(ms), 5_000).copied();
    assert!(fresh(0, 4_999).is_some());
    assert!(fresh(0, 5_000).is_none());
    assert!(fresh(1, 0).is_none());
}

#[test]
fn a_restart_is_a_new_generation_and_a_success_clears_failures() {
    let mut fleet = fleet();
    fleet.record_report(A, dated(0, 0.0, 100.0), 0, 0);
    fleet.record_report(A, dated(1, 0.0, 100.01), 0, 0);
    assert_eq!(fleet.worker(WorkerId(0)).unwrap().generation, 0);
    fleet.record_failure(A);
    fleet.record_failure(A);
    assert_eq!(fleet.worker(WorkerId(0)).unwrap().scrape_failures, 2);
    fleet.record_report(A, dated(2, 0.0, 160.0), 0, 0);
    let worker = fleet.worker(WorkerId(0)).unwrap();
    assert_eq!((worker.generation, worker.scrape_failures), (1, 0));
}

#[test]
fn an_older_report_does_not_replace_a_newer_one_unless_the_clock_stepped_back() {
    let mut fleet = fleet();
    let waiting = |fleet: &Fleet| fleet.worker(WorkerId(0)).unwrap().report.unwrap().report.waiting;
    fleet.record_report(A, dated(600_000, 1.0, 1.0), 0, 0);
    fleet.record_report(A, dated(599_000, 2.0, 1.0), 0, 0);
    assert_eq!(waiting(&fleet), Some(1.0));
    fleet.record_report(A, dated(0, 3.0, 1.0), 0, 0);
    assert_eq!(waiting(&fleet), Some(3.0));
}

#[test]
fn a_report_from_before_the_clock_stepped_back_does_not_count() {
    let mut fleet = fleet();
    fleet.record_report(A, dated(3_600_000, 0.0, 1.0), 0, 0);
    assert_eq!(fleet.worker(WorkerId(0)).unwrap().fresh_report(NOW, 5_000), None);
}

#[test]
fn where_workers_come_and_go_the_page_stays_small() {
    let mut fleet = Fleet::default();
    for day in 0..50 {
        let address = format!("10.0.0.1:{}", 8_000 + day);
        fleet.admit([address.as_str()].into_iter(), NOW.plus_ms(day * RECLAIM_MS));
    }
    assert!(fleet.len() <= 2, "{} rows", fleet.len());
}

#[test]
fn a_full_fleet_gives_up_only_rows_that_nobody_configures() {
    let mut fleet = Fleet::default();
    let addresses: Vec<String> = (0..WORKERS_MAX).map(|port| format!("10.0.0.1:{}", port + 1)).collect();
    fleet.admit(addresses.iter().map(String::as_str), NOW);
    fleet.admit([A].into_iter(), NOW.plus_ms(RECLAIM_MS - 1));
    assert_eq!(fleet.find(A), None);
    fleet.admit([A].into_iter(), NOW.plus_ms(RECLAIM_MS));
    assert_eq!((fleet.len(), fleet.find(A)), (WORKERS_MAX, Some(WorkerId(0))));
    assert_eq!(fleet.worker(WorkerId(0)).unwrap().generation, 1);
}

fn generation(fleet: &Fleet, address: &str) -> u32 {
    fleet.worker(fleet.find(address).unwrap()).unwrap().generation
}

#[test]
fn an_engine_without_start_time_that_was_away_may_have_restarted() {
    struct Case {
        name: &'static str,
        before: Option<f64>,
        failures: u32,
        after: Option<f64>,
        generation: u32,
    }
    let cases = [
        Case { name: "no start times", before: None, failures: 2, after: None, generation: 1 },
        Case { name: "one failure", before: None, failures: 1, after: None, generation: 0 },
        Case { name: "never away", before: None, failures: 0, after: None, generation: 0 },
        Case { name: "no longer told", before: Some(9.0), failures: 3, after: None, generation: 1 },
        Case { name: "told only now", before: None, failures: 2, after: Some(9.0), generation: 1 },
        Case { name: "the same start", before: Some(9.0), failures: 9, after: Some(9.01), generation: 0 },
        Case { name: "another start", before: Some(9.0), failures: 9, after: Some(60.0), generation: 1 },
    ];
    for case in cases {
        let mut fleet = fleet();
        let report = |ms: u64, started_at_s| {
            let report = LoadReport { waiting: Some(0.0), started_at_s, ..LoadReport::default() };
            DatedReport { taken_at: NOW.plus_ms(ms), report }
        };
        fleet.record_report(A, report(0, case.before), 0, 0);
        (0..case.failures).for_each(|_| fleet.record_failure(A));
        fleet.record_report(A, report(1, case.after), 0, 0);
        fleet.record_report(A, report(2, case.after), 0, 0);
        assert_eq!(generation(&fleet, A), case.generation, "{}", case.name);
    }
}

/// For `ms` two VMs that both configure `addresses` admit them every 10 s, 3 s one after the other.
fn run_admissions(fleet: &mut Fleet, addresses: &[&str], from: Timestamp, ms: u64) {
    for at in (0..ms).step_by(10_000) {
        fleet.admit(addresses.iter().copied(), from.plus_ms(at));
        fleet.admit(addresses.iter().copied(), from.plus_ms(at + 3_000));
        *fleet = Fleet::decode(Some(&fleet.encode())).unwrap();
    }
}

#[test]
fn a_worker_that_was_in_no_configuration_comes_back_as_another() {
    // One VM, many, and as rare as two that take turns can mark the page.
    for period_ms in [10_000, 1_000, 20_000] {
        for absent_ms in (0..200_000).step_by(1_000) {
            let mut fleet = fleet();
            fleet.record_report(A, dated(0, 1.0, 1.0), 0, 0);
            for at in (period_ms..absent_ms).step_by(period_ms as usize) {
                fleet.admit([B].into_iter(), NOW.plus_ms(at));
            }
            let back_at = NOW.plus_ms(absent_ms);
            fleet.admit([A, B].into_iter(), back_at);
            let is_new = generation(&fleet, A) == 1;
            let case = format!("admissions every {period_ms} ms, away for {absent_ms} ms");
            assert!(is_new || absent_ms < 60_000, "{case}, taken for the same");
            assert!(!is_new || absent_ms >= 30_000, "{case}, taken for another");
            assert_eq!(fleet.worker(WorkerId(0)).unwrap().report.is_none(), is_new, "{case}");
            run_admissions(&mut fleet, &[A, B], back_at, 60_000);
            assert_eq!((generation(&fleet, A), generation(&fleet, B)), (u32::from(is_new), 0), "{case}");
        }
    }
}

#[test]
fn missed_ticks_sleep_and_clock_steps_are_no_absence() {
    const HOUR_MS: u64 = 3_600_000;
    let cases = [
        ("busy for 45 s", 45_000),
        ("the process slept, or the clock was put forward", 590_000),
        ("the clock stepped back by 5 s", -5_000),
        ("the clock stepped back by 5 min", -300_000),
    ]
    .map(|(name, step_ms): (_, i64)| (name, NOW.plus_ms(HOUR_MS), NOW.plus_ms(HOUR_MS.saturating_add_signed(step_ms))));
    for (name, before, after) in cases {
        let mut fleet = Fleet::default();
        run_admissions(&mut fleet, &[A, B], before, 100);
        run_admissions(&mut fleet, &[A, B], after, 60_000);
        assert_eq!((generation(&fleet, A), generation(&fleet, B)), (0, 0), "{name}");
    }
    // Nobody knows what happened to a pool that was nowhere configured for so long.
    let mut fleet = fleet();
    fleet.admit([A].into_iter(), NOW.plus_ms(RECLAIM_MS));
    assert_eq!((generation(&fleet, A), generation(&fleet, B)), (1, 0));
}

#[test]
fn a_worker_that_only_one_vm_configures_keeps_its_generation_though_that_vm_misses_a_tick() {
    let mut fleet = fleet();
    for second in 0..300 {
        let now = NOW.plus_ms(second * 1_000);
        if second % 10 == 4 {
            fleet.admit([B].into_iter(), now);
        }
        if second % 20 == 0 {
            fleet.admit([A, B].into_iter(), now);
        }
    }
    assert_eq!((generation(&fleet, A), generation(&fleet, B)), (0, 0));
}

#[test]
fn a_newcomer_does_not_get_the_row_of_a_worker_that_is_named_after_it() {
    let mut fleet = fleet();
    fleet.admit(["127.0.0.1:9000", B, A, "127.0.0.1:9000"].into_iter(), NOW.plus_ms(RECLAIM_MS));
    assert_eq!((fleet.find(A), fleet.find(B), fleet.len()), (Some(WorkerId(0)), Some(WorkerId(1)), 3));
}

fn load(ms: u64, waiting: Option<f64>, running: Option<f64>) -> DatedReport {
    DatedReport { taken_at: NOW.plus_ms(ms), report: LoadReport { waiting, running, ..LoadReport::default() } }
}

#[test]
fn the_foreign_share_begins_with_the_first_sample_and_sums_over_workers() {
    type Report = (&'static str, u64, Option<f64>, Option<f64>, u32);
    let cases: &[(&str, &[Report], Option<f64>)] = &[
        ("no report", &[], None),
        ("idle", &[(A, 0, Some(0.0), Some(0.0), 0)], None),
        ("idle, ours on their way", &[(A, 0, Some(0.0), Some(0.0), 2)], None),
        ("no counts", &[(A, 0, None, None, 1)], None),
        ("all ours", &[(A, 0, Some(1.0), Some(3.0), 4)], Some(0.0)),
        ("none ours", &[(A, 0, Some(1.0), Some(3.0), 0)], Some(1.0)),
        ("a quarter ours", &[(A, 0, Some(1.0), Some(3.0), 1)], Some(0.75)),
        ("no queue told", &[(A, 0, None, Some(4.0), 1)], Some(0.75)),
        ("ours are ahead", &[(A, 0, Some(0.0), Some(1.0), 3)], Some(0.0)),
        ("the second weighs a fiftieth", &[(A, 0, None, Some(4.0), 4), (A, 1, None, Some(4.0), 0)], Some(0.02)),
        ("two workers", &[(A, 0, None, Some(2.0), 2), (B, 1, None, Some(2.0), 0)], Some(0.02 * 0.5)),
        (
            "noise at one is made up for by another",
            &[(A, 0, None, Some(3.0), 4), (B, 1, None, Some(1.0), 0)],
            Some(0.0),
        ),
        ("a stale one does not count", &[(A, 0, None, Some(2.0), 2), (B, 5_000, None, Some(2.0), 0)], Some(0.02)),
        ("an ignored one does not count", &[(A, 9, None, Some(2.0), 2), (A, 8, None, Some(2.0), 0)], Some(0.0)),
        ("one without counts is no sample", &[(A, 0, None, Some(2.0), 1), (B, 1, None, None, 0)], Some(0.5)),
    ];
    for (name, reports, want) in cases {
        let mut fleet = fleet();
        for &(address, ms, waiting, running, own) in *reports {
            fleet.record_report(address, load(ms, waiting, running), own, 0);
        }
        let is_near = match (fleet.foreign_share(), *want) {
            (Some(share), Some(want)) => (share - want).abs() < 1e-12,
            (share, want) => share == want,
        };
        assert!(is_near, "{name}: {:?}, not {want:?}", fleet.foreign_share());
    }
}

#[test]
fn the_foreign_share_comes_to_what_several_gateways_make_of_it() {
    for gateways in [1, 2, 4, 8] {
        let (mut fleet, mut rng) = (fleet(), Rng::new(gateways));
        for scrape in 0..4_000 {
            let own = rng.below(20);
            let others: u32 = (1..gateways).map(|_| rng.below(20)).sum();
            let address = if scrape % 2 == 0 { A } else { B };
            let report = load(scrape * 100, Some(f64::from(others)), Some(f64::from(own)));
            fleet.record_report(address, report, own, 0);
        }
        let (share, want) = (fleet.foreign_share().unwrap(), 1.0 - 1.0 / gateways as f64);
        assert!((share - want).abs() < 0.1, "{gateways} gateways: {share}");
    }
}

#[test]
fn any_bytes_decode_without_a_panic() {
    let mut fleet = fleet();
    fleet.record_report(A, dated(0, 1.0, 1.0), 0, 0);
    let page = fleet.encode();
    for seed in 0..5_000 {
        let mut rng = Rng::new(seed);
        let mut bytes = page.clone();
        // Every fourth page is wrong in many places behind the preamble, and of full length.
        let (wrong, is_whole) = if seed % 4 == 0 { (200, true) } else { (1, false) };
        for _ in 0..wrong {
            let at = rng.below(bytes.len() as u32) as usize;
            bytes[if is_whole { at.max(8) } else { at }] = rng.next_u64() as u8;
        }
        if !is_whole {
            bytes.truncate(rng.below(bytes.len() as u32 + 100) as usize);
        }
        let mut fleet = Fleet::decode(Some(&bytes)).unwrap_or_default();
        fleet.admit([A, B].into_iter(), NOW.plus_ms(1));
        fleet.record_report(A, dated(2, 1.0, 1.0), 1, 0);
        assert!(fleet.foreign_share().is_none_or(|share| (0.0..=1.0).contains(&share)), "seed {seed}");
        let fit = |worker: &FleetWorker| worker.report.map(|dated| dated.report.adapters.fit(AdapterHash(1)));
        let _ = fleet.worker(WorkerId(0)).map(fit);
    }
}
