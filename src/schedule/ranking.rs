//! The best few of many candidates in one pass, without sorting or allocating.

use super::{PICKS_MAX, Picks};
use crate::rng::mix;
use crate::worker::WorkerId;

/// Keeps the [`PICKS_MAX`] workers with the lowest cost seen so far; equal costs are ordered by the lower tie-break, then
/// by the lower id.
///
/// A cost that is NaN counts as infinite: what cannot be compared is never better.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ranking {
    best: [Option<(f64, u64, WorkerId)>; PICKS_MAX],
}

impl Ranking {
    /// Offers one worker. `tie_break` is asked for only where the cost is not too high already: in a large pool that is
    /// hardly ever.
    pub fn offer(&mut self, cost: f64, tie_break: impl FnOnce() -> u64, worker: WorkerId) {
        let cost = if cost.is_nan() { f64::INFINITY } else { cost };
        if let [.., Some((highest, _, _))] = self.best
            && cost > highest
        {
            return;
        }
        let mut offered = Some((cost, tie_break(), worker));
        for slot in &mut self.best {
            let is_better = match (&offered, &slot) {
                (Some((cost, tie, worker)), Some((kept_cost, kept_tie, kept))) => {
                    cost < kept_cost || (cost == kept_cost && (tie, worker) < (kept_tie, kept))
                }
                (offered, None) => offered.is_some(),
                (None, Some(_)) => false,
            };
            if is_better {
                std::mem::swap(slot, &mut offered);
            }
        }
    }

    /// The best worker so far.
    #[must_use]
    pub fn first(&self) -> Option<WorkerId> {
        self.best.first().copied().flatten().map(|(_, _, worker)| worker)
    }

    /// Appends the workers to `picks`, best first.
    pub fn append_to(&self, picks: &mut Picks) {
        for (_, _, worker) in self.best.iter().flatten() {
            picks.push(*worker);
        }
    }
}

/// How strongly `prefix` draws to the worker with this `identity`, a hash that is mixed well ([`Candidate::identity`]): the
/// worker with the highest weight is its home.
///
/// [`Candidate::identity`]: super::Candidate::identity
///
/// Rendezvous (highest random weight) hashing: gateways that do not talk agree on it, it does not depend on the order
/// of a list, and a worker that leaves moves only its own prefixes, each to the next in its order.
/// Source: Thaler and Ravishankar, "A name-based mapping scheme for rendezvous" (University of Michigan, 1996).
#[must_use]
pub const fn rendezvous_weight(prefix: u64, identity: u64) -> u64 {
    mix(prefix ^ identity)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn it_keeps_what_sorting_would_keep() {
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let mut all: Vec<(f64, u64, WorkerId)> = (0..rng.below(12) as u16)
                .map(|id| (f64::from(rng.below(4)), u64::from(rng.below(3)), WorkerId(id)))
                .collect();
            let mut ranking = Ranking::default();
            for &(cost, tie, worker) in &all {
                ranking.offer(cost, || tie, worker);
            }
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
            let want: Vec<WorkerId> = all.iter().take(PICKS_MAX).map(|entry| entry.2).collect();
            let mut picks = Picks::default();
            ranking.append_to(&mut picks);
            assert_eq!(picks.as_slice(), want, "seed {seed}");
        }
    }

    #[test]
    fn a_cost_that_is_no_number_comes_last() {
        let mut ranking = Ranking::default();
        ranking.offer(f64::NAN, || 0, WorkerId(0));
        ranking.offer(1e300, || 9, WorkerId(1));
        assert_eq!(ranking.first(), Some(WorkerId(1)));
    }

    #[test]
    fn homes_are_spread_evenly_and_a_leaving_worker_moves_only_its_own() {
        let identities: Vec<u64> = (0..8).map(|worker| mix(worker + 1)).collect();
        let home = |prefix: u64, workers: &[u64]| {
            (0..workers.len()).max_by_key(|&worker| rendezvous_weight(prefix, workers[worker])).unwrap()
        };
        let mut counts = [0_u32; 8];
        for prefix in 0..8_000 {
            let before = home(prefix, &identities);
            counts[before] += 1;
            let after = home(prefix, &identities[..7]);
            assert!(before == after || before == 7, "prefix {prefix} moved from {before} to {after}");
        }
        assert!(counts.iter().all(|&count| (850..1_150).contains(&count)), "{counts:?}");
    }
}
