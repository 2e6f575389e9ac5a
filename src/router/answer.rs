//! What an answer settles (where the request is counted, who failed) and teaches (what the caches keep).

use super::Router;
use super::lesson::{Event, Lesson, Told};
use crate::exchange::{Answerer, Credit, Exchange, Source};
use crate::index::Recorded;
use crate::response::Usage;
use crate::schedule::{PICKS_MAX, Picks};
use crate::shared::store::Store;
use crate::time::Timestamp;
use crate::worker::WorkerId;

/// What was predicted of a request, and what came true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Prompt tokens that the worker was believed to hold.
    pub predicted_tokens: u32,
    /// Prompt tokens that the engine says were cached.
    pub cached_tokens: u32,
}

impl Router {
    /// The answer's headers have come: counts the request where it is, notes who failed it, and moves the credit for its
    /// prompt to who builds it.
    ///
    /// `status` is the answer's: 5xx says that the worker failed, a lower one never does.
    pub fn answered(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &mut Exchange,
        source: Source,
        status: u32,
        now: Timestamp,
    ) -> Answerer {
        let Some(state) = self.pools.get_mut(pool) else { return Answerer::Host };
        let answerer = exchange.handle_answer(state, source);
        if matches!(answerer, Answerer::LaterPick | Answerer::Other) {
            self.publish(store, pool, now);
        }
        self.note_conduct(store, pool, exchange, source, status, now);
        let is_served = (200..300).contains(&status);
        let server = match source {
            Source::Worker(worker) if is_served => Some(worker),
            Source::Worker(_) | Source::Stranger | Source::Host { .. } => None,
        };
        self.settle_adapter(store, pool, exchange, server);
        let credited = exchange.credit().map(|credit| credit.worker);
        match source {
            Source::Worker(worker) if is_served && credited == Some(worker) => {}
            Source::Worker(worker) if is_served && credited.is_some() => {
                self.take_back(store, pool, exchange, now);
                self.credit_again(store, pool, worker, exchange, now);
            }
            _ => self.take_back(store, pool, exchange, now),
        }
        answerer
    }

    /// Records the prompt at `worker`, which answers instead of the one that was picked.
    fn credit_again(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        worker: WorkerId,
        exchange: &mut Exchange,
        now: Timestamp,
    ) {
        // What the last decision of this VM knew was of another moment, and of another prompt.
        if self.read_learned(store, pool, now).is_none() {
            return;
        }
        let credit = self.record(store, pool, worker, exchange, now);
        let took_over = Event::TookOver { spans: credit.spans };
        self.teach(store, pool, Lesson { worker, generation: credit.generation, event: took_over }, now);
        // What it held before is not known block by block, so this request shows nothing of its cache's capacity.
        exchange.set_credit(Some(Credit { recorded: Recorded::default(), ..credit }));
    }

    /// The answer's first byte has come: its prompt is prefilled.
    pub fn first_byte(&mut self, store: &mut impl Store, pool: usize, exchange: &mut Exchange, now: Timestamp) {
        let Some(state) = self.pools.get_mut(pool) else { return };
        if exchange.handle_first_byte(state) {
            self.publish_soon(store, pool, now);
        }
    }

    /// The worker that answers has broken its answer off, before the request's end: [`Self::end`] is still to be called.
    pub fn broke_off(&mut self, store: &mut impl Store, pool: usize, exchange: &Exchange, now: Timestamp) {
        if let Some(worker) = exchange.counted_at() {
            let failed = Event::Failed { sent_at: exchange.decided_at(), now, was_begun: true };
            self.fail(store, pool, exchange, worker, failed, now);
        }
    }

    /// The request has ended: no longer counted, whatever happened before, and what its `usage` teaches is learned.
    /// Returns how a prediction came true, if the engine told.
    pub fn end(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &mut Exchange,
        usage: Option<Usage>,
        now: Timestamp,
    ) -> Option<Prediction> {
        let state = self.pools.get_mut(pool)?;
        if exchange.handle_end(state) {
            self.publish_soon(store, pool, now);
        }
        if !exchange.has_first_byte() {
            // Given up before its prompt was computed, as far as anybody knows.
            self.take_back(store, pool, exchange, now);
            self.settle_adapter(store, pool, exchange, None);
            return None;
        }
        let credit = exchange.set_credit(None);
        self.learn(store, pool, exchange, credit, usage?, now)
    }

    /// Who failed: a worker that answers 5xx, one that the host could not talk to, and the picks before one that serves.
    ///
    /// Where all picks fail the request is the suspect, and only the last of them counts: else a client could shut three
    /// workers with each bad request.
    fn note_conduct(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &Exchange,
        source: Source,
        status: u32,
        now: Timestamp,
    ) {
        let sent_at = exchange.decided_at();
        let (worker, conduct) = match source {
            Source::Worker(worker) => (worker, Conduct::of(status)),
            Source::Host { tried: Some(worker) } => (worker, Conduct::Failed),
            Source::Host { tried: None } | Source::Stranger => return,
        };
        if conduct == Conduct::Failed {
            return self.fail(store, pool, exchange, worker, Event::Failed { sent_at, now, was_begun: false }, now);
        }
        // Where it is refused in the end, those before may have refused it too, and nobody failed: a request that is one too many
        // everywhere must eject nobody.
        let is_served = conduct == Conduct::Served;
        let picks = exchange.decision().filter(|_| is_served).map(|decision| decision.picks).unwrap_or_default();
        for failed in self.failed_before(pool, worker, &picks, exchange.attempts()).as_slice() {
            self.fail(store, pool, exchange, *failed, Event::Failed { sent_at, now, was_begun: false }, now);
        }
        let Some(generation) = self.generation_now(pool, exchange, worker) else { return };
        let Some(state) = self.pools.get(pool) else { return };
        let known = state.failures(worker);
        let event = match conduct {
            Conduct::Served if known.has_failed() => Event::Served { sent_at, now },
            Conduct::Refused if known.is_marked => Event::Refused { sent_at },
            // Of a worker in good standing nothing has to be told.
            _ => return,
        };
        self.teach(store, pool, Lesson { worker, generation, event }, now);
        if known.is_marked || known.in_a_row > 0 {
            self.sync_learned(store, pool, now);
        }
        self.take_in_failures(pool, worker);
    }

