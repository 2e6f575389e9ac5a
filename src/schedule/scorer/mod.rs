//! The scorers of the `weighted` policy, one file each. To add one: write its file, add its two lines here.

mod active_request;
mod kv_cache_utilization;
mod lmetric;
mod load_aware;
mod lora_affinity;
mod no_hit_lru;
mod prefix_cache;
mod queue;
mod running_requests;
mod session_affinity;
pub(in crate::schedule) mod signal;
mod token_load;

use std::fmt;

use super::policy::Needs;
use super::{Candidate, Query};
use crate::config::reader::Section;

/// Says how well each candidate suits a request, by one thing.
pub trait Scorer: fmt::Debug {
    /// Gives each candidate its score, 0.0 to 1.0, 1.0 best. `scores` has a place for each.
    ///
    /// A missing signal gains nothing: a worker that does not tell it scores no better than any that does. What is
    /// outside the range is clamped by the caller, and what is no number counts as 0.
    fn score(&self, query: &Query, candidates: &[Candidate], scores: &mut [f64]);

    /// What it has to know of the request.
    fn needs(&self) -> Needs;
}

/// A scorer's entry in [`SCORERS`].
#[derive(Debug)]
pub struct ScorerRegistration {
    /// Its `type` in the configuration.
    pub name: &'static str,
    /// What it prefers, one line for the reference page.
    pub doc: &'static str,
    /// Builds it from its part of the configuration, reading (and so documenting) all keys that it has.
    pub build: fn(&mut Section<'_>) -> Box<dyn Scorer>,
}

/// Every scorer, by name. Configuration, reference page and the laws below find them here.
pub const SCORERS: &[ScorerRegistration] = &[
    active_request::REGISTRATION,
    kv_cache_utilization::REGISTRATION,
    lmetric::REGISTRATION,
    load_aware::REGISTRATION,
    lora_affinity::REGISTRATION,
    no_hit_lru::REGISTRATION,
    prefix_cache::REGISTRATION,
    queue::REGISTRATION,
    running_requests::REGISTRATION,
    session_affinity::REGISTRATION,
    token_load::REGISTRATION,
];

/// The scorer that a section's `type` names; `None` if it names none, which is then an error of the configuration.
pub(super) fn read_scorer(section: &mut Section<'_>) -> Option<Box<dyn Scorer>> {
    let names: Vec<&'static str> = SCORERS.iter().map(|registration| registration.name).collect();
    let name = section.required_one_of("type", &names, "the scorer; its own keys stand beside its type");
    if section.is_describing() {
        for registration in SCORERS {
            (registration.build)(section);
        }
    }
    let chosen = SCORERS.iter().find(|registration| Some(registration.name) == name)?;
    Some((chosen.build)(section))
}

/// The score as it counts: 0.0 to 1.0.
#[must_use]
pub(super) fn clamped(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score.clamp(0.0, 1.0) }
}

/// Tokens of the prompt that the candidate would have to prefill; at least 0.
fn uncached_tokens(query: &Query, candidate: &Candidate) -> f64 {
    (query.prompt_tokens - candidate.matched_tokens).max(0.0)
}

/// Share of the prompt that the index finds at the candidate, 0.0 to 1.0; 0.0 without a prompt.
pub(super) fn matched_share(query: &Query, candidate: &Candidate) -> f64 {
    clamped(candidate.matched_tokens / query.prompt_tokens)
}

#[cfg(test)]
pub(super) mod testing {
    //! Candidates and scores in the shortest form, for the scorers' and filters' tests.

    use super::*;
    use crate::schedule::policy::testing::candidate;

    /// Workers 0, 1, 2 … idle and unknown but for what `set` does to them.
    pub(in crate::schedule) fn workers(count: usize, set: impl Fn(usize, &mut Candidate)) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = (0..count).map(|id| candidate(id as u16, 0.0)).collect();
        for (id, candidate) in candidates.iter_mut().enumerate() {
            set(id, candidate);
        }
        candidates
    }

    /// The scores as they count.
    pub(in crate::schedule) fn scored(scorer: &dyn Scorer, query: &Query, candidates: &[Candidate]) -> Vec<f64> {
        // No scorer gives this, so one that leaves a place out is found out.
        let mut scores = vec![UNWRITTEN; candidates.len()];
        scorer.score(query, candidates, &mut scores);
        assert!(!scores.contains(&UNWRITTEN), "{scorer:?} leaves out a worker: {scores:?}");
        scores.into_iter().map(clamped).collect()
    }

    const UNWRITTEN: f64 = -7.25;
}

#[cfg(test)]
mod laws;
