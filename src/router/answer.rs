//! What an answer settles (where the request is counted, who failed) and teaches (what the caches keep).

use super::Router;
use super::lesson::{Event, Told};
use crate::exchange::{Answerer, Credit, Exchange, Source};
use crate::index::Recorded;
use crate::response::Usage;
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
        self.note_failures(store, pool, exchange, source, status, now);
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
        self.teach(store, pool, worker, Event::TookOver { spans: credit.spans }, now);
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
    fn note_failures(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &Exchange,
        source: Source,
        status: u32,
        now: Timestamp,
    ) {
        let sent_at = exchange.decided_at();
        let failed = match source {
            Source::Worker(worker) if is_failure(status) => Some(worker),
            Source::Host { tried } => tried,
            Source::Worker(_) | Source::Stranger => None,
        };
        if let Some(worker) = failed {
            self.fail(store, pool, worker, sent_at, now);
        }
        let Source::Worker(served) = source else { return };
        if failed.is_some() {
            return;
        }
        let picks = exchange.decision().map(|decision| decision.picks).unwrap_or_default();
        let place = picks.as_slice().iter().position(|pick| *pick == served).unwrap_or_default();
        for worker in picks.as_slice().iter().take(place) {
            self.fail(store, pool, *worker, sent_at, now);
        }
        // Most answers tell it when they end, at no cost: see `learn`.
        if self.pools.get(pool).is_some_and(|pool| pool.has_failed(served)) {
            self.teach(store, pool, served, Event::Served { sent_at }, now);
            self.sync_learned(store, pool, now);
        }
    }

    fn fail(&mut self, store: &mut impl Store, pool: usize, worker: WorkerId, sent_at: Timestamp, now: Timestamp) {
        if let Some(state) = self.pools.get_mut(pool) {
            state.note_failure(worker);
        }
        self.teach(store, pool, worker, Event::Failed { sent_at, now }, now);
        self.sync_learned(store, pool, now);
    }

    /// Takes the credit for the prompt from the worker that has it: it did not build what it did not hold before, and no
    /// other text had to go for it.
    fn take_back(&mut self, store: &mut impl Store, pool: usize, exchange: &mut Exchange, now: Timestamp) {
        let Some(credit) = exchange.set_credit(None) else { return };
        if let Some(state) = self.pools.get_mut(pool) {
            state.index_mut().forget(store, exchange.blocks(), credit.worker, credit.matched_bytes);
        }
        self.teach(store, pool, credit.worker, Event::DidNotBuild { spans: credit.spans }, now);
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
        };
        let told = usage.cached_tokens.or_else(|| state.tells_cached(credit.worker).then_some(0));
        let predicted_tokens = (credit.matched_bytes as f64 / lesson.bytes_per_token()) as u32;
        self.teach(store, pool, credit.worker, Event::Told(lesson), now);
        // Of a prompt that was read in part, only as much can be predicted.
        told.filter(|_| prompt.is_whole).map(|cached_tokens| Prediction { predicted_tokens, cached_tokens })
    }
}

/// Whether a status says that the worker failed. "Not implemented" and "HTTP version not supported" are the request's
/// fault, as all 4xx are.
const fn is_failure(status: u32) -> bool {
    status >= 500 && status != 501 && status != 505
}
