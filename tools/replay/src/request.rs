//! One request of a workload: when it comes, what its prompt shares with others', and how long its answer gets.

use std::sync::Arc;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When it comes, seconds since the start of the workload. Workloads are sorted by it.
    pub arrival_s: f64,
    /// The prompt in pieces of [`piece_tokens`](Self::piece_tokens); the last one may be shorter. A piece's id stands
    /// for its text *and all before it*: two prompts are equal up to a piece's end if and only if they have its id.
    pub pieces: Arc<[u64]>,
    /// Tokens of a whole piece: 512 in the Mooncake traces, 64 in the generators. What engines and policies share of
    /// two prompts is known to this grain.
    pub piece_tokens: u32,
    /// Tokens of the prompt, at least 1.
    pub prompt_tokens: u32,
    /// Tokens of the answer, at least 1.
    pub output_tokens: u32,
    /// The pieces that prompt and answer have beyond the prompt's whole pieces, for a next turn that repeats them; empty
    /// where answers never come back (Mooncake). They continue [`pieces`](Self::pieces) without its unfinished last one.
    pub output_pieces: Arc<[u64]>,
    /// Which conversation it belongs to, as nobody but a session-aware policy knows.
    pub session: u64,
}

impl Request {
    /// Pieces of the prompt that are complete: only these can be in a cache.
    #[must_use]
    pub fn whole_pieces(&self) -> usize {
        self.pieces.len().min((self.prompt_tokens / self.piece_tokens) as usize)
    }
}
