//! `prefix-cache`: the worker whose cache holds most of the prompt, unless it is too loaded (S8).

use super::tie_break::{second_cost, tie_break};
use super::{Needs, Policy, PolicyRegistration};
use crate::schedule::{Branch, Candidate, Picks, Query, Ranking};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "prefix-cache",
    doc: "the worker that holds most of the prompt, unless its load is far over the mean; then the next; if nobody holds any of it, the fewest requests",
    build: |section| {
        Box::new(PrefixCache {
            spill_requests: f64::from(section.u32(
                "spillAbsRequests",
                8,
                0..=100_000,
                "`prefix-cache`: a worker that holds much of the prompt is passed over when its requests exceed the candidates' mean by more than this",
            )),
            spill_factor: section.f64(
                "spillFactor",
                1.5,
                1.0..=100.0,
                "`prefix-cache`: and are more than this times the mean",
            ),
        })
    },
};

/// The longest match behind a gate for the load.
///
/// A matched worker is passed over when its requests are more than `mean + spillAbsRequests` *and* more than
/// `spillFactor * mean`: the first keeps a quiet pool from spilling at a few requests, the second a busy one.
///
/// Source: the gate of SMG's `cache_aware` (smg-project/smg), per worker against the fleet's mean. Its command line has 64
/// and 1.5; at 64 the gate stays shut in pools whose workers serve fewer requests than that at a time, so the first is
/// AIBrix's 8 here (`prefix-cache`, imbalance count).
#[derive(Debug)]
struct PrefixCache {
    spill_requests: f64,
    spill_factor: f64,
}

impl Policy for PrefixCache {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        let requests: f64 = candidates.iter().map(|candidate| candidate.load_requests).sum();
        let mean = requests / candidates.len() as f64;
        // What cannot be compared is over: it is never better.
        let is_over = |requests: f64| !(requests <= mean + self.spill_requests || requests <= self.spill_factor * mean);
        let (mut longest, mut longest_within) = (0.0, 0.0);
        let (mut matched, mut by_load) = (Ranking::default(), Ranking::default());
        for candidate in candidates {
            let order = || tie_break(query, candidate);
            by_load.offer(candidate.load_requests, order, candidate.worker);
            if candidate.matched_tokens > 0.0 {
                longest = candidate.matched_tokens.max(longest);
                if !is_over(candidate.load_requests) {
                    longest_within = candidate.matched_tokens.max(longest_within);
                    let load_then_order = || second_cost(candidate.load_requests, order());
                    matched.offer(-candidate.matched_tokens, load_then_order, candidate.worker);
                }
            }
        }
        matched.append_to(picks);
        by_load.append_to(picks);
        match longest > 0.0 {
            false => Branch::Cold,
            true if longest_within < longest => Branch::Spill,
            true => Branch::Warm,
        }
    }

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

    const POLICY: PrefixCache = PrefixCache { spill_requests: 8.0, spill_factor: 1.5 };

    /// Workers 0, 1, 2 … with these requests and matched tokens.
    fn with_matches(workers: &[(f64, f64)]) -> Vec<Candidate> {
        let with_match = |(id, &(load, matched_tokens)): (usize, &(f64, f64))| Candidate {
            matched_tokens,
            ..candidate(id as u16, load)
        };
        workers.iter().enumerate().map(with_match).collect()
    }

    #[test]
    fn the_longest_match_serves_unless_its_load_is_far_over_the_mean() {
        struct Case {
            name: &'static str,
            workers: &'static [(f64, f64)],
            picks: &'static [u16],
            branch: Branch,
        }
        const CASES: &[Case] = &[
            Case {
                name: "the longest first, then the next, then the least load",
                workers: &[(0.0, 0.0), (5.0, 900.0), (3.0, 500.0), (1.0, 0.0)],
                picks: &[1, 2, 0],
                branch: Branch::Warm,
            },
            Case {
                name: "equal matches by load",
                workers: &[(3.0, 500.0), (2.0, 500.0), (0.0, 100.0)],
                picks: &[1, 0, 2],
                branch: Branch::Warm,
            },
            Case {
                name: "12 is over the mean of 3.2 by more than 8 and by more than half",
                workers: &[(12.0, 900.0), (0.0, 500.0), (0.25, 0.0), (0.5, 0.0)],
                picks: &[1, 2, 3],
                branch: Branch::Spill,
            },
            Case {
                name: "10 is over the mean of 2.7 by less than 8",
                workers: &[(10.0, 900.0), (0.0, 500.0), (0.25, 0.0), (0.5, 0.0)],
                picks: &[0, 1, 2],
                branch: Branch::Warm,
            },
            Case {
                name: "129 is over the mean of 107 by 22, but not by half",
                workers: &[(129.0, 900.0), (100.0, 0.0), (101.0, 0.0), (102.0, 0.0)],
                picks: &[0, 1, 2],
                branch: Branch::Warm,
            },
            Case {
                name: "whoever has it is over: the least load",
                workers: &[(30.0, 900.0), (2.0, 0.0), (1.0, 0.0)],
                picks: &[2, 1, 0],
                branch: Branch::Spill,
            },
            Case {
                name: "an equally long match within the gate is no spill",
                workers: &[(30.0, 900.0), (2.0, 900.0), (1.0, 0.0)],
                picks: &[1, 2, 0],
                branch: Branch::Warm,
            },
            Case {
                name: "nobody has any",
                workers: &[(3.0, 0.0), (1.0, 0.0), (2.0, 0.0)],
                picks: &[1, 2, 0],
                branch: Branch::Cold,
            },
        ];
        for case in CASES {
            let candidates = with_matches(case.workers);
            for prefix in 0..20 {
                let (picks, branch) = picked(&POLICY, &Query { prefix: Some(prefix), ..Query::default() }, &candidates);
                assert_eq!((picks.as_slice(), branch), (case.picks, case.branch), "{} prefix {prefix}", case.name);
            }
        }
    }

    #[test]
    fn gateways_agree_on_where_a_cold_prefix_starts() {
        let idle = with_matches(&[(0.0, 0.0); 6]);
        for prefix in 0..50 {
            let first = |random| picked(&POLICY, &Query { prefix: Some(prefix), random, ..Query::default() }, &idle).0;
            assert_eq!(first(1), first(2), "prefix {prefix}");
        }
    }
}
