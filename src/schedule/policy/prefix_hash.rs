//! `prefix-hash`: the worker that the prompt's prefix hashes to, unless it is too loaded (S7).
//!
//! Consistent hashing with bounded loads. What of the prompt is hashed adapts to the traffic: [`crate::shared::trunk`].

use super::bounded::BoundedHome;
use super::{Needs, Policy, PolicyRegistration, pick_least_load};
use crate::schedule::{Branch, Candidate, Picks, Query};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "prefix-hash",
    doc: "the worker that the prompt's prefix hashes to, unless it is over its bound; then the next in the prefix's order",
    build: |section| Box::new(PrefixHash { home: BoundedHome::read(section, DEFAULT, DOCS) }),
};

/// The factor is of the paper that [`BoundedHome`] names, and KubeAI's (`meanLoadFactor: 125`).
const DEFAULT: BoundedHome = BoundedHome { load_factor: 1.25, load_floor_requests: 4.0 };

const DOCS: [&str; 2] = [
    "`prefix-hash`: a worker takes a prefix's request while its requests stay within this times the pool's mean",
    "`prefix-hash`: and always while they stay within this many, so that a quiet pool keeps its prefixes in place",
];

/// A prefix's home, bounded.
#[derive(Debug)]
struct PrefixHash {
    home: BoundedHome,
}

impl Policy for PrefixHash {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        match query.prefix {
            Some(prefix) if self.home.pick(prefix, query, candidates, picks) => Branch::Home,
            Some(_) => Branch::Spill,
            None => {
                pick_least_load(query, candidates, picks);
                Branch::NoPrefix
            }
        }
    }

    fn needs(&self) -> Needs {
        Needs::Prefix
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::mix;
    use crate::schedule::policy::testing::{candidates, picked};

    const POLICY: PrefixHash = PrefixHash { home: DEFAULT };

    #[test]
    fn a_prefix_goes_home_until_its_home_is_over_the_bound() {
        let mut homes = [0_u32; 4];
        for prefix in 0..50 {
            // A session is not looked at: `session` is the policy for that.
            let query = Query { prefix: Some(mix(prefix)), session: Some(1), random: 1, ..Query::default() };
            let (order, branch) = picked(&POLICY, &query, &candidates(&[0.0; 4]));
            assert_eq!(branch, Branch::Home, "prefix {prefix}");
            homes[order[0] as usize] += 1;
            let mut loads = [0.0; 4];
            loads[order[0] as usize] = 4.0;
            let (spilled, branch) = picked(&POLICY, &query, &candidates(&loads));
            assert_eq!((spilled[0], branch), (order[1], Branch::Spill), "prefix {prefix}");
        }
        assert!(homes.iter().all(|&count| count > 5), "{homes:?}");
    }

    #[test]
    fn without_a_prefix_the_least_loaded_serves() {
        let (picks, branch) = picked(&POLICY, &Query::default(), &candidates(&[2.0, 1.0]));
        assert_eq!((picks, branch), (vec![1, 0], Branch::NoPrefix));
    }
}
