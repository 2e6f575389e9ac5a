//! The serial engine and the simulation around it, held to figures of an independent program for the same model.
//!
//! That program was written in another language before this one, and broke ties by other random numbers; its figures
//! here are from a run with those of this file, so that they have to agree to the last digit.

#![allow(clippy::unwrap_used, reason = "what is missing here is a failure of the test")]

use std::collections::HashMap;

use warmroute::rng::{Rng, mix};
use warmroute_replay::engine::serial::SerialSetup;
use warmroute_replay::metrics::Summary;
use warmroute_replay::policy::{Outcome, Policy, View};
use warmroute_replay::request::Request;
use warmroute_replay::simulation::{EngineSetup, Setup, run};
use warmroute_replay::workload::mooncake::{Stamps, Trace, requests};

const WORKERS: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Rule {
    RoundRobin,
    Least,
    /// (own uncached tokens without a first byte + this prompt's) x (requests + 1).
    Product,
    Ttft,
}

struct Reference {
    rule: Rule,
    /// Block hit, token hit, mean TTFT, p50, p90, p99, share within 2 s in percent, max/mean requests.
    figures: [f64; 8],
}

struct Case {
    trace: Trace,
    cache_pieces: usize,
    prefill_tokens_per_s: f64,
    references: [Reference; 4],
}

const fn reference(rule: Rule, figures: [f64; 8]) -> Reference {
    Reference { rule, figures }
}

const CASES: &[Case] = &[
    Case {
        trace: Trace::Conversation,
        cache_pieces: 4_000,
        prefill_tokens_per_s: 8_000.0,
        references: [
            reference(Rule::RoundRobin, [0.098, 0.100, 3.126, 1.723, 8.37, 17.53, 54.3, 1.00]),
            reference(Rule::Least, [0.092, 0.094, 3.055, 1.924, 7.63, 15.38, 51.4, 1.03]),
            reference(Rule::Product, [0.265, 0.270, 1.352, 0.693, 3.31, 10.66, 79.0, 1.07]),
            reference(Rule::Ttft, [0.290, 0.296, 1.235, 0.670, 2.92, 9.57, 81.7, 1.04]),
        ],
    },
    Case {
        trace: Trace::Synthetic,
        cache_pieces: 4_000,
        prefill_tokens_per_s: 10_000.0,
        references: [
            reference(Rule::RoundRobin, [0.162, 0.165, 3.000, 1.881, 6.90, 20.36, 52.0, 1.00]),
            reference(Rule::Least, [0.168, 0.171, 2.340, 1.719, 5.47, 11.68, 56.6, 1.08]),
            reference(Rule::Product, [0.568, 0.578, 0.676, 0.042, 2.24, 5.46, 88.3, 1.05]),
            reference(Rule::Ttft, [0.612, 0.623, 0.620, 0.042, 2.06, 5.07, 89.6, 1.15]),
        ],
    },
    Case {
        trace: Trace::Conversation,
        cache_pieces: 820,
        prefill_tokens_per_s: 12_000.0,
        references: [
            reference(Rule::RoundRobin, [0.056, 0.057, 1.549, 0.872, 3.90, 9.70, 75.4, 1.00]),
            reference(Rule::Least, [0.054, 0.055, 1.734, 1.069, 4.16, 9.83, 70.5, 1.02]),
            reference(Rule::Product, [0.122, 0.125, 1.022, 0.558, 2.42, 7.51, 86.1, 1.02]),
            reference(Rule::Ttft, [0.129, 0.131, 0.973, 0.566, 2.26, 6.94, 87.6, 1.04]),
        ],
    },
    Case {
        trace: Trace::Synthetic,
        cache_pieces: 820,
        prefill_tokens_per_s: 12_000.0,
        references: [
            reference(Rule::RoundRobin, [0.053, 0.054, 2.581, 1.539, 5.86, 17.71, 58.1, 1.00]),
            reference(Rule::Least, [0.054, 0.055, 2.097, 1.521, 4.72, 10.34, 59.1, 1.04]),
            reference(Rule::Product, [0.235, 0.239, 1.037, 0.306, 3.04, 5.44, 80.9, 1.07]),
            reference(Rule::Ttft, [0.297, 0.303, 0.938, 0.231, 2.82, 4.79, 83.2, 1.11]),
        ],
    },
];

/// Half of the last digit of each figure, and a little for the rounding itself.
const ROUNDING: [f64; 8] = [0.000_51, 0.000_51, 0.000_51, 0.000_51, 0.005_1, 0.005_1, 0.051, 0.005_1];

struct Simple {
    rule: Rule,
    /// For random ties of `Least`.
    rng: Rng,
    routed: u64,
    sightings: HashMap<u64, u64>,
    /// Worker and uncached tokens of each request in flight; no tokens after its first byte.
    in_flight: HashMap<u64, (usize, f64)>,
    requests: [f64; WORKERS],
    pending_tokens: [f64; WORKERS],
}

