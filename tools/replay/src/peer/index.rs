//! A router's own record of which worker has seen which pieces of prompts: what approximate prefix routing rests on.

use std::collections::HashMap;

use crate::request::Request;

/// When an entry no longer counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Memory {
    /// Seconds after it was last used.
    Seconds(f64),
    /// Once the worker has been sent more than so many new tokens after it was last used: an LRU of that size, told
    /// by an odometer.
    Tokens(u64),
}

/// Piece id -> the workers that were sent it.
///
/// Entries are filled in when a request is sent, so that siblings that come a moment later find them. What no longer
/// counts is not matched but stays in the map; a run is finite, and so is the map.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<u64, Vec<Sighting>>,
    /// Tokens newly sent to each worker.
    odometers: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    worker: usize,
    /// The worker's odometer after this piece.
    odometer: u64,
    at_s: f64,
}

impl Index {
    /// Tokens of `request`'s prompt that each of `workers` workers has, by this record: contiguous whole pieces from
    /// the start, and always less than the prompt, for an engine computes the last token in any case.
    pub(super) fn matched_tokens(&self, request: &Request, workers: usize, memory: Memory, now_s: f64) -> Vec<u32> {
        let mut matched = vec![0_u32; workers];
        for (depth, piece) in request.pieces.iter().take(request.whole_pieces()).enumerate() {
            let Some(sightings) = self.entries.get(piece) else { break };
            let mut is_anybody = false;
            for sighting in sightings.iter().filter(|sighting| self.counts(sighting, memory, now_s)) {
                if let Some(pieces) = matched.get_mut(sighting.worker)
                    && *pieces as usize == depth
                {
                    *pieces += 1;
                    is_anybody = true;
                }
            }
            if !is_anybody {
                break;
            }
        }
        let to_tokens = |pieces: u32| (pieces * request.piece_tokens).min(request.prompt_tokens - 1);
        matched.into_iter().map(to_tokens).collect()
    }

    /// Records that `worker` gets `request` now.
    pub(super) fn record(&mut self, worker: usize, request: &Request, memory: Memory, now_s: f64) {
        if self.odometers.len() <= worker {
            self.odometers.resize(worker + 1, 0);
        }
        for piece in request.pieces.iter().take(request.whole_pieces()) {
            let sightings = self.entries.entry(*piece).or_default();
            let odometer = self.odometers[worker];
            let known = sightings.iter_mut().find(|sighting| sighting.worker == worker);
            let is_new = known.as_ref().is_none_or(|known| !counts(odometer, known, memory, now_s));
            if is_new {
                self.odometers[worker] += u64::from(request.piece_tokens);
            }
            let fresh = Sighting { worker, odometer: self.odometers[worker], at_s: now_s };
            match known {
                Some(known) => *known = fresh,
                None => sightings.push(fresh),
            }
        }
    }

    fn counts(&self, sighting: &Sighting, memory: Memory, now_s: f64) -> bool {
        counts(self.odometers[sighting.worker], sighting, memory, now_s)
    }
}

/// Whether a sighting still counts when its worker's odometer is at `odometer`.
fn counts(odometer: u64, sighting: &Sighting, memory: Memory, now_s: f64) -> bool {
    match memory {
        Memory::Seconds(seconds) => now_s - sighting.at_s <= seconds,
        Memory::Tokens(tokens) => odometer - sighting.odometer <= tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::request;
    use super::*;

    const LONG: Memory = Memory::Tokens(1_000_000);

    #[test]
    fn a_match_is_contiguous_from_the_start_and_less_than_the_prompt() {
        struct Case {
            name: &'static str,
            sent: &'static [(usize, &'static [u64])],
            prompt: &'static [u64],
            matched: [u32; 2],
        }
        const CASES: &[Case] = &[
            Case { name: "nothing was sent", sent: &[], prompt: &[1, 2], matched: [0, 0] },
            Case { name: "the first two pieces", sent: &[(0, &[1, 2, 9])], prompt: &[1, 2, 3], matched: [128, 0] },
            Case { name: "not from the start", sent: &[(1, &[7, 2])], prompt: &[1, 2], matched: [0, 0] },
            Case { name: "a gap", sent: &[(0, &[1, 2]), (1, &[7, 2])], prompt: &[1, 2, 3], matched: [128, 0] },
            Case { name: "the whole prompt", sent: &[(1, &[1, 2])], prompt: &[1, 2], matched: [0, 127] },
            Case { name: "both", sent: &[(0, &[1]), (1, &[1, 2])], prompt: &[1, 2, 3], matched: [64, 128] },
        ];
        for case in CASES {
            let mut index = Index::default();
            for (worker, pieces) in case.sent {
                index.record(*worker, &request(pieces), LONG, 0.0);
            }
            assert_eq!(index.matched_tokens(&request(case.prompt), 2, LONG, 0.0), case.matched, "{}", case.name);
        }
    }

    #[test]
    fn what_is_too_old_does_not_count() {
        let mut index = Index::default();
        let memory = Memory::Seconds(120.0);
        index.record(0, &request(&[1, 2]), memory, 0.0);
        assert_eq!(index.matched_tokens(&request(&[1, 3]), 1, memory, 120.0), [64]);
        assert_eq!(index.matched_tokens(&request(&[1, 3]), 1, memory, 120.1), [0]);
        index.record(0, &request(&[1]), memory, 100.0);
        assert_eq!(index.matched_tokens(&request(&[1, 3]), 1, memory, 120.1), [64], "used again at 100 s");
    }

    #[test]
    fn what_more_new_tokens_than_the_capacity_have_followed_does_not_count() {
        let mut index = Index::default();
        let memory = Memory::Tokens(128);
        index.record(0, &request(&[1]), memory, 0.0);
        index.record(0, &request(&[2, 3]), memory, 0.0);
        index.record(0, &request(&[2, 3]), memory, 0.0);
        assert_eq!(index.matched_tokens(&request(&[1, 9]), 1, memory, 0.0), [64], "known pieces are no new tokens");
        index.record(0, &request(&[4]), memory, 0.0);
        assert_eq!(index.matched_tokens(&request(&[1, 9]), 1, memory, 0.0), [0]);
    }
}
