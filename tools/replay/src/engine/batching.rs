//! An engine with continuous batching, chunked prefill and a paged cache, after vLLM's V1 scheduler.
//!
//! ```text
//! step:  running requests first, in order     one output token, or a chunk of prompt up to what is left of the budget
//!        then the queue, first come first     prefix looked up now; pieces can be found as soon as they are scheduled
//!        no block left for a running one      the youngest running request gives up its blocks and queues in front
//! end:   tokens out, reports written, next step
//! ```
//!
//! Source: vLLM `vllm/v1/core/sched/scheduler.py`. Not modelled: KV cache on the host, speculative decode, split
//! prefill and decode, adapters, block hashes finer than a workload's pieces.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::kv_cache::{BLOCK_TOKENS, KvCache, PieceHasher};
use super::sequence::Sequence;
use super::step_time::{StepTime, StepWork, prefill_pairs};
use super::{Engine, EngineEvent, Progress};
use crate::policy::Report;
use crate::request::Request;

/// What a batching engine is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchingSetup {
    /// How long its steps take.
    pub step_time: StepTime,
    /// KV-cache capacity, tokens.
    pub kv_tokens: u32,
    /// Tokens that one step may compute, as vLLM's `--max-num-batched-tokens`.
    pub step_tokens_max: u32,
    /// Requests that run at once, as vLLM's `--max-num-seqs`.
    pub running_max: usize,
    /// How fast it is: 0.5 takes twice the time for each step.
    pub speed: f64,
}

impl BatchingSetup {
    /// vLLM's usual limits for a server.
    #[must_use]
    pub const fn new(step_time: StepTime, kv_tokens: u32) -> Self {
        Self { step_time, kv_tokens, step_tokens_max: 8192, running_max: 256, speed: 1.0 }
    }
}

/// The batching model of an engine.
pub struct BatchingEngine {
    setup: BatchingSetup,
    cache: KvCache,
    waiting: VecDeque<Sequence>,
    /// By admission, oldest first.
    running: Vec<Sequence>,
    /// When the step under way ends; `None`: idle.
    step_end_s: Option<f64>,
    /// How many requests that are not prefilled yet will bring a piece.
    coming: HashMap<u64, u32, BuildHasherDefault<PieceHasher>>,
    report: Report,
    /// Requests left in the queue when the step under way was put together.
    waiting_at_step: u32,
    preemptions: u64,
}

impl BatchingEngine {
    /// An idle engine with an empty cache.
    #[must_use]
    pub fn new(setup: BatchingSetup) -> Self {
        Self {
            setup,
            cache: KvCache::new(setup.kv_tokens),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_end_s: None,
            coming: HashMap::default(),
            report: Report::default(),
            waiting_at_step: 0,
            preemptions: 0,
        }
    }

    /// How often a running request had to give up its blocks.
    #[must_use]
    pub const fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Its cache.
    #[must_use]
    pub const fn cache(&self) -> &KvCache {
        &self.cache
    }

    fn start_step(&mut self, now_s: f64) {
        let mut budget = self.setup.step_tokens_max;
        let has_preempted = self.schedule_running(&mut budget);
        if !has_preempted {
            self.admit(&mut budget);
        }
        self.waiting_at_step = self.waiting.len().try_into().unwrap_or(u32::MAX);
        if self.running.is_empty() {
            self.step_end_s = None;
            return;
        }
        let mut work = StepWork::default();
        for sequence in self.running.iter().filter(|sequence| sequence.scheduled_tokens > 0) {
            if sequence.is_decoding() {
                work.add_decode(sequence.computed_tokens);
            } else {
                work.add_prefill(sequence.scheduled_tokens, sequence.computed_tokens);
            }
        }
        self.step_end_s = Some(now_s + self.setup.step_time.step_s(&work) / self.setup.speed);
    }

    /// Gives each running request its tokens. Whether it had to preempt.
    fn schedule_running(&mut self, budget: &mut u32) -> bool {
        let mut has_preempted = false;
        let mut place = 0;
        while place < self.running.len() {
            let sequence = &self.running[place];
            let tokens = (sequence.target_tokens() - sequence.computed_tokens).min(*budget);
            if self.cache.allocate(sequence.blocks_missing(tokens)) {
                let sequence = &mut self.running[place];
                take_tokens(&mut self.cache, sequence, tokens);
                *budget -= tokens;
                place += 1;
            } else {
                // The last one may be this one itself; then the loop ends.
                self.preempt_last();
                has_preempted = true;
            }
        }
        has_preempted
    }

    fn preempt_last(&mut self) {
        let Some(mut sequence) = self.running.pop() else { return };
        release(&mut self.cache, &mut sequence);
        sequence.computed_tokens = 0;
        sequence.scheduled_tokens = 0;
        self.waiting.push_front(sequence);
        self.preemptions += 1;
    }

