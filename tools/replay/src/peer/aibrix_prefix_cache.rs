//! AIBrix's `prefix-cache`: the longest match among workers that are not too busy.
//!
//! Source: vllm-project/aibrix `pkg/plugins/gateway/algorithms/prefix_cache.go`, main of 2026, with the code's defaults (its
//! readme has others): if the most and the least loaded worker differ by more than 8 requests, only the least loaded are
//! eligible; else by match, then by load, the first with a load of at most the mean and one standard deviation;
//! none, the least loaded. Entries are forgotten 20 minutes after their last use.

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::index::{Index, Memory};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "aibrix-prefix-cache",
    doc: "AIBrix: longest match within mean + 1 standard deviation of requests; least loaded if 8 apart",
    shares_nothing: true,
    build: |setup: PeerSetup| {
        Box::new(Counted::new(PrefixCache { index: Index::default(), rng: Rng::new(setup.seed) }))
    },
};

/// Requests between the most and the least loaded worker above which only the latter are eligible.
const IMBALANCE_REQUESTS: u32 = 8;
/// Standard deviations above the mean that a matched worker's load may have.
const STANDARD_DEVIATIONS: f64 = 1.0;
const MEMORY: Memory = Memory::Seconds(20.0 * 60.0);

#[derive(Debug)]
struct PrefixCache {
    index: Index,
    rng: Rng,
}

impl PrefixCache {
    /// The eligible worker with the longest match, of these the least loaded; `None` if nobody has any match.
    fn best_match(&mut self, eligible: &[usize], matched: &[u32], loads: &[Load]) -> Option<usize> {
        let longest = eligible.iter().map(|worker| matched[*worker]).max().filter(|tokens| *tokens > 0)?;
        let holders = eligible.iter().copied().filter(|worker| matched[*worker] == longest);
        Some(cheapest(holders, &mut self.rng, |worker| f64::from(loads[worker].in_flight)))
    }
}

impl Rule for PrefixCache {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let matched = self.index.matched_tokens(request, loads.len(), MEMORY, view.now_s);
        let in_flight = |worker: usize| loads[worker].in_flight;
        let most = members(view).map(in_flight).max().unwrap_or_default();
        let least = members(view).map(in_flight).min().unwrap_or_default();
        let eligible: Vec<usize> = if most - least > IMBALANCE_REQUESTS {
            members(view).filter(|worker| in_flight(*worker) == least).collect()
        } else {
            let busy = mean_and_deviations(members(view).map(in_flight));
            members(view).filter(|worker| f64::from(in_flight(*worker)) <= busy).collect()
        };
        let worker = self.best_match(&eligible, &matched, loads);
        let worker =
            worker.unwrap_or_else(|| cheapest(members(view), &mut self.rng, |worker| f64::from(in_flight(worker))));
        self.index.record(worker, request, MEMORY, view.now_s);
        Choice { worker, uncached_tokens: request.prompt_tokens - matched[worker] }
    }
}

/// The mean plus [`STANDARD_DEVIATIONS`] of the whole set.
fn mean_and_deviations(loads: impl Iterator<Item = u32> + Clone) -> f64 {
    let count = loads.clone().count().max(1) as f64;
    let mean = loads.clone().map(f64::from).sum::<f64>() / count;
    let variance = loads.map(|load| (f64::from(load) - mean).powi(2)).sum::<f64>() / count;
    mean + STANDARD_DEVIATIONS * variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn the_longest_match_that_is_not_too_busy_wins() {
        struct Case {
            name: &'static str,
            prompt: &'static [u64],
            loads: [(u32, u64); 4],
            chosen: usize,
        }
        const CASES: &[Case] = &[
            Case { name: "match", prompt: &[1, 2], loads: [(2, 0), (1, 0), (3, 0), (3, 0)], chosen: 0 },
            Case {
                name: "any match counts",
                prompt: &[1, 7, 8, 9, 10],
                loads: [(2, 0), (1, 0), (3, 0), (3, 0)],
                chosen: 0,
            },
            Case {
                name: "busier than mean and deviation",
                prompt: &[1, 2],
                loads: [(5, 0), (1, 0), (2, 0), (2, 0)],
                chosen: 1,
            },
            Case { name: "nine apart", prompt: &[1, 2], loads: [(5, 0), (1, 0), (10, 0), (9, 0)], chosen: 1 },
            Case { name: "eight apart", prompt: &[1, 2], loads: [(5, 0), (1, 0), (9, 0), (9, 0)], chosen: 0 },
            Case { name: "no match", prompt: &[9], loads: [(2, 0), (3, 0), (1, 0), (3, 0)], chosen: 2 },
        ];
        for case in CASES {
            let mut rule = PrefixCache { index: Index::default(), rng: Rng::new(1) };
            assert_eq!(choose(&mut rule, &[1, 2], &[(0, 0), (1, 0), (1, 0), (1, 0)]), 0);
            assert_eq!(choose(&mut rule, case.prompt, &case.loads), case.chosen, "{}", case.name);
        }
    }
}
