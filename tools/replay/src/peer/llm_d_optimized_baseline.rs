//! llm-d's newest guide: stay with workers that have four fifths of the prompt, of these the fewest tokens in flight.
//!
//! Source: llm-d/llm-d-router v0.10.0 with the values of llm-d/llm-d `guides/optimized-baseline`, plugins
//! prefix-cache-affinity-filter (threshold 0.80, no exploration, penalty limit 18000 ms, 15928 prefill tokens/s) and
//! token-load-scorer 1 - min(1, tokens in flight / 4194304), max-score-picker. Only workers with a match of at least the
//! threshold pass, unless the quickest of them is more than the penalty behind the quickest of the others. Tokens in
//! flight are uncached prompt tokens until the first byte (inflight-load-producer).

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::index::{Index, Memory};
use super::{PeerRegistration, PeerSetup, estimated_uncached_tokens};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "llm-d-optimized",
    doc: "llm-d optimized-baseline: affinity filter 0.80 with an 18 s limit, then the fewest tokens in flight",
    shares_nothing: true,
    build: |setup: PeerSetup| {
        Box::new(Counted::new(AffinityThenLoad { index: Index::default(), rng: Rng::new(setup.seed) }))
    },
};

/// Share of the prompt that a worker has to have.
const AFFINITY_THRESHOLD: f64 = 0.80;
/// Seconds that the best of them may be behind the best of the others.
const PENALTY_S_MAX: f64 = 18.0;
/// Prefill tokens per second that turn tokens in flight into seconds.
const PREFILL_TOKENS_PER_S: f64 = 15_928.0;
/// Tokens in flight at which the score is 0.
const QUEUE_TOKENS_MAX: f64 = 4_194_304.0;

#[derive(Debug)]
struct AffinityThenLoad {
    index: Index,
    rng: Rng,
}

impl Rule for AffinityThenLoad {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let memory = Memory::Tokens(u64::from(view.kv_tokens));
        let matched = self.index.matched_tokens(request, loads.len(), memory, view.now_s);
        let is_warm =
            |worker: &usize| f64::from(matched[*worker]) / f64::from(request.prompt_tokens) >= AFFINITY_THRESHOLD;
        let (warm, cold): (Vec<usize>, Vec<usize>) = members(view).partition(is_warm);
        let ttft_s = |worker: &usize| loads[*worker].pending_tokens as f64 / PREFILL_TOKENS_PER_S;
        let quickest_s = |workers: &[usize]| workers.iter().map(ttft_s).fold(f64::INFINITY, f64::min);
        let stays = !warm.is_empty() && quickest_s(&warm) <= quickest_s(&cold) + PENALTY_S_MAX;
        let passing = members(view).filter(|worker| !stays || warm.contains(worker));
        let score = |worker: usize| 1.0 - (loads[worker].pending_tokens as f64 / QUEUE_TOKENS_MAX).min(1.0);
        let worker = cheapest(passing, &mut self.rng, |worker| -score(worker));
        self.index.record(worker, request, memory, view.now_s);
        Choice { worker, uncached_tokens: estimated_uncached_tokens(request, view, matched[worker]) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn warm_workers_keep_the_request_up_to_the_penalty() {
        struct Case {
            name: &'static str,
            prompt: &'static [u64],
            loads: [(u32, u64); 2],
            chosen: usize,
        }
        const CASES: &[Case] = &[
            Case { name: "warm", prompt: &[1, 2, 3, 4, 9], loads: [(9, 286_000), (0, 0)], chosen: 0 },
            Case { name: "18 s behind", prompt: &[1, 2, 3, 4, 9], loads: [(9, 287_000), (0, 0)], chosen: 1 },
            Case { name: "three quarters are not warm", prompt: &[1, 2, 3, 9], loads: [(9, 100), (0, 0)], chosen: 1 },
        ];
        for case in CASES {
            let mut rule = AffinityThenLoad { index: Index::default(), rng: Rng::new(1) };
            assert_eq!(choose(&mut rule, &[1, 2, 3, 4], &[(0, 0), (0, 1)]), 0);
            assert_eq!(choose(&mut rule, case.prompt, &case.loads), case.chosen, "{}", case.name);
        }
    }
}
