//! A row of the results, as it stands in `target/bench/summary.json`.

use serde::{Deserialize, Serialize};

/// What one path did in one cell: medians over the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `direct`, `envoy`, `envoy-noop`, `warmroute`, `endpoint-picker`, `sglang-router`, ..
    pub path: String,
    /// Its policy; empty where it has none.
    pub policy: String,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Connections with one request at a time on each.
    pub connections: usize,
    /// Workers behind the router.
    pub workers: usize,
    /// Events of text in a streamed answer; 0: answers are one JSON text.
    pub stream_chunks: u32,
    /// Bursts that the medians are of.
    pub rounds: usize,
    /// Answers a second.
    pub requests_per_s: f64,
    /// User and system time of the router's processes for each answer; 0 where there is no router.
    pub cpu_us_per_request: f64,
    /// Half of the answers were there after this time.
    pub p50_ms: f64,
    /// 90 %.
    pub p90_ms: f64,
    /// 99 %: on a shared machine mostly the machine's.
    pub p99_ms: f64,
    /// Memory of the router's processes at the cell's end, MB. Processes serve several cells, so it holds what they
    /// kept from the earlier ones.
    pub rss_mb: f64,
    /// CPU for each answer over that of `envoy/round-robin` in the same round; 0 where that did not run.
    pub cpu_ratio_to_envoy: f64,
    /// Answers a second over those of `envoy/round-robin` in the same round; 0 where that did not run.
    pub rps_ratio_to_envoy: f64,
    /// How far the rounds' CPU figures lie apart: the middle half of them spans this share of the median.
    pub cpu_noise: f64,
}

impl Row {
    /// `warmroute/hybrid`, or the path alone.
    #[must_use]
    pub fn name(&self) -> String {
        if self.policy.is_empty() { self.path.clone() } else { format!("{}/{}", self.path, self.policy) }
    }
}
