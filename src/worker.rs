//! One model server, and what it says of its load.

use crate::time::Timestamp;

/// A worker's stable small number within its pool: its row in the fleet and in-flight pages.
///
/// The same in all worker threads; kept for as long as the worker stays in the fleet page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

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
}

/// A report and when it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DatedReport {
    /// When the scrape was answered.
    pub taken_at: Timestamp,
    /// What it said.
    pub report: LoadReport,
}
