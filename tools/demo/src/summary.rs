//! The file for other programs: `target/demo/summary.json`.

use std::collections::BTreeMap;

use serde::Serialize;
use warmroute_report::statistics::share;

use crate::run::{Outcome, Prediction};

/// The whole file.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// With the plugin.
    warmroute: RunSummary,
    /// Envoy's own policies, by their names; empty if they were skipped.
    envoy: BTreeMap<String, RunSummary>,
}

#[derive(Debug, Serialize)]
struct RunSummary {
    requests: usize,
    errors: usize,
    /// Cached tokens by prompt tokens, 0 to 1.
    cache_hit_rate: f64,
    /// Time to the first byte of content, of the requests without errors.
    ttft_mean_ms: f64,
    ttft_p90_ms: f64,
    ttft_p99_ms: f64,
    /// Prompt tokens that the plugin believed to be cached, and that were; `null` without the plugin.
    predicted_cached_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    workers: Vec<WorkerSummary>,
}

#[derive(Debug, Serialize)]
struct WorkerSummary {
    address: String,
    requests: u64,
    cache_hit_rate: f64,
}

impl Summary {
    /// Of a run with the plugin and those without.
    pub(crate) fn new(warmroute: &Outcome, baselines: &[(&str, Outcome)]) -> Self {
        let envoy = baselines.iter().map(|(name, outcome)| (name.replace(' ', "_"), RunSummary::new(outcome)));
        Self { warmroute: RunSummary::new(warmroute), envoy: envoy.collect() }
    }
}

impl RunSummary {
    fn new(outcome: &Outcome) -> Self {
        let workers = outcome.workers.iter().map(|worker| WorkerSummary {
            address: worker.address.to_string(),
            requests: worker.requests,
            cache_hit_rate: rounded(share(worker.cached_tokens, worker.prompt_tokens)),
        });
        Self {
            requests: outcome.requests,
            errors: outcome.errors,
            cache_hit_rate: rounded(outcome.cache_hit_rate()),
            ttft_mean_ms: rounded(outcome.ttft_ms.mean()),
            ttft_p90_ms: rounded(outcome.ttft_ms.percentile(90.0)),
            ttft_p99_ms: rounded(outcome.ttft_ms.percentile(99.0)),
            predicted_cached_tokens: outcome.prediction.map(|Prediction { predicted_tokens, .. }| predicted_tokens),
            cached_tokens: outcome.prediction.map(|Prediction { cached_tokens, .. }| cached_tokens),
            workers: workers.collect(),
        }
    }
}

/// To four decimals: more would only look exact.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::WorkerOutcome;
    use warmroute_report::statistics::Distribution;

    #[test]
    fn the_file_has_the_promised_shape() {
        let worker = |port, prompt_tokens, cached_tokens| WorkerOutcome {
            address: ([127, 0, 0, 1], port).into(),
            requests: 5,
            prompt_tokens,
            cached_tokens,
            queue_max: 2,
        };
        let outcome = || Outcome {
            requests: 11,
            errors: 1,
            prediction: Some(Prediction { predicted_tokens: 340, cached_tokens: 350 }),
            ttft_ms: Distribution::new(vec![10.0, 20.0, 30.00004]),
            workers: vec![worker(1, 100, 50), worker(2, 300, 300), worker(3, 0, 0)],
            ..Outcome::default()
        };
        let run = json!({
            "requests": 11,
            "errors": 1,
            "cache_hit_rate": 0.875,
            "ttft_mean_ms": 20.0,
            "ttft_p90_ms": 30.0,
            "ttft_p99_ms": 30.0,
            "predicted_cached_tokens": 340,
            "cached_tokens": 350,
            "workers": [
                { "address": "127.0.0.1:1", "requests": 5, "cache_hit_rate": 0.5 },
                { "address": "127.0.0.1:2", "requests": 5, "cache_hit_rate": 1.0 },
                { "address": "127.0.0.1:3", "requests": 5, "cache_hit_rate": 0.0 },
            ],
        });
        let shape = |baselines: &[_]| serde_json::to_value(Summary::new(&outcome(), baselines)).unwrap();
        let both = json!({ "warmroute": run, "envoy": { "round_robin": run } });
        assert_eq!(shape(&[("round robin", outcome())]), both);
        assert_eq!(shape(&[]), json!({ "warmroute": run, "envoy": {} }));
    }
}
