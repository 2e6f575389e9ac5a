//! What is added up, who is filtered, and what the configuration says of both.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use serde_json::{Value, json};

use super::*;
use crate::config::reader;
use crate::schedule::filter::FILTERS;
use crate::schedule::policy::testing::picked;
use crate::schedule::scorer::SCORERS;
use crate::schedule::scorer::testing::workers;

fn policy(config: Value) -> Box<dyn Policy> {
    reader::read(&config, |section| (REGISTRATION.build)(section)).unwrap()
}

fn error(config: Value) -> String {
    reader::read(&config, |section| (REGISTRATION.build)(section)).expect_err("is refused").to_string()
}

const QUERY: Query = Query {
    prefix: Some(1),
    session: None,
    is_blind: false,
    prompt_tokens: 1_000.0,
    foreign_share: 0.0,
    turn: 0,
    random: 1,
    response_holder: None,
};

/// Four workers: 0 is idle and cold, 1 warm with a queue, 2 in between, 3 is full.
fn four() -> Vec<Candidate> {
    workers(4, |id, worker| {
        worker.waiting = [Some(0.0), Some(4.0), Some(2.0), Some(8.0)][id];
        worker.kv_usage = [Some(0.1), Some(0.5), Some(0.3), Some(0.95)][id];
        worker.matched_tokens = [0.0, 1_000.0, 250.0, 900.0][id];
        worker.load_requests = worker.waiting.unwrap_or_default();
    })
}

#[test]
fn the_highest_sum_of_weighted_scores_serves() {
    struct Case {
        name: &'static str,
        config: Value,
        picks: [u16; 3],
    }
    let cases = [
        // 3.8 = 2 * 1 + 2 * 0.9 + 0; 5 = 2 * 0.5 + 2 * 0.5 + 3 * 1; 3.65 = 2 * 0.75 + 2 * 0.7 + 3 * 0.25; 2.8.
        Case { name: "the default", config: json!({}), picks: [1, 0, 2] },
        Case { name: "one scorer", config: json!({ "scorers": [{ "type": "queue-scorer" }] }), picks: [0, 2, 1] },
        Case {
            name: "a weight of 0 does not count",
            config: json!({ "scorers": [
                { "type": "queue-scorer", "weight": 0 },
                { "type": "prefix-cache-scorer" },
            ] }),
            picks: [1, 3, 2],
        },
        Case {
            name: "heavier queues",
            config: json!({ "scorers": [
                { "type": "queue-scorer", "weight": 10 },
                { "type": "prefix-cache-scorer", "weight": 3 },
            ] }),
            picks: [0, 2, 1],
        },
    ];
    for case in cases {
        let got = picked(policy(case.config).as_ref(), &QUERY, &four());
        assert_eq!(got, (case.picks.to_vec(), Branch::Score), "{}", case.name);
    }
}

