//! `lora-affinity-filter`: only the workers that have the request's LoRA adapter, else those that have room for it.

use super::{Filter, FilterRegistration, still_kept};
use crate::rng::mix;
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};
use crate::worker::AdapterFit;

pub(super) const REGISTRATION: FilterRegistration = FilterRegistration {
    name: "lora-affinity-filter",
    doc: "the workers that have the request's LoRA adapter, now and then those with room for it; these where nobody has it; all for a request without one",
    build: |section| {
        Box::new(LoraAffinity {
            threshold: section.f64(
                "threshold",
                0.999,
                0.0..=1.0,
                "`lora-affinity-filter`: how likely the workers that have the adapter are kept, where others have room for it",
            ),
        })
    },
};

/// Keeps one of two groups: the workers where the adapter runs, is loaded or is waited for; and those with a place for it,
/// one that is nobody's if there is any. Where there are both it is the first with the probability `threshold`: now and then
/// another worker loads a busy adapter too.
///
/// Source: `LoraAffinityFilter` of the Gateway API Inference Extension, release 0.3 (`filter/lora_affinity_filter.go`), with
/// its threshold, `loraAffinityThreshold` there. There what is loaded and idle is not known, and a place that an idle adapter
/// has is as good as one that nobody has. Workers of neither group are taken away unless there are no others.
#[derive(Debug)]
struct LoraAffinity {
    /// Probability, 0.0 to 1.0.
    threshold: f64,
}

impl Filter for LoraAffinity {
    fn keep(&self, query: &Query, candidates: &[Candidate], kept: &mut [bool]) {
        let has = |group: fn(AdapterFit) -> bool| {
            still_kept(candidates, kept).any(|candidate| candidate.adapter.is_some_and(group))
        };
        let place = if has(is_room) { is_room } else { is_replace };
        let group = match (has(has_it), has(place)) {
            (true, true) if draw(query.random) >= self.threshold => place,
            (true, _) => has_it,
            (false, true) => place,
            // For no adapter, or nobody suits: all are left.
            (false, false) => return,
        };
        for (is_kept, candidate) in kept.iter_mut().zip(candidates) {
            *is_kept &= candidate.adapter.is_some_and(group);
        }
    }

    /// The adapter's name stands in the body, as the model.
    fn needs(&self) -> Needs {
        Needs::Prefix
    }
}

fn has_it(fit: AdapterFit) -> bool {
    matches!(fit, AdapterFit::Running | AdapterFit::Loaded | AdapterFit::Waiting)
}

fn is_room(fit: AdapterFit) -> bool {
    fit == AdapterFit::Room
}

fn is_replace(fit: AdapterFit) -> bool {
    fit == AdapterFit::Replace
}

/// A number from 0.0 up to, but not, 1.0. Mixed, for the same bits break ties elsewhere.
fn draw(random: u64) -> f64 {
    const BITS: u32 = 32;
    (mix(random ^ DRAW_SEED) >> (u64::BITS - BITS)) as f64 / f64::from(2.0_f32.powi(BITS as i32))
}

const DRAW_SEED: u64 = 0x6c6f_7261;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::AdapterFit::{Full, Loaded, Replace, Room, Running, Unknown, Waiting};
    use super::*;
    use crate::schedule::filter::testing::kept_ids;
    use crate::schedule::scorer::testing::workers;

    fn kept(threshold: f64, random: u64, fits: &[Option<AdapterFit>]) -> Vec<u16> {
        let candidates = workers(fits.len(), |id, worker| worker.adapter = fits[id]);
        kept_ids(LoraAffinity { threshold }, &Query { random, ..Query::default() }, &candidates)
    }

    #[test]
    fn who_has_the_adapter_is_kept_alone_and_else_who_has_room() {
        struct Case {
            name: &'static str,
            fits: [AdapterFit; 4],
            kept: &'static [u16],
        }
        #[rustfmt::skip]
        const CASES: &[Case] = &[
            Case { name: "runs, is loaded or is waited for", fits: [Running, Loaded, Room, Waiting], kept: &[0, 1, 3] },
            Case { name: "nobody has it", fits: [Room, Full, Replace, Room], kept: &[0, 3] },
            Case { name: "all places are taken by idle ones", fits: [Full, Replace, Unknown, Replace], kept: &[1, 3] },
            Case { name: "nobody suits", fits: [Full, Full, Unknown, Full], kept: &[0, 1, 2, 3] },
        ];
        for case in CASES {
            assert_eq!(kept(1.0, 7, &case.fits.map(Some)), case.kept, "{}", case.name);
        }
        assert_eq!(kept(1.0, 7, &[None, None]), [0, 1], "no adapter");
    }

    #[test]
    fn as_often_as_the_threshold_leaves_it_those_with_room_get_the_request() {
        let fits = [Some(Loaded), Some(Room), Some(Replace)];
        for (threshold, drawn) in [(0.0, 10_000..=10_000), (0.75, 2_300..=2_700), (0.999, 1..=30), (1.0, 0..=0)] {
            let others = (0..10_000).filter(|&random| kept(threshold, random, &fits) == [1]).count();
            assert!(drawn.contains(&others), "{threshold}: {others}");
        }
    }
}
