//! Laws of the chain, against a naive oracle and golden values.

use super::*;
use crate::prefix::prefix_bytes;
use crate::rng::Rng;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Collects a whole prompt, then slices it by the block table.
#[derive(Default)]
struct Naive {
    bytes: Vec<u8>,
    message_ends: Vec<usize>,
}

impl PromptSink for Naive {
    fn text(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    fn mark(&mut self, kind: u8) {
        self.bytes.extend_from_slice(&[0xff, kind]);
    }
    fn end_of_message(&mut self) {
        self.message_ends.push(self.bytes.len());
    }
    fn end_of_root(&mut self) {}
}

impl Naive {
    fn blocks(&self, seed: u64) -> Vec<BlockHash> {
        let (mut begin, mut hash, mut blocks) = (0, seed, Vec::new());
        while let Some(block) = block_bytes(blocks.len()).and_then(|bytes| self.bytes.get(begin..begin + bytes)) {
            hash = xxh3_64_with_seed(block, hash);
            blocks.push(BlockHash(hash));
            begin += block.len();
        }
        blocks
    }

    fn cuts(&self, seed: u64) -> Vec<Cut> {
        let blocks = self.blocks(seed);
        let ends: Vec<usize> = (1..=blocks.len()).map(|count| prefix_bytes(count) as usize).collect();
        let mut cuts: Vec<Cut> =
            blocks.iter().zip(&ends).map(|(&hash, &end)| Cut { hash, end_bytes: end as u32 }).collect();
        for &end in &self.message_ends {
            let before = ends.iter().filter(|&&block_end| block_end <= end).count();
            let begin = prefix_bytes(before) as usize;
            let parent = before.checked_sub(1).map_or(seed, |index| blocks[index].0);
            if begin < end {
                let hash = xxh3_64_with_seed(&self.bytes[begin..end], parent ^ MESSAGE_END_MIX);
                cuts.push(Cut { hash: BlockHash(hash), end_bytes: end as u32 });
            }
        }
        cuts.sort_by_key(|cut| cut.end_bytes);
        cuts.dedup();
        cuts.truncate(CUTS_MAX);
        cuts
    }
}

fn feed_message(sink: &mut impl PromptSink, rng: &mut Rng, bytes: usize) {
    sink.mark(2);
    let text: Vec<u8> = (0..bytes).map(|_| b'a' + rng.below(26) as u8).collect();
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(rest.len().min(1 + rng.below(700) as usize));
        sink.text(head);
        rest = tail;
    }
    sink.end_of_message();
}

/// A conversation of `messages` messages that `seed` decides: fewer messages give a prefix of more.
fn feed_conversation(sink: &mut impl PromptSink, seed: u64, messages: u32) {
    let mut lengths = Rng::new(seed);
    for message in 0..messages {
        let bytes = match lengths.below(4) {
            0 => 254, // with its mark exactly one short block
            1 => lengths.below(4),
            2 => lengths.below(600),
            _ => lengths.below(6_000),
        };
        feed_message(sink, &mut Rng::new(seed ^ u64::from(message)), bytes as usize);
    }
}

#[test]
fn the_chain_equals_the_naive_oracle() {
    let mut chain = Chain::new();
    for case in 0..300 {
        let messages = Rng::new(case).below(60);
        let mut naive = Naive::default();
        feed_conversation(&mut naive, case, messages);
        chain.reset(case);
        feed_conversation(&mut chain, case, messages);
        assert_eq!(chain.blocks(), naive.blocks(case), "case {case}");
        assert_eq!(chain.cuts(), naive.cuts(case), "case {case}");
        assert_eq!(chain.prompt_bytes(), naive.bytes.len() as u64, "case {case}");
    }
}

#[test]
fn a_turn_keeps_all_cuts_blocks_and_the_root_of_the_turn_before() {
    let (mut turn, mut next) = (Chain::new(), Chain::new());
    for case in 0..300 {
        let messages = 1 + Rng::new(case).below(20);
        turn.reset(7);
        feed_conversation(&mut turn, case, messages);
        next.reset(7);
        feed_conversation(&mut next, case, messages + 2);
        assert!(next.cuts().starts_with(turn.cuts()), "case {case}");
        assert!(next.blocks().starts_with(turn.blocks()), "case {case}");
        assert_eq!(next.root(), turn.root(), "case {case}");
    }
}

#[test]
fn a_message_that_ends_with_a_block_is_one_cut() {
    let mut chain = Chain::new();
    chain.reset(1);
    chain.text(&[b'x'; 256]);
    chain.end_of_message();
    chain.end_of_message();
    assert_eq!(chain.cuts(), [Cut { hash: chain.blocks()[0], end_bytes: 256 }]);
    assert_eq!(chain.root(), chain.blocks()[0]);
    chain.text(b"y");
    chain.end_of_message();
    chain.end_of_message();
    assert_eq!(chain.cuts().len(), 2);
}

#[test]
fn a_message_end_hashes_unlike_a_block_of_the_same_bytes() {
    let mut chain = Chain::new();
    chain.reset(1);
    chain.text(b"short");
    chain.end_of_message();
    assert_ne!(chain.root().0, xxh3_64_with_seed(b"short", 1));
}

