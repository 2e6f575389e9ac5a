//! llm-d's default profile: queue 2, KV-cache use 2, prefix match 3, the highest sum wins.
//!
//! Source: llm-d/llm-d-router v0.10.0 (and Gateway API Inference Extension, where it comes from), chart defaults:
//! queue-scorer (most - waiting) / (most - least), 1 for all if equal; kv-cache-utilization-scorer 1 - use;
//! prefix-cache-scorer match / prompt (`matchLengthWeight` 0); max-score-picker, equals by chance. Queue and use are the
//! last report's, 0 of a worker without one, which scores as the best. The prefix index is an LRU of a worker's KV-cache
//! size (`autoTune`), filled by what was sent; it is not corrected by the engine.

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::index::{Index, Memory};
use super::{PeerRegistration, PeerSetup, estimated_uncached_tokens};
use crate::policy::{Report, View};
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "llm-d-default",
    doc: "llm-d / Gateway API Inference Extension chart default: queue 2, KV use 2, prefix 3, highest sum",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(Weighted { index: Index::default(), rng: Rng::new(setup.seed) })),
};

const QUEUE_WEIGHT: f64 = 2.0;
const KV_USAGE_WEIGHT: f64 = 2.0;
const PREFIX_WEIGHT: f64 = 3.0;

#[derive(Debug)]
struct Weighted {
    index: Index,
    rng: Rng,
}

impl Rule for Weighted {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        let memory = Memory::Tokens(u64::from(view.kv_tokens));
        let matched = self.index.matched_tokens(request, loads.len(), memory, view.now_s);
        let report = |worker: usize| view.reports.get(worker).copied().flatten().unwrap_or_default();
        let waiting = |worker: usize| report(worker).waiting;
        let most = members(view).map(waiting).max().unwrap_or_default();
        let least = members(view).map(waiting).min().unwrap_or_default();
        let score = |worker: usize| {
            let Report { waiting, kv_usage, .. } = report(worker);
            let queue = if most == least { 1.0 } else { f64::from(most - waiting) / f64::from(most - least) };
            let prefix = f64::from(matched[worker]) / f64::from(request.prompt_tokens);
            QUEUE_WEIGHT * queue + KV_USAGE_WEIGHT * (1.0 - kv_usage) + PREFIX_WEIGHT * prefix
        };
        let worker = cheapest(members(view), &mut self.rng, |worker| -score(worker));
        self.index.record(worker, request, memory, view.now_s);
        Choice { worker, uncached_tokens: estimated_uncached_tokens(request, view, matched[worker]) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{request, view};
    use super::*;

    #[test]
    fn the_sum_of_queue_use_and_prefix_decides() {
        struct Case {
            name: &'static str,
            /// (waiting, KV use) of each.
            reports: [Option<(u32, f64)>; 2],
            chosen: usize,
        }
        // Worker 0 has three quarters of the prompt: 2.25 points.
        const CASES: &[Case] = &[
            Case { name: "the match", reports: [Some((0, 0.0)), Some((0, 0.0))], chosen: 0 },
            Case { name: "one waiting costs all of 2", reports: [Some((1, 0.0)), Some((0, 0.0))], chosen: 0 },
            Case { name: "and use beats the rest", reports: [Some((1, 0.2)), Some((0, 0.0))], chosen: 1 },
            Case { name: "never reported is idle", reports: [Some((1, 0.2)), None], chosen: 1 },
            Case { name: "full against empty is not enough", reports: [Some((3, 1.0)), Some((3, 0.0))], chosen: 0 },
        ];
        for case in CASES {
            let mut rule = Weighted { index: Index::default(), rng: Rng::new(1) };
            let loads = [Load::default(); 2];
            rule.index.record(0, &request(&[1, 2, 3]), Memory::Tokens(1_000), 0.0);
            let reports = case
                .reports
                .map(|report| report.map(|(waiting, kv_usage)| Report { waiting, kv_usage, ..Report::default() }));
            let chosen = rule.choose(&request(&[1, 2, 3, 9]), &view(&[true; 2], &reports), &loads).worker;
            assert_eq!(chosen, case.chosen, "{}", case.name);
        }
    }
}
