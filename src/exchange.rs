//! One request, from its decision to its end: where it is counted, who really answered, and what its prompt left there.
//!
//! ```text
//! sent        counted at the first pick, at once: the next decision, a millisecond later, must see it
//! answered    counted where it really is: a retry or Envoy's own fallback may have gone elsewhere
//! first byte  no longer prefilling: its prompt is in the worker's cache
//! end         no longer counted, exactly once, whatever happened before
//! ```

use crate::direct::{Outcome, Wish};
use crate::index::Recorded;
use crate::pool::Pool;
use crate::prefix::BlockHash;
use crate::schedule::{Decision, PICKS_MAX};
use crate::shared::inflight::Held;
use crate::time::Timestamp;
use crate::worker::{AdapterHash, WorkerId};

/// Who answered, against what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// The first pick.
    FirstPick,
    /// A later pick: the host retried.
    LaterPick,
    /// A worker that was not picked: the host's fallback policy chose it, or nothing was decided.
    Other,
    /// The host itself.
    Host,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One of the pool's workers.
    Worker(WorkerId),
    /// An upstream that is none of the pool's workers: the cluster has endpoints that the pool does not know.
    Stranger,
    /// The host itself: nobody could be reached, a time-out, a limit.
    Host {
        /// The worker that it tried last, in vain.
        tried: Option<WorkerId>,
    },
}

/// How long a request's prompt is, as far as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptSize {
    /// Bytes of the prompt as it was hashed.
    pub bytes: u64,
    /// About how many tokens that is.
    pub tokens: u32,
    /// Whether all of the prompt was read.
    pub is_whole: bool,
}

/// A worker of which the index believes that this request's prompt is in its cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credit {
    /// The worker.
    pub worker: WorkerId,
    /// In which life it was sent the prompt.
    pub generation: u32,
    /// Bytes of the prompt that it was believed to hold before the request.
    pub matched_bytes: u64,
    /// What was recorded there before.
    pub recorded: Recorded,
    /// How far its odometer went, spans.
    pub spans: u32,
}

/// Where a request is counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    worker: WorkerId,
    /// In which life it got the request.
    generation: u32,
    held: Held,
}

/// One request of a pool.
#[derive(Debug, Default)]
pub struct Exchange {
    decision: Option<Decision>,
    /// In which life each pick was when it was decided.
    generations: [u32; PICKS_MAX],
    /// Where it is counted, and as what. Taken when it ends.
    counted: Option<Counted>,
    prompt: PromptSize,
    decided_at: Timestamp,
    adapter: Option<AdapterHash>,
    /// The prompt's blocks, for what is recorded after the decision; empty where nothing was recorded with it.
    blocks: Box<[BlockHash]>,
    credit: Option<Credit>,
    attempts: Option<u32>,
    has_first_byte: bool,
    outcome: Option<Outcome>,
    is_bound: bool,
}

impl Exchange {
    /// A request with this prompt, about which it is decided now. `adapter` = the one that it is for, if any.
    #[must_use]
    pub fn new(prompt: PromptSize, adapter: Option<AdapterHash>, now: Timestamp) -> Self {
        Self { prompt, adapter, decided_at: now, ..Self::default() }
    }

    /// The request is sent as `decision` says: counts it at the first pick.
    pub fn handle_decision(&mut self, pool: &mut Pool, decision: Decision) {
        self.decision = Some(decision);
        for (generation, pick) in self.generations.iter_mut().zip(decision.picks.as_slice()) {
            *generation = pool.generation(*pick);
        }
        if let Some(worker) = decision.picks.first() {
            let uncached_tokens = self.prompt.tokens.saturating_sub(decision.matched_tokens).max(1);
            self.count_at(pool, worker, uncached_tokens);
        }
    }

    /// The answer's headers have come: counts the request where it is, and nowhere if that is no worker of the pool.
    pub fn handle_answer(&mut self, pool: &mut Pool, source: Source) -> Answerer {
        let worker = match source {
            Source::Worker(worker) => worker,
            Source::Stranger => {
                self.handle_end(pool);
                return Answerer::Other;
            }
            Source::Host { .. } => return Answerer::Host,
        };
        if self.counted.is_none_or(|counted| counted.worker != worker) {
            // What that worker holds of the prompt was not asked when the request was decided.
            self.count_at(pool, worker, self.prompt.tokens);
        }
        let picks = self.decision.map(|decision| decision.picks).unwrap_or_default();
        match picks.as_slice().iter().position(|&pick| pick == worker) {
            Some(0) => Answerer::FirstPick,
            Some(_) => Answerer::LaterPick,
            None => Answerer::Other,
        }
    }

