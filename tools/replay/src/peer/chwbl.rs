//! Consistent hashing with bounded loads on the prompt's beginning.
//!
//! Source: KubeAI `internal/loadbalancer/balance_chwbl.go` and its `prefixHash` configuration, after v0.16: mean load
//! factor 1.25, 256 places on the ring for each worker; walk the ring to the first worker whose load is at most
//! 1.25 * (total + 1) / workers, own load without the new request (pull request 528); none such, the first on the ring. KubeAI
//! hashes the first 100 characters; the first piece is at least that, and three pieces are what it takes to tell
//! conversations apart in a trace whose first 512 tokens are the same in all.

use warmroute::rng::mix;

use super::bookkeeping::{Choice, Counted, Load, Rule, members};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// On the first piece.
pub(super) const FIRST_PIECE: PeerRegistration = PeerRegistration {
    name: "chwbl-1",
    doc: "KubeAI PrefixHash: bounded consistent hashing (1.25) on the prompt's first piece",
    shares_nothing: true,
    build: |_: PeerSetup| Box::new(Counted::new(BoundedHashing::new(1))),
};

/// On the first three pieces.
pub(super) const THREE_PIECES: PeerRegistration = PeerRegistration {
    name: "chwbl-3",
    doc: "KubeAI PrefixHash: bounded consistent hashing (1.25) on the prompt's first three pieces",
    shares_nothing: true,
    build: |_: PeerSetup| Box::new(Counted::new(BoundedHashing::new(3))),
};

/// Share of the mean load that a worker may have.
const LOAD_FACTOR: f64 = 1.25;
/// Places of each worker on the ring.
const REPLICATION: u64 = 256;

#[derive(Debug)]
struct BoundedHashing {
    /// Pieces that the key covers.
    pieces: usize,
    /// Places and their workers, by place; made anew when there are more workers.
    ring: Vec<(u64, usize)>,
    workers: usize,
}

impl BoundedHashing {
    const fn new(pieces: usize) -> Self {
        Self { pieces, ring: Vec::new(), workers: 0 }
    }

    fn build_ring(&mut self, workers: usize) {
        if self.workers != workers {
            self.workers = workers;
            let places =
                |worker: usize| (0..REPLICATION).map(move |replica| (mix(mix(worker as u64 + 1) ^ replica), worker));
            self.ring = (0..workers).flat_map(places).collect();
            self.ring.sort_unstable();
        }
    }
}

impl Rule for BoundedHashing {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        self.build_ring(view.is_member.len());
        // A piece's id stands for all before it, so one id is the hash of the first pieces.
        let key = request.pieces.iter().take(self.pieces).next_back().copied().unwrap_or_default();
        let start = self.ring.partition_point(|(place, _)| *place < mix(key));
        let along = self.ring[start..].iter().chain(&self.ring[..start]).map(|(_, worker)| *worker);
        let mut along = along.filter(|worker| view.is_member[*worker]);
        let total: u32 = members(view).map(|worker| loads[worker].in_flight).sum();
        let most = f64::from(total + 1) / members(view).count() as f64 * LOAD_FACTOR;
        let first = along.clone().next().unwrap_or_default();
        let worker = along.find(|worker| total == 0 || f64::from(loads[*worker].in_flight) <= most).unwrap_or(first);
        Choice { worker, uncached_tokens: request.prompt_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::choose;
    use super::*;

    #[test]
    fn the_first_pieces_decide_and_no_others() {
        let (mut one, mut three) = (BoundedHashing::new(1), BoundedHashing::new(3));
        let idle = [(0, 0); 8];
        let homes: Vec<usize> = (0..50).map(|key| choose(&mut one, &[key, 1], &idle)).collect();
        assert_eq!(homes, (0..50).map(|key| choose(&mut one, &[key, 2, 3], &idle)).collect::<Vec<_>>());
        assert!((0..8).all(|worker| homes.contains(&worker)), "{homes:?}");
        assert!((0..50).any(|key| choose(&mut three, &[1, 2, key], &idle) != choose(&mut three, &[1, 2, 99], &idle)));
        assert_eq!(choose(&mut three, &[1, 2, 3, 4], &idle), choose(&mut three, &[1, 2, 3, 5], &idle));
    }

    #[test]
    fn a_worker_over_the_bound_is_passed_by() {
        let mut rule = BoundedHashing::new(1);
        let home = choose(&mut rule, &[7], &[(0, 0); 4]);
        let with = |in_flight: u32| {
            let mut loads = [(4, 0); 4];
            loads[home].0 = in_flight;
            loads
        };
        // 12 elsewhere: bound 1.25 * (12 + 5 + 1) / 4 = 5.6, and 1.25 * (12 + 7 + 1) / 4 = 6.25.
        assert_eq!(choose(&mut rule, &[7], &with(5)), home);
        assert_ne!(choose(&mut rule, &[7], &with(7)), home);
    }
}
