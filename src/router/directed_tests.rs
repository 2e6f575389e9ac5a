//! Directed requests: the workers that a trusted hop names, strictly and softly.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::flow_tests::NOW;
use super::*;
use crate::direct::{Directions, Outcome, Refusal};
use crate::exchange::{Exchange, Source};
use crate::request::{Headers, serialized};
use crate::schedule::{Branch, Decision};
use crate::shared::fleet::Fleet;
use crate::shared::store::MemoryStore;

/// Four workers, of which the third does not answer its scrapes; the first two have a name, and the last is no longer in the
/// pool.
struct Pooled {
    router: Router,
    store: MemoryStore,
}

impl Pooled {
    fn new(mode: &str, workers: &[&str]) -> Self {
        let config = format!(
            r#"{{"policy":"round-robin","directRouting":"{mode}","poll":{{"cluster":"poll"}},
                "pools":[{{"cluster":"llm","workers":[{}]}}]}}"#,
            workers.join(",")
        );
        let mut router = Router::new(Config::from_bytes(config.as_bytes()).unwrap(), 1, 1);
        let addresses: Vec<String> = router.pool(0).unwrap().addresses().map(str::to_owned).collect();
        let mut fleet = Fleet::default();
        fleet.admit(addresses.iter().map(String::as_str).chain(["10.0.0.9:80"]), NOW);
        for _ in 0..10 {
            fleet.record_failure("10.0.0.3:80");
        }
        router.pool_mut(0).unwrap().set_fleet(fleet);
        Self { router, store: MemoryStore::default() }
    }

    fn of(mode: &str) -> Self {
        Self::new(
            mode,
            &[
                r#"{"address":"10.0.0.1:80","name":"Pod-A"}"#,
                r#"{"address":"10.0.0.2:80","name":"7"}"#,
                r#"{"address":"10.0.0.3:80"}"#,
            ],
        )
    }

    fn ask(&mut self, headers: &[(&str, &str)]) -> (Option<Decision>, Option<Outcome>) {
        let (decision, outcome, _) = self.ask_behind(headers, None);
        (decision, outcome)
    }

    /// As [`Self::ask`], behind a gateway that allows the workers of a subset; also whether nobody else may serve it.
    fn ask_behind(
        &mut self,
        headers: &[(&str, &str)],
        subset: Option<&str>,
    ) -> (Option<Decision>, Option<Outcome>, bool) {
        let (mut directions, _) = Directions::of_headers(Headers::new(&serialized(headers)), "");
        if let Some(subset) = subset {
            directions.add_subset_metadata(subset.as_bytes());
        }
        let directions = Some(directions).filter(|directions| !directions.is_empty()).map(Box::new);
        let (ask, mut exchange) = (Ask { directions, ..Ask::default() }, Exchange::default());
        let decision = self.router.decide(&mut self.store, &ask, &mut exchange, NOW);
        let (outcome, is_bound) = (exchange.outcome(), exchange.is_bound());
        self.router.end(&mut self.store, 0, &mut exchange, None, NOW);
        (decision, outcome, is_bound)
    }
}

fn ids(decision: Option<Decision>) -> Vec<u16> {
    decision.map(|decision| decision.picks.as_slice().iter().map(|worker| worker.0).collect()).unwrap_or_default()
}

const OWN: &str = "x-warmroute-target-worker";
const SUBSET: &str = "x-gateway-destination-endpoint-subset";