#[test]
fn a_score_outside_its_range_counts_as_the_nearest_inside() {
    #[derive(Debug)]
    struct Fixed(&'static [f64]);
    impl Scorer for Fixed {
        fn score(&self, _query: &Query, _candidates: &[Candidate], scores: &mut [f64]) {
            scores.copy_from_slice(self.0);
        }

        fn needs(&self) -> Needs {
            Needs::Nothing
        }
    }
    let scorers = [&[900.0, 1.0, f64::NAN][..], &[0.1, 0.2, 0.9][..]];
    let scorers = scorers.map(|scores| WeightedScorer { weight: 1.0, scorer: Box::new(Fixed(scores)) });
    let policy = Weighted { filters: Vec::new(), scorers: scorers.into_iter().collect() };
    assert_eq!(picked(&policy, &QUERY, &workers(3, |_, _| {})).0, [1, 0, 2]);
}

#[test]
fn who_is_filtered_away_is_not_compared_with_and_serves_retries_only() {
    let scorers = json!([{ "type": "queue-scorer" }, { "type": "prefix-cache-scorer", "weight": 0.7 }]);
    let filters =
        json!([{ "type": "utilization-filter", "conditions": [{ "metric": "waiting-queue", "maxValue": 4 }] }]);
    // 1, 0.5 + 0.7, 0.75 + 0.175; without worker 3 queues are compared with 4 at the most: 1, 0 + 0.7, 0.5 + 0.175.
    let all = policy(json!({ "scorers": scorers }));
    assert_eq!(picked(all.as_ref(), &QUERY, &four()).0, [1, 0, 2]);
    let some = policy(json!({ "scorers": scorers, "filters": filters }));
    assert_eq!(picked(some.as_ref(), &QUERY, &four()).0, [0, 1, 2]);
    let warm = policy(json!({ "scorers": scorers, "filters": [{ "type": "prefix-cache-affinity-filter" }] }));
    assert_eq!(picked(warm.as_ref(), &QUERY, &four()).0, [1, 3, 0]);
}

#[test]
fn filters_apply_one_after_the_other_and_one_that_takes_away_all_takes_away_none() {
    let cap = |max: f64| json!({ "type": "utilization-filter", "conditions": [{ "metric": "waiting-queue", "maxValue": max }] });
    let warm = json!({ "type": "prefix-cache-affinity-filter" });
    let first = |filters: Value| picked(policy(json!({ "filters": filters })).as_ref(), &QUERY, &four()).0[0];
    assert_eq!(first(json!([warm, cap(4.0)])), 1);
    assert_eq!(first(json!([cap(2.0), warm])), 0, "nobody below the cap is warm");
    assert_eq!(first(json!([warm, cap(2.0)])), 1, "nobody warm is below the cap");
}

#[test]
fn equal_sums_follow_the_key_and_spread_without_one() {
    let alike = workers(4, |_, _| {});
    let first = |prefix: Option<u64>, random: u64| {
        let query = Query { prefix, random: crate::rng::mix(random), ..QUERY };
        picked(policy(json!({})).as_ref(), &query, &alike).0[0]
    };
    for key in 0..20 {
        assert_eq!(first(Some(key), 1), first(Some(key), 2), "key {key}");
    }
    let mut counts = [0_u32; 4];
    for random in 0..200 {
        counts[first(None, random) as usize] += 1;
    }
    assert!(counts.iter().all(|&count| count > 25), "{counts:?}");
}

#[test]
fn the_largest_pool_is_ranked_whole() {
    let mut many = workers(WORKERS_MAX, |_, worker| worker.waiting = Some(9.0));
    many[WORKERS_MAX - 1].waiting = Some(0.0);
    let config = json!({ "filters": [{ "type": "utilization-filter" }] });
    for policy in [policy(json!({})), policy(config)] {
        assert_eq!(picked(policy.as_ref(), &QUERY, &many).0[0], WORKERS_MAX as u16 - 1, "{policy:?}");
    }
}

#[test]
fn of_many_that_are_kept_none_is_forgotten() {
    let filters =
        json!([{ "type": "utilization-filter", "conditions": [{ "metric": "active-requests", "maxValue": 0 }] }]);
    let policy = policy(json!({ "filters": filters }));
    for count in [2, FEW, FEW + 1, FEW + 2, WORKERS_MAX] {
        // The first is filtered away; the last is the best of those that are left.
        let many = workers(count, |id, worker| {
            worker.own_requests = u32::from(id == 0);
            worker.waiting = Some(if id == 0 || id == count - 1 { 0.0 } else { 9.0 });
        });
        assert_eq!(picked(policy.as_ref(), &QUERY, &many).0[0], count as u16 - 1, "{count} workers");
    }
}

#[test]
fn the_request_is_read_as_far_as_any_part_needs_it() {
    let needs = |scorer: &str| policy(json!({ "scorers": [{ "type": "queue-scorer" }, { "type": scorer }] })).needs();
    assert_eq!(needs("running-requests-size-scorer"), Needs::Nothing);
    assert_eq!(needs("lora-affinity-scorer"), Needs::Prefix);
    assert_eq!(needs("prefix-cache-scorer"), Needs::Match);
    let filters = json!([{ "type": "prefix-cache-affinity-filter" }]);
    assert_eq!(policy(json!({ "filters": filters, "scorers": [{ "type": "queue-scorer" }] })).needs(), Needs::Match);
}

#[test]
fn every_scorer_and_filter_can_be_chosen_by_its_type_alone() {
    for registration in SCORERS {
        policy(json!({ "scorers": [{ "type": registration.name }] }));
    }
    for registration in FILTERS {
        policy(json!({ "filters": [{ "type": registration.name }] }));
    }
}

#[test]
fn what_is_wrong_is_told_with_path_value_and_what_is_allowed() {
    let scorers = |scorer: Value| error(json!({ "scorers": [scorer] }));
    let unknown = scorers(json!({ "type": "qeue-scorer" }));
    let known = SCORERS.iter().map(|registration| registration.name).collect::<Vec<_>>().join(", ");
    assert_eq!(unknown, format!("scorers[0].type is \"qeue-scorer\", known: {known}"));
    assert_eq!(
        scorers(json!({ "type": "queue-scorer", "threshold": 5 })),
        "scorers[0].threshold is not a key here, known keys: type, weight"
    );
    assert_eq!(
        scorers(json!({ "type": "load-aware-scorer", "threshold": 0 })),
        "scorers[0].threshold is 0, must be 1 to 1000000"
    );
    assert_eq!(
        scorers(json!({ "type": "queue-scorer", "weight": -1 })),
        "scorers[0].weight is -1, must be 0 to 1000000"
    );
    assert_eq!(error(json!({ "scorers": [] })), "scorers is [], must be a list of 1 to 16 objects");
    assert_eq!(
        error(json!({ "filters": [{ "type": "x" }] })),
        "filters[0].type is \"x\", known: lora-affinity-filter, prefix-cache-affinity-filter, utilization-filter"
    );
}

#[test]
fn all_keys_of_all_scorers_and_filters_are_described() {
    let paths: Vec<String> =
        reader::describe(|section| (REGISTRATION.build)(section)).into_iter().map(|row| row.path).collect();
    for path in [
        "filters[].type",
        "filters[].affinityThreshold",
        "filters[].conditions[].maxValue",
        "scorers[].type",
        "scorers[].threshold",
        "scorers[].matchLengthScaleTokens",
        "scorers[].weight",
    ] {
        assert!(paths.iter().any(|known| known == path), "{path} is not in {paths:?}");
    }
}