#[test]
fn only_full_blocks_count_and_long_prompts_stay_bounded() {
    const CASES: &[(usize, usize)] = &[
        (0, 0),
        (255, 0),
        (256, 1),
        (8 << 10, 32),
        (24 << 10, 64),
        (56 << 10, 96),
        (100 << 10, 118),
        (1 << 20, 546),
        (8_773_631, 1023),
        (8_773_632, 1024),
        (12 << 20, 1024),
    ];
    let mut chain = Chain::new();
    let prompt = vec![b'x'; 12 << 20];
    for &(bytes, blocks) in CASES {
        chain.reset(0);
        chain.text(&prompt[..bytes]);
        chain.end_of_message();
        assert_eq!(chain.blocks().len(), blocks, "{bytes} bytes");
        assert_eq!(chain.prompt_bytes(), bytes as u64);
        assert!(chain.cuts().len() <= CUTS_MAX);
    }
}

#[test]
fn feeding_never_grows_a_buffer() {
    let mut chain = Chain::new();
    let room = |chain: &Chain| (chain.blocks.capacity(), chain.cuts.capacity(), chain.partial.capacity());
    let before = room(&chain);
    chain.reset(0);
    let message = [b'x'; 5_000];
    for _ in 0..2_000 {
        chain.text(&message);
        chain.end_of_message();
    }
    assert_eq!(room(&chain), before);
}

#[test]
fn the_root_falls_back_step_by_step() {
    let mut chain = Chain::new();
    chain.reset(3);
    assert_eq!(chain.root(), BlockHash(3), "nothing fed: the seed");
    chain.text(b"hello");
    let unfinished = chain.root();
    chain.text(&[b'x'; 300]);
    assert_eq!(chain.root(), chain.cuts()[0].hash, "the last cut");
    assert_ne!(unfinished, chain.root());
    chain.end_of_message();
    let first = chain.root();
    chain.text(b"more");
    chain.end_of_message();
    assert_eq!(chain.root(), first, "the first message's end");
    chain.end_of_root();
    let told = chain.root();
    assert_eq!(told, chain.cuts()[2].hash, "the message told to be the root");
    chain.text(b"again");
    chain.end_of_message();
    chain.end_of_root();
    assert_eq!(chain.root(), told, "only the first call counts");
}

#[test]
fn a_late_root_is_hashed_though_the_cuts_are_full() {
    let root_of = |last: &[u8]| {
        let mut chain = Chain::new();
        chain.reset(0);
        chain.text(&[b'x'; 100_000]);
        chain.end_of_message();
        chain.text(last);
        chain.end_of_message();
        chain.end_of_root();
        chain.root()
    };
    assert_ne!(root_of(b"a"), root_of(b"b"));
}

#[test]
fn model_and_salt_change_every_hash() {
    let hashes = |model: &[u8], salt: Option<&[u8]>| {
        let mut chain = Chain::new();
        chain.reset(seed(model, salt));
        chain.text(&[b'x'; 2_000]);
        chain.end_of_message();
        chain.cuts().iter().map(|cut| cut.hash).collect::<Vec<_>>()
    };
    let all = [
        hashes(b"a", None),
        hashes(b"b", None),
        hashes(b"", None),
        hashes(b"a", Some(b"")),
        hashes(b"a", Some(b"s")),
        hashes(b"as", None),
        hashes(b"b", Some(b"s")),
    ];
    for (index, these) in all.iter().enumerate() {
        for those in &all[..index] {
            assert!(these.iter().all(|hash| !those.contains(hash)));
        }
    }
}

/// Hashes live in shared pages that native companions read and write too: both targets must agree, and a change of
/// any of these values needs a new `FORMAT_VERSION`. Computed with the Python package xxhash (libxxhash's XXH3).
#[test]
fn hashes_are_the_golden_ones_on_every_target() {
    struct Golden {
        name: &'static str,
        prompt_bytes: usize,
        salt: Option<&'static [u8]>,
        seed: u64,
        last_block: Option<u64>,
        root: u64,
    }
    const GOLDEN: &[Golden] = &[
        Golden {
            name: "short",
            prompt_bytes: 100,
            salt: None,
            seed: 0xd240_82ef_6e9e_098e,
            last_block: None,
            root: 0xea25_169b_a33e_84e1,
        },
        Golden {
            name: "salted",
            prompt_bytes: 1_000,
            salt: Some(b"tenant"),
            seed: 0x3a4c_c9ee_b27d_cbb2,
            last_block: Some(0x2c88_5e87_3cf6_7908),
            root: 0x7b46_4e0b_cd47_8beb,
        },
        Golden {
            name: "long",
            prompt_bytes: 200_000,
            salt: None,
            seed: 0xd240_82ef_6e9e_098e,
            last_block: Some(0x6e4a_6334_1daf_bc67),
            root: 0x66be_3498_0a04_69fd,
        },
    ];
    let got = GOLDEN.iter().map(|golden| {
        let prompt: Vec<u8> = (0..golden.prompt_bytes).map(|index| (index % 251) as u8).collect();
        let mut chain = Chain::new();
        let seed = seed(b"meta-llama/Llama-3.1-8B-Instruct", golden.salt);
        chain.reset(seed);
        chain.mark(1);
        chain.text(&prompt);
        chain.end_of_message();
        (golden.name, seed, chain.blocks().last().map(|hash| hash.0), chain.root().0)
    });
    let got: Vec<_> = got.collect();
    let want = GOLDEN.iter().map(|golden| (golden.name, golden.seed, golden.last_block, golden.root));
    assert_eq!(got, want.collect::<Vec<_>>(), "{got:#x?}");
}
