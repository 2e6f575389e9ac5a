//! One request inside a batching engine.

use super::kv_cache::BLOCK_TOKENS;
use super::step_time::prefill_pairs;
use crate::request::Request;

/// A request, how far it is, and the blocks it has.
pub(super) struct Sequence {
    pub(super) ticket: u64,
    pub(super) request: Request,
    /// Tokens whose keys and values are computed, of the prompt and then of the answer.
    pub(super) computed_tokens: u32,
    /// Tokens of the answer so far.
    pub(super) output_tokens: u32,
    /// Tokens that the step under way computes.
    pub(super) scheduled_tokens: u32,
    /// Pieces of the chain, from its start, that it refers to in the cache.
    pub(super) referred_pieces: u32,
    /// Blocks behind these that are its own.
    pub(super) own_blocks: u32,
    /// What the cache had of the prompt when it got its first turn.
    pub(super) cached_tokens: Option<u32>,
    /// What it will find at that turn, as it looked when it came.
    pub(super) expected_cached_tokens: u32,
}

impl Sequence {
    pub(super) fn new(ticket: u64, request: &Request, expected_cached_tokens: u32) -> Self {
        Self {
            ticket,
            request: request.clone(),
            computed_tokens: 0,
            output_tokens: 0,
            scheduled_tokens: 0,
            referred_pieces: 0,
            own_blocks: 0,
            cached_tokens: None,
            expected_cached_tokens,
        }
    }

    /// Tokens to compute until the next token of the answer comes out.
    pub(super) fn target_tokens(&self) -> u32 {
        self.request.prompt_tokens + self.output_tokens
    }

    /// Whether all that it needs is one more token of the answer.
    pub(super) fn is_decoding(&self) -> bool {
        self.output_tokens > 0 && self.computed_tokens + 1 == self.target_tokens()
    }

    /// Whether the step under way gives it a token of the answer.
    pub(super) fn yields_token(&self) -> bool {
        self.scheduled_tokens > 0 && self.computed_tokens + self.scheduled_tokens == self.target_tokens()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.output_tokens >= self.request.output_tokens
    }

    pub(super) fn blocks_per_piece(&self) -> u32 {
        self.request.piece_tokens / BLOCK_TOKENS
    }

    /// A piece of prompt and answer, by its place; `None` where the text will never come back.
    pub(super) fn piece(&self, place: u32) -> Option<u64> {
        let whole = self.request.whole_pieces();
        let place = place as usize;
        if place < whole {
            self.request.pieces.get(place).copied()
        } else {
            self.request.output_pieces.get(place - whole).copied()
        }
    }

    /// The chain's first pieces.
    pub(super) fn chain(&self, pieces: u32) -> impl DoubleEndedIterator<Item = u64> {
        (0..pieces).filter_map(|place| self.piece(place))
    }

    /// Blocks that `tokens` more need beyond those it has.
    pub(super) fn blocks_missing(&self, tokens: u32) -> u32 {
        let needed = (self.computed_tokens + tokens).div_ceil(BLOCK_TOKENS);
        needed.saturating_sub(self.referred_pieces * self.blocks_per_piece() + self.own_blocks)
    }

    /// Blocks when its last token is computed. The last token of the answer is never fed back.
    pub(super) fn blocks_at_end(&self) -> u32 {
        (self.request.prompt_tokens + self.request.output_tokens - 1).div_ceil(BLOCK_TOKENS)
    }

    /// Tokens still to prefill after the step under way, and the pairs of attention in them.
    pub(super) fn prefill_left(&self) -> (f64, f64) {
        let mut done = self.computed_tokens + self.scheduled_tokens;
        if self.cached_tokens.is_none() {
            done = self.expected_cached_tokens;
        }
        let left = f64::from(self.target_tokens().saturating_sub(done));
        (left, prefill_pairs(left, f64::from(done)))
    }
}
