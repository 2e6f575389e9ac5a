//! What an answer settles (where the request is counted, who failed) and teaches (what the caches keep).

use super::Router;
use crate::exchange::{Answerer, Credit, Exchange, Source};
use crate::index::{Recorded, SPAN_BYTES};
use crate::response::Usage;
use crate::shared::learned::{LearnedPage, LearnedWorker};
use crate::shared::store::{Store, update};
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
        let credited = exchange.credit().map(|credit| credit.worker);
        match source {
            Source::Worker(worker) if is_served && credited == Some(worker) => {}
            Source::Worker(worker) if is_served && credited.is_some() => {
                self.take_back(store, pool, exchange);
                self.credit_again(store, pool, worker, exchange, now);
            }
            _ => self.take_back(store, pool, exchange),
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
        if self.read_learned(store, pool).is_none() {
            return;
        }
        let credit = self.record(store, pool, worker, exchange, now);
        let spans = credit.spans;
        self.change_learned(store, pool, worker, |_, row| row.odometer = row.odometer.wrapping_add(spans));
        // What it held before is not known block by block, so this request shows nothing of its cache's capacity.
        exchange.set_credit(Some(Credit { recorded: Recorded::default(), ..credit }));
    }

    /// The answer's first byte has come: its prompt is prefilled.
    pub fn first_byte(&mut self, store: &mut impl Store, pool: usize, exchange: &mut Exchange, now: Timestamp) {
        let Some(state) = self.pools.get_mut(pool) else { return };
        if exchange.handle_first_byte(state) {
            self.publish(store, pool, now);
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
            self.publish(store, pool, now);
        }
        if !exchange.has_first_byte() {
            // Given up before its prompt was computed, as far as anybody knows.
            self.take_back(store, pool, exchange);
            return None;
        }
        let credit = exchange.set_credit(None);
        self.learn(store, pool, exchange, credit, usage?)
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
            self.change_learned(store, pool, served, |_, row| row.succeed(sent_at));
        }
    }

    fn fail(&mut self, store: &mut impl Store, pool: usize, worker: WorkerId, sent_at: Timestamp, now: Timestamp) {
        if let Some(state) = self.pools.get_mut(pool) {
            state.note_failure(worker);
        }
        self.change_learned(store, pool, worker, |_, row| row.fail(sent_at, now));
    }

    /// Takes the credit for the prompt from the worker that has it: it did not build what it did not hold before, and no
    /// other text had to go for it.
    fn take_back(&mut self, store: &mut impl Store, pool: usize, exchange: &mut Exchange) {
        let Some(credit) = exchange.set_credit(None) else { return };
        if let Some(state) = self.pools.get_mut(pool) {
            state.index_mut().forget(store, exchange.blocks(), credit.worker, credit.matched_bytes);
        }
        self.change_learned(store, pool, credit.worker, |_, row| {
            row.odometer = row.odometer.wrapping_sub(credit.spans)
        });
    }

    fn learn(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &Exchange,
        credit: Option<Credit>,
        usage: Usage,
    ) -> Option<Prediction> {
        let (prompt, credit) = (exchange.prompt(), credit?);
        let prompt_tokens = usage.prompt_tokens.filter(|tokens| *tokens > 0)?;
        let kv_tokens = self.pools.get(pool)?.kv_tokens(credit.worker, &self.config.index);
        let sent_at = exchange.decided_at();
        let bytes_per_token = prompt.bytes as f64 / f64::from(prompt_tokens);
        let mut prediction = None;
        self.change_learned(store, pool, credit.worker, |page, row| {
            if prompt.is_whole {
                page.learn_bytes_per_token(prompt.bytes, prompt_tokens);
            }
            // The answer takes room in the cache too.
            let answer_bytes = f64::from(usage.completion_tokens.unwrap_or_default()) * bytes_per_token;
            row.odometer = row.odometer.wrapping_add((answer_bytes / SPAN_BYTES as f64) as u32);
            row.succeed(sent_at);
            row.tells_cached |= usage.cached_tokens.is_some_and(|cached| cached > 0);
            let told = usage.cached_tokens.or_else(|| row.tells_cached.then_some(0));
            if let Some(cached_tokens) = told {
                let cached_bytes = f64::from(cached_tokens) * bytes_per_token;
                let kv_spans = kv_tokens * page.bytes_per_token() / SPAN_BYTES as f64;
                correct_capacity(row, kv_spans, &credit.recorded, cached_bytes);
                let predicted_tokens = (credit.matched_bytes as f64 / bytes_per_token) as u32;
                // Of a prompt that was read in part, only as much can be predicted.
                prediction = prompt.is_whole.then_some(Prediction { predicted_tokens, cached_tokens });
            }
        });
        prediction
    }

    fn change_learned(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        worker: WorkerId,
        mut change: impl FnMut(&mut LearnedPage, &mut LearnedWorker),
    ) {
        let Some(state) = self.pools.get(pool) else { return };
        let generation = state.generation(worker);
        let updated = update(store, &state.keys().learned, |bytes| {
            let mut page = LearnedPage::open(bytes)?;
            let mut row = page.worker(worker, generation);
            change(&mut page, &mut row);
            page.change(worker, generation, |kept| *kept = row);
            Ok((Some(page.into_bytes()), ()))
        });
        self.note(updated.map(|((), is_stored)| is_stored));
    }
}

