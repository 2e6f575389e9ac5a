//! One row of a run's results: `summary.json` is an array of them.

use serde::{Deserialize, Serialize};

/// What a policy did on one workload, at one load, with so many gateways: means over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Model of the engine: `serial` or `batching`.
    pub model: String,
    /// The workload's name.
    pub workload: String,
    /// Offered load as a share of what the pool can serve; 1 is a trace's own speed with the `serial` model.
    pub load: f64,
    /// Workers in the pool.
    pub workers: u32,
    /// Gateways that share the requests and nothing else.
    pub gateways: u32,
    /// The policy's name.
    pub policy: String,
    /// Seeds that the row is a mean of.
    pub seeds: u32,
    /// Mean time to first token, seconds; lower is better.
    pub ttft_mean_s: f64,
    /// Half of the 95 % confidence interval of `ttft_mean_s` over the seeds, seconds; 0 of a single seed.
    pub ttft_mean_ci_s: f64,
    /// Median time to first token, seconds.
    pub ttft_p50_s: f64,
    /// 90th percentile of the time to first token, seconds.
    pub ttft_p90_s: f64,
    /// 99th percentile of the time to first token, seconds.
    pub ttft_p99_s: f64,
    /// Mean time from arrival to the last token, seconds; lower is better.
    pub e2e_mean_s: f64,
    /// Share of requests with TTFT <= 2 s and TPOT <= 50 ms, 0 to 1; higher is better.
    pub good_share: f64,
    /// Share of prompt tokens that the engines found in their caches, 0 to 1.
    pub token_hit_rate: f64,
    /// Requests of the busiest worker over the mean, 1 and up.
    pub max_over_mean_requests: f64,
}
