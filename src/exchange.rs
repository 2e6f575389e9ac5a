//! One request, from its decision to its end: where it is counted, and who really answered.
//!
//! ```text
//! sent        counted at the first pick, at once: the next decision, a millisecond later, must see it
//! answered    counted where it really is: a retry or Envoy's own fallback may have gone elsewhere
//! first byte  no longer prefilling
//! end         no longer counted, exactly once, whatever happened before
//! ```

use crate::pool::Pool;
use crate::router::new_request;
use crate::schedule::Decision;
use crate::shared::inflight::Held;
use crate::worker::WorkerId;

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
    Host,
}

/// One request of a pool.
#[derive(Debug, Default)]
pub struct Exchange {
    decision: Option<Decision>,
    /// Where it is counted, and as what. Taken when it ends.
    counted: Option<(WorkerId, Held)>,
    prompt_tokens: u32,
}

impl Exchange {
    /// A request with a prompt of about `prompt_tokens`, of which nothing was decided yet.
    #[must_use]
    pub fn new(prompt_tokens: u32) -> Self {
        Self { decision: None, counted: None, prompt_tokens }
    }

    /// The request is sent as `decision` says: counts it at the first pick.
    pub fn handle_decision(&mut self, pool: &mut Pool, decision: Decision) {
        self.decision = Some(decision);
        if let Some(worker) = decision.picks.first() {
            self.count_at(pool, worker);
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
            Source::Host => return Answerer::Host,
        };
        if self.counted.is_none_or(|(counted_at, _)| counted_at != worker) {
            self.count_at(pool, worker);
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
        let Some((worker, held)) = &mut self.counted else { return false };
        let prefill = Held { prefilling: held.prefilling, prefill_tokens: held.prefill_tokens, ..Held::default() };
        held.subtract(prefill);
        pool.release(*worker, prefill);
        prefill != Held::default()
    }

    /// The request has ended. Returns whether it was still counted; a second call changes nothing.
    pub fn handle_end(&mut self, pool: &mut Pool) -> bool {
        let Some((worker, held)) = self.counted.take() else { return false };
        pool.release(worker, held);
        true
    }

    /// What was decided.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    fn count_at(&mut self, pool: &mut Pool, worker: WorkerId) {
        let held = match self.counted.take() {
            Some((before, held)) => {
                pool.release(before, held);
                held
            }
            None => new_request(self.prompt_tokens),
        };
        pool.hold(worker, held);
        self.counted = Some((worker, held));
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;
    use crate::schedule::{Branch, Picks};
    use crate::shared::fleet::Fleet;
    use crate::time::Timestamp;

    const WORKERS: u16 = 3;

    fn pool() -> Pool {
        let addresses: Vec<String> = (0..WORKERS).map(|worker| format!("10.0.0.{}:80", worker + 1)).collect();
        let mut fleet = Fleet::default();
        fleet.admit(addresses.iter().map(String::as_str), Timestamp::default());
        let mut pool = Pool::new("llm", &addresses);
        pool.set_fleet(fleet);
        pool
    }

    fn decision(workers: &[u16]) -> Decision {
        let mut picks = Picks::default();
        workers.iter().for_each(|&worker| picks.push(WorkerId(worker)));
        Decision { picks, branch: Branch::Home, is_panic: false }
    }

    fn counts(pool: &Pool) -> Vec<(u32, u32)> {
        pool.held().iter().map(|held| (held.requests, held.prefill_tokens)).collect()
    }

    #[test]
    fn a_request_is_counted_where_it_is_and_nowhere_after_its_end() {
        let (mut pool, mut exchange) = (pool(), Exchange::new(100));
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
            Case { picks: &[0, 1], source: Source::Host, want: Answerer::Host },
            Case { picks: &[0, 1], source: Source::Stranger, want: Answerer::Other },
            Case { picks: &[], source: Source::Worker(WorkerId(2)), want: Answerer::Other },
        ];
        for case in CASES {
            let (mut pool, mut exchange) = (pool(), Exchange::new(1));
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
            let mut exchanges: Vec<Exchange> = (0..4).map(|tokens| Exchange::new(tokens * 50)).collect();
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
