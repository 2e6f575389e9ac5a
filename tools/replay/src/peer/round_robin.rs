//! The workers in order: Envoy's and Kubernetes' default, and Dynamo's (`--router-mode round-robin`, main of 2026).

use super::bookkeeping::{Choice, Counted, Load, Rule, members};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "round-robin",
    doc: "the workers in order",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(RoundRobin { next: setup.seed as usize })),
};

#[derive(Debug)]
struct RoundRobin {
    /// Counts up; gateways start at different workers.
    next: usize,
}

impl Rule for RoundRobin {
    fn choose(&mut self, request: &Request, view: &View<'_>, _loads: &[Load]) -> Choice {
        let turn = self.next % members(view).count().max(1);
        self.next = self.next.wrapping_add(1);
        let worker = members(view).nth(turn).unwrap_or_default();
        Choice { worker, uncached_tokens: request.prompt_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::route_all;
    use super::*;

    #[test]
    fn each_worker_gets_its_turn() {
        let sent_to = route_all(RoundRobin { next: 0 }, 3, 6);
        assert_eq!(sent_to, [0, 1, 2, 0, 1, 2]);
    }
}