    /// The picks that were tried in vain before `server` answered.
    ///
    /// The host tries them in order and passes over those that are not in its cluster, as if they had not been named. It
    /// tells how many it tried; where some were passed over and nobody knows which, none is blamed.
    fn failed_before(&self, pool: usize, server: WorkerId, picks: &Picks, attempts: Option<u32>) -> Picks {
        let Some(state) = self.pools.get(pool) else { return Picks::default() };
        let place = picks.as_slice().iter().position(|pick| *pick == server);
        // Who was not picked was asked when all picks had failed, or when the host knows none of them.
        let before = match (place, attempts) {
            (None, None) => 0,
            (place, _) => place.unwrap_or(PICKS_MAX),
        };
        let mut failed = Picks::default();
        let is_in_cluster = |pick: &&WorkerId| !state.is_gone(**pick);
        picks.as_slice().iter().take(before).filter(is_in_cluster).for_each(|pick| failed.push(*pick));
        let failed_attempts = attempts.map(|attempts| attempts.saturating_sub(1));
        match failed_attempts.and_then(|attempts| usize::try_from(attempts).ok()) {
            Some(attempts) if attempts < failed.as_slice().len() => Picks::default(),
            _ => failed,
        }
    }

    /// The worker's life that the request was sent to; `None` if it is over, as far as this VM knows: then what becomes of its
    /// requests says nothing of who has the row now. What this VM does not know, the page does.
    fn generation_now(&self, pool: usize, exchange: &Exchange, worker: WorkerId) -> Option<u32> {
        let now = self.pools.get(pool)?.generation(worker);
        exchange.generation_at(worker).is_none_or(|sent_to| sent_to == now).then_some(now)
    }

    fn fail(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &Exchange,
        worker: WorkerId,
        failed: Event,
        now: Timestamp,
    ) {
        let Some(generation) = self.generation_now(pool, exchange, worker) else { return };
        self.teach(store, pool, Lesson { worker, generation, event: failed }, now);
        self.sync_learned(store, pool, now);
        self.take_in_failures(pool, worker);
    }

    /// Lets the pool know what the copy of the page says of a worker by now, for answers that come before the next decision.
    fn take_in_failures(&mut self, pool: usize, worker: WorkerId) {
        if let (Some(state), Some(learning)) = (self.pools.get_mut(pool), self.learning.get(pool)) {
            state.set_failures(worker, learning.failures(worker, state.generation(worker)));
        }
    }

    /// Takes the credit for the prompt from the worker that has it: it did not build what it did not hold before, and no
    /// other text had to go for it.
    fn take_back(&mut self, store: &mut impl Store, pool: usize, exchange: &mut Exchange, now: Timestamp) {
        let Some(credit) = exchange.set_credit(None) else { return };
        let Credit { worker, generation, .. } = credit;
        // What an earlier life was sent is forgotten with it; and who has the row now may hold the same prompt.
        if let Some(state) = self.pools.get_mut(pool).filter(|state| state.generation(worker) == generation) {
            state.index_mut().forget(store, exchange.blocks(), worker, credit.matched_bytes);
        }
        let did_not_build = Event::DidNotBuild { spans: credit.spans };
        self.teach(store, pool, Lesson { worker, generation, event: did_not_build }, now);
    }

    /// Notes what `usage` teaches, and tells how the prediction came true.
    fn learn(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &Exchange,
        credit: Option<Credit>,
        usage: Usage,
        now: Timestamp,
    ) -> Option<Prediction> {
        let (prompt, credit) = (exchange.prompt(), credit?);
        let prompt_tokens = usage.prompt_tokens.filter(|tokens| *tokens > 0)?;
        let state = self.pools.get(pool)?;
        let lesson = Told {
            prompt,
            prompt_tokens,
            completion_tokens: usage.completion_tokens.unwrap_or_default(),
            cached_tokens: usage.cached_tokens,
            kv_tokens: state.kv_tokens(credit.worker, &self.config.index),
            recorded: credit.recorded,
            sent_at: exchange.decided_at(),
            now,
        };
        let told = usage.cached_tokens.or_else(|| state.tells_cached(credit.worker).then_some(0));
        let predicted_tokens = (credit.matched_bytes as f64 / lesson.bytes_per_token()) as u32;
        let Credit { worker, generation, .. } = credit;
        self.teach(store, pool, Lesson { worker, generation, event: Event::Told(lesson) }, now);
        // Of a prompt that was read in part, only as much can be predicted.
        told.filter(|_| prompt.is_whole).map(|cached_tokens| Prediction { predicted_tokens, cached_tokens })
    }
}

/// What an answer says of the worker that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conduct {
    Served,
    /// For the request's own fault: that shows neither that it works nor that it does not.
    Refused,
    Failed,
}

impl Conduct {
    /// "Not implemented" and "HTTP version not supported" are the request's fault, as all 4xx are.
    const fn of(status: u32) -> Self {
        match status {
            400..500 | 501 | 505 => Self::Refused,
            500.. => Self::Failed,
            _ => Self::Served,
        }
    }
}
