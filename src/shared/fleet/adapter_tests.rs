//! Tests of what the fleet remembers of LoRA adapters: what was used last, what pushes it out, what makes it void.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::worker::Adapters;

const NOW: Timestamp = Timestamp::from_ms(1_000_000);
const A: &str = "127.0.0.1:8000";
const B: &str = "[2001:db8::1]:8000";

fn fleet() -> Fleet {
    let mut fleet = Fleet::default();
    assert!(fleet.admit([A, B].into_iter(), NOW));
    fleet
}

fn list(names: &str) -> AdapterList {
    names.split_terminator(',').map(|name| AdapterHash::of(name.as_bytes())).collect()
}

fn dated(ms: u64, max: Option<u16>, running: &str) -> DatedReport {
    let adapters = Adapters { max, running: list(running), waiting: AdapterList::EMPTY };
    let report = LoadReport { started_at_s: Some(100.0), waiting: Some(0.0), adapters, ..LoadReport::default() };
    DatedReport { taken_at: NOW.plus_ms(ms), report }
}

fn loaded(fleet: &Fleet) -> AdapterList {
    fleet.worker(WorkerId(0)).unwrap().loaded
}

#[test]
fn what_ran_is_remembered_until_others_need_its_place() {
    struct Case {
        name: &'static str,
        max: Option<u16>,
        /// What runs, report after report.
        running: &'static [&'static str],
        loaded: &'static str,
    }
    let cases = [
        Case { name: "it is idle now", max: Some(1), running: &["a", "", ""], loaded: "a" },
        Case { name: "the last one used stands first", max: Some(3), running: &["a", "b", "a"], loaded: "a,b" },
        Case { name: "the least recently used goes", max: Some(2), running: &["a", "b", "a", "c"], loaded: "c,a" },
        Case { name: "two run together", max: Some(3), running: &["a", "b,c"], loaded: "b,c,a" },
        Case { name: "more run than have places", max: Some(1), running: &["a,b"], loaded: "a" },
        Case { name: "places untold", max: None, running: &["a", "b", ""], loaded: "b,a" },
    ];
    for case in cases {
        let mut fleet = fleet();
        for (ms, running) in (0..).step_by(200).zip(case.running) {
            fleet.record_report(A, dated(ms, case.max, running), 0, 0);
            fleet = Fleet::decode(Some(&fleet.encode())).unwrap();
        }
        assert_eq!(loaded(&fleet), list(case.loaded), "{}", case.name);
        assert!(fleet.worker(WorkerId(1)).unwrap().loaded == AdapterList::EMPTY, "{}", case.name);
    }
}

#[test]
fn no_more_than_a_list_has_names_for_are_remembered() {
    let mut fleet = fleet();
    for adapter in 0..40_u32 {
        let running = AdapterList::from_iter([AdapterHash(adapter)]);
        let mut report = dated(u64::from(adapter), Some(100), "");
        report.report.adapters.running = running;
        fleet.record_report(A, report, 0, 0);
    }
    let want: AdapterList = (24..40).rev().map(AdapterHash).collect();
    assert_eq!(loaded(&Fleet::decode(Some(&fleet.encode())).unwrap()), want);
}

#[test]
fn a_new_life_has_nothing_loaded() {
    let mut restarted = fleet();
    restarted.record_report(A, dated(0, Some(2), "a"), 0, 0);
    let mut next = dated(200, Some(2), "");
    next.report.started_at_s = Some(160.0);
    restarted.record_report(A, next, 0, 0);
    assert_eq!(loaded(&restarted), AdapterList::EMPTY);

    let mut was_gone = fleet();
    was_gone.record_report(A, dated(0, Some(2), "a"), 0, 0);
    was_gone.admit([A].into_iter(), NOW.plus_ms(RECLAIM_MS));
    assert_eq!(loaded(&was_gone), AdapterList::EMPTY);
}

#[test]
fn what_came_and_went_between_two_scrapes_is_remembered_in_its_order() {
    const HOUR_MS: u64 = 3_600_000;
    type Sent = (&'static str, u32, i64);
    let cases: &[(&str, &[Sent], &str)] = &[
        ("sent since the report", &[("b", 0, 10), ("c", 0, 20)], "c,b,a"),
        ("in any order", &[("c", 0, 20), ("b", 0, 10)], "c,b,a"),
        ("again", &[("b", 0, 10), ("a", 0, 20)], "a,b"),
        ("before the report, which would tell", &[("b", 0, -1)], "a"),
        ("in another life", &[("b", 1, 10)], "a"),
        ("before the clock stepped back", &[("b", 0, HOUR_MS as i64)], "a"),
    ];
    for (name, sent, want) in cases {
        let mut fleet = fleet();
        fleet.record_report(A, dated(0, Some(3), "a"), 0, 0);
        let mut page = AdaptersPage::default();
        for &(adapter, generation, ms) in *sent {
            let at = Timestamp::from_ms(1_000_000_u64.saturating_add_signed(ms));
            page.note(AdapterHash::of(adapter.as_bytes()), WorkerId(0), generation, at);
            page.confirm(AdapterHash::of(adapter.as_bytes()), WorkerId(0), generation, at);
        }
        // A row that no worker has, and one that nobody has served.
        page.confirm(AdapterHash(1), WorkerId(99), 0, NOW.plus_ms(1));
        page.note(AdapterHash(1), WorkerId(0), 0, NOW.plus_ms(1));
        fleet.remember_sent(&page);
        assert_eq!(loaded(&fleet), list(want), "{name}");
        fleet.remember_sent(&page);
        fleet.record_report(A, dated(200, Some(3), ""), 0, 0);
        fleet.remember_sent(&page);
        assert_eq!(loaded(&fleet), list(want), "{name}: taken in again and again");
    }
}

#[test]
fn base_models_come_back_by_name_up_to_four() {
    for count in [0, 1, 4, 5, 17] {
        let mut fleet = fleet();
        let mut report = dated(0, None, "");
        report.report.models = (1..=count).map(AdapterHash).collect();
        fleet.record_report(A, report, 0, 0);
        let fleet = Fleet::decode(Some(&fleet.encode())).unwrap();
        let models = fleet.worker(WorkerId(0)).unwrap().report.unwrap().report.models;
        assert_eq!(models.is_cut(), count > 4, "{count}");
        assert!((1..=count.min(4)).all(|model| models.contains(AdapterHash(model))), "{count}");
        assert!(models == report.report.models || count > 4, "{count}");
    }
}

#[test]
fn a_page_of_an_earlier_version_is_begun_anew_and_a_later_one_is_left_alone() {
    let with_version = |version: u8| {
        let mut page = fleet().encode();
        page[4] = version;
        Fleet::decode(Some(&page))
    };
    assert_eq!(with_version(3), Ok(Fleet::default()));
    assert_eq!(with_version(4), Ok(fleet()));
    assert!(with_version(5).is_err());
}
