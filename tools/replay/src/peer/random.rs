//! Any worker, each as likely: what all policies must beat.

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "random",
    doc: "any worker, each as likely",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(Random { rng: Rng::new(setup.seed) })),
};

#[derive(Debug)]
struct Random {
    rng: Rng,
}

impl Rule for Random {
    fn choose(&mut self, request: &Request, view: &View<'_>, _loads: &[Load]) -> Choice {
        let worker = cheapest(members(view), &mut self.rng, |_| 0.0);
        Choice { worker, uncached_tokens: request.prompt_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::route_all;
    use super::*;

    #[test]
    fn all_workers_are_as_likely() {
        let sent_to = route_all(Random { rng: Rng::new(1) }, 4, 4_000);
        for worker in 0..4 {
            let count = sent_to.iter().filter(|&&sent| sent == worker).count();
            assert!((900..1_100).contains(&count), "{worker}: {count}");
        }
    }
}
