//! The batching engine: what one step does, by hand-made requests, and what holds for any of them.

#![allow(clippy::unwrap_used, reason = "what is missing here is a failure of the test")]

use std::collections::HashMap;

use warmroute::rng::Rng;
use warmroute_replay::engine::batching::{BatchingEngine, BatchingSetup};
use warmroute_replay::engine::step_time::{M8, M70, StepTime};
use warmroute_replay::engine::{Engine, EngineEvent, Progress};
use warmroute_replay::request::Request;

const PIECE_TOKENS: u32 = 64;

/// A prompt of whole pieces that are the first ones of `text`, and an answer whose pieces follow.
fn request(text: u64, prompt_tokens: u32, output_tokens: u32) -> Request {
    let piece = |place: u32| (text << 32) + u64::from(place) + 1;
    let prompt_pieces = prompt_tokens.div_ceil(PIECE_TOKENS);
    let all_pieces = (prompt_tokens + output_tokens) / PIECE_TOKENS;
    let whole_pieces = prompt_tokens / PIECE_TOKENS;
    Request {
        arrival_s: 0.0,
        pieces: (0..prompt_pieces).map(piece).collect(),
        piece_tokens: PIECE_TOKENS,
        prompt_tokens,
        output_tokens,
        output_pieces: (whole_pieces..all_pieces).map(piece).collect(),
        session: text,
    }
}

/// Milliseconds for a step, 1 ms for each prompt token, and nothing else: times can be read as what was computed.
const COUNTING: StepTime = StepTime {
    base_s: 0.0,
    prefill_token_s: 1e-3,
    prefill_attention_s: 0.0,
    decode_request_s: 1.0,
    decode_context_s: 0.0,
};

fn setup(step_time: StepTime, kv_tokens: u32) -> BatchingSetup {
    BatchingSetup::new(step_time, kv_tokens)
}

/// An engine with its clock, and when each thing happened.
struct Bench {
    engine: BatchingEngine,
    now_s: f64,
    events: Vec<(f64, EngineEvent)>,
}

impl Bench {
    fn new(setup: BatchingSetup) -> Self {
        Self { engine: BatchingEngine::new(setup), now_s: 0.0, events: Vec::new() }
    }

    fn submit(&mut self, ticket: u64, request: &Request) {
        let mut events = Vec::new();
        self.engine.submit(ticket, request, self.now_s, &mut events);
        self.events.extend(events.into_iter().map(|event| (self.now_s, event)));
    }

    fn step(&mut self) -> bool {
        let Some(at_s) = self.engine.next_event_s() else { return false };
        assert!(at_s > self.now_s, "a step takes time");
        self.now_s = at_s;
        let mut events = Vec::new();
        self.engine.advance(at_s, &mut events);
        self.events.extend(events.into_iter().map(|event| (at_s, event)));
        true
    }

    fn drain(&mut self) {
        while self.step() {}
    }

    fn first_byte_s(&self, ticket: u64) -> f64 {
        let is_it = |event: &EngineEvent| event.ticket == ticket && event.progress == Progress::FirstByte;
        self.events.iter().find(|(_, event)| is_it(event)).unwrap().0
    }

    fn end(&self, ticket: u64) -> (f64, Progress) {
        let is_it = |event: &EngineEvent| event.ticket == ticket && event.progress != Progress::FirstByte;
        self.events.iter().find(|(_, event)| is_it(event)).map(|&(at_s, event)| (at_s, event.progress)).unwrap()
    }

    fn cached_tokens(&self, ticket: u64) -> u32 {
        match self.end(ticket).1 {
            Progress::Finished { cached_tokens } => cached_tokens,
            other => panic!("request {ticket}: {other:?}"),
        }
    }
}

fn assert_near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-9, "{what}: {found} instead of {expected}");
}

#[test]
fn a_long_prompt_is_cut_into_chunks_of_the_step_budget() {
    let mut bench = Bench::new(setup(M70, 420_000));
    bench.submit(1, &request(1, 20_032, 1));
    let chunk = |tokens: f64, context: f64| 0.016 + 80e-6 * tokens + 1.6e-9 * tokens * (context + tokens / 2.0);
    let mut end_s = 0.0;
    for (tokens, context) in [(8192.0, 0.0), (8192.0, 8192.0), (3648.0, 16_384.0)] {
        end_s += chunk(tokens, context);
        bench.step();
        assert_near(bench.now_s, end_s, "end of chunk");
    }
    assert_near(bench.first_byte_s(1), end_s, "first byte");
    assert_eq!(bench.engine.next_event_s(), None, "one output token needs no decode step");
}