    fn admit(&mut self, budget: &mut u32) {
        while *budget > 0 && self.running.len() < self.setup.running_max {
            let Some(head) = self.waiting.front() else { return };
            let pieces = self.matched_pieces(head);
            // The last token is computed in any case: the next one comes from it. So at most whole blocks before it.
            let reusable_tokens = (head.target_tokens() - 1) / BLOCK_TOKENS * BLOCK_TOKENS;
            let cached_tokens = (pieces * head.request.piece_tokens).min(reusable_tokens);
            let tokens = (head.target_tokens() - cached_tokens).min(*budget);
            let blocks = (cached_tokens + tokens).div_ceil(BLOCK_TOKENS);
            let missing = blocks.saturating_sub(pieces * head.blocks_per_piece());
            if self.cache.blocks_available(head.chain(pieces)) < missing {
                return;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { return };
            sequence.chain(pieces).for_each(|piece| self.cache.refer(piece));
            sequence.referred_pieces = pieces;
            sequence.computed_tokens = cached_tokens;
            sequence.cached_tokens.get_or_insert(cached_tokens);
            let is_allocated = self.cache.allocate(missing);
            debug_assert!(is_allocated, "the blocks were counted just now");
            take_tokens(&mut self.cache, &mut sequence, tokens);
            *budget -= tokens;
            self.running.push(sequence);
        }
    }

    /// Pieces of prompt and answer so far, from the start, that the cache holds.
    fn matched_pieces(&self, sequence: &Sequence) -> u32 {
        let whole = sequence.target_tokens() / sequence.request.piece_tokens;
        let is_held = |&place: &u32| sequence.piece(place).is_some_and(|piece| self.cache.contains(piece));
        (0..whole).take_while(is_held).count().try_into().unwrap_or(whole)
    }

    fn finish_step(&mut self, now_s: f64, events: &mut Vec<EngineEvent>) {
        let mut has_finished = false;
        for sequence in &mut self.running {
            let yields_token = sequence.yields_token();
            sequence.computed_tokens += sequence.scheduled_tokens;
            sequence.scheduled_tokens = 0;
            if !yields_token {
                continue;
            }
            sequence.output_tokens += 1;
            if sequence.output_tokens == 1 {
                forget_coming(&mut self.coming, &sequence.request);
                events.push(EngineEvent { ticket: sequence.ticket, progress: Progress::FirstByte });
            }
            has_finished |= sequence.is_finished();
        }
        if has_finished {
            self.retire_finished(events);
        }
        // Requests that came during the step are not in the engine's own queue before the next one.
        self.report = Report {
            taken_at_s: now_s,
            waiting: self.waiting_at_step,
            running: self.running.len().try_into().unwrap_or(u32::MAX),
            kv_usage: f64::from(self.cache.blocks_in_use()) / f64::from(self.cache.blocks_total().max(1)),
            life: self.report.life,
        };
    }

    fn retire_finished(&mut self, events: &mut Vec<EngineEvent>) {
        for mut sequence in self.running.extract_if(.., |sequence| sequence.is_finished()) {
            release(&mut self.cache, &mut sequence);
            let cached_tokens = sequence.cached_tokens.unwrap_or_default();
            events.push(EngineEvent { ticket: sequence.ticket, progress: Progress::Finished { cached_tokens } });
        }
    }

    /// Seconds to prefill `tokens` with `pairs` of attention beside the streams that decode now.
    fn prefill_s(&self, tokens: f64, pairs: f64) -> f64 {
        let decoding = self.running.iter().filter(|sequence| sequence.output_tokens > 0);
        let (streams, context) = decoding.fold((0.0, 0.0), |(streams, context), sequence| {
            (streams + 1.0, context + f64::from(sequence.target_tokens()))
        });
        let chunk = (f64::from(self.setup.step_tokens_max) - streams).max(1.0);
        let constants = &self.setup.step_time;
        let step_s = constants.base_s + constants.decode_request_s * streams + constants.decode_context_s * context;
        let prompt_s = constants.prefill_token_s * tokens + constants.prefill_attention_s * pairs;
        ((tokens / chunk).ceil() * step_s + prompt_s) / self.setup.speed
    }

    /// Tokens still to prefill after the step under way, and the pairs of attention in them.
    fn prefill_left(&self) -> (f64, f64) {
        let prefilling = self.running.iter().filter(|sequence| sequence.output_tokens == 0);
        let left = self.waiting.iter().chain(prefilling).map(Sequence::prefill_left);
        left.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Engine for BatchingEngine {
    fn submit(&mut self, ticket: u64, request: &Request, now_s: f64, events: &mut Vec<EngineEvent>) {
        let sequence = Sequence::new(ticket, request, self.cached_tokens(request));
        if sequence.blocks_at_end() > self.cache.blocks_total() {
            events.push(EngineEvent { ticket, progress: Progress::Failed });
            return;
        }
        for &piece in request.pieces.iter().take(request.whole_pieces()) {
            *self.coming.entry(piece).or_default() += 1;
        }
        self.waiting.push_back(sequence);
        if self.step_end_s.is_none() {
            self.start_step(now_s);
        }
    }

    fn next_event_s(&self) -> Option<f64> {
        self.step_end_s
    }

    fn advance(&mut self, now_s: f64, events: &mut Vec<EngineEvent>) {
        if self.step_end_s.is_some_and(|end_s| end_s <= now_s) {
            self.finish_step(now_s, events);
            self.start_step(now_s);
        }
    }

    fn report(&self, _now_s: f64) -> Report {
        self.report
    }

    fn restart(&mut self, now_s: f64, events: &mut Vec<EngineEvent>) {
        let lost = self.running.drain(..).chain(self.waiting.drain(..));
        events.extend(lost.map(|sequence| EngineEvent { ticket: sequence.ticket, progress: Progress::Failed }));
        self.cache = KvCache::new(self.setup.kv_tokens);
        self.coming.clear();
        self.step_end_s = None;
        self.report = Report { taken_at_s: now_s, life: self.report.life + 1, ..Report::default() };
    }

    fn cached_tokens(&self, request: &Request) -> u32 {
        let is_here = |piece: &&u64| self.cache.contains(**piece) || self.coming.contains_key(*piece);
        let pieces = request.pieces.iter().take(request.whole_pieces()).take_while(is_here).count();
        let reusable_tokens = (request.prompt_tokens - 1) / BLOCK_TOKENS * BLOCK_TOKENS;
        u32::try_from(pieces).unwrap_or(u32::MAX).saturating_mul(request.piece_tokens).min(reusable_tokens)
    }

    fn backlog_tokens(&self, now_s: f64) -> f64 {
        let Some(end_s) = self.step_end_s else { return 0.0 };
        // What the step under way has still to do counts in proportion to its time, and at most whole.
        let scheduled: f64 =
            self.running.iter().filter(|one| one.output_tokens == 0).map(|one| f64::from(one.scheduled_tokens)).sum();
        let tokens_in_time = (end_s - now_s).max(0.0) * self.setup.speed / self.setup.step_time.prefill_token_s;
        self.prefill_left().0 + scheduled.min(tokens_in_time)
    }

    fn requests(&self) -> u32 {
        (self.running.len() + self.waiting.len()).try_into().unwrap_or(u32::MAX)
    }

    fn ttft_s(&self, request: &Request, now_s: f64) -> f64 {
        let cached_tokens = f64::from(self.cached_tokens(request));
        let own_tokens = f64::from(request.prompt_tokens) - cached_tokens;
        let (tokens, pairs) = self.prefill_left();
        let step_left_s = self.step_end_s.map_or(0.0, |end_s| (end_s - now_s).max(0.0));
        step_left_s + self.prefill_s(tokens + own_tokens, pairs + prefill_pairs(own_tokens, cached_tokens))
    }

    fn kv_tokens(&self) -> u32 {
        self.setup.kv_tokens
    }
}

/// Plans `tokens` of a request into the step. Its new blocks are allocated; those of complete pieces can be found by
/// requests that are admitted later in the same step.
fn take_tokens(cache: &mut KvCache, sequence: &mut Sequence, tokens: u32) {
    let blocks_per_piece = sequence.blocks_per_piece();
    let blocks_before = sequence.referred_pieces * blocks_per_piece + sequence.own_blocks;
    let blocks = (sequence.computed_tokens + tokens).div_ceil(BLOCK_TOKENS).max(blocks_before);
    sequence.own_blocks += blocks - blocks_before;
    sequence.scheduled_tokens = tokens;
    let complete_pieces = (sequence.computed_tokens + tokens) / sequence.request.piece_tokens;
    while sequence.referred_pieces < complete_pieces {
        let Some(piece) = sequence.piece(sequence.referred_pieces) else { return };
        cache.publish(piece, blocks_per_piece);
        sequence.referred_pieces += 1;
        sequence.own_blocks -= blocks_per_piece;
    }
}

fn release(cache: &mut KvCache, sequence: &mut Sequence) {
    cache.release(sequence.chain(sequence.referred_pieces), sequence.own_blocks);
    sequence.referred_pieces = 0;
    sequence.own_blocks = 0;
}

fn forget_coming(coming: &mut HashMap<u64, u32, BuildHasherDefault<PieceHasher>>, request: &Request) {
    for piece in request.pieces.iter().take(request.whole_pieces()) {
        if let Some(count) = coming.get_mut(piece) {
            *count -= 1;
            if *count == 0 {
                coming.remove(piece);
            }
        }
    }
}