#[test]
fn a_worker_that_can_be_had_comes_first_and_strictly_alone() {
    const CASES: &[(&str, &str, &[u16])] = &[
        (OWN, "10.0.0.2:80", &[1]),
        (OWN, "pod-a", &[0]),
        (OWN, "7,pod-a", &[1, 0]),
        (OWN, "elsewhere,10.0.0.3:80,10.0.0.2:80", &[1]),
        ("x-gateway-destination-endpoint", "10.0.0.1:80", &[0]),
        ("x-worker-instance-id", "POD-A", &[0]),
        ("x-smg-target-worker", "1", &[1]),
    ];
    for (header, value, want) in CASES {
        let (decision, outcome) = Pooled::of("strict").ask(&[(header, value)]);
        assert_eq!((ids(decision).as_slice(), outcome), (*want, Some(Outcome::Followed)), "{value}");
        assert_eq!(decision.unwrap().branch, Branch::Directed);
        let (decision, outcome) = Pooled::of("soft").ask(&[(header, value)]);
        assert!(ids(decision).starts_with(want) && ids(decision).len() == 2, "{value}: {:?}", ids(decision));
        assert_eq!((decision.unwrap().branch, outcome), (Branch::Directed, Some(Outcome::Followed)));
    }
}

#[test]
fn a_wish_that_cannot_be_fulfilled_is_refused_or_ignored_with_the_reason() {
    const CASES: &[(&str, &str, Refusal)] = &[
        (OWN, "10.0.0.3:80", Refusal::WorkerUnavailable),
        (OWN, "10.0.0.4:80", Refusal::UnknownWorker),
        // Another pool's, or one of this pool's past: in the page, not in the configuration.
        (OWN, "10.0.0.9:80", Refusal::UnknownWorker),
        (OWN, "pod-b", Refusal::UnknownWorker),
        (OWN, "", Refusal::MalformedHint),
        ("x-smg-target-worker", "3", Refusal::UnknownWorker),
        ("x-smg-target-worker", "2", Refusal::WorkerUnavailable),
        (SUBSET, "10.0.0.3,10.0.0.4", Refusal::SubsetEmpty),
        (SUBSET, "pod-a", Refusal::MalformedHint),
    ];
    for (header, value, refusal) in CASES {
        let mut strict = Pooled::of("strict");
        let (decision, outcome) = strict.ask(&[(header, value)]);
        assert_eq!((decision, outcome), (None, Some(Outcome::Refused(*refusal))), "{value}");
        assert!(strict.router.pool(0).unwrap().held().iter().all(|held| held.requests == 0), "{value}");
        let (decision, outcome) = Pooled::of("soft").ask(&[(header, value)]);
        assert_eq!(outcome, Some(Outcome::Ignored(*refusal)), "{value}");
        assert_eq!(decision, Pooled::of("soft").ask(&[]).0, "as if nothing had been said");
    }
}

#[test]
fn within_a_subset_the_policy_chooses() {
    for mode in ["soft", "strict"] {
        let mut pooled = Pooled::of(mode);
        for _ in 0..4 {
            let (decision, outcome) = pooled.ask(&[(SUBSET, "10.0.0.2:80,10.0.0.3:80")]);
            assert_eq!((ids(decision), outcome), (vec![1], Some(Outcome::Followed)));
            assert_eq!(decision.unwrap().branch, Branch::Turn);
        }
        let (decision, outcome) = pooled.ask(&[(SUBSET, "10.0.0.2:80"), (OWN, "10.0.0.1:80")]);
        let refusal = Refusal::WorkerUnavailable;
        let want = if mode == "soft" { Outcome::Ignored(refusal) } else { Outcome::Refused(refusal) };
        assert_eq!(outcome, Some(want));
        assert_eq!(ids(decision), if mode == "soft" { vec![1] } else { vec![] }, "the subset holds");
    }
}

