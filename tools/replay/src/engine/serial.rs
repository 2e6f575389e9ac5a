//! The simplest engine that still has a cache: serial prefill, no contention in decode.
//!
//! Prompts are prefilled one after the other at a fixed rate; each output token then takes a fixed time, however many
//! others there are. The cache is an LRU of pieces, filled when a request arrives. Nothing is hidden in it, so whoever
//! doubts a figure can write it again in fifty lines.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Engine, EngineEvent, Progress};
use crate::policy::Report;
use crate::request::Request;

/// What a serial engine is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SerialSetup {
    /// Pieces that the cache holds.
    pub cache_pieces: usize,
    /// Tokens of a piece, for [`Engine::kv_tokens`].
    pub piece_tokens: u32,
    /// Prompt tokens that it prefills in a second.
    pub prefill_tokens_per_s: f64,
    /// Seconds for each output token.
    pub output_token_s: f64,
}

/// The serial model of an engine.
pub struct SerialEngine {
    setup: SerialSetup,
    cache: PieceLru,
    /// When the prefill of all that has arrived is done.
    free_at_s: f64,
    /// What is to happen, by time (as sortable bits) and then by order of arrival.
    due: BTreeMap<(u64, u64), EngineEvent>,
    events_scheduled: u64,
    prefilling: u32,
    decoding: u32,
    life: u32,
}

impl SerialEngine {
    /// An idle engine with an empty cache.
    #[must_use]
    pub fn new(setup: SerialSetup) -> Self {
        Self {
            setup,
            cache: PieceLru::new(setup.cache_pieces),
            free_at_s: 0.0,
            due: BTreeMap::new(),
            events_scheduled: 0,
            prefilling: 0,
            decoding: 0,
            life: 0,
        }
    }

    fn schedule(&mut self, at_s: f64, ticket: u64, progress: Progress) {
        self.events_scheduled += 1;
        self.due.insert((at_s.to_bits(), self.events_scheduled), EngineEvent { ticket, progress });
    }
}

impl Engine for SerialEngine {
    fn submit(&mut self, ticket: u64, request: &Request, now_s: f64, _events: &mut Vec<EngineEvent>) {
        let cached_tokens = self.cached_tokens(request);
        self.cache.touch(&request.pieces);
        let uncached_tokens = uncached_tokens(request, cached_tokens);
        let first_byte_s = now_s.max(self.free_at_s) + f64::from(uncached_tokens) / self.setup.prefill_tokens_per_s;
        self.free_at_s = first_byte_s;
        self.prefilling += 1;
        let end_s = first_byte_s + f64::from(request.output_tokens) * self.setup.output_token_s;
        let cached_tokens = request.prompt_tokens - uncached_tokens;
        self.schedule(first_byte_s, ticket, Progress::FirstByte);
        self.schedule(end_s, ticket, Progress::Finished { cached_tokens });
    }

    fn next_event_s(&self) -> Option<f64> {
        self.due.first_key_value().map(|(&(time_bits, _), _)| f64::from_bits(time_bits))
    }

    fn advance(&mut self, now_s: f64, events: &mut Vec<EngineEvent>) {
        while let Some(entry) = self.due.first_entry() {
            if f64::from_bits(entry.key().0) > now_s {
                break;
            }
            let event = entry.remove();
            if event.progress == Progress::FirstByte {
                self.prefilling -= 1;
                self.decoding += 1;
            } else {
                self.decoding -= 1;
            }
            events.push(event);
        }
    }

    fn report(&self, now_s: f64) -> Report {
        // One prompt is in prefill, the others wait for it. This model has no memory that could run out.
        let waiting = self.prefilling.saturating_sub(1);
        let running = self.prefilling + self.decoding - waiting;
        Report { taken_at_s: now_s, waiting, running, kv_usage: 0.0, life: self.life }
    }

    fn restart(&mut self, now_s: f64, events: &mut Vec<EngineEvent>) {
        let ends = std::mem::take(&mut self.due).into_values().filter(|event| event.progress != Progress::FirstByte);
        events.extend(ends.map(|event| EngineEvent { progress: Progress::Failed, ..event }));
        self.cache = PieceLru::new(self.setup.cache_pieces);
        self.free_at_s = now_s;
        self.prefilling = 0;
        self.decoding = 0;
        self.life += 1;
    }

    fn cached_tokens(&self, request: &Request) -> u32 {
        // An unfinished last piece counts here, as in the block lists of the traces themselves.
        let pieces = u32::try_from(self.cache.matched(&request.pieces)).unwrap_or(u32::MAX);
        pieces.saturating_mul(request.piece_tokens).min(request.prompt_tokens)
    }

    fn backlog_tokens(&self, now_s: f64) -> f64 {
        (self.free_at_s - now_s).max(0.0) * self.setup.prefill_tokens_per_s
    }

    fn requests(&self) -> u32 {
        self.prefilling + self.decoding
    }

    fn ttft_s(&self, request: &Request, now_s: f64) -> f64 {
        let own_tokens = f64::from(uncached_tokens(request, self.cached_tokens(request)));
        (self.backlog_tokens(now_s) + own_tokens) / self.setup.prefill_tokens_per_s
    }

    fn kv_tokens(&self) -> u32 {
        u32::try_from(self.setup.cache_pieces).unwrap_or(u32::MAX).saturating_mul(self.setup.piece_tokens)
    }
}

/// At least one token is computed even of a prompt that is cached whole: the first token of the answer comes from it.
fn uncached_tokens(request: &Request, cached_tokens: u32) -> u32 {
    (request.prompt_tokens - cached_tokens).max(1)
}

/// A set of pieces that forgets the least recently touched ones.
struct PieceLru {
    capacity: usize,
    touches: u64,
    last_touch: HashMap<u64, u64>,
    /// Every touch in order; those that are not a piece's last one are passed over.
    order: VecDeque<(u64, u64)>,
}

impl PieceLru {
    fn new(capacity: usize) -> Self {
        Self { capacity, touches: 0, last_touch: HashMap::new(), order: VecDeque::new() }
    }

    fn matched(&self, pieces: &[u64]) -> usize {
        pieces.iter().take_while(|piece| self.last_touch.contains_key(piece)).count()
    }

    fn touch(&mut self, pieces: &[u64]) {
        for &piece in pieces {
            self.touches += 1;
            self.last_touch.insert(piece, self.touches);
            self.order.push_back((piece, self.touches));
        }
        while self.last_touch.len() > self.capacity {
            let Some((piece, touch)) = self.order.pop_front() else { break };
            if self.last_touch.get(&piece) == Some(&touch) {
                self.last_touch.remove(&piece);
            }
        }
    }
}
