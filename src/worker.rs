//! One model server, and what it says of its load.

mod adapters;
mod endpoint;

pub use adapters::{ADAPTERS_LISTED_MAX, AdapterFit, AdapterHash, AdapterList, Adapters, AskedAdapter, SentSince};
pub use endpoint::Endpoint;

use crate::time::Timestamp;

/// A worker's stable small number within its pool: its row in the fleet and in-flight pages.
///
/// The same in all worker threads; kept for as long as the worker stays in the fleet page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

/// What Envoy says of a worker in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: Envoy was not asked, or not yet.
    #[default]
    Untold,
    /// In the cluster and healthy.
    Healthy,
    /// In the cluster; to be used only where too few are healthy.
    Degraded,
    /// In the cluster, and unhealthy by an active check, by Envoy's outlier detection or by who told Envoy of it.
    Unhealthy,
    /// In the cluster to finish what it has: no new requests.
    Draining,
    /// Not in the cluster: Envoy would send its requests elsewhere.
    Gone,
}

impl Standing {
    const ALL: [Self; 6] = [Self::Untold, Self::Healthy, Self::Degraded, Self::Unhealthy, Self::Draining, Self::Gone];

    /// Whether the worker is in Envoy's cluster, whatever else is to be said of it.
    #[must_use]
    pub const fn is_in_cluster(self) -> bool {
        !matches!(self, Self::Untold | Self::Gone)
    }

    /// Its number in pages.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The standing with this number; an unknown number tells nothing.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or_default()
    }
}

/// Workers of one pool, at the most: bounds the pages and every loop over workers.
///
/// 512 is the largest pool that the marks of the project speak of.
pub const WORKERS_MAX: usize = 512;

/// What a worker said of itself in one scrape. `None` = the page did not say, or said something that is no number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests in the engine's queue.
    pub waiting: Option<f64>,
    /// Requests in the engine's running batch.
    pub running: Option<f64>,
    /// Share of the KV-cache blocks in use, 0.0 (empty) to 1.0 (full; the engine starts to preempt).
    pub kv_usage: Option<f64>,
    /// Tokens in one KV-cache block.
    pub block_tokens: Option<f64>,
    /// KV-cache blocks in all.
    pub kv_blocks: Option<f64>,
    /// When the engine's process started, seconds since the Unix epoch. A change means that its cache is empty.
    pub started_at_s: Option<f64>,
    /// The LoRA adapters that its requests use.
    pub adapters: Adapters,
    /// The base models that it serves, hashed as adapters are, for requests call both "model". Empty = untold.
    pub models: AdapterList,
}

impl LoadReport {
    /// Of a worker that tells nothing.
    pub const UNKNOWN: Self = Self {
        waiting: None,
        running: None,
        kv_usage: None,
        block_tokens: None,
        kv_blocks: None,
        started_at_s: None,
        adapters: Adapters::UNTOLD,
        models: AdapterList::EMPTY,
    };

    /// Requests at the worker, in queue and batch; one of the two unknown counts as 0, `None` if both are.
    #[must_use]
    pub fn requests(&self) -> Option<f64> {
        match (self.waiting, self.running) {
            (None, None) => None,
            (waiting, running) => Some(waiting.unwrap_or_default() + running.unwrap_or_default()),
        }
    }

    /// Tokens that the KV cache holds, above 0; `None` if the report lacks the blocks or their size.
    #[must_use]
    pub fn kv_tokens(&self) -> Option<f64> {
        Some(self.kv_blocks? * self.block_tokens?)
    }
}

/// A report and when it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DatedReport {
    /// When the scrape was answered.
    pub taken_at: Timestamp,
    /// What it said.
    pub report: LoadReport,
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn a_standing_comes_back_by_its_number_and_an_unknown_number_tells_nothing() {
        for standing in Standing::ALL {
            assert_eq!(Standing::from_code(standing.code()), standing);
        }
        assert_eq!(Standing::from_code(6), Standing::Untold);
    }

    #[test]
    fn the_cache_holds_its_blocks_times_their_tokens() {
        let report = LoadReport { kv_blocks: Some(1_000.0), block_tokens: Some(16.0), ..LoadReport::default() };
        assert_eq!(report.kv_tokens(), Some(16_000.0));
        assert_eq!(LoadReport { kv_blocks: None, ..report }.kv_tokens(), None);
        assert_eq!(LoadReport { block_tokens: None, ..report }.kv_tokens(), None);
    }
}
