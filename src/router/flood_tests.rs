//! What clients who flood the gateway can and cannot cause, and on how much a decision stands.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::flow_tests::{Gateway, NOW, text};
use super::*;
use crate::exchange::Exchange;
use crate::request::Api;
use crate::schedule::{Branch, Rung};
use crate::shared::PageKind;
use crate::worker::{DatedReport, LoadReport};

/// Bytes that the pages of all prompts take, and how many pages there are.
fn memory(gateway: &Gateway) -> (usize, usize) {
    let pages = || gateway.store.iter().map(|(_, bytes)| bytes.len());
    (pages().sum(), pages().count())
}

#[test]
fn a_flood_of_distinct_prompts_takes_no_more_memory_than_the_index_is_given() {
    let mut gateway = Gateway::hybrid(4);
    let pages = gateway.routers[0].config().index.pages as usize;
    for number in 0..6_000 {
        gateway.serve(&text(&format!("flood {number}"), 600));
    }
    let (bytes, count) = memory(&gateway);
    assert!(count <= pages + 6, "{count} pages");
    assert!(bytes <= (pages + 64) * 4_096, "{bytes} bytes");
    assert!(count > pages / 2, "the flood reaches the index at all: {count} pages");
}

#[test]
fn conversations_that_go_on_through_a_flood_are_still_known_and_others_are_cold_once() {
    let mut gateway = Gateway::hybrid(4);
    let of_user = |user: u32, turns: usize| text(&format!("user {user}"), 2_000 + turns * 200);
    let (mut warm, mut asked) = (0, 0);
    for number in 0..3_000_usize {
        gateway.serve(&text(&format!("flood {number}"), 600));
        if number % 30 == 0 {
            let turn = number / 300;
            let (_, branch) = gateway.serve(&of_user((number / 30 % 10) as u32, turn));
            (asked, warm) = (asked + 1, warm + usize::from(branch == Branch::Warm));
        }
    }
    // All but the first turn of each of ten users.
    assert!(warm >= (asked - 10) * 9 / 10, "{warm} of {asked} turns are warm");
}

#[test]
fn one_prompt_sent_again_and_again_does_not_pile_up_at_its_worker() {
    let mut gateway = Gateway::hybrid(4);
    let prompt = text("pinned", 4_000);
    let mut held = [0_u32; 4];
    for _ in 0..400 {
        // Never answered: all stay in flight.
        let (_, decision) = gateway.decide(0, &prompt);
        held[usize::from(decision.picks.first().unwrap().0)] += 1;
    }
    assert!(held.iter().all(|held| (50..=150).contains(held)), "{held:?}");
}

fn rung_of(gateway: &mut Gateway, is_read: bool, config: impl Fn(&mut Ask)) -> Rung {
    let router = &mut gateway.routers[0];
    let body = r#"{"model":"m","prompt":"some prompt"}"#;
    let reading = router.read_prompt(Api::Completions, &Body::whole(body.as_bytes()), None).unwrap();
    let mut ask = Ask::default();
    if is_read {
        ask.take_in(&reading);
    }
    config(&mut ask);
    router.decide(&mut gateway.store, &ask, &mut Exchange::default(), NOW).unwrap().rung
}

#[test]
fn a_decision_tells_on_how_much_it_stands() {
    let scraped = r#""hybrid","poll":{"cluster":"scrapes"}"#;
    let mut gateway = Gateway::new(2, 1, scraped);
    assert_eq!(rung_of(&mut gateway, true, |_| ()), Rung::NoReports);
    let address = gateway.routers[0].pool(0).unwrap().addresses().next().unwrap().to_owned();
    let mut fleet = gateway.routers[0].pool(0).unwrap().fleet().clone();
    fleet.record_report(&address, DatedReport { taken_at: NOW, report: LoadReport::default() }, 0, 0);
    gateway.routers[0].pool_mut(0).unwrap().set_fleet(fleet);
    assert_eq!(rung_of(&mut gateway, true, |_| ()), Rung::Full, "one of two has told");
    assert_eq!(rung_of(&mut gateway, false, |_| ()), Rung::NoIndex, "a body that nobody read");
    assert_eq!(rung_of(&mut gateway, false, |ask| ask.is_promptless = true), Rung::Full, "none is wanted");

    let mut gateway = Gateway::new(2, 1, r#""least-load""#);
    assert_eq!(rung_of(&mut gateway, false, |_| ()), Rung::Full, "asks for no prompt, and nobody is scraped");

    let mut gateway = Gateway::hybrid(2);
    let newer = [b"WRIX".as_slice(), &[0xff, 0x7f]].concat();
    for page in 0..gateway.routers[0].config().index.pages {
        assert!(gateway.store.set(&format!("{}/{page}", PageKind::Index.key("llm")), &newer, 0));
    }
    let prompt = text("a prompt", 4_000);
    assert_eq!(gateway.decide(0, &prompt).1.rung, Rung::NoIndex, "an index that cannot be read");
}
