//! What a test can ask a worker afterwards: totals, and the latest requests exactly as they arrived.
//!
//! These belong to the test and not to the simulated process: a restart keeps them, `POST /sim/reset` zeroes them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::engine::EngineState;

/// Most requests remembered; the oldest is dropped first.
pub(crate) const RECENT_MAX: usize = 4096;

/// One request as it arrived. Inference and echo paths are recorded, control paths are not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Request path, without the query.
    pub path: String,
    /// Status answered; 200 for a stream that has begun, 0 if not answered yet.
    pub status: u16,
    /// Length of the body.
    pub body_bytes: usize,
    /// XXH3-64 of the body, 16 hex digits.
    pub body_xxh3: String,
    /// Request header `x-gateway-destination-endpoint`, which should never leave the gateway.
    pub destination_endpoint: Option<String>,
    /// Other request headers that begin with `x-` and are not Envoy's own, with their values, in the order of arrival.
    #[serde(default)]
    pub hints: Vec<(String, String)>,
    /// Request header `x-request-id`.
    pub request_id: Option<String>,
    /// Request header `x-test-id`.
    pub test_id: Option<String>,
    /// `model` of the body.
    pub model: Option<String>,
    /// Prompt length; `None` if the body was no valid request.
    pub prompt_tokens: Option<usize>,
    /// Prompt tokens found cached; `None` until the first reported token.
    pub cached_tokens: Option<usize>,
}

/// The answer of `GET /sim/stats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatsSnapshot {
    /// Requests on the inference paths.
    pub requests: u64,
    /// Answers of 400 and above on the recorded paths.
    pub errors: u64,
    /// Requests in the engine's batch now.
    pub running: usize,
    /// Requests in the engine's queue now.
    pub waiting: usize,
    /// Prompt tokens of the requests that got as far as their first reported token.
    pub prompt_tokens: u64,
    /// Those of them that were cached.
    pub cached_tokens: u64,
    /// `cached_tokens / prompt_tokens`, 0 to 1; 0 before the first request.
    pub cache_hit_rate: f64,
    /// Most requests that waited at once while the engine was busy.
    pub queue_max: usize,
    /// LoRA adapters loaded since the start of the simulated process, each as often as it was.
    pub adapter_loads: u64,
    /// The latest requests, oldest first, at most 4096.
    pub recent: Vec<RequestRecord>,
}

#[derive(Debug, Default)]
struct Totals {
    requests: u64,
    errors: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    recent: VecDeque<RequestRecord>,
    /// Number of the first one in `recent`.
    first: u64,
}

/// Names a record in the ring, also when it has been dropped from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordId(u64);

#[derive(Debug, Default)]
pub(crate) struct Stats(Mutex<Totals>);

impl Stats {
    pub(crate) fn arrived(&self, record: RequestRecord, inference: bool) -> RecordId {
        let mut totals = self.lock();
        totals.requests += u64::from(inference);
        if totals.recent.len() >= RECENT_MAX {
            totals.recent.pop_front();
            totals.first += 1;
        }
        totals.recent.push_back(record);
        RecordId(totals.first + totals.recent.len() as u64 - 1)
    }

    pub(crate) fn understood(&self, id: RecordId, model: &str, prompt_tokens: usize) {
        self.update(id, |record| {
            record.model = Some(model.to_owned());
            record.prompt_tokens = Some(prompt_tokens);
        });
    }

    pub(crate) fn answered(&self, id: RecordId, status: u16) {
        self.update(id, |record| record.status = status);
        if status >= 400 {
            self.lock().errors += 1;
        }
    }

    pub(crate) fn served(&self, id: RecordId, prompt_tokens: usize, cached_tokens: usize) {
        self.update(id, |record| record.cached_tokens = Some(cached_tokens));
        let mut totals = self.lock();
        totals.prompt_tokens += prompt_tokens as u64;
        totals.cached_tokens += cached_tokens as u64;
    }

    /// Zeroes everything. Records of requests still running are gone for good.
    pub(crate) fn reset(&self) {
        let mut totals = self.lock();
        let first = totals.first + totals.recent.len() as u64;
        *totals = Totals { first, ..Totals::default() };
    }

    pub(crate) fn snapshot(&self, engine: &EngineState) -> StatsSnapshot {
        let totals = self.lock();
        StatsSnapshot {
            requests: totals.requests,
            errors: totals.errors,
            running: engine.running,
            waiting: engine.waiting,
            prompt_tokens: totals.prompt_tokens,
            cached_tokens: totals.cached_tokens,
            cache_hit_rate: totals.cached_tokens as f64 / totals.prompt_tokens.max(1) as f64,
            queue_max: engine.queue_max,
            adapter_loads: engine.counters.adapter_loads,
            recent: totals.recent.iter().cloned().collect(),
        }
    }

    fn update(&self, id: RecordId, change: impl FnOnce(&mut RequestRecord)) {
        let mut totals = self.lock();
        let at = id.0.checked_sub(totals.first).and_then(|at| usize::try_from(at).ok());
        if let Some(record) = at.and_then(|at| totals.recent.get_mut(at)) {
            change(record);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Counters;

    fn snapshot(stats: &Stats) -> StatsSnapshot {
        let counters = Counters::default();
        stats.snapshot(&EngineState {
            running: 0,
            waiting: 0,
            queue_max: 0,
            kv_usage: 0.0,
            counters,
            adapters: Vec::new(),
        })
    }

    #[test]
    fn the_ring_is_bounded_and_late_updates_find_their_record_or_none() {
        let stats = Stats::default();
        let ids: Vec<RecordId> = (0..RECENT_MAX + 10).map(|_| stats.arrived(RequestRecord::default(), true)).collect();
        stats.served(ids[0], 100, 50);
        stats.served(ids[10], 100, 0);
        let seen = snapshot(&stats);
        assert_eq!((seen.requests, seen.recent.len()), (RECENT_MAX as u64 + 10, RECENT_MAX));
        assert_eq!((seen.recent[0].cached_tokens, seen.recent[1].cached_tokens), (Some(0), None));
        assert!((seen.cache_hit_rate - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_reset_zeroes_all_and_ignores_older_requests() {
        let stats = Stats::default();
        let old = stats.arrived(RequestRecord::default(), true);
        stats.reset();
        let new = stats.arrived(RequestRecord::default(), false);
        stats.answered(old, 200);
        stats.answered(new, 500);
        let seen = snapshot(&stats);
        assert_eq!((seen.requests, seen.errors, seen.recent.len(), seen.recent[0].status), (0, 1, 1, 500));
    }
}
