//! Workers that fail, restart, come, go or are slow.

use warmroute_replay::own::Predictions;
use warmroute_replay::simulation::{Incident, Setup};
use warmroute_replay::workload::Workload;

use crate::bench::{
    OwnRun, WORKERS, between, by_worker, first, hybrid, run_own, run_peer, setup, share_of_mean, summary,
};

#[test]
fn a_worker_that_fails_fast_attracts_nothing_and_is_used_again_when_it_serves() {
    struct Case {
        name: &'static str,
        from_s: f64,
        /// In ten seconds.
        failed_max: usize,
    }
    const CASES: &[Case] = &[
        // Three failures, then probes after another 1, 2 and 4 s; and two that were on their way in the 5 ms of a refusal.
        Case { name: "from the start", from_s: 0.0, failed_max: 8 },
        // Its answers to older requests, which it still serves, prove nothing.
        Case { name: "while it finishes what it has", from_s: 5.0, failed_max: 10 },
    ];
    for case in CASES {
        let to_s = case.from_s + 10.0;
        let setup = setup(&[Incident::Refuse { worker: 0, from_s: case.from_s, to_s }]);
        for workload in [Workload::Chat, Workload::Agent, Workload::Cold] {
            let requests = first(workload, 0.7, WORKERS, 800);
            let outcomes = run_own(&setup, &hybrid(), &requests).outcomes;
            let failed = summary(&outcomes).failed;
            assert!((3..=case.failed_max).contains(&failed), "{}, {workload}: {failed} failed", case.name);
            // It may be left alone for as long as after the last probe, 8 s.
            let share = share_of_mean(&between(&outcomes, to_s + 8.0, f64::INFINITY), 0);
            assert!(share > 0.2, "{}, {workload}: {share} of the mean when it serves again", case.name);
            // It looks idle all the time, so whoever only counts sends it most of what comes.
            let counting = summary(&run_peer(&setup, "least-request", &requests)).failed;
            assert!(counting > 4 * case.failed_max, "{}, {workload}: {counting} with least-request", case.name);
        }
    }
}

#[test]
fn a_restarted_worker_is_known_to_be_empty() {
    let at_s = 40.0;
    let predicted = |scrape_interval_s| {
        let setup = Setup { scrape_interval_s, ..setup(&[Incident::Restart { worker: 0, at_s }]) };
        let run = run_own(&setup, &hybrid(), &first(Workload::Chat, 0.7, WORKERS, 1_300));
        (sums_at_first(&run, 0.0, at_s), sums_at_first(&run, at_s + 0.21, at_s + 20.0), run)
    };
    let (before, after, run) = predicted(Some(0.2));
    assert!(summary(&run.outcomes).failed > 0, "it had requests");
    assert!(before.cached_tokens > 100_000, "{before:?}");
    // As far off as in its first life: text that is shared but not known to be, and the ends of blocks.
    assert!(after.predicted_tokens <= after.cached_tokens, "{after:?}");
    assert!(after.predicted_tokens * 10 >= after.cached_tokens * 9, "{after:?}");
    let share = share_of_mean(&between(&run.outcomes, at_s + 20.0, f64::INFINITY), 0);
    assert!(share > 0.6, "{share} of the mean once it is warm again");
    // Without a scrape nothing tells of the restart but the answers.
    let (_, unaware, _) = predicted(None);
    assert!(unaware.predicted_tokens * 10 > 14 * unaware.cached_tokens, "{unaware:?}");
}

/// Predictions of the first worker's answers to requests that came within `from_s..to_s`.
fn sums_at_first(run: &OwnRun, from_s: f64, to_s: f64) -> Predictions {
    let mut sums = Predictions::default();
    for (ticket, one) in &run.gateways[0].borrow().predictions {
        let outcome = &run.outcomes[*ticket as usize];
        if outcome.worker == 0 && (from_s..to_s).contains(&outcome.arrival_s) {
            sums.answers += 1;
            sums.predicted_tokens += one.predicted_tokens;
            sums.cached_tokens += one.cached_tokens;
        }
    }
    sums
}

