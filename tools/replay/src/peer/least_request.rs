//! The worker with the fewest of the gateway's own requests in flight, equals by chance.
//!
//! Source: KubeAI's `LeastLoad` (its default), AIBrix's `least-request` and Envoy's LEAST_REQUEST with a full scan.

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "least-request",
    doc: "the fewest own requests in flight",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(LeastRequest { rng: Rng::new(setup.seed) })),
};

#[derive(Debug)]
struct LeastRequest {
    rng: Rng,
}

impl Rule for LeastRequest {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let worker = cheapest(members(view), &mut self.rng, |worker| f64::from(loads[worker].in_flight));
        Choice { worker, uncached_tokens: request.prompt_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn the_fewest_requests_win_whatever_their_tokens() {
        let mut rule = LeastRequest { rng: Rng::new(1) };
        assert_eq!(choose(&mut rule, &[1], &[(3, 0), (2, 90_000), (3, 5)]), 1);
    }
}
