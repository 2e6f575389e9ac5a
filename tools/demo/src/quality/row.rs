//! One run in numbers: a row of `target/quality/summary.json`.

use serde::{Deserialize, Serialize};

use super::paths::{self, BASELINE, Route};
use crate::drive::SESSION_HEADER;
use crate::run::{Outcome, WorkerOutcome};

/// One run. Numbers are rounded to four decimals; times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `chat` or `agents`.
    pub(crate) workload: String,
    /// The router.
    pub(crate) path: String,
    /// Its policy.
    pub(crate) policy: String,
    /// The header in which requests named their chats; `null` if they did not.
    pub(crate) session_header: Option<String>,
    /// The engines rendered prompts to tokens for the router.
    pub(crate) engines_render: bool,
    /// Of the workload.
    pub(crate) seed: u64,
    /// Sent.
    pub(crate) requests: usize,
    /// Those that failed.
    pub(crate) errors: usize,
    /// Time to the first byte of content, of the requests without errors.
    pub(crate) ttft_mean_ms: f64,
    pub(crate) ttft_p50_ms: f64,
    pub(crate) ttft_p90_ms: f64,
    pub(crate) ttft_p99_ms: f64,
    /// Time to the end of the answer, of the same requests.
    pub(crate) latency_mean_ms: f64,
    /// Cached tokens by prompt tokens over all workers, 0 to 1.
    pub(crate) token_hit_rate: f64,
    /// The busiest worker's requests by the mean worker's, 1 or more.
    pub(crate) requests_max_by_mean: f64,
    /// The same of prompt tokens that were computed, not cached.
    pub(crate) computed_max_by_mean: f64,
    /// The most that a request was sent after its time.
    pub(crate) late_max_ms: f64,
    /// `ttft_mean_ms` by that of Envoy's round robin with the same workload and seed, below 1 is better; `null` without it.
    pub(crate) ttft_mean_by_round_robin: Option<f64>,
    /// `latency_mean_ms`, likewise.
    pub(crate) latency_mean_by_round_robin: Option<f64>,
}

impl Row {
    /// Of a run.
    pub(crate) fn new(workload: &str, route: &Route, seed: u64, outcome: &Outcome) -> Self {
        let computed = |worker: &WorkerOutcome| worker.prompt_tokens.saturating_sub(worker.cached_tokens);
        Self {
            workload: workload.to_owned(),
            path: route.path.to_owned(),
            policy: route.policy.to_owned(),
            session_header: route.with_session.then(|| SESSION_HEADER.to_owned()),
            engines_render: route.with_render,
            seed,
            requests: outcome.requests,
            errors: outcome.errors,
            ttft_mean_ms: rounded(outcome.ttft_ms.mean()),
            ttft_p50_ms: rounded(outcome.ttft_ms.percentile(50.0)),
            ttft_p90_ms: rounded(outcome.ttft_ms.percentile(90.0)),
            ttft_p99_ms: rounded(outcome.ttft_ms.percentile(99.0)),
            latency_mean_ms: rounded(outcome.latency_ms.mean()),
            token_hit_rate: rounded(outcome.cache_hit_rate()),
            requests_max_by_mean: rounded(max_by_mean(&outcome.workers, |worker| worker.requests)),
            computed_max_by_mean: rounded(max_by_mean(&outcome.workers, computed)),
            late_max_ms: rounded(outcome.late_ms_max),
            ttft_mean_by_round_robin: None,
            latency_mean_by_round_robin: None,
        }
    }

    /// How the path is called in tables.
    pub(crate) fn name(&self) -> String {
        paths::name(&self.path, &self.policy, self.session_header.as_deref(), self.engines_render)
    }

    /// Envoy carried it, with the plugin or without.
    pub(crate) fn is_on_envoy(&self) -> bool {
        self.path == "envoy" || self.path == "warmroute"
    }

    fn is_baseline(&self) -> bool {
        (self.path.as_str(), self.policy.as_str()) == BASELINE
    }
}

/// Fills in what each row is by comparison.
pub(crate) fn compare(rows: &mut [Row]) {
    let baselines: Vec<Row> = rows.iter().filter(|row| row.is_baseline()).cloned().collect();
    for row in rows {
        let same = |base: &&Row| base.workload == row.workload && base.seed == row.seed;
        let Some(base) = baselines.iter().find(same) else { continue };
        let ratio = |ours: f64, theirs: f64| (theirs > 0.0).then(|| rounded(ours / theirs));
        row.ttft_mean_by_round_robin = ratio(row.ttft_mean_ms, base.ttft_mean_ms);
        row.latency_mean_by_round_robin = ratio(row.latency_mean_ms, base.latency_mean_ms);
    }
}

/// 1 if all workers have the same, the number of workers if one has all; 0 of nothing.
fn max_by_mean(workers: &[WorkerOutcome], of: impl Fn(&WorkerOutcome) -> u64) -> f64 {
    let sum: u64 = workers.iter().map(&of).sum();
    let max = workers.iter().map(&of).max().unwrap_or(0);
    if sum == 0 { 0.0 } else { max as f64 * workers.len() as f64 / sum as f64 }
}

/// To four decimals: more would only look exact.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