impl Simple {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            rng: Rng::new(1),
            routed: 0,
            sightings: HashMap::new(),
            in_flight: HashMap::new(),
            requests: [0.0; WORKERS],
            pending_tokens: [0.0; WORKERS],
        }
    }

    fn least(&mut self) -> usize {
        let fewest = self.requests.iter().copied().fold(f64::INFINITY, f64::min);
        let tied: Vec<usize> = (0..WORKERS).filter(|&worker| self.requests[worker] <= fewest).collect();
        tied[self.rng.below(tied.len() as u32) as usize]
    }

    fn cheapest(&self, request: &Request, view: &View<'_>) -> usize {
        let key = self.key(request);
        let cost = |worker: usize| {
            let uncached = f64::from(request.prompt_tokens - view.exact.cached_tokens(worker, request)).max(16.0);
            match self.rule {
                Rule::Ttft => view.exact.backlog_tokens(worker) + uncached,
                _ => (self.pending_tokens[worker] + uncached) * (self.requests[worker] + 1.0),
            }
        };
        let rank = |worker: usize| (cost(worker), mix(key ^ mix(worker as u64 + 1)));
        (0..WORKERS).min_by(|&left, &right| rank(left).partial_cmp(&rank(right)).unwrap()).unwrap()
    }

    /// The first piece that is not popular, or else something random.
    fn key(&self, request: &Request) -> u64 {
        let is_popular = |piece: &&u64| {
            let sightings = self.sightings.get(*piece).copied().unwrap_or_default();
            sightings > 6 && sightings as f64 / self.routed.max(1) as f64 > 1.0 / (2 * WORKERS) as f64
        };
        request.pieces.iter().find(|piece| !is_popular(piece)).copied().unwrap_or_else(|| mix(self.routed))
    }
}

impl Policy for Simple {
    fn route(&mut self, ticket: u64, request: &Request, view: &View<'_>) -> usize {
        let worker = match self.rule {
            Rule::RoundRobin => self.routed as usize % WORKERS,
            Rule::Least => self.least(),
            Rule::Product | Rule::Ttft => self.cheapest(request, view),
        };
        let uncached = f64::from(request.prompt_tokens - view.exact.cached_tokens(worker, request)).max(1.0);
        self.routed += 1;
        request.pieces.iter().for_each(|&piece| *self.sightings.entry(piece).or_default() += 1);
        self.requests[worker] += 1.0;
        self.pending_tokens[worker] += uncached;
        self.in_flight.insert(ticket, (worker, uncached));
        worker
    }

    fn first_byte(&mut self, ticket: u64, _now_s: f64) {
        let (worker, uncached) = self.in_flight.get_mut(&ticket).unwrap();
        self.pending_tokens[*worker] -= std::mem::take(uncached);
    }

    fn finished(&mut self, ticket: u64, _outcome: &Outcome, _now_s: f64) {
        let (worker, uncached) = self.in_flight.remove(&ticket).unwrap();
        self.pending_tokens[worker] -= uncached;
        self.requests[worker] -= 1.0;
    }
}

#[test]
fn figures_are_those_of_the_reference() {
    for case in CASES {
        let requests = requests(case.trace, 1.0, Stamps::Raw, 0);
        for Reference { rule, figures } in &case.references {
            let setup = Setup {
                workers: WORKERS,
                engine: EngineSetup::Serial(SerialSetup {
                    cache_pieces: case.cache_pieces,
                    piece_tokens: 512,
                    prefill_tokens_per_s: case.prefill_tokens_per_s,
                    output_token_s: 0.020,
                }),
                gateways: 1,
                scrape_interval_s: None,
                token_error: 0.0,
                seed: 1,
                incidents: Vec::new(),
            };
            let outcomes = run(&setup, &requests, &|_| Box::new(Simple::new(*rule)));
            let summary = Summary::of(&outcomes, WORKERS);
            let (cached, all) = outcomes.iter().fold((0, 0), |(cached, all), outcome| {
                (
                    cached + u64::from(outcome.cached_tokens.div_ceil(512)),
                    all + u64::from(outcome.prompt_tokens.div_ceil(512)),
                )
            });
            let within = outcomes.iter().filter(|outcome| outcome.ttft_s <= 2.0).count() as f64 / outcomes.len() as f64;
            let found = [
                cached as f64 / all as f64,
                summary.token_hit,
                summary.ttft_mean_s,
                summary.ttft_p50_s,
                summary.ttft_p90_s,
                summary.ttft_p99_s,
                100.0 * within,
                summary.requests_max_over_mean,
            ];
            for ((found, figure), rounding) in found.iter().zip(figures).zip(ROUNDING) {
                assert!(
                    (found - figure).abs() <= rounding,
                    "{:?}, {} pieces, {rule:?}: {found} for {figure}",
                    case.trace,
                    case.cache_pieces,
                );
            }
        }
    }
}