#[test]
fn decodes_go_first_and_the_chunk_gets_the_rest_of_the_budget() {
    let mut bench = Bench::new(BatchingSetup { step_tokens_max: 100, ..setup(COUNTING, 64_000) });
    bench.submit(1, &request(1, 64, 3));
    bench.step();
    bench.submit(2, &request(2, 192, 1));
    bench.step();
    // The step that began before request 2 came: one decode. Then a decode beside 99 tokens, then 93 tokens.
    assert_near(bench.now_s, 0.064 + 1.0, "decode alone");
    bench.step();
    assert_near(bench.now_s, 0.064 + 2.0 + 0.099, "decode and chunk");
    bench.drain();
    assert_near(bench.first_byte_s(2), 0.064 + 2.0 + 0.099 + 0.093, "rest of the prompt");
}

#[test]
fn what_a_prompt_shares_with_others_is_not_computed_again() {
    struct Case {
        name: &'static str,
        before: &'static [(u64, u32, u32)],
        then: (u64, u32, u32),
        cached_tokens: u32,
    }
    const CASES: &[Case] = &[
        Case { name: "an empty cache", before: &[], then: (1, 640, 2), cached_tokens: 0 },
        Case { name: "another text", before: &[(2, 640, 2)], then: (1, 640, 2), cached_tokens: 0 },
        Case { name: "a shorter prompt's pieces", before: &[(1, 256, 2)], then: (1, 640, 2), cached_tokens: 256 },
        Case { name: "only whole pieces", before: &[(1, 300, 2)], then: (1, 640, 2), cached_tokens: 256 },
        // The last token is computed in any case, and with it the rest of its block of 16.
        Case { name: "the same prompt", before: &[(1, 640, 2)], then: (1, 640, 2), cached_tokens: 624 },
        // The last token of an answer is never computed, so the answer's second piece is not complete.
        Case { name: "prompt and answer", before: &[(1, 128, 128)], then: (1, 640, 2), cached_tokens: 192 },
    ];
    for case in CASES {
        let mut bench = Bench::new(setup(M70, 64_000));
        for (ticket, &(text, prompt, output)) in case.before.iter().enumerate() {
            bench.submit(ticket as u64, &request(text, prompt, output));
            bench.drain();
        }
        let (text, prompt, output) = case.then;
        let last = request(text, prompt, output);
        assert_eq!(bench.engine.cached_tokens(&last), case.cached_tokens, "{}: foretold", case.name);
        let (start_s, steps_s) = (bench.now_s, bench.engine.ttft_s(&last, bench.now_s));
        bench.submit(99, &last);
        bench.drain();
        assert_eq!(bench.cached_tokens(99), case.cached_tokens, "{}", case.name);
        assert_near(bench.first_byte_s(99) - start_s, steps_s, case.name);
    }
}

#[test]
fn siblings_that_come_together_compute_their_prefix_once() {
    let mut bench = Bench::new(setup(COUNTING, 640_000));
    for ticket in 1..=5 {
        // They differ only in the unfinished last piece.
        bench.submit(ticket, &request(1, 6400 + 10, 1));
        assert_eq!(bench.engine.cached_tokens(&request(1, 6410, 1)), 6400, "on its way counts");
    }
    bench.drain();
    let cached: Vec<u32> = (1..=5).map(|ticket| bench.cached_tokens(ticket)).collect();
    assert_eq!(cached, [0, 6400, 6400, 6400, 6400]);
    assert_near(bench.now_s, 6.410 + 4.0 * 0.010, "all five");
}

#[test]
fn a_full_cache_forgets_the_oldest_text_first() {
    // Room for 20 pieces; each text takes 8.
    let mut bench = Bench::new(setup(M70, 20 * PIECE_TOKENS));
    for text in 1..=3 {
        bench.submit(text, &request(text, 512, 1));
        bench.drain();
    }
    let cached = |text| bench.engine.cached_tokens(&request(text, 576, 1));
    // Four pieces of the first are gone for the third, from its tail.
    assert_eq!([cached(1), cached(2), cached(3)], [256, 512, 512]);
}

#[test]
fn when_blocks_run_out_the_youngest_starts_over_and_keeps_its_tokens() {
    // 16 blocks. Two requests of 7 blocks each, which grow to 9: the second has to give way.
    let mut bench = Bench::new(setup(COUNTING, 256));
    bench.submit(1, &request(1, 112, 40));
    bench.submit(2, &request(2, 112, 40));
    bench.step();
    bench.step();
    bench.submit(3, &request(3, 112, 1));
    let mut was_preempted = false;
    while bench.step() {
        assert!(bench.engine.cache().blocks_in_use() <= 16);
        if bench.engine.preemptions() == 1 && !was_preempted {
            was_preempted = true;
            // 112 tokens and 16 more fill eight blocks each; the next token of the first takes one of the second's.
            assert_eq!(bench.engine.requests(), 3);
            let first_tokens_s = bench.first_byte_s(2);
            assert!(first_tokens_s < bench.now_s, "its first byte is out");
        }
    }
    assert!(was_preempted);
    assert!(bench.end(1).0 < bench.end(2).0);
    // The third would have fitted beside the first; but it came after the second, which does not fit.
    assert!(bench.end(1).0 < bench.first_byte_s(3));
    let first_bytes = bench.events.iter().filter(|(_, event)| event.progress == Progress::FirstByte).count();
    assert_eq!(first_bytes, 3, "no second first byte");
    assert_eq!(bench.cached_tokens(2), 0, "its own blocks, found again, are no hit");
}