#[test]
fn what_the_gateway_allows_holds_in_either_mode_whatever_the_request_says() {
    for mode in ["soft", "strict"] {
        for said in [&[][..], &[(OWN, "10.0.0.2:80")], &[("x-smg-routing-key", "7")]] {
            let (decision, outcome, is_bound) = Pooled::of(mode).ask_behind(said, Some("10.0.0.2"));
            assert_eq!((ids(decision), outcome, is_bound), (vec![1], Some(Outcome::Followed), true), "{mode} {said:?}");
        }
        // What cannot be understood, or be had, does not lift it.
        for (header, value) in [("x-smg-target-worker", "-1"), (SUBSET, "pod-a"), (SUBSET, "10.0.0.1"), (OWN, "pod-a")]
        {
            let (decision, outcome, is_bound) = Pooled::of(mode).ask_behind(&[(header, value)], Some("10.0.0.2"));
            if mode == "soft" {
                assert!(matches!(outcome, Some(Outcome::Ignored(_))), "{value}: {outcome:?}");
                assert_eq!((ids(decision), is_bound), (vec![1], true), "{value}");
            } else {
                assert!(decision.is_none() && matches!(outcome, Some(Outcome::Refused(_))), "{value}: {outcome:?}");
            }
        }
        for nobody in ["", "10.0.0.3", "10.0.0.9:80", "pod-a"] {
            let (decision, outcome, _) = Pooled::of(mode).ask_behind(&[], Some(nobody));
            assert_eq!((decision, outcome), (None, Some(Outcome::Refused(Refusal::SubsetEmpty))), "{mode} {nobody:?}");
        }
    }
}

#[test]
fn nobody_else_may_serve_what_is_directed_strictly_or_within_a_subset() {
    let cases: &[(&str, &str, [bool; 2])] = &[
        (OWN, "pod-a", [false, true]),
        (OWN, "pod-b", [false, false]),
        (SUBSET, "10.0.0.1,10.0.0.2", [true, true]),
        (SUBSET, "10.0.0.3", [false, false]),
        ("x-data-parallel-rank", "2", [false, false]),
    ];
    for (header, value, want) in cases {
        for (mode, want) in ["soft", "strict"].into_iter().zip(want) {
            assert_eq!(Pooled::of(mode).ask_behind(&[(header, value)], None).2, *want, "{mode} {value}");
        }
    }
}

#[test]
fn a_rank_chooses_among_workers_of_ranks_and_is_the_engines_otherwise() {
    let ranked = [
        r#"{"address":"10.0.0.1:80","dataParallelRank":0}"#,
        r#"{"address":"10.0.0.2:80","dataParallelRank":1}"#,
        r#"{"address":"10.0.0.4:80"}"#,
    ];
    let mut pooled = Pooled::new("strict", &ranked);
    let (decision, outcome) = pooled.ask(&[("x-data-parallel-rank", "1")]);
    assert_eq!((ids(decision), outcome), (vec![1], Some(Outcome::Followed)));
    let (decision, outcome) = pooled.ask(&[("x-data-parallel-rank", "2")]);
    assert_eq!((decision, outcome), (None, Some(Outcome::Refused(Refusal::WorkerUnavailable))));
    let (decision, outcome) = Pooled::of("strict").ask(&[("x-data-parallel-rank", "2")]);
    assert_eq!((decision.is_some(), outcome), (true, None));
}

#[test]
fn a_worker_that_fails_its_requests_cannot_be_had_either() {
    let mut pooled = Pooled::of("strict");
    for _ in 0..20 {
        let (directions, _) = Directions::of_headers(Headers::new(&serialized(&[(OWN, "pod-a")])), "");
        let (ask, mut exchange) = (Ask { directions: Some(directions.into()), ..Ask::default() }, Exchange::default());
        let Some(decision) = pooled.router.decide(&mut pooled.store, &ask, &mut exchange, NOW) else {
            assert_eq!(exchange.outcome(), Some(Outcome::Refused(Refusal::WorkerUnavailable)));
            return;
        };
        let source = Source::Worker(decision.picks.first().unwrap());
        pooled.router.answered(&mut pooled.store, 0, &mut exchange, source, 500, NOW);
        pooled.router.end(&mut pooled.store, 0, &mut exchange, None, NOW);
    }
    panic!("it is sent all requests, though it fails them");
}

#[test]
fn where_nobody_is_available_a_named_worker_is_as_good_as_any() {
    let mut pooled = Pooled::new("strict", &[r#"{"address":"10.0.0.3:80"}"#]);
    let (decision, outcome) = pooled.ask(&[(OWN, "10.0.0.3:80")]);
    assert_eq!((ids(decision), outcome), (vec![0], Some(Outcome::Followed)));
}