    /// The answer's first byte has come: its prompt is prefilled. Returns whether that changed what is counted.
    pub fn handle_first_byte(&mut self, pool: &mut Pool) -> bool {
        self.has_first_byte = true;
        // From now on the credit stays.
        self.blocks = Box::default();
        let Some(Counted { worker, held, .. }) = &mut self.counted else { return false };
        let prefill = Held { prefilling: held.prefilling, prefill_tokens: held.prefill_tokens, ..Held::default() };
        held.subtract(prefill);
        pool.release(*worker, prefill);
        prefill != Held::default()
    }

    /// The request has ended. Returns whether it was still counted; a second call changes nothing.
    pub fn handle_end(&mut self, pool: &mut Pool) -> bool {
        let Some(Counted { worker, held, .. }) = self.counted.take() else { return false };
        pool.release(worker, held);
        true
    }

    /// Notes what came of a wish for a worker.
    pub const fn note_wish(&mut self, wish: &Wish<'_>) {
        self.outcome = wish.outcome();
        self.is_bound = wish.is_bound();
    }

    /// Whether no others than the decision's workers may serve the request.
    #[must_use]
    pub const fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// What came of a wish for a worker; `None` if there was none.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// What was decided.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// The worker where it is counted: that answers it, or is to.
    #[must_use]
    pub fn counted_at(&self) -> Option<WorkerId> {
        self.counted.map(|counted| counted.worker)
    }

    /// The life of `worker` to which the request was sent, as far as it was: what becomes of it says nothing of a later one, and
    /// nothing of another worker that was given the row. `None` where nobody knows that it was sent there.
    #[must_use]
    pub fn generation_at(&self, worker: WorkerId) -> Option<u32> {
        let picks = self.decision.map(|decision| decision.picks).unwrap_or_default();
        let mut picked = picks.as_slice().iter().zip(&self.generations);
        let of_pick = picked.find(|(pick, _)| **pick == worker).map(|(_, generation)| *generation);
        of_pick.or_else(|| self.counted.filter(|counted| counted.worker == worker).map(|counted| counted.generation))
    }

    /// How long its prompt is.
    #[must_use]
    pub const fn prompt(&self) -> PromptSize {
        self.prompt
    }

    /// The LoRA adapter that it is for; `None` if it is for none.
    #[must_use]
    pub const fn adapter(&self) -> Option<AdapterHash> {
        self.adapter
    }

    /// When it was decided where it goes.
    #[must_use]
    pub const fn decided_at(&self) -> Timestamp {
        self.decided_at
    }

    /// Its prompt's blocks, if they were recorded.
    #[must_use]
    pub const fn blocks(&self) -> &[BlockHash] {
        &self.blocks
    }

    /// Which worker is believed to get its prompt into the cache.
    #[must_use]
    pub const fn credit(&self) -> Option<&Credit> {
        self.credit.as_ref()
    }

    /// How many workers the host tried, as far as it tells; the one that answered is the last of them.
    #[must_use]
    pub const fn attempts(&self) -> Option<u32> {
        self.attempts
    }

    /// Notes how many workers the host tried. Has to be known before the answer is settled.
    pub const fn note_attempts(&mut self, attempts: Option<u32>) {
        self.attempts = attempts;
    }

    /// Whether the answer's first byte has come.
    #[must_use]
    pub const fn has_first_byte(&self) -> bool {
        self.has_first_byte
    }

    /// Notes that the prompt's `blocks` were recorded at a worker.
    pub fn note_blocks(&mut self, blocks: &[BlockHash]) {
        self.blocks = blocks.into();
    }

    /// Moves the credit, or takes it away; returns what it was.
    pub const fn set_credit(&mut self, credit: Option<Credit>) -> Option<Credit> {
        std::mem::replace(&mut self.credit, credit)
    }

