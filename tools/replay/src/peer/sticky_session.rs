//! A conversation stays where its first request went: the least loaded worker of that moment.
//!
//! Source: vllm-project/router `sticky_least_loaded` (main of 2026) and SMG `manual` with `min_load` assignment. It gets
//! the workload's true conversation ids, which few clients send: better than it would be. The assignment is private to
//! a gateway. SMG's idle limit of 14400 s is longer than any workload here.

use std::collections::HashMap;

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "sticky-session",
    doc: "true conversation ids stick to the worker with the fewest requests at their first",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(Sticky { homes: HashMap::new(), rng: Rng::new(setup.seed) })),
};

#[derive(Debug)]
struct Sticky {
    homes: HashMap<u64, usize>,
    rng: Rng,
}

impl Rule for Sticky {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let home = self.homes.get(&request.session).copied().filter(|home| view.is_member[*home]);
        let worker =
            home.unwrap_or_else(|| cheapest(members(view), &mut self.rng, |worker| f64::from(loads[worker].in_flight)));
        self.homes.insert(request.session, worker);
        Choice { worker, uncached_tokens: request.prompt_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn a_conversation_stays_whatever_the_load() {
        let mut rule = Sticky { homes: HashMap::new(), rng: Rng::new(1) };
        assert_eq!(choose(&mut rule, &[5], &[(1, 0), (0, 0)]), 1);
        assert_eq!(choose(&mut rule, &[5, 6], &[(0, 0), (99, 0)]), 1);
        assert_eq!(choose(&mut rule, &[6], &[(0, 0), (99, 0)]), 0, "another conversation");
    }
}
