//! The event loop: gateways, reports, incidents.

use std::cell::RefCell;
use std::rc::Rc;

use warmroute::rng::Rng;
use warmroute_replay::engine::batching::BatchingSetup;
use warmroute_replay::engine::step_time::M70;
use warmroute_replay::metrics::{RequestOutcome, Summary};
use warmroute_replay::policy::{Outcome, Policy, Report, View};
use warmroute_replay::request::Request;
use warmroute_replay::simulation::{EngineSetup, Incident, Setup, run};
use warmroute_replay::workload::Workload;

/// What all gateways of a run saw.
#[derive(Default)]
struct Seen {
    routed: u64,
    first_bytes: u64,
    finished: u64,
    refused: u64,
    lives: u32,
    /// Token errors, lowest and highest.
    error: (f64, f64),
    /// How old reports were when they came, and when they came, seconds.
    report_age_s: Vec<(f64, f64)>,
}

/// Picks any member.
struct Anyone {
    rng: Rng,
    seen: Rc<RefCell<Seen>>,
}

impl Policy for Anyone {
    fn route(&mut self, _ticket: u64, _request: &Request, view: &View<'_>) -> usize {
        let mut seen = self.seen.borrow_mut();
        seen.routed += 1;
        seen.error = (seen.error.0.min(view.token_error), seen.error.1.max(view.token_error));
        let members: Vec<usize> = (0..view.is_member.len()).filter(|&worker| view.is_member[worker]).collect();
        members[self.rng.below(members.len() as u32) as usize]
    }

    fn first_byte(&mut self, _ticket: u64, _now_s: f64) {
        self.seen.borrow_mut().first_bytes += 1;
    }

    fn finished(&mut self, _ticket: u64, outcome: &Outcome, _now_s: f64) {
        let mut seen = self.seen.borrow_mut();
        seen.finished += 1;
        seen.refused += u64::from(!outcome.is_answered);
    }

    fn report(&mut self, _worker: usize, report: &Report, now_s: f64) {
        let mut seen = self.seen.borrow_mut();
        seen.lives = seen.lives.max(report.life);
        seen.report_age_s.push((now_s - report.taken_at_s, now_s));
    }
}

fn chat_run(gateways: usize, seed: u64, incidents: &[Incident]) -> (Vec<RequestOutcome>, Seen) {
    let mut requests = Workload::Chat.requests_at(seed, 8.0);
    requests.truncate(1_000);
    let setup = Setup {
        workers: 4,
        engine: EngineSetup::Batching(BatchingSetup::new(M70, 420_000)),
        gateways,
        scrape_interval_s: Some(0.2),
        token_error: 0.2,
        seed,
        incidents: incidents.to_vec(),
    };
    let seen = Rc::new(RefCell::new(Seen { error: (1.0, 1.0), ..Seen::default() }));
    let make = |gateway| -> Box<dyn Policy> {
        Box::new(Anyone { rng: Rng::new(seed + gateway as u64), seen: Rc::clone(&seen) })
    };
    let outcomes = run(&setup, &requests, &make);
    (outcomes, seen.take())
}