#[test]
fn no_more_requests_run_than_allowed_and_the_queue_is_first_come_first_served() {
    let mut bench = Bench::new(BatchingSetup { running_max: 2, ..setup(M70, 64_000) });
    for ticket in 1..=6 {
        bench.submit(ticket, &request(ticket, 640, 4));
    }
    bench.step();
    let report = bench.engine.report(bench.now_s);
    assert_eq!((report.running, report.waiting), (1, 0), "the first step began before the others came");
    bench.step();
    let report = bench.engine.report(bench.now_s);
    assert_eq!((report.running, report.waiting), (2, 4));
    assert_near(report.taken_at_s, bench.now_s, "written at the end of the step");
    bench.drain();
    let order: Vec<u64> = bench
        .events
        .iter()
        .filter(|(_, event)| event.progress == Progress::FirstByte)
        .map(|(_, event)| event.ticket)
        .collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_slow_worker_takes_longer_by_its_factor() {
    let end_s = |speed| {
        let mut bench = Bench::new(BatchingSetup { speed, ..setup(M8, 64_000) });
        bench.submit(1, &request(1, 640, 10));
        bench.drain();
        bench.now_s
    };
    assert_near(end_s(0.5), 2.0 * end_s(1.0), "half the speed");
}

#[test]
fn a_restart_fails_all_and_forgets_all() {
    let mut bench = Bench::new(setup(M70, 64_000));
    for ticket in 1..=3 {
        bench.submit(ticket, &request(ticket, 640, 40));
    }
    bench.step();
    let mut events = Vec::new();
    bench.engine.restart(bench.now_s, &mut events);
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|event| event.progress == Progress::Failed));
    assert_eq!(bench.engine.cached_tokens(&request(1, 640, 40)), 0);
    assert_eq!((bench.engine.requests(), bench.engine.report(bench.now_s).life), (0, 1));
    bench.submit(4, &request(1, 640, 2));
    bench.drain();
    assert_eq!(bench.cached_tokens(4), 0);
}

#[test]
fn a_prompt_that_can_never_fit_fails_at_once() {
    let mut bench = Bench::new(setup(M70, 640));
    bench.submit(1, &request(1, 640, 2));
    assert_eq!(bench.end(1).1, Progress::Failed);
    bench.submit(2, &request(1, 640, 1));
    bench.drain();
    assert_eq!(bench.cached_tokens(2), 0);
}

#[test]
fn every_request_ends_once_and_blocks_are_never_lost() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        // From a cache that holds a few prompts to one that holds them all.
        let kv_tokens = 16 * (100 + rng.below(1_500));
        let mut bench = Bench::new(BatchingSetup { step_tokens_max: 512, running_max: 24, ..setup(M8, kv_tokens) });
        let mut submitted = 0;
        while submitted < 150 {
            if rng.below(4) == 0 {
                let text = u64::from(rng.below(12));
                bench.submit(submitted, &request(text, 1 + rng.below(1_200), 1 + rng.below(200)));
                submitted += 1;
            } else if !bench.step() {
                bench.now_s += 0.01;
            }
            let cache = bench.engine.cache();
            assert!(cache.blocks_in_use() <= cache.blocks_total(), "seed {seed}");
            assert!(bench.engine.report(0.0).kv_usage <= 1.0, "seed {seed}");
        }
        bench.drain();
        assert_eq!(bench.engine.cache().blocks_in_use(), 0, "seed {seed}: blocks are left in use");
        assert_eq!(bench.engine.requests(), 0, "seed {seed}");
        assert_near(bench.engine.backlog_tokens(bench.now_s), 0.0, "backlog");
        let mut stages: HashMap<u64, Vec<Progress>> = HashMap::new();
        bench.events.iter().for_each(|(_, event)| stages.entry(event.ticket).or_default().push(event.progress));
        for ticket in 0..submitted {
            let is_whole =
                matches!(stages[&ticket][..], [Progress::FirstByte, Progress::Finished { .. }] | [Progress::Failed]);
            assert!(is_whole, "seed {seed} request {ticket}: {:?}", stages[&ticket]);
        }
    }
}
