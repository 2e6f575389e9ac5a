//! Tests of who may be a candidate: tables of pools, and a law over all policies.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::config::{DirectMode, IndexConfig};
use crate::direct::{Directions, Wish};
use crate::pool::RequestSizes;
use crate::pool::members::Membership;
use crate::request::{Headers, serialized};
use crate::rng::Rng;
use crate::schedule::policy::testing::default_policy;
use crate::schedule::{Branch, Decision, POLICIES};
use crate::shared::fleet::Fleet;
use crate::shared::inflight::{Held, InflightPage};
use crate::shared::learned::LearnedPage;

const NOW: Timestamp = Timestamp::from_ms(1_000_000_000);
/// So long before that an ejection of then is over.
const BEFORE: Timestamp = Timestamp::from_ms(1_000_000_000 - 1_500);
const SIZES: RequestSizes = RequestSizes { bytes_per_token: 4.0, uncached_tokens: 100.0, adapter: None };
const INDEX: IndexConfig = IndexConfig { pages: 1, kv_tokens_assumed: 1_000 };

/// One worker, by a letter. Of priority 1 instead of 0 are capitals.
///
/// `r` ready, `x` degraded, `s` fails its scrapes, `u` unhealthy as Envoy says, `e` ejected, `b` unhealthy and ejected,
/// `h` half open, `d` draining as Envoy says, `c` draining by configuration, `t` that and half open, `f` that and ejected, `k`
/// that, unhealthy and ejected, `g` gone.
const LETTERS: &[u8] = b"rxsuebhdctfkgRXSUEBHDCTFKG";

/// A pool of these workers.
fn pool(letters: &[u8]) -> Pool {
    let address = |worker: usize| format!("10.0.0.{}:80", worker + 1);
    let addresses: Vec<String> = (0..letters.len()).map(address).collect();
    let mut pool = Pool::new("llm", &addresses, 1, 1);
    pool.membership = Membership::ListedAndTold;
    let (mut fleet, mut learned) = (Fleet::default(), LearnedPage::default());
    fleet.admit(addresses.iter().map(String::as_str), NOW);
    for (worker, letter) in letters.iter().enumerate() {
        let id = WorkerId(worker as u16);
        let standing = match letter.to_ascii_lowercase() {
            b'x' => Standing::Degraded,
            b'u' | b'b' | b'k' => Standing::Unhealthy,
            b'd' => Standing::Draining,
            b'g' => Standing::Gone,
            _ => Standing::Healthy,
        };
        fleet.set_standing(id, standing, u8::from(letter.is_ascii_uppercase()));
        match letter.to_ascii_lowercase() {
            b's' => (0..2).for_each(|_| fleet.record_failure(&addresses[worker])),
            b'e' | b'b' | b'h' | b't' | b'f' | b'k' => learned.change(id, 0, |row| {
                let is_over = b"hHtT".contains(letter);
                let failed_at = if is_over { BEFORE } else { NOW };
                (0..3).for_each(|_| _ = row.failures.fail(failed_at, failed_at, &HealthConfig::default()));
            }),
            _ => {}
        }
        pool.members[worker].is_draining = b"cCtTfFkK".contains(letter);
    }
    pool.set_fleet(fleet);
    pool.prepare(&learned, &INDEX);
    pool
}

