//! The file for other programs: `target/demo/summary.json`.

use serde::Serialize;

use crate::run::Outcome;
use crate::statistics::share;

/// The whole file.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// With the plugin.
    warmroute: RunSummary,
    /// Envoy's own round robin; `null` if it was skipped.
    envoy_round_robin: Option<RunSummary>,
}

#[derive(Debug, Serialize)]
struct RunSummary {
    requests: usize,
    errors: usize,
    /// Cached tokens by prompt tokens, 0 to 1.
    cache_hit_rate: f64,
    /// Time to the first byte of content, of the requests without errors.
    ttft_mean_ms: f64,
    ttft_p99_ms: f64,
    workers: Vec<WorkerSummary>,
}

#[derive(Debug, Serialize)]
struct WorkerSummary {
    address: String,
    requests: u64,
    cache_hit_rate: f64,
}

impl Summary {
    /// Of a run with the plugin and, unless skipped, one without.
    pub(crate) fn new(warmroute: &Outcome, baseline: Option<&Outcome>) -> Self {
        Self { warmroute: RunSummary::new(warmroute), envoy_round_robin: baseline.map(RunSummary::new) }
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
            ttft_p99_ms: rounded(outcome.ttft_ms.percentile(99.0)),
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
    use crate::statistics::Distribution;

    #[test]
    fn the_file_has_the_promised_shape() {
        let worker = |port, prompt_tokens, cached_tokens| WorkerOutcome {
            address: ([127, 0, 0, 1], port).into(),
            requests: 5,
            prompt_tokens,
            cached_tokens,
            queue_max: 2,
        };
        let outcome = Outcome {
            requests: 11,
            errors: 1,
            ttft_ms: Distribution::new(vec![10.0, 20.0, 30.00004]),
            workers: vec![worker(1, 100, 50), worker(2, 300, 300), worker(3, 0, 0)],
            ..Outcome::default()
        };
        let run = json!({
            "requests": 11,
            "errors": 1,
            "cache_hit_rate": 0.875,
            "ttft_mean_ms": 20.0,
            "ttft_p99_ms": 30.0,
            "workers": [
                { "address": "127.0.0.1:1", "requests": 5, "cache_hit_rate": 0.5 },
                { "address": "127.0.0.1:2", "requests": 5, "cache_hit_rate": 1.0 },
                { "address": "127.0.0.1:3", "requests": 5, "cache_hit_rate": 0.0 },
            ],
        });
        let shape = |baseline| serde_json::to_value(Summary::new(&outcome, baseline)).unwrap();
        assert_eq!(shape(Some(&outcome)), json!({ "warmroute": run, "envoy_round_robin": run }));
        assert_eq!(shape(None), json!({ "warmroute": run, "envoy_round_robin": null }));
    }
}