    fn count_at(&mut self, pool: &mut Pool, worker: WorkerId, uncached_tokens: u32) {
        let mut held =
            Held { requests: 1, prefilling: 1, prefill_tokens: uncached_tokens, context_tokens: self.prompt.tokens };
        if let Some(counted) = self.counted.take() {
            pool.release(counted.worker, counted.held);
            if counted.held.prefilling == 0 {
                held = counted.held;
            }
        }
        pool.hold(worker, held);
        let generation = self.generation_at(worker).unwrap_or_else(|| pool.generation(worker));
        self.counted = Some(Counted { worker, generation, held });
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;
    use crate::schedule::{Branch, Picks, Rung};
    use crate::shared::fleet::Fleet;

    const WORKERS: u16 = 3;

    fn pool() -> Pool {
        let addresses: Vec<String> = (0..WORKERS).map(|worker| format!("10.0.0.{}:80", worker + 1)).collect();
        let mut fleet = Fleet::default();
        fleet.admit(addresses.iter().map(String::as_str), Timestamp::default());
        let mut pool = Pool::new("llm", &addresses, 1, 1);
        pool.set_fleet(fleet);
        pool
    }

    fn decision(workers: &[u16]) -> Decision {
        let mut picks = Picks::default();
        workers.iter().for_each(|&worker| picks.push(WorkerId(worker)));
        Decision { picks, branch: Branch::Home, is_panic: false, rung: Rung::Full, matched_tokens: 0 }
    }

    fn exchange(prompt_tokens: u32) -> Exchange {
        let prompt = PromptSize { bytes: u64::from(prompt_tokens) * 4, tokens: prompt_tokens, is_whole: true };
        Exchange::new(prompt, None, Timestamp::default())
    }

    fn counts(pool: &Pool) -> Vec<(u32, u32)> {
        pool.held().iter().map(|held| (held.requests, held.prefill_tokens)).collect()
    }

    #[test]
    fn a_request_is_counted_where_it_is_and_nowhere_after_its_end() {
        let (mut pool, mut exchange) = (pool(), exchange(100));
        exchange.handle_decision(&mut pool, decision(&[0, 1]));
        assert_eq!(counts(&pool), [(1, 100), (0, 0), (0, 0)]);
        assert_eq!(exchange.handle_answer(&mut pool, Source::Worker(WorkerId(1))), Answerer::LaterPick);
        assert_eq!(counts(&pool), [(0, 0), (1, 100), (0, 0)]);
        assert!(exchange.handle_first_byte(&mut pool));
        assert!(!exchange.handle_first_byte(&mut pool));
        assert_eq!(counts(&pool), [(0, 0), (1, 0), (0, 0)]);
        assert!(exchange.handle_end(&mut pool));
        assert!(!exchange.handle_end(&mut pool));
        assert_eq!(counts(&pool), [(0, 0); 3]);
    }

    #[test]
    fn who_answered_is_told_from_who_was_picked() {
        struct Case {
            picks: &'static [u16],
            source: Source,
            want: Answerer,
        }
        const CASES: &[Case] = &[
            Case { picks: &[0, 1], source: Source::Worker(WorkerId(0)), want: Answerer::FirstPick },
            Case { picks: &[0, 1], source: Source::Worker(WorkerId(1)), want: Answerer::LaterPick },
            Case { picks: &[0, 1], source: Source::Worker(WorkerId(2)), want: Answerer::Other },
            Case { picks: &[0, 1], source: Source::Host { tried: None }, want: Answerer::Host },
            Case { picks: &[0, 1], source: Source::Stranger, want: Answerer::Other },
            Case { picks: &[], source: Source::Worker(WorkerId(2)), want: Answerer::Other },
        ];
        for case in CASES {
            let (mut pool, mut exchange) = (pool(), exchange(1));
            exchange.handle_decision(&mut pool, decision(case.picks));
            let got = exchange.handle_answer(&mut pool, case.source);
            assert_eq!(got, case.want, "{:?} answered by {:?}", case.picks, case.source);
            let counted: u32 = pool.held().iter().map(|held| held.requests).sum();
            assert_eq!(counted, u32::from(case.source != Source::Stranger), "{:?}", case.source);
        }
    }

    #[test]
    fn whatever_the_order_of_events_nothing_stays_counted() {
        for seed in 0..5_000 {
            let mut rng = Rng::new(seed);
            let mut pool = pool();
            let mut exchanges: Vec<Exchange> = (0..4).map(|tokens| exchange(tokens * 50 + 1)).collect();
            for _ in 0..40 {
                let exchange = &mut exchanges[rng.below(4) as usize];
                let worker = rng.below(u32::from(WORKERS)) as u16;
                match rng.below(5) {
                    0 => exchange.handle_decision(&mut pool, decision(&[worker])),
                    1 => _ = exchange.handle_answer(&mut pool, Source::Worker(WorkerId(worker))),
                    2 => _ = exchange.handle_answer(&mut pool, Source::Stranger),
                    3 => _ = exchange.handle_first_byte(&mut pool),
                    _ => _ = exchange.handle_end(&mut pool),
                }
                let total: u32 = pool.held().iter().map(|held| held.requests).sum();
                assert!(total <= 4, "seed {seed}");
            }
            for exchange in &mut exchanges {
                exchange.handle_end(&mut pool);
            }
            assert!(pool.held().iter().all(|held| *held == Held::default()), "seed {seed}");
        }
    }
}
