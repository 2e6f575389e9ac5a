//! `hybrid`: the worker where the request costs all requests the least time, prefix cache and load in one cost (S11).

use super::tie_break::tie_break;
use super::{Needs, Policy, PolicyRegistration};
use crate::schedule::{Branch, Candidate, Picks, Query, Ranking};
use crate::worker::AdapterFit;

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "hybrid",
    doc: "the least delay for all: prompt tokens to prefill before and for this request, what they hold up, and what is cached where",
    build: |section| {
        Box::new(Hybrid {
            interference: section.f64(
                "prefillInterference",
                0.2,
                0.0..=10.0,
                "`hybrid`: how much of its own prefill a request costs each request already there; near 0 siblings with a long prefix pile up",
            ),
            foreign_interference: section.f64(
                "foreignInterference",
                0.2,
                0.0..=10.0,
                "`hybrid`: so much is added to it where all requests are other gateways', and in proportion before",
            ),
            request_tokens: section.f64(
                "requestTokens",
                60.0,
                0.0..=100_000.0,
                "`hybrid`: what each request already there costs by being decoded, in prompt tokens",
            ),
            kv_usage_soft: section.f64(
                "kvUsageSoft",
                0.9,
                0.0..=1.0,
                "`hybrid`: from this share of its KV cache in use on, a worker is the costlier the fuller it is: it will preempt",
            ),
            adapter_load_tokens: section.f64(
                "adapterLoadTokens",
                1_000.0,
                0.0..=1_000_000.0,
                "`hybrid`: what it costs to load the request's LoRA adapter, in prompt tokens; half as much again where an idle one has to go for it, twice as much where one in use has to",
            ),
        })
    },
};

/// One cost, in prompt tokens; the lowest wins:
///
/// ```text
/// backlog + uncached * (1 + interference * requests) + requestTokens * requests + kv + adapter
/// uncached     = max(16, prompt - matched) * (1 - foreign share, at the home of the request's key)
/// interference = prefillInterference + foreignInterference * foreign share
/// ```
///
/// It is the delay that a placement causes: the request's own wait (`backlog + uncached`), what its prefill adds to the
/// answers that are being generated there, and what those cost it. Without the second term every cost collapses
/// when siblings share a long prefix: all follow the cache, and one worker prefills while the others idle. It needs no
/// learned rates and no tokenizer.
///
/// The discount at the home makes gateways that cannot see each other's dispatches agree: what they did not see is most
/// likely at the home, so the more of the traffic is others', the more the home is believed to hold.
///
/// What others send is not seen in time either, so requests that are there cost more, the more of the traffic is others'.
///
/// The form is a routing study's, whose constants (0.3, 0 and 240) are the row `hybrid-study` of docs/routing-quality.md.
/// Ours were chosen on the same workloads by mean TTFT and end-to-end time together, where one prefix is hot and where
/// several gateways route; elsewhere the optimum is flat. The terms for a KV cache near eviction and for adapters are
/// estimates of ours, which no trace has tested.
#[derive(Debug)]
struct Hybrid {
    interference: f64,
    foreign_interference: f64,
    request_tokens: f64,
    kv_usage_soft: f64,
    adapter_load_tokens: f64,
}

/// A prompt is never free: the last block is always computed.
const UNCACHED_TOKENS_MIN: f64 = 16.0;

impl Hybrid {
    fn cost(&self, query: &Query, candidate: &Candidate, is_home: bool) -> f64 {
        let foreign_share = query.foreign_share.clamp(0.0, 1.0);
        let uncached = (query.prompt_tokens - candidate.matched_tokens).max(UNCACHED_TOKENS_MIN);
        let uncached = if is_home { uncached * (1.0 - foreign_share) } else { uncached };
        let interference = self.interference + self.foreign_interference * foreign_share;
        let requests = candidate.load_requests;
        let adapter = candidate.adapter.map_or(0.0, |fit| self.adapter_tokens(fit));
        candidate.backlog_tokens
            + uncached * (1.0 + interference * requests)
            + self.request_tokens * requests
            + self.kv_tokens(query, candidate)
            + adapter
    }

