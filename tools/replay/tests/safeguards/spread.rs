//! Where requests go when all is well: siblings, cold prompts, a hot prefix, bursts, more than the pool can serve.

use warmroute_replay::metrics::RequestOutcome;
use warmroute_replay::request::Request;
use warmroute_replay::workload::Workload;

use crate::bench::{
    WORKERS, by_worker, first, hybrid, pieces, request, run_own, run_peer, setup, summary, without_interference,
};

#[test]
fn siblings_with_a_long_prefix_do_not_collapse_at_full_load() {
    let (setup, requests) = (setup(&[]), first(Workload::Agent, 1.0, WORKERS, 1_500));
    let ours = summary(&run_own(&setup, &hybrid(), &requests).outcomes);
    assert_eq!(ours.failed, 0);
    // One and a half times the 4 s that the longest context takes to prefill: a mean beyond that is a growing queue.
    assert!(ours.ttft_mean_s < 6.0, "{ours:?}");
    let ignorant = summary(&run_own(&setup, &without_interference(), &requests).outcomes);
    let product = summary(&run_peer(&setup, "lmetric", &requests));
    for (name, other) in [("without the interference term", ignorant), ("LMetric", product)] {
        // Collapsed: twice as long and more, the longer the more requests come.
        assert!(other.ttft_mean_s > 2.0 * ours.ttft_mean_s, "{name}: {other:?} {ours:?}");
    }
}

#[test]
fn cold_prompts_spread() {
    struct Case {
        load: f64,
        /// By requests: short prompts go where requests are many and long ones where they are few, the more so the
        /// fuller the pool is.
        requests_max_over_mean: f64,
        /// The price of that: long prompts meet each other.
        ttft_p99_over_least_request: f64,
    }
    const CASES: &[Case] = &[
        Case { load: 0.5, requests_max_over_mean: 1.15, ttft_p99_over_least_request: 1.0 },
        Case { load: 0.8, requests_max_over_mean: 1.15, ttft_p99_over_least_request: 1.0 },
        Case { load: 1.0, requests_max_over_mean: 1.35, ttft_p99_over_least_request: 1.5 },
    ];
    for case in CASES {
        let (setup, requests) = (setup(&[]), first(Workload::Cold, case.load, WORKERS, 1_000));
        let outcomes = run_own(&setup, &hybrid(), &requests).outcomes;
        let (ours, least) = (summary(&outcomes), summary(&run_peer(&setup, "least-request", &requests)));
        let load = case.load;
        assert!(ours.requests_max_over_mean < case.requests_max_over_mean, "load {load}: {ours:?}");
        let tokens = tokens_max_over_mean(&outcomes);
        // What there is to prefill is what must be even, to within the longest prompt of 16 000 in some 150 000.
        assert!(tokens < 1.3, "load {load}: {tokens}");
        // It knows the prompts' lengths, which least-request does not.
        assert!(ours.ttft_mean_s < least.ttft_mean_s, "load {load}: {ours:?} {least:?}");
        assert!(
            ours.ttft_p99_s < case.ttft_p99_over_least_request * least.ttft_p99_s,
            "load {load}: {ours:?} {least:?}"
        );
    }
    let (setup, requests) = (setup(&[]), first(Workload::Cold, 1.0, WORKERS, 1_000));
    let on_reports = run_peer(&setup, "llm-d-default", &requests);
    assert!(tokens_max_over_mean(&on_reports) > 1.15, "who knows its load from reports alone spreads worse");
}

fn tokens_max_over_mean(outcomes: &[RequestOutcome]) -> f64 {
    let mut tokens = [0.0_f64; WORKERS];
    outcomes.iter().for_each(|outcome| tokens[outcome.worker] += f64::from(outcome.prompt_tokens));
    let total: f64 = tokens.iter().sum();
    tokens.into_iter().fold(0.0, f64::max) * WORKERS as f64 / total
}

