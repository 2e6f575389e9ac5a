//! `kv-utilization`: the worker with the most room in its KV cache (S5).

use super::tie_break::{second_cost, tie_break};
use super::{Needs, Policy, PolicyRegistration, pick_least_load};
use crate::schedule::scorer::signal::{known, worst};
use crate::schedule::{Branch, Candidate, Picks, Query, Ranking};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "kv-utilization",
    doc: "the worker with the most room in its KV cache; among those that have about as much the fewest requests, and of these the longest match",
    build: |section| {
        Box::new(KvUtilization {
            usage_max: section.f64(
                "kvUsageMax",
                0.9,
                0.0..=1.0,
                "`kv-utilization`: from this share of its KV cache in use on a worker has no room; if none has, the fewest requests decide",
            ),
            tolerance: section.f64(
                "tolerance",
                0.05,
                0.0..=1.0,
                "`kv-utilization`: workers whose share in use is within this of the lowest have as much room",
            ),
        })
    },
};

/// The emptiest KV cache first.
///
/// A worker that does not tell its usage is taken to be as full as the fullest that does. A report is some hundred
/// milliseconds old and does not show the requests sent since: hence the tolerance, within which the requests decide.
///
/// vLLM counts a block as used while a request holds it. Blocks that are only cached are free, so low usage says nothing
/// of what is cached (vLLM vllm/v1/core/block_pool.py, `get_usage`).
#[derive(Debug)]
struct KvUtilization {
    usage_max: f64,
    tolerance: f64,
}

impl Policy for KvUtilization {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        let Some(fullest) = worst(candidates, |candidate| candidate.kv_usage) else {
            pick_least_load(query, candidates, picks);
            return Branch::LeastLoad;
        };
        let usage_of = |candidate: &Candidate| known(candidate.kv_usage).unwrap_or(fullest);
        let lowest = candidates.iter().map(usage_of).fold(f64::INFINITY, f64::min);
        let (mut roomiest, mut roomy, mut by_load) = (Ranking::default(), Ranking::default(), Ranking::default());
        for candidate in candidates {
            let (usage, requests) = (usage_of(candidate), candidate.load_requests);
            let order = || tie_break(query, candidate);
            let match_then_order = || second_cost(-candidate.matched_tokens, order());
            by_load.offer(requests, match_then_order, candidate.worker);
            if usage < self.usage_max {
                roomy.offer(usage, || second_cost(requests, order()), candidate.worker);
                if usage <= lowest + self.tolerance {
                    roomiest.offer(requests, match_then_order, candidate.worker);
                }
            }
        }
        let branch = if roomiest.first().is_some() { Branch::KvRoom } else { Branch::LeastLoad };
        for ranking in [roomiest, roomy, by_load] {
            ranking.append_to(picks);
        }
        branch
    }

    /// The match decides between workers that are alike in room and requests, in an idle pool that is all of them.
    fn needs(&self) -> Needs {
        Needs::Match
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::schedule::policy::testing::{candidate, picked};

    const POLICY: KvUtilization = KvUtilization { usage_max: 0.9, tolerance: 0.05 };

    /// A worker's usage, requests and matched tokens.
    type Worker = (Option<f64>, f64, f64);

    fn candidates(workers: &[Worker]) -> Vec<Candidate> {
        let with_usage = |(id, &(kv_usage, load, matched_tokens)): (usize, &Worker)| Candidate {
            kv_usage,
            matched_tokens,
            ..candidate(id as u16, load)
        };
        workers.iter().enumerate().map(with_usage).collect()
    }

    #[test]
    fn the_most_room_serves_and_the_load_decides_where_there_is_as_much() {
        struct Case {
            name: &'static str,
            workers: &'static [Worker],
            picks: &'static [u16],
            branch: Branch,
        }
        const CASES: &[Case] = &[
            Case {
                name: "more room comes first, whatever the requests",
                workers: &[(Some(0.5), 0.0, 0.0), (Some(0.1), 9.0, 0.0), (Some(0.3), 5.0, 0.0)],
                picks: &[1, 2, 0],
                branch: Branch::KvRoom,
            },
            Case {
                name: "within the tolerance fewer requests come first",
                workers: &[(Some(0.1), 3.0, 0.0), (Some(0.14), 2.0, 0.0), (Some(0.16), 0.0, 0.0)],
                picks: &[1, 0, 2],
                branch: Branch::KvRoom,
            },
            Case {
                name: "a match is worth neither room nor a request",
                workers: &[(Some(0.5), 0.0, 900.0), (Some(0.1), 2.0, 0.0), (Some(0.1), 3.0, 900.0)],
                picks: &[1, 2, 0],
                branch: Branch::KvRoom,
            },
            Case {
                name: "a match decides between equals",
                workers: &[(Some(0.1), 2.0, 0.0), (Some(0.1), 2.0, 500.0), (Some(0.12), 2.0, 900.0)],
                picks: &[2, 1, 0],
                branch: Branch::KvRoom,
            },
            Case {
                name: "a full one is not picked for being within the tolerance",
                workers: &[(Some(0.88), 5.0, 0.0), (Some(0.9), 0.0, 0.0), (Some(0.86), 6.0, 0.0)],
                picks: &[0, 2, 1],
                branch: Branch::KvRoom,
            },
            Case {
                name: "all are full: fewest requests",
                workers: &[(Some(0.91), 5.0, 0.0), (Some(0.99), 1.0, 0.0), (None, 3.0, 0.0)],
                picks: &[1, 2, 0],
                branch: Branch::LeastLoad,
            },
            Case {
                name: "unknown is as full as the fullest",
                workers: &[(None, 0.0, 0.0), (Some(0.5), 5.0, 0.0), (Some(0.7), 7.0, 0.0)],
                picks: &[1, 0, 2],
                branch: Branch::KvRoom,
            },
            Case {
                name: "what is no number is unknown",
                workers: &[(Some(f64::NAN), 0.0, 0.0), (Some(0.5), 5.0, 0.0), (Some(0.3), 7.0, 0.0)],
                picks: &[2, 0, 1],
                branch: Branch::KvRoom,
            },
            Case {
                name: "nobody tells",
                workers: &[(None, 2.0, 0.0), (None, 1.0, 0.0), (None, 0.0, 0.0)],
                picks: &[2, 1, 0],
                branch: Branch::LeastLoad,
            },
        ];
        for case in CASES {
            let candidates = candidates(case.workers);
            for prefix in 0..20 {
                let (picks, branch) = picked(&POLICY, &Query { prefix: Some(prefix), ..Query::default() }, &candidates);
                assert_eq!((picks.as_slice(), branch), (case.picks, case.branch), "{} prefix {prefix}", case.name);
            }
        }
    }
}
