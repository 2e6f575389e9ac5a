//! Pools of any size, and what the gateway knows or does not: reports, other gateways, what the caches hold.

use serde_json::json;
use warmroute_replay::engine::serial::SerialSetup;
use warmroute_replay::metrics::Summary;
use warmroute_replay::policy::Report;
use warmroute_replay::request::Request;
use warmroute_replay::simulation::{EngineSetup, Incident, Setup};
use warmroute_replay::workload::Workload;

use crate::bench::{
    Distortion, WORKERS, by_worker, first, hybrid, pieces, request, run_distorted, run_own, run_peer, setup,
    share_of_mean, summary,
};

/// Conversations of three turns, 10 s apart, that begin one after the other and share their first 512 tokens.
fn conversations(count: u64, per_s: f64) -> Vec<Request> {
    let turn = |conversation: u64, turn: u64| {
        let prompt = pieces(1, 8).chain(pieces(1_000 + conversation, 16 * (turn + 1))).collect();
        request(conversation as f64 / per_s + turn as f64 * 10.0, prompt, 100)
    };
    let mut requests: Vec<Request> =
        (0..count).flat_map(|conversation| (0..3).map(move |number| turn(conversation, number))).collect();
    requests.sort_by(|left, right| left.arrival_s.total_cmp(&right.arrival_s));
    requests
}

#[test]
fn one_worker_and_512_workers_work_like_eight() {
    let run = |workers: usize, count: u64, per_s: f64, policy: &str| {
        // 512 workers that are scraped each second would take longer here than all the rest.
        let setup = Setup { workers, scrape_interval_s: Some(if workers > 8 { 5.0 } else { 0.2 }), ..setup(&[]) };
        let run = run_own(&setup, &json!(policy), &conversations(count, per_s));
        (Summary::of(&run.outcomes, workers), by_worker(&run.outcomes, workers))
    };
    let (eight, _) = run(8, 16, 4.0, "hybrid");
    let (one, _) = run(1, 8, 0.5, "hybrid");
    let (many, counts) = run(512, 600, 256.0, "hybrid");
    assert_eq!((eight.failed, one.failed, many.failed), (0, 0, 0));
    for (name, other) in [("one", one), ("512", many)] {
        // Of a turn all but its last 1024 tokens were sent before, on all of them alike.
        assert!((other.token_hit - eight.token_hit).abs() < 0.05, "{name}: {other:?} {eight:?}");
    }
    // 600 conversations for 512 workers: to share the first 512 tokens is worth no more than a few others.
    let used = counts.iter().filter(|count| **count > 0).count();
    assert!(used > 300 && counts.iter().max() < Some(&24), "{used} used, {:?} at most", counts.iter().max());
    assert!(run(512, 600, 256.0, "least-load").0.token_hit < 0.6 * many.token_hit, "by load alone nothing is reused");
}

#[test]
fn reports_that_are_old_or_never_come_cost_little_with_any_number_of_gateways() {
    for gateways in [1, 3, 8] {
        for scrape_interval_s in [Some(0.2), Some(30.0), None] {
            let setup = Setup { gateways, scrape_interval_s, token_error: 0.2, ..setup(&[]) };
            let requests = first(Workload::Chat, 0.7, WORKERS, 600);
            let ours = summary(&run_own(&setup, &hybrid(), &requests).outcomes);
            let least = summary(&run_peer(&setup, "least-request", &requests));
            let name = format!("{gateways} gateways, scrapes every {scrape_interval_s:?} s");
            assert_eq!(ours.failed, 0, "{name}");
            assert!(ours.requests_max_over_mean < 1.6, "{name}: {ours:?}");
            // Least-request does not read reports; ours keeps its advantage without them.
            assert!(ours.ttft_mean_s < 0.8 * least.ttft_mean_s, "{name}: {ours:?} {least:?}");
            assert!(ours.token_hit > 1.3 * least.token_hit, "{name}: {ours:?} {least:?}");
        }
    }
}