/// Calls `with` with rules under which scrapes and Envoy's word count, and so many percent may be ejected.
fn with_rules<T>(ejected_percent_max: u32, with: impl FnOnce(&Rules<'_>) -> T) -> T {
    let poll = PollConfig { cluster: "poll".to_owned(), ..PollConfig::default() };
    let health = HealthConfig { ejected_percent_max, ..HealthConfig::default() };
    with(&Rules { poll: &poll, health: &health })
}

/// The letters of the candidates, and whether it is a panic.
fn candidates(letters: &str, ejected_percent_max: u32) -> (String, bool) {
    let mut pool = pool(letters.as_bytes());
    let is_panic =
        with_rules(ejected_percent_max, |rules| pool.collect_candidates(&Query::default(), &SIZES, rules, NOW));
    let letter = |worker: WorkerId| char::from(letters.as_bytes()[usize::from(worker.0)]);
    (pool.candidates.iter().map(|candidate| letter(candidate.worker)).collect(), is_panic)
}

#[test]
fn who_may_be_a_candidate() {
    struct Case {
        name: &'static str,
        pool: &'static str,
        ejected_percent_max: u32,
        want: &'static str,
        is_panic: bool,
    }
    const CASES: &[Case] = &[
        Case { name: "all are well", pool: "rrr", ejected_percent_max: 75, want: "rrr", is_panic: false },
        Case { name: "one mark keeps out", pool: "rsuerr", ejected_percent_max: 75, want: "rrr", is_panic: false },
        Case { name: "half open is in", pool: "rhb", ejected_percent_max: 75, want: "rh", is_panic: false },
        Case { name: "a quarter is enough", pool: "reee", ejected_percent_max: 75, want: "r", is_panic: false },
        Case { name: "rounded up", pool: "reeee", ejected_percent_max: 75, want: "reeee", is_panic: true },
        Case {
            name: "less than a quarter",
            pool: "rsssseeeb",
            ejected_percent_max: 75,
            want: "rsssseee",
            is_panic: true,
        },
        Case { name: "two marks add nobody", pool: "rbbbb", ejected_percent_max: 75, want: "r", is_panic: false },
        Case { name: "all checks fail", pool: "suub", ejected_percent_max: 75, want: "suu", is_panic: true },
        Case { name: "all requests fail", pool: "eeeb", ejected_percent_max: 75, want: "eee", is_panic: true },
        Case { name: "everything fails", pool: "bb", ejected_percent_max: 75, want: "bb", is_panic: true },
        Case { name: "none may be ejected", pool: "reb", ejected_percent_max: 0, want: "re", is_panic: true },
        Case { name: "all but one may be", pool: "reeeeeeeee", ejected_percent_max: 100, want: "r", is_panic: false },
        Case { name: "all may be and are", pool: "eee", ejected_percent_max: 100, want: "eee", is_panic: true },
        Case { name: "draining is out", pool: "rdcg", ejected_percent_max: 75, want: "r", is_panic: false },
        Case { name: "draining does not count", pool: "reeedddd", ejected_percent_max: 75, want: "r", is_panic: false },
        Case { name: "ejected before draining", pool: "edc", ejected_percent_max: 75, want: "e", is_panic: true },
        Case { name: "only draining are left", pool: "dcg", ejected_percent_max: 75, want: "dc", is_panic: true },
        Case {
            name: "draining without a mark first",
            pool: "dcfk",
            ejected_percent_max: 75,
            want: "dc",
            is_panic: true,
        },
        Case { name: "half open among them", pool: "dtfk", ejected_percent_max: 75, want: "dt", is_panic: true },
        Case { name: "then with one", pool: "fkg", ejected_percent_max: 75, want: "f", is_panic: true },
        Case { name: "then all", pool: "kkg", ejected_percent_max: 75, want: "kk", is_panic: true },
        Case { name: "two marks after draining", pool: "bbdfk", ejected_percent_max: 75, want: "d", is_panic: true },
        Case { name: "and before marked draining", pool: "bfk", ejected_percent_max: 75, want: "b", is_panic: true },
        Case { name: "nobody can be reached", pool: "gg", ejected_percent_max: 75, want: "", is_panic: true },
        Case {
            name: "the first priority is enough",
            pool: "rrRR",
            ejected_percent_max: 75,
            want: "rr",
            is_panic: false,
        },
        Case { name: "5 of 7 are enough", pool: "rrrrreeRX", ejected_percent_max: 75, want: "rrrrr", is_panic: false },
        Case { name: "4 of 6 are not", pool: "rrrreeRR", ejected_percent_max: 75, want: "rrrrRR", is_panic: false },
        Case { name: "degraded ones last", pool: "rrrreexxR", ejected_percent_max: 75, want: "rrrrR", is_panic: false },
        Case { name: "degraded if needed", pool: "rrexX", ejected_percent_max: 75, want: "rrx", is_panic: false },
        Case { name: "only degraded", pool: "xxx", ejected_percent_max: 75, want: "xxx", is_panic: false },
        Case {
            name: "the first priority is down",
            pool: "eeRRR",
            ejected_percent_max: 75,
            want: "RRR",
            is_panic: false,
        },
        Case { name: "half open is not enough", pool: "hhRR", ejected_percent_max: 75, want: "hhRR", is_panic: false },
        Case {
            name: "in panic all priorities",
            pool: "eeeeeeeR",
            ejected_percent_max: 75,
            want: "eeeeeeeR",
            is_panic: true,
        },
    ];
    for case in CASES {
        let got = candidates(case.pool, case.ejected_percent_max);
        assert_eq!(got, (case.want.to_owned(), case.is_panic), "{}: {}", case.name, case.pool);
    }
}

#[test]
fn what_nobody_asks_any_more_does_not_count() {
    let (poll, health) = (PollConfig::default(), HealthConfig::default());
    let rules = Rules { poll: &poll, health: &health };
    let mut pool = pool(b"rsudgRX");
    assert!(pool.is_gone(WorkerId(4)));
    pool.membership = Membership::Listed;
    pool.set_fleet(pool.fleet().clone());
    assert!(!pool.collect_candidates(&Query::default(), &SIZES, &rules, NOW));
    assert_eq!(pool.candidates.len(), 7);
    assert!(!pool.is_gone(WorkerId(4)));
    let mut silent = self::pool(b"rs");
    silent.is_scraped = false;
    with_rules(75, |rules| silent.collect_candidates(&Query::default(), &SIZES, rules, NOW));
    assert_eq!(silent.candidates.len(), 2);
}

#[test]
fn the_status_counts_who_is_in_use_who_is_out_and_who_drains() {
    let mut pool = pool(b"rrxhseebdcg");
    let page = InflightPage::open(None).unwrap();
    let status = with_rules(75, |rules| pool.status(&page, rules, NOW));
    let got = (status.available_workers, status.ejected_workers, status.draining_workers);
    assert_eq!(got, (4, 3, 2));
}

/// Decides with one directed request's headers; the picks, and whether it is a response's holder or a pin that comes first.
fn decide(letters: &str, query: &Query, headers: &[(&str, &str)], mode: DirectMode) -> (Vec<u16>, Option<Branch>) {
    let mut pool = pool(letters.as_bytes());
    let (directions, _) = Directions::of_headers(Headers::new(&serialized(headers)), "");
    let mut wish = Wish::new(Some(&directions).filter(|directions| !directions.is_empty()), mode);
    let (policy, page) = (default_policy(&POLICIES[0]), InflightPage::open(None).unwrap());
    let decision =
        with_rules(75, |rules| pool.decide_as_wished(policy.as_ref(), query, (&SIZES, &mut wish), &page, rules, NOW));
    let picks = decision.map(|decision| decision.picks.as_slice().iter().map(|pick| pick.0).collect());
    (picks.unwrap_or_default(), decision.map(|decision| decision.branch))
}

#[test]
fn who_holds_the_response_or_is_named_is_asked_whether_it_works_and_not_for_its_tier() {
    struct Case {
        name: &'static str,
        pool: &'static str,
        /// Of the last worker.
        is_available: bool,
    }
    const CASES: &[Case] = &[
        Case { name: "of the same priority", pool: "rr", is_available: true },
        Case { name: "of another one", pool: "rR", is_available: true },
        Case { name: "degraded", pool: "rx", is_available: true },
        Case { name: "with a mark", pool: "rS", is_available: false },
        Case { name: "in panic with a mark", pool: "eeeeE", is_available: true },
        Case { name: "in panic with both", pool: "eeeeB", is_available: false },
        Case { name: "draining", pool: "rD", is_available: false },
        Case { name: "only draining are left", pool: "dD", is_available: true },
        Case { name: "gone", pool: "rG", is_available: false },
    ];
    for case in CASES {
        let last = (case.pool.len() - 1) as u16;
        let holder = Query { response_holder: Some(WorkerId(last)), ..Query::default() };
        let (picks, branch) = decide(case.pool, &holder, &[], DirectMode::Soft);
        let is_first = branch == Some(Branch::PreviousResponse) && picks.first() == Some(&last);
        assert_eq!(is_first, case.is_available, "{}: {} holds the response, {picks:?}", case.name, case.pool);
        let address = format!("10.0.0.{}:80", last + 1);
        for header in ["x-warmroute-target-worker", "x-gateway-destination-endpoint-subset"] {
            let (picks, _) = decide(case.pool, &Query::default(), &[(header, &address)], DirectMode::Strict);
            let want = if case.is_available { vec![last] } else { vec![] };
            assert_eq!(picks, want, "{}: {} is to go there by {header}", case.name, case.pool);
        }
    }
}

#[test]
fn a_subset_keeps_its_tiers_and_its_response_holder_within_it() {
    let subset = |addresses| [("x-gateway-destination-endpoint-subset", addresses)];
    let holder = Query { response_holder: Some(WorkerId(2)), ..Query::default() };
    let (picks, _) = decide("rrRR", &holder, &subset("10.0.0.1:80,10.0.0.4:80"), DirectMode::Strict);
    assert_eq!(picks, [0], "priority 0 is enough, and the holder is not allowed");
    let (picks, branch) = decide("rrRR", &holder, &subset("10.0.0.1:80,10.0.0.3:80"), DirectMode::Strict);
    assert_eq!((picks.first(), branch), (Some(&2), Some(Branch::PreviousResponse)));
    let (picks, _) = decide("rrRR", &Query::default(), &subset("10.0.0.3:80,10.0.0.4:80"), DirectMode::Strict);
    assert_eq!(picks.len(), 2, "the policy chooses among those of the later tier");
}

/// What the law says of one decision, from the letters alone.
fn check(decision: Option<Decision>, letters: &[u8], name: &str) {
    let lower: Vec<u8> = letters.iter().map(u8::to_ascii_lowercase).collect();
    let has = |any: &[u8]| lower.iter().any(|letter| any.contains(letter));
    let Some(decision) = decision else { return assert!(!has(b"rxsuebhdctfk"), "{name}: somebody can serve it") };
    let picks: Vec<u8> = decision.picks.as_slice().iter().map(|worker| lower[usize::from(worker.0)]).collect();
    let none_of = |never: &[u8]| !picks.iter().any(|pick| never.contains(pick));
    assert!(none_of(b"g"), "{name}: one that is gone");
    // From the first of these groups that has anybody.
    let groups: [&[u8]; 5] = [b"rxsueh", b"dct", b"b", b"f", b"k"];
    let group = groups.iter().find(|group| has(group)).unwrap();
    assert!(picks.iter().all(|pick| group.contains(pick)), "{name}: {} and not of {}", show(&picks), show(group));
    assert!(decision.is_panic || none_of(b"sue"), "{name}: one with a mark");
    let first_two = &picks[..picks.len().min(2)];
    let is_proven_pick = first_two.iter().any(|pick| b"rx".contains(pick));
    assert!(!has(b"rx") || is_proven_pick, "{name}: nobody that surely works is asked in time: {}", show(&picks));
    let is_sure_pick = first_two.iter().any(|pick| b"dc".contains(pick));
    assert!(*group != b"dct" || !has(b"dc") || is_sure_pick, "{name}: {} and others surely work", show(&picks));
    let in_service = lower.iter().filter(|letter| b"rxsuebh".contains(letter)).count();
    let ready = lower.iter().filter(|letter| b"rxh".contains(letter)).count();
    assert!(ready * 4 < in_service.max(1) || ready == 0 || !decision.is_panic, "{name}: no reason to panic");
}

fn show(letters: &[u8]) -> String {
    String::from_utf8_lossy(letters).into_owned()
}

#[test]
fn no_policy_picks_who_is_out_of_use_and_each_asks_one_that_works_in_time() {
    for registration in POLICIES {
        let policy = default_policy(registration);
        for seed in 0..400 {
            let mut rng = Rng::new(seed);
            // Few kinds at a time: else every pool has some of each.
            let kinds: Vec<u8> =
                (0..1 + rng.below(4)).map(|_| LETTERS[rng.below(LETTERS.len() as u32) as usize]).collect();
            let letters: Vec<u8> =
                (0..1 + rng.below(12)).map(|_| kinds[rng.below(kinds.len() as u32) as usize]).collect();
            let mut pool = pool(&letters);
            for worker in 0..letters.len() {
                pool.hold(WorkerId(worker as u16), Held { requests: rng.below(9), ..Held::default() });
            }
            let query = Query {
                prefix: Some(rng.next_u64()),
                session: (rng.below(2) == 0).then(|| rng.next_u64()),
                response_holder: (rng.below(2) == 0).then(|| WorkerId(rng.below(12) as u16)),
                prompt_tokens: f64::from(rng.below(5_000)),
                turn: rng.next_u64() as u32,
                random: rng.next_u64(),
                ..Query::default()
            };
            let page = InflightPage::open(None).unwrap();
            let decision = with_rules(75, |rules| pool.decide(policy.as_ref(), &query, &SIZES, &page, rules, NOW));
            check(decision, &letters, &format!("{} seed {seed} of {}", registration.name, show(&letters)));
        }
    }
}

#[test]
fn pins_on_workers_on_trial_leave_one_that_works_among_the_first_two() {
    for (mode, want) in [(DirectMode::Soft, "hr"), (DirectMode::Strict, "hh")] {
        let letters = b"hhrr";
        let mut pool = pool(letters);
        let said = serialized(&[("x-warmroute-target-worker", "10.0.0.1:80,10.0.0.2:80")]);
        let (directions, _) = Directions::of_headers(Headers::new(&said), "");
        let mut wish = Wish::new(Some(&directions), mode);
        let (policy, page) = (default_policy(&POLICIES[0]), InflightPage::open(None).unwrap());
        let (query, request) = (Query::default(), (&SIZES, &mut wish));
        let decide = |rules: &Rules<'_>| pool.decide_as_wished(policy.as_ref(), &query, request, &page, rules, NOW);
        let decision = with_rules(75, decide).unwrap();
        let picks: Vec<u8> = decision.picks.as_slice().iter().map(|worker| letters[usize::from(worker.0)]).collect();
        assert!(show(&picks).starts_with(want), "{mode:?}: {}", show(&picks));
        assert_eq!(decision.picks.first(), Some(WorkerId(0)), "the first that was named");
    }
}
