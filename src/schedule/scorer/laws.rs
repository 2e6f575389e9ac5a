//! What must hold for every registered scorer, whatever the candidates.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::testing::scored;
use super::*;
use crate::rng::Rng;
use crate::schedule::policy::laws::random_case;
use crate::time::Timestamp;
use crate::worker::AdapterFit;

fn each(law: impl Fn(&'static str, &dyn Scorer, u64)) {
    for registration in SCORERS {
        let build = |section: &mut Section<'_>| (registration.build)(section);
        let scorer = crate::config::reader::read(&serde_json::json!({}), build).unwrap();
        for seed in 0..300 {
            law(registration.name, scorer.as_ref(), seed);
        }
    }
}

/// As a real pool has them: all numbers in their ranges, some reports missing.
fn plausible_case(seed: u64) -> (Query, Vec<Candidate>) {
    let (mut query, mut candidates) = random_case(seed);
    let mut rng = Rng::new(seed);
    query.prompt_tokens = f64::from(rng.below(4) * 1_000);
    for candidate in &mut candidates {
        let mut below = |bound: u32| f64::from(rng.below(bound));
        candidate.load_requests = below(50);
        candidate.backlog_tokens = below(100_000);
        candidate.matched_tokens = below(4) / 3.0 * query.prompt_tokens;
        let is_told = below(3) > 0.0;
        candidate.waiting = is_told.then(|| below(20));
        candidate.running = is_told.then(|| below(50));
        candidate.kv_usage = is_told.then(|| below(100) / 100.0);
        candidate.cold_pick_at = Timestamp::from_ms(below(5) as u64);
    }
    (query, candidates)
}

#[test]
fn every_worker_has_a_score_from_0_to_1() {
    each(|name, scorer, seed| {
        let (query, candidates) = random_case(seed);
        let scores = scored(scorer, &query, &candidates);
        assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{name} seed {seed}: {scores:?}");
    });
}

#[test]
fn plausible_numbers_need_no_clamping() {
    each(|name, scorer, seed| {
        let (query, candidates) = plausible_case(seed);
        let mut scores = vec![f64::NAN; candidates.len()];
        scorer.score(&query, &candidates, &mut scores);
        assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{name} seed {seed}: {scores:?}");
    });
}

#[test]
fn the_order_of_the_list_does_not_matter() {
    each(|name, scorer, seed| {
        let (query, candidates) = plausible_case(seed);
        let backward: Vec<Candidate> = candidates.iter().rev().copied().collect();
        let mut scores = scored(scorer, &query, &backward);
        scores.reverse();
        assert_eq!(scores, scored(scorer, &query, &candidates), "{name} seed {seed}");
    });
}

#[test]
fn who_tells_nothing_scores_no_better_than_anybody_who_does() {
    each(|name, scorer, seed| {
        let (mut query, mut candidates) = plausible_case(seed);
        // Alike in all but what their reports say; the home of a session is no matter of reports.
        query.session = None;
        let mut rng = Rng::new(seed);
        for candidate in &mut candidates {
            let is_known = rng.below(2) > 0;
            let told = |signal: Option<f64>, otherwise| is_known.then(|| signal.unwrap_or(otherwise));
            *candidate = Candidate {
                is_known,
                load_requests: 1.0,
                own_requests: 1,
                backlog_tokens: 0.0,
                matched_tokens: 0.0,
                waiting: told(candidate.waiting, 3.0),
                running: told(candidate.running, 3.0),
                kv_usage: told(candidate.kv_usage, 0.3),
                adapter: if is_known { candidate.adapter } else { Some(AdapterFit::Unknown) },
                cold_pick_at: Timestamp::default(),
                ..*candidate
            };
        }
        let scores = scored(scorer, &query, &candidates);
        let of = |known: bool| {
            candidates.iter().zip(&scores).filter(move |(candidate, _)| candidate.is_known == known).map(|pair| *pair.1)
        };
        let (best_unknown, worst_known) = (of(false).fold(0.0, f64::max), of(true).fold(1.0, f64::min));
        assert!(best_unknown <= worst_known || of(true).count() == 0, "{name} seed {seed}: {scores:?}");
    });
}
