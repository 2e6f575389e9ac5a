//! NVIDIA Dynamo's KV router: prefill blocks plus decode blocks, the lowest sum wins.
//!
//! Source: ai-dynamo/dynamo `docs/.../router-concepts.md` and `lib/llm/src/kv_router/scheduling/selector.rs`, main of
//! 2026, with its defaults: overlap weight 1, temperature 0, no KV events (`--no-router-kv-events`), so an approximate
//! index with `--router-ttl-secs` 120.
//!
//! ```text
//! prefill = (active prefill tokens + prompt tokens - matched tokens) / block size
//! decode  = active blocks, with this request's          (a block that several active requests share counts once)
//! cost    = prefill + decode
//! ```
//!
//! Blocks are 16 tokens, and matches known by whole pieces of the prompt. Its frontend has the tokenizer, so prompts are
//! counted exactly. Answers' blocks are not tracked (`--router-track-output-blocks` is off).

use std::collections::HashMap;

use warmroute::rng::Rng;

use super::bookkeeping::{Choice, Counted, Load, Rule, cheapest, members};
use super::index::{Index, Memory};
use super::{PeerRegistration, PeerSetup};
use crate::policy::View;
use crate::request::Request;

/// See the file's documentation.
pub(super) const REGISTRATION: PeerRegistration = PeerRegistration {
    name: "dynamo-linear",
    doc: "Dynamo KV router without events: prefill blocks + unique active blocks, index TTL 120 s",
    shares_nothing: true,
    build: |setup: PeerSetup| Box::new(Counted::new(Linear::new(setup.seed))),
};

const BLOCK_TOKENS: u32 = 16;
const OVERLAP_WEIGHT: f64 = 1.0;
const MEMORY: Memory = Memory::Seconds(120.0);

#[derive(Debug)]
struct Linear {
    index: Index,
    active: Vec<ActiveBlocks>,
    rng: Rng,
}

/// The blocks that a worker's requests use, each once.
#[derive(Clone, Debug, Default)]
struct ActiveBlocks {
    /// Whole piece -> requests that use it.
    users: HashMap<u64, u32>,
    /// Blocks of all whole pieces in use, and of the unfinished ends of prompts, which nobody shares.
    blocks: u64,
}

impl ActiveBlocks {
    /// Blocks that there would be more if `request` came.
    fn added_by(&self, request: &Request) -> u64 {
        let whole = request.pieces.iter().take(request.whole_pieces());
        let new_pieces = whole.filter(|piece| !self.users.contains_key(piece)).count() as u64;
        new_pieces * piece_blocks(request) + tail_blocks(request)
    }

    fn add(&mut self, request: &Request) {
        self.blocks += self.added_by(request);
        for piece in request.pieces.iter().take(request.whole_pieces()) {
            *self.users.entry(*piece).or_default() += 1;
        }
    }

    fn remove(&mut self, request: &Request) {
        self.blocks -= tail_blocks(request);
        for piece in request.pieces.iter().take(request.whole_pieces()) {
            let Some(users) = self.users.get_mut(piece) else { continue };
            *users -= 1;
            if *users == 0 {
                self.users.remove(piece);
                self.blocks -= piece_blocks(request);
            }
        }
    }
}

fn piece_blocks(request: &Request) -> u64 {
    u64::from(request.piece_tokens.div_ceil(BLOCK_TOKENS))
}

/// Blocks of the prompt behind its last whole piece.
fn tail_blocks(request: &Request) -> u64 {
    let whole_tokens = request.whole_pieces() as u32 * request.piece_tokens;
    u64::from((request.prompt_tokens - whole_tokens).div_ceil(BLOCK_TOKENS))
}

impl Linear {
    fn new(seed: u64) -> Self {
        Self { index: Index::default(), active: Vec::new(), rng: Rng::new(seed) }
    }
}

impl Rule for Linear {
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice {
        self.active.resize(loads.len(), ActiveBlocks::default());
        let matched = self.index.matched_tokens(request, loads.len(), MEMORY, view.now_s);
        let cost = |worker: usize| {
            let prefill_tokens = loads[worker].pending_tokens + u64::from(request.prompt_tokens - matched[worker]);
            let active = &self.active[worker];
            let decode_blocks = active.blocks + active.added_by(request);
            OVERLAP_WEIGHT * prefill_tokens as f64 / f64::from(BLOCK_TOKENS) + decode_blocks as f64
        };
        let worker = cheapest(members(view), &mut self.rng, cost);
        self.active[worker].add(request);
        self.index.record(worker, request, MEMORY, view.now_s);
        Choice { worker, uncached_tokens: request.prompt_tokens - matched[worker] }
    }

    fn ended(&mut self, worker: usize, request: &Request) {
        self.active[worker].remove(request);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{choose, request};
    use super::*;

    #[test]
    fn shared_blocks_count_once_and_go_with_their_last_user() {
        let mut active = ActiveBlocks::default();
        let mut long = request(&[1, 2, 4]);
        long.prompt_tokens -= 50;
        active.add(&request(&[1, 2]));
        assert_eq!(active.blocks, 8);
        assert_eq!(active.added_by(&long), 1, "14 tokens behind the two known pieces");
        active.add(&long);
        active.remove(&request(&[1, 2]));
        assert_eq!(active.blocks, 9, "still used by the other");
        active.remove(&long);
        assert_eq!((active.blocks, active.users.len()), (0, 0));
    }

    #[test]
    fn prefill_and_decode_blocks_add_up() {
        // The prompt has 16 blocks; worker 0 was sent the first 8, which are still active there.
        for (name, loads, chosen) in [
            ("8 + 16 against 16 + 16", [(1, 0), (0, 0)], 0),
            ("7 blocks more to prefill", [(1, 7 * 16), (0, 0)], 0),
            ("9 blocks more to prefill", [(1, 9 * 16), (0, 0)], 1),
        ] {
            let mut rule = Linear::new(1);
            assert_eq!(choose(&mut rule, &[1, 2], &[(0, 0), (0, 16)]), 0);
            assert_eq!(choose(&mut rule, &[1, 2, 3, 4], &loads), chosen, "{name}");
        }
        let mut rule = Linear::new(1);
        assert_eq!(choose(&mut rule, &[1, 2], &[(0, 0), (0, 16)]), 0);
        assert_eq!(choose(&mut rule, &[7, 8], &[(1, 0), (0, 0)]), 1, "decode blocks of the first keep a stranger away");
    }
}