/// Corrects what a worker's cache is believed to keep by what of a prompt was there: less than the age of what was
/// missing, more than the age of what was still there. Each answer moves it by a quarter of the way.
///
/// What was touched a moment ago and is missing all the same says nothing of the capacity: it may not have been computed
/// yet. Source of the rule and its numbers: the routing study that the default policy is from.
fn correct_capacity(row: &mut LearnedWorker, kv_spans: f64, recorded: &Recorded, cached_bytes: f64) {
    let mut capacity = kv_spans * f64::from(row.capacity_factor);
    let believed = capacity;
    let is_there = |end_bytes: u64| end_bytes as f64 * (1.0 - TOLERANCE_SHARE) - TOLERANCE_BYTES <= cached_bytes;
    let mut begin_bytes = 0;
    let mut confirmed_age = 0_u32;
    for segment in recorded.segments() {
        if begin_bytes as f64 + TOLERANCE_BYTES < cached_bytes {
            confirmed_age = confirmed_age.max(segment.age);
        }
        if !is_there(segment.end_bytes) {
            // Nothing at all of what was touched lately: more likely a request that the engine serves without its cache
            // (`prompt_logprobs`, another chat template) than a cache so small.
            let is_telling = cached_bytes > 0.0 || f64::from(segment.age) > capacity * YOUNG_SHARE;
            if is_telling && segment.idle_s > IDLE_S_MIN && f64::from(segment.age) < capacity {
                capacity += CORRECTION * (0.9 * f64::from(segment.age) - capacity);
            }
            break;
        }
        begin_bytes = segment.end_bytes;
    }
    if f64::from(confirmed_age) > 0.8 * capacity {
        capacity += CORRECTION * (1.25 * f64::from(confirmed_age) - capacity).max(0.0);
    }
    if capacity != believed && kv_spans > 0.0 {
        row.set_capacity_factor((capacity / kv_spans) as f32);
    }
}

/// A part that is missing counts only beyond this: engines cache whole blocks, and bytes a token vary within a prompt.
const TOLERANCE_BYTES: f64 = 1_024.0;
const TOLERANCE_SHARE: f64 = 1.0 / 16.0;

/// What was touched at most so many seconds ago may be missing because it is not computed yet.
const IDLE_S_MIN: u32 = 3;

/// Up to this share of a worker's capacity what was touched is too young to be missing altogether.
const YOUNG_SHARE: f64 = 0.25;

/// The part of the way that one answer moves a worker's capacity.
const CORRECTION: f64 = 0.25;

/// Whether a status says that the worker failed. "Not implemented" and "HTTP version not supported" are the request's
/// fault, as all 4xx are.
const fn is_failure(status: u32) -> bool {
    status >= 500 && status != 501 && status != 505
}
