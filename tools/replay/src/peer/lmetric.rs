//! The product of new prefill work and requests: (pending prefill tokens + uncached) * (in flight + 1).
//!
//! Source: "LMetric" (arXiv 2603.15202), as Dynamo's `router_selection_policy=lmetric` and llm-d-router pull request 2351
//! take it up; this is the form with requests. The index is bounded by a worker's KV-cache size. Like Dynamo's frontend it
//! knows the prompt's true number of tokens.

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::index::{Index, Memory};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "lmetric",
    doc: "LMetric: (pending prefill tokens + uncached tokens) * (requests in flight + 1)",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(Product { index: Index::default(), rng: Rng::new(setup.seed) })),
};

#[derive(Debug)]
struct Product {
    index: Index,
    rng: Rng,
}

impl Rule for Product {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let memory = Memory::Tokens(u64::from(view.kv_tokens));
        let matched = self.index.matched_tokens(request, loads.len(), memory, view.now_s);
        let cost = |worker: usize| {
            let prefill = loads[worker].pending_tokens + u64::from(request.prompt_tokens - matched[worker]);
            prefill as f64 * f64::from(loads[worker].in_flight + 1)
        };
        let worker = cheapest(members(view), &mut self.rng, cost);
        self.index.record(worker, request, memory, view.now_s);
        Choice { worker, uncached_tokens: request.prompt_tokens - matched[worker] }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn the_lowest_product_wins() {
        // 256 tokens; worker 0 has 128 of them.
        for (name, loads, chosen) in [
            ("the match", [(1, 0), (1, 0)], 0),
            ("128 * 3 against 256 * 1", [(2, 0), (0, 0)], 1),
            ("(100 + 128) * 1 against 256 * 1", [(0, 100), (0, 0)], 0),
            ("(130 + 128) * 1 against 256 * 1", [(0, 130), (0, 0)], 1),
        ] {
            let mut rule = Product { index: Index::default(), rng: Rng::new(1) };
            assert_eq!(choose(&mut rule, &[1, 2], &[(0, 0), (1, 0)]), 0);
            assert_eq!(choose(&mut rule, &[1, 2, 3, 4], &loads), chosen, "{name}");
        }
    }
}
