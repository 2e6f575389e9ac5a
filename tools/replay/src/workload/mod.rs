//! The workloads that policies are judged on: two public traces and four generators.
//!
//! All are open loop: requests come when they come, however slow the answers are.

use anyhow::{Context, Error};

use crate::request::Request;
use mooncake::{Stamps, Trace};

pub mod agent;
pub mod chat;
pub mod cold;
pub mod draw;
pub mod hot;
pub mod mooncake;
pub mod prompt;

/// Requests of one run of a generator: about ten minutes for eight workers near saturation.
const GENERATED_REQUESTS: usize = 10_000;

/// Workers that the rates of [`Workload::saturation_rate`] were found with.
const SATURATION_WORKERS: f64 = 8.0;

/// A workload by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Mooncake's trace of conversations: long prompts, little reuse.
    Conversation,
    /// Mooncake's synthetic trace: public data sets, much reuse.
    Synthetic,
    /// Conversations of several turns with few system prompts.
    Chat,
    /// Agents that send bursts of requests with one long context.
    Agent,
    /// Most requests begin with the same 8192 tokens.
    Hot,
    /// Nothing is ever reused.
    Cold,
}

impl Workload {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 6] = [Self::Conversation, Self::Synthetic, Self::Chat, Self::Agent, Self::Hot, Self::Cold];

    /// The name on the command line and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Synthetic => "synthetic",
            Self::Chat => "chat",
            Self::Agent => "agent",
            Self::Hot => "hot",
            Self::Cold => "cold",
        }
    }

    /// Requests per second that are load 1.0 for so many workers. A scale for tables, not a property of a policy.
    ///
    /// Chosen for eight `batching` engines with the constants `M70` and 420 000 tokens of KV cache, and scaled by the
    /// number of workers. Not a measured limit: a token cost over exact caches still keeps mean TTFT below three seconds
    /// at 1.2 on all workloads, and loses `chat`, `agent` and `hot` at 1.5.
    #[must_use]
    pub fn saturation_rate(self, workers: usize) -> f64 {
        let requests_per_s = match self {
            Self::Conversation => 3.65,
            Self::Synthetic => 3.57,
            Self::Chat => 19.3,
            Self::Agent => 42.0,
            Self::Hot => 32.0,
            Self::Cold => 40.0,
        };
        requests_per_s * workers as f64 / SATURATION_WORKERS
    }

    /// The requests of one run, sorted by arrival, at a share `load` of the saturation of so many workers.
    #[must_use]
    pub fn requests(self, seed: u64, load: f64, workers: usize) -> Vec<Request> {
        self.requests_at(seed, load * self.saturation_rate(workers))
    }

    /// The requests of one run, sorted by arrival, at a mean rate.
    #[must_use]
    pub fn requests_at(self, seed: u64, requests_per_s: f64) -> Vec<Request> {
        let replay =
            |trace: Trace| mooncake::requests(trace, requests_per_s / trace.requests_per_s(), Stamps::Spread, seed);
        match self {
            Self::Conversation => replay(Trace::Conversation),
            Self::Synthetic => replay(Trace::Synthetic),
            Self::Chat => chat::requests(seed, requests_per_s, GENERATED_REQUESTS),
            Self::Agent => agent::requests(seed, requests_per_s, GENERATED_REQUESTS),
            Self::Hot => hot::requests(seed, requests_per_s, GENERATED_REQUESTS),
            Self::Cold => cold::requests(seed, requests_per_s, GENERATED_REQUESTS),
        }
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

impl std::str::FromStr for Workload {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|workload| workload.name() == name).with_context(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown workload {name:?}; known: {known}")
        })
    }
}

