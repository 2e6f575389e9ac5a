//! What one event teaches of its worker: kept until the page of what was learned is written.

use crate::config::HealthConfig;
use crate::exchange::PromptSize;
use crate::index::{Recorded, SPAN_BYTES};
use crate::shared::learned::{LearnedPage, LearnedWorker};
use crate::time::Timestamp;
use crate::worker::WorkerId;

/// Something that happened at a worker, in one of its lives.
#[derive(Clone, Debug)]
pub(super) struct Lesson {
    pub(super) worker: WorkerId,
    pub(super) generation: u32,
    pub(super) event: Event,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// It was sent a request.
    Sent {
        /// How much of the prompt was new to it, spans.
        spans: u32,
        /// Prompt tokens that are taken to be in no cache; `None` if the prompt was not read as a whole.
        uncached_tokens: Option<f64>,
        /// Whether nobody held any of the prompt.
        is_cold: bool,
        now: Timestamp,
    },
    /// It serves a prompt that another one was sent: so many spans are new to it.
    TookOver { spans: u32 },
    /// It did not build the prompt that it was sent, so many spans of which were new to it.
    DidNotBuild { spans: u32 },
    /// It failed a request that was sent at `sent_at`, perhaps after it had begun to answer.
    Failed { sent_at: Timestamp, now: Timestamp, was_begun: bool },
    /// It served a request that was sent at `sent_at`.
    Served { sent_at: Timestamp, now: Timestamp },
    /// It refused a request that was sent at `sent_at`, for the request's own fault.
    Refused { sent_at: Timestamp },
    /// It answered, and told how many tokens that took.
    Told(Told),
}

/// What an answer's `usage` says.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// The prompt as this gateway knows it, and its tokens as the engine counted them: at least one.
    pub(super) prompt: PromptSize,
    pub(super) prompt_tokens: u32,
    pub(super) completion_tokens: u32,
    /// Those of the prompt's tokens that were in the cache; `None` if the engine does not say.
    pub(super) cached_tokens: Option<u32>,
    /// What the worker's cache has room for.
    pub(super) kv_tokens: f64,
    /// What the worker was believed to hold of the prompt.
    pub(super) recorded: Recorded,
    /// When the request was sent, and when it was answered.
    pub(super) sent_at: Timestamp,
    pub(super) now: Timestamp,
}

impl Lesson {
    /// Whether it says who fails: that must not be lost, while averages hardly miss a lesson. `page` has taken it in.
    pub(super) fn is_of_conduct(&self, page: &LearnedPage) -> bool {
        match &self.event {
            Event::Failed { .. } | Event::Served { .. } | Event::Refused { .. } => true,
            // The one that shows whether the worker works again.
            Event::Sent { .. } => page.worker(self.worker, self.generation).failures.is_marked,
            Event::TookOver { .. } | Event::DidNotBuild { .. } | Event::Told(_) => false,
        }
    }

    /// Takes the lesson into the page; returns whether the worker is ejected by it.
    pub(super) fn apply(&self, page: &mut LearnedPage, health: &HealthConfig) -> bool {
        match &self.event {
            Event::Sent { uncached_tokens: Some(tokens), .. } => page.learn_uncached_tokens(*tokens),
            Event::Told(told) if told.prompt.is_whole => {
                page.learn_bytes_per_token(told.prompt.bytes, told.prompt_tokens);
            }
            _ => {}
        }
        let bytes_per_token = page.bytes_per_token();
        let mut is_ejected = false;
        page.change(self.worker, self.generation, |row| is_ejected = self.event.apply(row, bytes_per_token, health));
        is_ejected
    }
}

impl Event {
    /// Takes it into the worker's row; returns whether the worker is ejected by it. `bytes_per_token` = the pool's average.
    fn apply(&self, row: &mut LearnedWorker, bytes_per_token: f64, health: &HealthConfig) -> bool {
        match self {
            Self::Sent { spans, is_cold, now, .. } => {
                row.odometer = row.odometer.wrapping_add(*spans);
                row.failures.probe(*now, health);
                if *is_cold {
                    row.cold_pick_at = *now;
                }
            }
            Self::TookOver { spans } => row.odometer = row.odometer.wrapping_add(*spans),
            // No other text had to go for it.
            Self::DidNotBuild { spans } => row.odometer = row.odometer.wrapping_sub(*spans),
            Self::Failed { sent_at, now, was_begun } => {
                if *was_begun {
                    row.failures.take_back_success(*now);
                }
                return row.failures.fail(*sent_at, *now, health);
            }
            Self::Served { sent_at, now } => row.failures.succeed(*sent_at, *now),
            Self::Refused { sent_at } => row.failures.refuse(*sent_at),
            Self::Told(told) => told.apply(row, bytes_per_token),
        }
        false
    }
}

impl Told {
    /// Bytes that make a token in this prompt.
    pub(super) fn bytes_per_token(&self) -> f64 {
        self.prompt.bytes as f64 / f64::from(self.prompt_tokens)
    }

    fn apply(&self, row: &mut LearnedWorker, pool_bytes_per_token: f64) {
        // The answer takes room in the cache too.
        let answer_bytes = f64::from(self.completion_tokens) * self.bytes_per_token();
        row.odometer = row.odometer.wrapping_add((answer_bytes / SPAN_BYTES as f64) as u32);
        // Among its last requests it is counted where anybody knew that it failed some: see `Served`.
        row.failures.clear(self.sent_at, self.now);
        row.tells_cached |= self.cached_tokens.is_some_and(|cached| cached > 0);
        if let Some(cached_tokens) = self.cached_tokens.or_else(|| row.tells_cached.then_some(0)) {
            let cached_bytes = f64::from(cached_tokens) * self.bytes_per_token();
            let kv_spans = self.kv_tokens * pool_bytes_per_token / SPAN_BYTES as f64;
            correct_capacity(row, kv_spans, &self.recorded, cached_bytes);
        }
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