#[test]
fn a_hot_prefix_is_on_as_many_workers_as_its_load_needs() {
    // A worker keeps up with about four of its requests a second before another prefill of 8192 tokens is worth it: each
    // is there for 4 s, and some 50 at once cost as much as that prefill.
    struct Case {
        load: f64,
        workers: std::ops::RangeInclusive<usize>,
    }
    const CASES: &[Case] = &[
        Case { load: 0.05, workers: 1..=1 },
        Case { load: 0.1, workers: 1..=3 },
        Case { load: 0.3, workers: 3..=6 },
        Case { load: 1.0, workers: 3..=8 },
    ];
    for case in CASES {
        let (setup, requests) = (setup(&[]), first(Workload::Hot, case.load, WORKERS, 1_000));
        let outcomes = run_own(&setup, &hybrid(), &requests).outcomes;
        let holders = hot_workers(&requests, &outcomes);
        assert!(case.workers.contains(&holders), "load {}: {holders} workers", case.load);
        let (ours, least) = (summary(&outcomes), summary(&run_peer(&setup, "least-request", &requests)));
        // Everywhere is where least-request has it, and each prompt that is not hot pays for that.
        assert!(ours.ttft_mean_s < 0.6 * least.ttft_mean_s, "load {}: {ours:?} {least:?}", case.load);
    }
    let (setup, requests) = (setup(&[]), first(Workload::Hot, 1.0, WORKERS, 1_000));
    let (ours, stuck) = (run_own(&setup, &hybrid(), &requests), run_peer(&setup, "llm-d-default", &requests));
    assert!(hot_workers(&requests, &stuck) <= 2, "others leave it where it is");
    assert!(summary(&stuck).ttft_mean_s > 3.0 * summary(&ours.outcomes).ttft_mean_s);
}

/// Workers that got at least a twentieth of the requests with the hot prefix.
fn hot_workers(requests: &[Request], outcomes: &[RequestOutcome]) -> usize {
    let is_hot = |request: &Request| request.session >= 1 << 40;
    let hot: Vec<RequestOutcome> =
        requests.iter().zip(outcomes).filter(|(request, _)| is_hot(request)).map(|(_, outcome)| *outcome).collect();
    by_worker(&hot, WORKERS).into_iter().filter(|count| count * 20 >= hot.len()).count()
}

/// 64 requests within 10 ms, 15 s after the start, each with this many pieces of its own after `common` pieces that all
/// share.
fn burst(common: u64, own: u64) -> Vec<Request> {
    let one = |number: u64| {
        let arrival_s = 15.0 + number as f64 * 0.010 / 64.0;
        request(arrival_s, pieces(1, common).chain(pieces(1_000 + number, own)).collect(), 100)
    };
    (0..64).map(one).collect()
}

#[test]
fn a_burst_between_two_scrapes_does_not_pile_up() {
    struct Case {
        name: &'static str,
        burst: (u64, u64),
        /// A peer that knows of its own requests only by reports, or follows the prefix.
        piles_up: Option<&'static str>,
    }
    const CASES: &[Case] = &[
        Case { name: "different short prompts", burst: (0, 1), piles_up: None },
        Case { name: "different long prompts", burst: (0, 16), piles_up: None },
        Case { name: "a common beginning of 1024 tokens", burst: (16, 1), piles_up: Some("sglang-cache-aware") },
        Case { name: "a common beginning of 8192 tokens", burst: (128, 2), piles_up: Some("llm-d-default") },
    ];
    for case in CASES {
        let (setup, requests) = (setup(&[]), burst(case.burst.0, case.burst.1));
        let counts = by_worker(&run_own(&setup, &hybrid(), &requests).outcomes, WORKERS);
        // Equal requests on equal workers: one more or less is what order explains.
        assert!(counts.iter().all(|count| (7..=9).contains(count)), "{}: {counts:?}", case.name);
        if let Some(peer) = case.piles_up {
            let counts = by_worker(&run_peer(&setup, peer, &requests), WORKERS);
            assert!(counts.contains(&64), "{}, {peer}: {counts:?}", case.name);
        }
    }
}