/// Sorts by arrival and keeps the first `count` from zero on. Generators begin earlier than that, so that the rate is
/// that of a service in the middle of its day from the first second on. Time is then scaled by the few percent by which
/// chance missed the rate: otherwise seeds would differ by their load more than by anything else.
fn first_arrivals(mut requests: Vec<Request>, count: usize, requests_per_s: f64) -> Vec<Request> {
    requests.retain(|request| request.arrival_s >= 0.0);
    requests.sort_by(|left, right| left.arrival_s.total_cmp(&right.arrival_s));
    requests.truncate(count);
    let last_s = requests.last().map_or(1.0, |request| request.arrival_s.max(f64::MIN_POSITIVE));
    let stretch = requests.len() as f64 / requests_per_s / last_s;
    requests.iter_mut().for_each(|request| request.arrival_s *= stretch);
    requests
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Share of prompt tokens that a cache without end would have.
    fn ideal_token_hit(requests: &[Request]) -> f64 {
        let mut seen = HashSet::new();
        let (mut cached, mut total) = (0.0, 0.0);
        for request in requests {
            let pieces = request.pieces.iter().take_while(|piece| seen.contains(*piece)).count();
            cached += (pieces as f64 * f64::from(request.piece_tokens)).min(f64::from(request.prompt_tokens));
            total += f64::from(request.prompt_tokens);
            seen.extend(request.pieces.iter().chain(request.output_pieces.iter()).copied());
        }
        cached / total
    }

    #[test]
    fn reuse_and_rate_are_those_that_each_workload_promises() {
        struct Case {
            workload: Workload,
            token_hit: std::ops::RangeInclusive<f64>,
        }
        const CASES: &[Case] = &[
            Case { workload: Workload::Conversation, token_hit: 0.372..=0.375 },
            Case { workload: Workload::Synthetic, token_hit: 0.650..=0.653 },
            Case { workload: Workload::Chat, token_hit: 0.85..=0.89 },
            Case { workload: Workload::Agent, token_hit: 0.94..=0.965 },
            Case { workload: Workload::Hot, token_hit: 0.91..=0.94 },
            Case { workload: Workload::Cold, token_hit: 0.0..=0.0 },
        ];
        for case in CASES {
            let requests = case.workload.requests(1, 0.8, 8);
            let hit = ideal_token_hit(&requests);
            assert!(case.token_hit.contains(&hit), "{}: {hit}", case.workload);
            let seconds = requests[requests.len() - 1].arrival_s;
            let rate = requests.len() as f64 / seconds / case.workload.saturation_rate(8);
            assert!((rate - 0.8).abs() < 1e-3, "{}: load {rate}", case.workload);
        }
    }

    #[test]
    fn requests_are_sorted_well_formed_and_the_same_for_a_seed() {
        for workload in Workload::ALL {
            let requests = workload.requests(7, 0.8, 8);
            assert_eq!(requests, workload.requests(7, 0.8, 8), "{workload}");
            assert_ne!(requests, workload.requests(8, 0.8, 8), "{workload}");
            assert!(requests.is_sorted_by(|left, right| left.arrival_s <= right.arrival_s), "{workload}");
            for request in &requests {
                assert!(request.prompt_tokens > 0 && request.output_tokens > 0, "{workload}");
                assert_eq!(
                    request.pieces.len(),
                    request.prompt_tokens.div_ceil(request.piece_tokens) as usize,
                    "{workload}"
                );
                let is_whole = request.prompt_tokens % request.piece_tokens == 0;
                assert!(is_whole || request.output_pieces.is_empty(), "{workload}");
            }
        }
    }

    #[test]
    fn a_piece_has_one_place_and_one_piece_before_it() {
        for workload in Workload::ALL {
            let mut before = std::collections::HashMap::new();
            for request in workload.requests(3, 0.8, 8) {
                let mut last = 0;
                for &piece in request.pieces.iter().chain(request.output_pieces.iter()) {
                    assert_eq!(*before.entry(piece).or_insert(last), last, "{workload}");
                    last = piece;
                }
            }
        }
    }

    #[test]
    fn names_are_read_back_and_others_refused_with_the_known_ones() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse::<Workload>().unwrap(), workload);
        }
        let error = "warm".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("conversation, synthetic"), "{error}");
    }
}