#[test]
fn every_request_is_told_of_once_and_ends_once() {
    for seed in 0..4 {
        let incidents = [
            Incident::Speed { worker: 0, speed: 0.5 },
            Incident::Restart { worker: 1, at_s: 30.0 },
            Incident::Refuse { worker: 2, from_s: 20.0, to_s: 40.0 },
            Incident::Leave { worker: 3, at_s: 50.0 },
        ];
        let (outcomes, seen) = chat_run(3, seed, &incidents);
        let failed = Summary::of(&outcomes, 4).failed as u64;
        assert_eq!((seen.routed, seen.finished, seen.refused), (1_000, 1_000, failed), "seed {seed}");
        assert!(failed > 0 && seen.lives == 1, "seed {seed}");
        let answered = outcomes.iter().filter(|outcome| outcome.is_answered);
        assert!(answered.clone().all(|outcome| outcome.ttft_s <= outcome.e2e_s), "seed {seed}");
        assert!(seen.first_bytes >= answered.count() as u64, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let ttft_s = |seed| chat_run(2, seed, &[]).0.iter().map(|outcome| outcome.ttft_s).collect::<Vec<_>>();
    assert_eq!(ttft_s(1), ttft_s(1));
    assert_ne!(ttft_s(1), ttft_s(2));
}

#[test]
fn gateways_share_the_requests_and_token_errors_stay_in_their_bounds() {
    let (outcomes, seen) = chat_run(4, 1, &[]);
    for gateway in 0..4 {
        let share = outcomes.iter().filter(|outcome| outcome.gateway == gateway).count();
        assert!((200..300).contains(&share), "gateway {gateway}: {share} of 1000");
    }
    assert!(seen.error.0 >= 0.8 && seen.error.0 < 0.81 && seen.error.1 <= 1.2 && seen.error.1 > 1.19);
}

#[test]
fn reports_come_late_and_at_the_interval() {
    let (_, seen) = chat_run(1, 1, &[]);
    assert!(seen.report_age_s.iter().all(|&(age_s, _)| age_s >= 0.010 - 1e-9), "no report is younger than its way");
    // Four workers report at each of the first scrapes.
    let arrivals_s: Vec<f64> = seen.report_age_s.iter().step_by(4).take(3).map(|&(_, at_s)| at_s).collect();
    for (place, at_s) in arrivals_s.iter().enumerate() {
        assert!((at_s - (0.2 * (place + 1) as f64 + 0.010)).abs() < 1e-9, "{arrivals_s:?}");
    }
}

#[test]
fn incidents_do_what_they_say() {
    struct Case {
        name: &'static str,
        incident: Incident,
        holds: fn(&[RequestOutcome]) -> bool,
    }
    fn to_first(outcomes: &[RequestOutcome]) -> impl Iterator<Item = &RequestOutcome> {
        outcomes.iter().filter(|outcome| outcome.worker == 0)
    }
    const CASES: &[Case] = &[
        Case {
            name: "nothing before it joins, something after",
            incident: Incident::Join { worker: 0, at_s: 60.0 },
            holds: |all| to_first(all).count() > 50 && to_first(all).all(|outcome| outcome.arrival_s >= 60.0),
        },
        Case {
            name: "nothing after it leaves, and what it has is finished",
            incident: Incident::Leave { worker: 0, at_s: 60.0 },
            holds: |all| {
                to_first(all).count() > 50
                    && to_first(all).all(|outcome| outcome.arrival_s < 60.0 && outcome.is_answered)
            },
        },
        Case {
            name: "refused at once while it refuses, served before and after",
            incident: Incident::Refuse { worker: 0, from_s: 40.0, to_s: 60.0 },
            holds: |all| {
                to_first(all).all(|outcome| {
                    let is_refused = (40.0..60.0).contains(&outcome.arrival_s);
                    outcome.is_answered != is_refused && (!is_refused || (outcome.e2e_s - 0.005).abs() < 1e-9)
                })
            },
        },
        Case {
            name: "only what was there at the restart fails",
            incident: Incident::Restart { worker: 0, at_s: 60.0 },
            holds: |all| {
                let (failed, answered): (Vec<&RequestOutcome>, Vec<_>) =
                    to_first(all).partition(|outcome| !outcome.is_answered);
                !failed.is_empty()
                    && failed.iter().all(|one| one.arrival_s <= 60.0 && (one.arrival_s + one.e2e_s - 60.0).abs() < 1e-9)
                    && answered.iter().any(|one| one.arrival_s > 60.0)
            },
        },
        Case {
            name: "slow is slow",
            incident: Incident::Speed { worker: 0, speed: 0.25 },
            holds: |all| {
                let mean = |worker| {
                    let e2e_s: Vec<f64> = all.iter().filter(|one| one.worker == worker).map(|one| one.e2e_s).collect();
                    e2e_s.iter().sum::<f64>() / e2e_s.len() as f64
                };
                mean(0) > 3.0 * mean(1)
            },
        },
    ];
    for case in CASES {
        let (outcomes, _) = chat_run(1, 3, &[case.incident]);
        assert!((case.holds)(&outcomes), "{}", case.name);
        assert!(outcomes.iter().all(|one| one.worker == 0 || one.is_answered), "{}: others are untouched", case.name);
    }
}
