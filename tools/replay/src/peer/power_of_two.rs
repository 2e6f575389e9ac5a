//! The less loaded of two random workers.
//!
//! Source: Mitzenmacher, "The power of two choices in randomized load balancing" (IEEE TPDS 2001), as SGLang's
//! `power_of_two` and Envoy's LEAST_REQUEST use it, by requests in flight.

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, members};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "power-of-two",
    doc: "the fewer own requests in flight, of two random workers",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(PowerOfTwo { rng: Rng::new(setup.seed) })),
};

#[derive(Debug)]
struct PowerOfTwo {
    rng: Rng,
}

impl Rule for PowerOfTwo {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let count = members(view).count() as u32;
        let first = self.rng.below(count);
        // Another one than the first, if there is one.
        let second = (first + 1 + self.rng.below(count.saturating_sub(1))) % count.max(1);
        let [first, second] = [first, second].map(|turn| members(view).nth(turn as usize).unwrap_or_default());
        let worker = if loads[second].in_flight < loads[first].in_flight { second } else { first };
        Choice { worker, uncached_tokens: request.prompt_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn of_two_workers_the_less_loaded_and_never_the_worst_of_three() {
        let mut rule = PowerOfTwo { rng: Rng::new(1) };
        for _ in 0..100 {
            assert_eq!(choose(&mut rule, &[1], &[(3, 0), (2, 0)]), 1);
            assert_ne!(choose(&mut rule, &[1], &[(3, 0), (2, 0), (9, 0)]), 2);
        }
        assert_eq!(choose(&mut rule, &[1], &[(3, 0)]), 0, "a pool of one");
    }
}
