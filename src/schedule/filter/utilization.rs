//! `utilization-filter`: only the workers below some caps.

use serde_json::json;

use super::{Filter, FilterRegistration, still_kept};
use crate::schedule::policy::Needs;
use crate::schedule::scorer::signal::{known, worst};
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: FilterRegistration = FilterRegistration {
    name: "utilization-filter",
    doc: "the workers below all caps of `conditions`; all, if none is",
    build: |section| {
        let default = json!([
            { "metric": "waiting-queue", "maxValue": 5 },
            { "metric": "kv-cache-utilization", "maxValue": 0.8 },
        ]);
        let names: Vec<&'static str> = METRICS.iter().map(|metric| metric.name).collect();
        let conditions =
            section.list_or("conditions", &default, 1..=8, "`utilization-filter`: the caps", |section, _| {
                let name = section.required_one_of("metric", &names, "what is capped");
                let value_max = section.required_f64("maxValue", 0.0..=1e9, "the highest value that is kept");
                let metric = METRICS.iter().find(|metric| Some(metric.name) == name)?;
                Some(Condition { metric, value_max })
            });
        Box::new(Utilization { conditions: conditions.into_iter().flatten().collect() })
    },
};

/// Keeps the workers whose value is at most `maxValue`, for each condition.
///
/// Source: llm-d-router 0.10 `filter/utilization/filter.go`, which has no default conditions; these are the thresholds of its
/// `utilization-detector`. There a worker that was never scraped counts as idle and passes; here it counts as the highest
/// value known, and passes if nobody tells. `fallbackOnEmpty` is no key here: where nobody is below all caps,
/// all are kept.
#[derive(Debug)]
struct Utilization {
    conditions: Vec<Condition>,
}

/// One cap.
#[derive(Debug)]
struct Condition {
    metric: &'static Metric,
    value_max: f64,
}

/// What a cap can be for: lower is better.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    read: fn(&Candidate) -> Option<f64>,
}

const METRICS: &[Metric] = &[
    Metric { name: "active-requests", read: |candidate| Some(f64::from(candidate.own_requests)) },
    Metric { name: "running-requests", read: |candidate| candidate.running },
    Metric { name: "waiting-queue", read: |candidate| candidate.waiting },
    Metric { name: "kv-cache-utilization", read: |candidate| candidate.kv_usage },
];

impl Filter for Utilization {
    fn keep(&self, _query: &Query, candidates: &[Candidate], kept: &mut [bool]) {
        for Condition { metric, value_max } in &self.conditions {
            let Some(highest) = worst(still_kept(candidates, kept), metric.read) else {
                continue;
            };
            for (is_kept, candidate) in kept.iter_mut().zip(candidates) {
                *is_kept &= known((metric.read)(candidate)).unwrap_or(highest) <= *value_max;
            }
        }
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::config::reader;
    use crate::schedule::filter::testing::kept_ids;
    use crate::schedule::filter::{FILTERS, read_filter};
    use crate::schedule::scorer::testing::workers;

    fn filter(conditions: &[(&str, f64)]) -> Utilization {
        let condition = |&(name, value_max): &(&str, f64)| Condition {
            metric: METRICS.iter().find(|metric| metric.name == name).unwrap(),
            value_max,
        };
        Utilization { conditions: conditions.iter().map(condition).collect() }
    }

    #[test]
    fn workers_over_any_cap_are_taken_away() {
        struct Case {
            name: &'static str,
            conditions: &'static [(&'static str, f64)],
            kept: &'static [u16],
        }
        const CASES: &[Case] = &[
            Case { name: "own requests", conditions: &[("active-requests", 1.0)], kept: &[0, 1] },
            Case { name: "running", conditions: &[("running-requests", 20.0)], kept: &[0, 2] },
            Case { name: "waiting; unknown is the longest", conditions: &[("waiting-queue", 5.0)], kept: &[0, 1] },
            Case { name: "cache; at the cap is kept", conditions: &[("kv-cache-utilization", 0.5)], kept: &[1, 2] },
            Case {
                name: "all conditions",
                conditions: &[("waiting-queue", 5.0), ("kv-cache-utilization", 0.5)],
                kept: &[1],
            },
            Case { name: "nobody is below", conditions: &[("kv-cache-utilization", 0.1)], kept: &[0, 1, 2, 3] },
        ];
        let candidates = workers(4, |id, worker| {
            worker.own_requests = id as u32;
            worker.running = [Some(10.0), Some(30.0), Some(20.0), None][id];
            worker.waiting = [Some(0.0), Some(5.0), Some(6.0), None][id];
            worker.kv_usage = [Some(0.9), Some(0.2), Some(0.5), None][id];
        });
        for case in CASES {
            assert_eq!(kept_ids(filter(case.conditions), &Query::default(), &candidates), case.kept, "{}", case.name);
        }
    }

    #[test]
    fn a_signal_that_nobody_tells_takes_nobody_away() {
        let candidates = workers(2, |id, worker| worker.own_requests = id as u32);
        let filter = filter(&[("waiting-queue", 0.0), ("active-requests", 0.0)]);
        assert_eq!(kept_ids(filter, &Query::default(), &candidates), [0]);
    }

    #[test]
    fn conditions_are_checked() {
        assert!(FILTERS.iter().any(|registration| registration.name == "utilization-filter"));
        let error = |conditions: serde_json::Value| {
            let config = json!({ "type": "utilization-filter", "conditions": conditions });
            reader::read(&config, read_filter).expect_err("is refused").to_string()
        };
        assert_eq!(
            error(json!([{ "metric": "load", "maxValue": 1 }])),
            r#"conditions[0].metric is "load", known: active-requests, running-requests, waiting-queue, kv-cache-utilization"#
        );
        assert_eq!(
            error(json!([{ "metric": "waiting-queue" }])),
            "conditions[0].maxValue is missing, must be a number, 0 to 1000000000"
        );
        assert_eq!(error(json!([])), "conditions is [], must be a list of 1 to 8 objects");
    }
}
