//! `session`: the worker that the client's session hashes to, unless it is too loaded (S6).

use super::bounded::BoundedHome;
use super::{Needs, Policy, PolicyRegistration, pick_least_load};
use crate::schedule::{Branch, Candidate, Picks, Query};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "session",
    doc: "the worker that the client's session hashes to, unless it is over its bound; then the next in the session's order; without a session the fewest requests",
    build: |section| Box::new(Session { home: BoundedHome::read(section, DEFAULT, DOCS) }),
};

/// Wider than `prefix-hash`: a session that moves leaves its whole conversation behind, a prefix only what it shares.
/// Both figures are estimates of ours.
const DEFAULT: BoundedHome = BoundedHome { load_factor: 1.5, load_floor_requests: 8.0 };

const DOCS: [&str; 2] = [
    "`session`: a worker takes a session's request while its requests stay within this times the pool's mean",
    "`session`: and always while they stay within this many, so that a quiet pool keeps its sessions in place",
];

/// A session's home, bounded.
///
/// Nothing is kept of a session, so there is nothing to expire or to share between gateways. When its home leaves the
/// candidates the next in its order is its home until the first is back, and counts as such.
#[derive(Debug)]
struct Session {
    home: BoundedHome,
}

impl Policy for Session {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        match query.session {
            Some(session) if self.home.pick(session, query, candidates, picks) => Branch::Session,
            Some(_) => Branch::SessionSpill,
            None => {
                pick_least_load(query, candidates, picks);
                Branch::NoSession
            }
        }
    }

    /// The session comes by a header; where it is configured to stand in the body, the host reads that anyway.
    fn needs(&self) -> Needs {
        Needs::Nothing
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::mix;
    use crate::schedule::policy::testing::{candidates, picked};

    const POLICY: Session = Session { home: DEFAULT };

    #[test]
    fn a_session_stays_until_its_home_is_over_the_bound_or_gone() {
        for session in 0..50 {
            // Each turn has another prefix: it is not looked at.
            let at = |turn, candidates: &[Candidate]| {
                let (prefix, session) = (Some(mix(turn)), Some(mix(session)));
                picked(&POLICY, &Query { prefix, session, random: turn, ..Query::default() }, candidates)
            };
            let (order, branch) = at(0, &candidates(&[0.0; 4]));
            assert_eq!(branch, Branch::Session, "session {session}");
            let with_home_load = |load| {
                let mut loads = [0.0; 4];
                loads[order[0] as usize] = load;
                candidates(&loads)
            };
            let (picks, branch) = at(1, &with_home_load(7.0));
            assert_eq!((picks[0], branch), (order[0], Branch::Session), "session {session} at its bound");
            let (picks, branch) = at(2, &with_home_load(8.0));
            assert_eq!((picks[0], branch), (order[1], Branch::SessionSpill), "session {session} over its bound");
            let mut rest = candidates(&[0.0; 4]);
            rest.remove(order[0] as usize);
            assert_eq!(at(3, &rest).0[0], order[1], "session {session} without its home");
        }
    }

    #[test]
    fn without_a_session_the_least_loaded_serves() {
        let query = Query { prefix: Some(5), ..Query::default() };
        let (picks, branch) = picked(&POLICY, &query, &candidates(&[2.0, 1.0, 0.0]));
        assert_eq!((picks, branch), (vec![2, 1, 0], Branch::NoSession));
    }
}