#[test]
fn a_worker_that_joins_gets_its_share_and_one_that_leaves_gets_no_more() {
    let at_s = 15.0;
    for workload in [Workload::Chat, Workload::Cold] {
        let requests = first(workload, 0.8, WORKERS, 1_200);
        let joined = run_own(&setup(&[Incident::Join { worker: 0, at_s }]), &hybrid(), &requests).outcomes;
        assert_eq!(by_worker(&between(&joined, 0.0, at_s), WORKERS)[0], 0);
        let share = share_of_mean(&between(&joined, at_s + 5.0, f64::INFINITY), 0);
        // Cold, it is the best for what is new, and the conversations that others hold stay with them.
        assert!((0.4..1.6).contains(&share), "{workload}: {share} of the mean");
        let left = run_own(&setup(&[Incident::Leave { worker: 0, at_s }]), &hybrid(), &requests).outcomes;
        assert_eq!(by_worker(&between(&left, at_s, f64::INFINITY), WORKERS)[0], 0);
        for (name, outcomes) in [("joins", &joined), ("leaves", &left)] {
            let (ours, least) = (summary(outcomes), summary(&run_peer(&setup(&[]), "least-request", &requests)));
            assert_eq!(ours.failed, 0, "{workload}, {name}");
            // With seven workers for a while it is still faster than least-request with eight all the time.
            assert!(ours.ttft_mean_s < least.ttft_mean_s, "{workload}, {name}: {ours:?} {least:?}");
        }
    }
}

#[test]
fn a_slow_worker_gets_fewer_requests_and_delays_few() {
    let slow = setup(&[Incident::Speed { worker: 0, speed: 0.5 }]);
    for workload in [Workload::Chat, Workload::Cold] {
        let requests = first(workload, 0.7, WORKERS, 1_200);
        let ours = run_own(&slow, &hybrid(), &requests).outcomes;
        let share = share_of_mean(&ours, 0);
        // Its requests stay twice as long, so at equal costs it has about half as many; what it holds brings some back, and
        // where chats are warm that is a good part.
        assert!((0.3..0.9).contains(&share), "{workload}: {share} of the mean");
        // It is a sixteenth of the pool that is missing, at 0.7 of what the whole could serve.
        let even = summary(&run_own(&setup(&[]), &hybrid(), &requests).outcomes).ttft_mean_s;
        let (ttft_s, blind) = (summary(&ours).ttft_mean_s, summary(&run_peer(&slow, "random", &requests)).ttft_mean_s);
        assert!(ttft_s < 1.4 * even, "{workload}: {ttft_s} s, {even} s with equal workers");
        assert!(blind > 2.0 * even, "{workload}: {blind} s at random");
    }
}

#[test]
fn the_page_counts_what_is_in_flight_at_each_step_whatever_happens() {
    let incidents = [
        Incident::Restart { worker: 0, at_s: 12.0 },
        Incident::Refuse { worker: 1, from_s: 8.0, to_s: 20.0 },
        Incident::Leave { worker: 2, at_s: 14.0 },
        Incident::Join { worker: 3, at_s: 10.0 },
        Incident::Restart { worker: 4, at_s: 15.0 },
        Incident::Speed { worker: 5, speed: 0.5 },
    ];
    for gateways in [1, 3] {
        for workload in [Workload::Chat, Workload::Agent] {
            let setup = Setup { gateways, token_error: 0.2, ..setup(&incidents) };
            let run = run_own(&setup, &hybrid(), &first(workload, 0.8, WORKERS, 1_000));
            let (unanswered, answered): (Vec<_>, Vec<_>) = run.outcomes.iter().partition(|one| !one.is_answered);
            let is_half_way = |one: &&&warmroute_replay::metrics::RequestOutcome| !one.ttft_s.is_nan();
            assert!(answered.len() > 800 && unanswered.iter().filter(is_half_way).count() > 0, "{workload}");
            assert!(unanswered.iter().any(|one| one.ttft_s.is_nan()), "{workload}");
            for gateway in &run.gateways {
                let gateway = gateway.borrow();
                assert!(gateway.in_flight_max > 20, "{workload}");
                assert_eq!(gateway.miscounts, [], "{workload}, {gateways} gateways: moment, page, truth");
            }
        }
    }
}