#[test]
fn reports_that_are_nonsense_hurt_at_most_their_worker() {
    struct Case {
        name: &'static str,
        distort: Distortion,
        /// What the first worker gets of the mean.
        share: std::ops::Range<f64>,
    }
    const CASES: &[Case] = &[
        Case { name: "one has none", distort: |worker, report| (worker > 0).then_some(report), share: 0.5..1.5 },
        Case {
            name: "one has no number for its KV cache",
            distort: |worker, report| Some(kv_usage(if worker == 0 { f64::NAN } else { report.kv_usage }, report)),
            share: 0.5..1.5,
        },
        Case { name: "none has one", distort: |_, report| Some(kv_usage(f64::NAN, report)), share: 0.5..1.5 },
        Case { name: "less than none is used", distort: |_, report| Some(kv_usage(-1e300, report)), share: 0.5..1.5 },
        Case {
            // No number is above 1; it is avoided as one that is full.
            name: "one is infinitely full",
            distort: |worker, report| Some(kv_usage(if worker == 0 { f64::INFINITY } else { 0.5 }, report)),
            share: 0.0..0.1,
        },
        Case {
            name: "one has four billion others waiting",
            distort: |worker, report| Some(Report { waiting: if worker == 0 { u32::MAX } else { 0 }, ..report }),
            share: 0.0..0.1,
        },
    ];
    let (setup, requests) = (setup(&[]), first(Workload::Chat, 0.7, WORKERS, 500));
    let truth = summary(&run_own(&setup, &hybrid(), &requests).outcomes);
    for case in CASES {
        let outcomes = run_distorted(&setup, &hybrid(), &requests, case.distort).outcomes;
        let (run, share) = (summary(&outcomes), share_of_mean(&outcomes, 0));
        assert_eq!(run.failed, 0, "{}", case.name);
        assert!(case.share.contains(&share), "{}: {share} of the mean", case.name);
        // A worker less, and no more than that.
        assert!(run.ttft_mean_s < 2.0 * truth.ttft_mean_s, "{}: {run:?} {truth:?}", case.name);
    }
}

fn kv_usage(kv_usage: f64, report: Report) -> Report {
    Report { kv_usage, ..report }
}

#[test]
fn what_is_predicted_of_an_idle_engine_is_what_it_finds() {
    let serial =
        SerialSetup { cache_pieces: 4_000, piece_tokens: 64, prefill_tokens_per_s: 10_000.0, output_token_s: 0.020 };
    let setup = Setup { engine: EngineSetup::Serial(serial), ..setup(&[]) };
    let mut requests = conversations(12, 4.0);
    // One after the other: each finds the engines idle.
    requests.iter_mut().enumerate().for_each(|(number, request)| request.arrival_s = number as f64 * 10.0);
    let run = run_own(&setup, &hybrid(), &requests);
    let gateway = run.gateways[0].borrow();
    // The first answer of an engine that has found nothing cached yet does not show that it would tell.
    assert!(gateway.predictions.len() >= requests.len() - WORKERS, "{} answers tell", gateway.predictions.len());
    for (ticket, one) in &gateway.predictions {
        let prompt_tokens = requests[*ticket as usize].prompt_tokens;
        assert_eq!(one.predicted_tokens, one.cached_tokens, "request {ticket} of {prompt_tokens} tokens");
    }
    assert!(gateway.own.predictions().cached_tokens > 0);
}

#[test]
fn the_same_run_twice_is_the_same() {
    let run = |seed| {
        let incidents = [Incident::Restart { worker: 0, at_s: 10.0 }, Incident::Leave { worker: 1, at_s: 15.0 }];
        let setup = Setup { gateways: 2, token_error: 0.2, seed, ..setup(&incidents) };
        // As text, because a first byte that never came is no number and so not equal to itself.
        format!("{:?}", run_own(&setup, &hybrid(), &first(Workload::Chat, 0.8, WORKERS, 600)).outcomes)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