    /// A full KV cache makes the engine preempt and compute a request again: about this one's prompt, the likelier the
    /// fuller.
    fn kv_tokens(&self, query: &Query, candidate: &Candidate) -> f64 {
        let over = candidate.kv_usage.unwrap_or_default() - self.kv_usage_soft;
        if over > 0.0 { query.prompt_tokens * over / (1.0 - self.kv_usage_soft) } else { 0.0 }
    }

    /// Loading it, and loading the one that goes for it again: surely if that one is in use, perhaps if it is idle. One that
    /// is waited for is loaded once for all who wait.
    ///
    /// Source of the order: `lora-affinity-scorer` of llm-d-router.
    fn adapter_tokens(&self, fit: AdapterFit) -> f64 {
        let loads = match fit {
            AdapterFit::Running | AdapterFit::Loaded => 0.0,
            AdapterFit::Room | AdapterFit::Waiting => 1.0,
            AdapterFit::Replace => 1.5,
            AdapterFit::Full | AdapterFit::Unknown => 2.0,
        };
        loads * self.adapter_load_tokens
    }
}

impl Policy for Hybrid {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        // A gateway that is alone discounts nothing at the home, and need not look for it.
        let has_home = query.key().is_some() && query.foreign_share > 0.0;
        let homes = candidates.iter().filter(|_| has_home);
        let home = homes.min_by_key(|candidate| tie_break(query, candidate)).map(|home| home.worker);
        let mut ranking = Ranking::default();
        let mut matched_max = 0.0_f64;
        for candidate in candidates {
            let cost = self.cost(query, candidate, home == Some(candidate.worker));
            ranking.offer(cost, || tie_break(query, candidate), candidate.worker);
            matched_max = matched_max.max(candidate.matched_tokens);
        }
        ranking.append_to(picks);
        let first = candidates.iter().find(|candidate| Some(candidate.worker) == picks.first());
        match first.map(|candidate| candidate.matched_tokens) {
            _ if matched_max <= 0.0 => Branch::Cold,
            Some(matched) if matched >= matched_max => Branch::Warm,
            _ => Branch::Cooler,
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

    const POLICY: Hybrid = Hybrid {
        interference: 0.3,
        foreign_interference: 0.3,
        request_tokens: 240.0,
        kv_usage_soft: 0.9,
        adapter_load_tokens: 1_000.0,
    };

    fn query(prompt_tokens: f64) -> Query {
        Query { prefix: Some(7), prompt_tokens, ..Query::default() }
    }

    /// Requests, backlog and match of a worker.
    fn worker(id: u16, load: (f64, f64, f64)) -> Candidate {
        Candidate { backlog_tokens: load.1, matched_tokens: load.2, ..candidate(id, load.0) }
    }

    #[test]
    fn the_cost_is_the_delay_that_a_placement_causes() {
        struct Case {
            name: &'static str,
            prompt_tokens: f64,
            loads: [(f64, f64, f64); 2],
            want: (u16, Branch),
        }
        const CASES: &[Case] = &[
            Case {
                name: "idle: the warm one",
                prompt_tokens: 2_000.0,
                loads: [(0.0, 0.0, 0.0), (0.0, 0.0, 1_000.0)],
                want: (1, Branch::Warm),
            },
            Case {
                name: "the warm one is worth waiting for, as long as the wait is shorter than the prefill",
                prompt_tokens: 2_000.0,
                loads: [(0.0, 0.0, 0.0), (0.0, 900.0, 1_000.0)],
                want: (1, Branch::Warm),
            },
            Case {
                name: "and not beyond",
                prompt_tokens: 2_000.0,
                loads: [(0.0, 0.0, 0.0), (0.0, 1_100.0, 1_000.0)],
                want: (0, Branch::Cooler),
            },
            Case {
                name: "each request there costs its decoding",
                prompt_tokens: 16.0,
                loads: [(3.0, 0.0, 0.0), (2.0, 0.0, 0.0)],
                want: (1, Branch::Cold),
            },
            Case {
                // 1000 (1 + 0.3 * 4) + 960 = 3160 there, 3200 here.
                name: "a prefill holds up all that are there",
                prompt_tokens: 3_200.0,
                loads: [(0.0, 0.0, 0.0), (4.0, 0.0, 2_200.0)],
                want: (1, Branch::Warm),
            },
            Case {
                name: "so siblings leave a warm worker as its requests grow",
                prompt_tokens: 3_200.0,
                loads: [(0.0, 0.0, 0.0), (5.0, 0.0, 2_200.0)],
                want: (0, Branch::Cooler),
            },
            Case {
                name: "all of it cached still costs the last block, so the busier of two warm ones loses",
                prompt_tokens: 2_000.0,
                loads: [(1.0, 0.0, 2_000.0), (0.0, 0.0, 2_000.0)],
                want: (1, Branch::Warm),
            },
        ];
        for case in CASES {
            let candidates = [worker(0, case.loads[0]), worker(1, case.loads[1])];
            let (picks, branch) = picked(&POLICY, &query(case.prompt_tokens), &candidates);
            assert_eq!((picks[0], branch), case.want, "{}", case.name);
        }
    }

    #[test]
    fn what_other_gateways_send_is_taken_to_be_at_the_home() {
        let candidates: Vec<Candidate> = (0..4).map(|id| worker(id, (0.0, 0.0, 0.0))).collect();
        let home = picked(&POLICY, &query(2_000.0), &candidates).0[0];
        let mut busy = candidates;
        busy[home as usize].backlog_tokens = 1_000.0;
        let alone = picked(&POLICY, &query(2_000.0), &busy);
        assert_ne!(alone.0[0], home);
        let shared = picked(&POLICY, &Query { foreign_share: 0.75, ..query(2_000.0) }, &busy);
        assert_eq!(shared.0[0], home);
        let by_session = Query { session: Some(99), foreign_share: 0.75, ..query(2_000.0) };
        let of_session = |prefix| picked(&POLICY, &Query { prefix, ..by_session }, &busy).0;
        assert_eq!(of_session(Some(1)), of_session(Some(2)), "a session outweighs the prefix");
    }

    #[test]
    fn where_others_send_too_a_prefill_is_taken_to_hold_up_more() {
        // 2200 (1 + 0.3 * 4) + 960 = 5800 at worker 0, and nearly 2640 more there if all is others'; 6200 at worker 1.
        let candidates = [worker(0, (4.0, 0.0, 1_000.0)), worker(1, (0.0, 3_000.0, 0.0))];
        let pick = |foreign_share| {
            let query = Query { prefix: None, foreign_share, ..query(3_200.0) };
            picked(&POLICY, &query, &candidates).0[0]
        };
        assert_eq!([0.0, 0.9].map(pick), [0, 1]);
    }

    #[test]
    fn a_kv_cache_near_eviction_and_an_adapter_to_load_cost() {
        let full = Candidate { kv_usage: Some(1.0), ..worker(0, (0.0, 0.0, 900.0)) };
        let roomy = Candidate { kv_usage: Some(0.5), ..worker(1, (0.0, 0.0, 0.0)) };
        assert_eq!(picked(&POLICY, &query(1_000.0), &[full, roomy]).0[0], 1, "never only because it has the prefix");
        let with = |id, adapter, matched| Candidate { adapter, ..worker(id, (0.0, 0.0, matched)) };
        let order = [AdapterFit::Loaded, AdapterFit::Room, AdapterFit::Replace, AdapterFit::Full];
        for better in 0..3 {
            let pair = [with(0, Some(order[better + 1]), 0.0), with(1, Some(order[better]), 0.0)];
            assert_eq!(picked(&POLICY, &query(500.0), &pair).0, [1, 0], "{:?}", order[better]);
        }
        let runs_but_is_behind = Candidate { backlog_tokens: 1_001.0, ..with(0, Some(AdapterFit::Running), 0.0) };
        let has_room = with(1, Some(AdapterFit::Room), 0.0);
        assert_eq!(
            picked(&POLICY, &query(500.0), &[runs_but_is_behind, has_room]).0[0],
            1,
            "one load is worth 1000 tokens"
        );
        let base_model = [with(0, None, 400.0), with(1, None, 0.0)];
        assert_eq!(picked(&POLICY, &query(500.0), &base_model).0[0], 0, "no adapter: nothing to load");
    }
}
