//! `weighted`: filters take workers away, and the highest sum of weighted scores serves (llm-d's way).

use serde_json::json;

use super::tie_break::tie_break;
use super::{Needs, Policy, PolicyRegistration, pick_least_load};
use crate::config::reader::Section;
use crate::schedule::filter::{Filter, keep_through, read_filter};
use crate::schedule::scorer::{Scorer, clamped, read_scorer};
use crate::schedule::{Branch, Candidate, Picks, Query, Ranking};
use crate::worker::WORKERS_MAX;

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "weighted",
    doc: "the highest sum of weighted scores, among the workers that the filters keep",
    build: |section| Box::new(Weighted { filters: read_filters(section), scorers: read_scorers(section) }),
};

/// Adds up each candidate's `weight * score`; the highest sum first.
///
/// Candidates with the same sum stand in the order of the request's key, at random if it has none. Whom the filters took away
/// comes after the others, for retries.
///
/// Source: llm-d-router 0.10, `pkg/epp/scheduling` and its `max-score-picker`. The default is that of its chart. There a
/// score that is no number makes the whole sum none; here it counts as 0.
#[derive(Debug)]
struct Weighted {
    filters: Vec<Box<dyn Filter>>,
    scorers: Vec<WeightedScorer>,
}

#[derive(Debug)]
struct WeightedScorer {
    /// What a score of 1.0 adds to the sum.
    weight: f64,
    scorer: Box<dyn Scorer>,
}

fn read_filters(section: &mut Section<'_>) -> Vec<Box<dyn Filter>> {
    let doc = "`weighted`: who is taken away before the scores, one filter after the other; one that would take away all takes away none";
    section.list("filters", 0..=FILTERS_MAX, doc, |section, _| read_filter(section)).into_iter().flatten().collect()
}

fn read_scorers(section: &mut Section<'_>) -> Vec<WeightedScorer> {
    let default = json!([
        { "type": "queue-scorer", "weight": 2 },
        { "type": "kv-cache-utilization-scorer", "weight": 2 },
        { "type": "prefix-cache-scorer", "weight": 3 },
    ]);
    let doc = "`weighted`: what is added up; a scorer may stand here more than once";
    let scorers = section.list_or("scorers", &default, 1..=SCORERS_MAX, doc, |section, _| {
        let scorer = read_scorer(section);
        let weight = section.f64("weight", 1.0, 0.0..=1_000_000.0, "what a score of 1 adds to the sum");
        Some(WeightedScorer { weight, scorer: scorer? })
    });
    scorers.into_iter().flatten().collect()
}

impl Weighted {
    /// Ranks `candidates`, [`WORKERS_MAX`] at the most.
    ///
    /// Sums and scores stand on the stack, four kilobytes each: nothing is allocated, and the policy stays unchanged.
    fn rank(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) {
        let (mut sums, mut scores) = ([0.0; WORKERS_MAX], [0.0; WORKERS_MAX]);
        let Some(scores) = scores.get_mut(..candidates.len()) else {
            return;
        };
        for WeightedScorer { weight, scorer } in &self.scorers {
            scorer.score(query, candidates, scores);
            for (sum, score) in sums.iter_mut().zip(&*scores) {
                *sum += weight * clamped(*score);
            }
        }
        let mut ranking = Ranking::default();
        for (candidate, sum) in candidates.iter().zip(sums) {
            ranking.offer(-sum, || tie_break(query, candidate), candidate.worker);
        }
        ranking.append_to(picks);
    }

    /// Ranks those of `candidates` that the filters keep.
    fn rank_filtered(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) {
        let mut kept = [true; WORKERS_MAX];
        let Some(kept) = kept.get_mut(..candidates.len()) else {
            return;
        };
        keep_through(&self.filters, query, candidates, kept);
        match kept.iter().filter(|is_kept| **is_kept).count() {
            count if count == candidates.len() => self.rank(query, candidates, picks),
            ..=FEW => self.rank_kept::<FEW>(query, candidates, kept, picks),
            _ => self.rank_kept::<WORKERS_MAX>(query, candidates, kept, picks),
        }
    }

    /// Ranks the kept, `N` at the most.
    ///
    /// Scorers compare whom they are given, so they are given a list of the kept. It stands on the stack, 100 bytes for each
    /// of `N`, and to fill it costs more than to rank a small pool: hence the two sizes.
    #[inline(never)]
    fn rank_kept<const N: usize>(&self, query: &Query, candidates: &[Candidate], kept: &[bool], picks: &mut Picks) {
        let Some(first) = candidates.first() else {
            return;
        };
        let mut list = [*first; N];
        let mut count = 0;
        let left = candidates.iter().zip(kept).filter(|(_, is_kept)| **is_kept);
        for (place, (candidate, _)) in list.iter_mut().zip(left) {
            *place = *candidate;
            count += 1;
        }
        self.rank(query, list.get(..count).unwrap_or_default(), picks);
    }
}

impl Policy for Weighted {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        // A pool has no more: see `WORKERS_MAX`.
        let candidates = candidates.get(..WORKERS_MAX).unwrap_or(candidates);
        match self.filters.is_empty() {
            true => self.rank(query, candidates, picks),
            false => self.rank_filtered(query, candidates, picks),
        }
        pick_least_load(query, candidates, picks);
        Branch::Score
    }

    fn needs(&self) -> Needs {
        let filters = self.filters.iter().map(|filter| filter.needs());
        let scorers = self.scorers.iter().map(|weighted| weighted.scorer.needs());
        filters.chain(scorers).max().unwrap_or(Needs::Nothing)
    }
}

/// So many of the kept are copied to a short list.
const FEW: usize = 32;

/// Filters of one policy, at the most: each is a loop over the workers, for each request.
const FILTERS_MAX: usize = 8;

/// Scorers of one policy, at the most, for the same reason. There are fewer kinds, but one may be used twice.
const SCORERS_MAX: usize = 16;

#[cfg(test)]
mod tests;