#[test]
fn a_burst_with_a_prefix_that_one_worker_holds_stays_there_only_while_that_is_faster() {
    for common in [16, 64, 128, 256] {
        let mut requests = burst(common, 2);
        requests.insert(0, request(0.0, pieces(1, common).chain([7]).collect(), 10));
        let (ours, least) = (
            summary(&run_own(&setup(&[]), &hybrid(), &requests).outcomes),
            summary(&run_peer(&setup(&[]), "least-request", &requests)),
        );
        assert!(ours.ttft_mean_s < least.ttft_mean_s, "{common} pieces: {ours:?} {least:?}");
        // Each one there costs its 128 tokens and 120 for its decoding; before that is more than the prefix, all stay.
        let stay_max = 65.0_f64.min(common as f64 * 64.0 / 200.0 + 9.0);
        let most = ours.requests_max_over_mean * 65.0 / WORKERS as f64;
        assert!(most <= stay_max, "{common} pieces: {most} of 65, at most {stay_max}");
    }
}

#[test]
fn more_than_the_pool_can_serve_is_still_spread_and_served() {
    struct Case {
        workload: Workload,
        /// Short prompts go where requests are many, long ones where they are few: uneven by requests on purpose.
        requests_max_over_mean: f64,
        /// Share of arrivals at which some prompt has waited long while a worker has none to prefill. The price of the
        /// above in chat, where a long prompt waits for the few workers that long prompts go to.
        uneven_max: f64,
        /// A peer that does worse in this: it follows the prefix.
        uneven_peer: Option<&'static str>,
    }
    const CASES: &[Case] = &[
        Case { workload: Workload::Chat, requests_max_over_mean: 3.5, uneven_max: 0.45, uneven_peer: Some("chwbl-3") },
        Case { workload: Workload::Cold, requests_max_over_mean: 2.2, uneven_max: 0.05, uneven_peer: None },
        Case {
            workload: Workload::Hot,
            requests_max_over_mean: 2.7,
            uneven_max: 0.1,
            uneven_peer: Some("llm-d-default"),
        },
    ];
    for case in CASES {
        let (setup, requests, name) = (setup(&[]), first(case.workload, 1.5, WORKERS, 1_200), case.workload);
        let outcomes = run_own(&setup, &hybrid(), &requests).outcomes;
        let (ours, least) = (summary(&outcomes), summary(&run_peer(&setup, "least-request", &requests)));
        assert_eq!(ours.failed, 0, "{name}");
        assert!(ours.requests_max_over_mean < case.requests_max_over_mean, "{name}: {ours:?}");
        assert!(ours.ttft_mean_s < least.ttft_mean_s && ours.good_share >= least.good_share, "{name}: {ours:?}");
        let work = uncached_tokens(&outcomes);
        let mean = work.iter().sum::<f64>() / WORKERS as f64;
        // Who has few prompts to prefill has many answers to decode; but nobody is left out, or left with it all.
        assert!(work.iter().all(|tokens| (0.2..2.0).contains(&(tokens / mean))), "{name}: {work:?}");
        let uneven = uneven_share(&outcomes);
        assert!(uneven < case.uneven_max, "{name}: {uneven}");
        if let Some(peer) = case.uneven_peer {
            let of_peer = uneven_share(&run_peer(&setup, peer, &requests));
            assert!(of_peer > uneven, "{name}: {uneven}, {of_peer} with {peer}");
        }
    }
}

/// Prompt tokens that each worker had to compute.
fn uncached_tokens(outcomes: &[RequestOutcome]) -> [f64; WORKERS] {
    let mut tokens = [0.0; WORKERS];
    outcomes.iter().for_each(|one| tokens[one.worker] += f64::from(one.prompt_tokens - one.cached_tokens));
    tokens
}

/// Share of arrivals, from the tenth part on, at which a request has waited for its first byte for more than 10 s at one
/// worker while at another one none waits.
fn uneven_share(outcomes: &[RequestOutcome]) -> f64 {
    let arrivals = &outcomes[outcomes.len() / 10..];
    let is_uneven = |now_s: f64| {
        let mut longest_s = [0.0_f64; WORKERS];
        let waits = |one: &&RequestOutcome| one.arrival_s < now_s && now_s < one.arrival_s + one.ttft_s;
        for one in outcomes.iter().filter(waits) {
            longest_s[one.worker] = longest_s[one.worker].max(now_s - one.arrival_s);
        }
        longest_s.iter().any(|wait_s| *wait_s > 10.0) && longest_s.contains(&0.0)
    };
    arrivals.iter().filter(|one| is_uneven(one.arrival_s)).count() as f64 / arrivals.len() as f64
}
