//! SGLang's `cache_aware`: the longest match unless the pool is out of balance.
//!
//! Source: sgl-project/sglang `sgl-router/src/policies/cache_aware.rs` and the command line's defaults: cache threshold
//! 0.3, balance 64 requests and 1.5, tree of 2^26 characters. This is the classic rule, which vllm-project/router
//! shares; where it found no match it took the smallest tree, and since pull requests 14305 and 14532 the least load,
//! which is what is done here. The rule of 2026 in smg-project/smg spills each candidate against the mean instead; at
//! these loads neither threshold is reached often. Of several workers with the longest match the tree gives any.

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::index::{Index, Memory};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "sglang-cache-aware",
    doc: "SGLang router, classic rule: longest match above 0.3, least requests if out of balance (64 and 1.5)",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(CacheAware { index: Index::default(), rng: Rng::new(setup.seed) })),
};

/// Share of the prompt that has to match for the match to decide.
const CACHE_THRESHOLD: f64 = 0.3;
/// Requests between the most and the least loaded worker above which the pool is out of balance, if also
/// [`BALANCE_RELATIVE`] is passed.
const BALANCE_ABSOLUTE: u32 = 64;
/// Ratio of the most to the least loaded worker above which the pool is out of balance.
const BALANCE_RELATIVE: f64 = 1.5;
/// The tree of a worker is cut back to 2^26 characters, at four to a token.
const TREE: Memory = Memory::Tokens((1 << 26) / 4);

#[derive(Debug)]
struct CacheAware {
    index: Index,
    rng: Rng,
}

impl Rule for CacheAware {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let matched = self.index.matched_tokens(request, loads.len(), TREE, view.now_s);
        let in_flight = |worker: usize| loads[worker].in_flight;
        let most = members(view).map(in_flight).max().unwrap_or_default();
        let least = members(view).map(in_flight).min().unwrap_or_default();
        let is_imbalanced = most - least > BALANCE_ABSOLUTE && f64::from(most) > BALANCE_RELATIVE * f64::from(least);
        let best = cheapest(members(view), &mut self.rng, |worker| -f64::from(matched[worker]));
        let share = f64::from(matched[best]) / f64::from(request.prompt_tokens);
        let worker = if !is_imbalanced && share > CACHE_THRESHOLD {
            best
        } else {
            cheapest(members(view), &mut self.rng, |worker| f64::from(in_flight(worker)))
        };
        self.index.record(worker, request, TREE, view.now_s);
        Choice { worker, uncached_tokens: request.prompt_tokens - matched[worker] }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn the_match_decides_until_the_pool_is_out_of_balance() {
        struct Case {
            name: &'static str,
            prompt: &'static [u64],
            loads: [(u32, u64); 2],
            chosen: usize,
        }
        const CASES: &[Case] = &[
            Case { name: "match", prompt: &[1, 2, 3], loads: [(60, 0), (0, 0)], chosen: 0 },
            Case { name: "match of a quarter", prompt: &[1, 7, 8, 9], loads: [(60, 0), (0, 0)], chosen: 1 },
            Case { name: "64 more are balanced", prompt: &[1, 2, 3], loads: [(64, 0), (0, 0)], chosen: 0 },
            Case { name: "65 more are not", prompt: &[1, 2, 3], loads: [(65, 0), (0, 0)], chosen: 1 },
            Case { name: "65 more of many are", prompt: &[1, 2, 3], loads: [(195, 0), (130, 0)], chosen: 0 },
        ];
        for case in CASES {
            let mut rule = CacheAware { index: Index::default(), rng: Rng::new(1) };
            assert_eq!(choose(&mut rule, &[1, 2, 3], &[(0, 0), (1, 0)]), 0);
            assert_eq!(choose(&mut rule, case.prompt, &case.loads), case.chosen, "{}", case.name);
        }
    }
}
