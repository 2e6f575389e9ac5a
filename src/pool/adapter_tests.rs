//! Tests of which requests are for adapters, and what candidates show of them.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::config::HealthConfig;
use crate::engine::{Engine, PageReader};
use crate::schedule::Query;
use crate::shared::adapters::AdaptersPage;
use crate::worker::AdapterFit::{self, Full, Loaded, Replace, Room, Running, Unknown, Waiting};
use crate::worker::{AdapterHash, AdapterList, Adapters, AskedAdapter, LoadReport};

const NOW: Timestamp = Timestamp::from_ms(1_000_000);

fn adapter(name: &str) -> AdapterHash {
    AdapterHash::of(name.as_bytes())
}

fn model(name: &str) -> AskedAdapter {
    AskedAdapter::Model(adapter(name))
}

fn list(names: &str) -> AdapterList {
    names.split_terminator(',').map(adapter).collect()
}

/// What a worker tells: places (0 = untold), running, waiting, base models; `None` = it was never scraped.
type Told = Option<(u16, &'static str, &'static str, &'static str)>;

fn pool(told: &[Told]) -> Pool {
    let addresses: Vec<String> = (0..told.len()).map(|worker| format!("10.0.0.{}:8000", worker + 1)).collect();
    let mut pool = Pool::new("llm", &addresses, 1, 1);
    let mut fleet = Fleet::default();
    fleet.admit(addresses.iter().map(String::as_str), NOW);
    for (address, told) in addresses.iter().zip(told) {
        let Some((max, running, waiting, models)) = told else { continue };
        let max = Some(*max).filter(|max| *max > 0);
        let adapters = Adapters { max, running: list(running), waiting: list(waiting) };
        let report = LoadReport { waiting: Some(0.0), adapters, models: list(models), ..LoadReport::default() };
        fleet.record_report(address, DatedReport { taken_at: NOW, report }, 0, 0);
    }
    pool.set_fleet(fleet);
    pool
}

/// An adapter, to which worker it was sent and who served it, and when: milliseconds after the reports.
type Sending = (&'static str, u16, u64);

fn sent(sendings: &[Sending]) -> AdaptersPage {
    let mut page = AdaptersPage::default();
    for (name, worker, ms) in sendings {
        page.confirm(adapter(name), WorkerId(*worker), 0, NOW.plus_ms(*ms));
    }
    page
}

/// How `x` fits each worker; `None` for all if it is no adapter.
fn fits(pool: &mut Pool, page: &AdaptersPage, matched_tokens: &[u64]) -> Vec<Option<AdapterFit>> {
    let adapter = pool.find_adapter(page, model("x"));
    let sizes = RequestSizes { bytes_per_token: 1.0, uncached_tokens: 0.0, adapter };
    pool.matched_bytes = matched_tokens.to_vec();
    let query = Query { prompt_tokens: 1_000.0, ..Query::default() };
    let (poll, health) = (PollConfig::default(), HealthConfig::default());
    let rules = Rules { poll: &poll, health: &health };
    pool.collect_candidates(&query, &sizes, &rules, NOW.plus_ms(100));
    pool.candidates.iter().map(|candidate| candidate.adapter).collect()
}

#[test]
fn a_name_is_an_adapters_if_somebody_has_or_wants_it_or_if_it_is_no_base_model() {
    type Case = (&'static str, &'static [Told], &'static [Sending], bool);
    const CASES: &[Case] = &[
        ("nobody tells", &[Some((0, "", "", "")), None], &[("x", 0, 1)], false),
        ("a base model", &[Some((1, "a", "", "b,x")), Some((1, "x", "", "b"))], &[("x", 0, 1)], false),
        ("no base model, and all are told", &[Some((1, "", "", "b"))], &[], true),
        ("no base model of those who take no adapters", &[Some((0, "a", "", "b"))], &[], false),
        ("nobody tells base models", &[Some((1, "a", "a", ""))], &[], false),
        ("runs somewhere", &[Some((1, "a", "", "")), Some((1, "x", "", ""))], &[], true),
        ("waits somewhere", &[Some((1, "a", "x", ""))], &[], true),
        ("was just sent", &[Some((1, "a", "", ""))], &[("x", 0, 1)], true),
        ("was sent to a worker that is gone", &[Some((1, "a", "", ""))], &[("x", 3, 1)], false),
        ("another was sent", &[Some((1, "a", "", ""))], &[("b", 0, 1)], false),
        ("too many base models to name", &[Some((1, "", "", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"))], &[], false),
    ];
    for (name, told, sendings, is_adapter) in CASES {
        let mut pool = pool(told);
        let found = pool.find_adapter(&sent(sendings), model("x"));
        assert_eq!(found.is_some(), *is_adapter, "{name}");
        let fits = fits(&mut pool, &sent(sendings), &[]);
        assert!(fits.iter().all(|fit| fit.is_some() == *is_adapter), "{name}: {fits:?}");
    }
}

#[test]
fn candidates_show_what_is_told_remembered_and_sent_since() {
    struct Case {
        name: &'static str,
        told: &'static [Told],
        sent: &'static [Sending],
        matched_tokens: &'static [u64],
        fits: &'static [AdapterFit],
    }
    const CASES: &[Case] = &[
        Case {
            name: "by the reports",
            told: &[Some((1, "x", "", "")), Some((1, "a", "x", "")), Some((2, "a", "", "")), Some((1, "a", "", ""))],
            sent: &[],
            matched_tokens: &[],
            fits: &[Running, Waiting, Room, Full],
        },
        Case {
            name: "a burst between two scrapes stays where its first went",
            told: &[Some((1, "", "", "b")), Some((1, "", "", "b")), Some((1, "", "", "b"))],
            sent: &[("x", 1, 1)],
            matched_tokens: &[],
            fits: &[Room, Loaded, Room],
        },
        Case {
            name: "where another was sent since there is no free place any more",
            told: &[Some((1, "", "", "b")), Some((2, "", "", "b")), Some((2, "", "", "b"))],
            sent: &[("a", 0, 1), ("a", 1, 1), ("a", 2, 1), ("c", 2, 2)],
            matched_tokens: &[],
            fits: &[Full, Room, Full],
        },
        Case {
            name: "the later one pushed the earlier one out",
            told: &[Some((1, "", "", "b")), Some((1, "", "", "b"))],
            sent: &[("x", 0, 1), ("a", 0, 2), ("a", 1, 1), ("x", 1, 2)],
            matched_tokens: &[],
            fits: &[Waiting, Loaded],
        },
        Case {
            name: "who tells nothing has nothing yet, but who has part of the prompt has served it",
            told: &[Some((2, "x", "", "")), None, Some((0, "", "", "")), Some((2, "", "", ""))],
            sent: &[],
            matched_tokens: &[0, 16, 0, 16],
            fits: &[Running, Loaded, Room, Room],
        },
    ];
    for case in CASES {
        let fits = fits(&mut pool(case.told), &sent(case.sent), case.matched_tokens);
        let want: Vec<_> = case.fits.iter().copied().map(Some).collect();
        assert_eq!(fits, want, "{}", case.name);
    }
}

#[test]
fn what_is_idle_stays_loaded_over_reports_that_do_not_tell_it() {
    let told = Some((1, "x", "", "b"));
    let mut pool = pool(&[told, Some((1, "", "", "b")), Some((1, "a", "", "b"))]);
    let mut fleet = pool.fleet().clone();
    for address in ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"] {
        let adapters = Adapters { max: Some(1), ..Adapters::UNTOLD };
        let report = LoadReport { waiting: Some(0.0), adapters, models: list("b"), ..LoadReport::default() };
        fleet.record_report(address, DatedReport { taken_at: NOW.plus_ms(50), report }, 0, 0);
    }
    pool.set_fleet(fleet);
    let page = AdaptersPage::default();
    assert_eq!(fits(&mut pool, &page, &[]), [Some(Loaded), Some(Room), Some(Replace)]);
    assert_eq!(fits(&mut pool, &sent(&[("c", 0, 60)]), &[])[0], Some(Full), "another was sent there since");
}

#[test]
fn reports_too_old_for_loads_still_tell_names() {
    let mut pool = pool(&[Some((1, "x", "", "b")), Some((1, "", "", "b"))]);
    let adapter = pool.find_adapter(&AdaptersPage::default(), model("x"));
    let sizes = RequestSizes { bytes_per_token: 1.0, uncached_tokens: 0.0, adapter };
    let poll = PollConfig { report_age_ms_max: 5_000, ..PollConfig::default() };
    let health = HealthConfig::default();
    let rules = Rules { poll: &poll, health: &health };
    pool.collect_candidates(&Query::default(), &sizes, &rules, NOW.plus_ms(9_000));
    let fits: Vec<_> = pool.candidates.iter().map(|candidate| candidate.adapter).collect();
    assert_eq!(fits, [Some(Loaded), Some(Unknown)]);
}

#[test]
fn what_nobody_has_served_takes_no_place_from_others() {
    let told = Some((1, "", "", "b"));
    let mut page = AdaptersPage::default();
    for name in ["a", "c", "x"] {
        page.note(adapter(name), WorkerId(0), 0, NOW.plus_ms(1));
    }
    assert_eq!(fits(&mut pool(&[told, told]), &page, &[]), [Some(Loaded), Some(Room)], "it counts for its own");
    page.forget(adapter("x"), WorkerId(0), NOW.plus_ms(1));
    assert_eq!(fits(&mut pool(&[told, told]), &page, &[]), [Some(Room), Some(Room)]);
    page.confirm(adapter("a"), WorkerId(0), 0, NOW.plus_ms(1));
    assert_eq!(fits(&mut pool(&[told, told]), &page, &[]), [Some(Full), Some(Room)]);
}

#[test]
fn where_engines_take_any_model_name_an_adapter_is_what_is_named_as_one() {
    const PAGE: &str = include_str!("../../tests/testdata/sglang-0.5.23-dp2-tp4-metrics.txt");
    let report = PageReader::new(Engine::Auto, &[]).read(PAGE.as_bytes(), None).unwrap();
    let mut pool = pool(&[None]);
    let mut fleet = pool.fleet().clone();
    fleet.record_report("10.0.0.1:8000", DatedReport { taken_at: NOW, report }, 0, 0);
    pool.set_fleet(Fleet::decode(Some(&fleet.encode())).unwrap());
    let mut is_adapter = |name| pool.find_adapter(&AdaptersPage::default(), name).is_some();
    assert!(!is_adapter(model("tiny")) && !is_adapter(model("gpt-4o")), "served as its base model");
    assert!(is_adapter(AskedAdapter::Named(adapter("x"))));
}
