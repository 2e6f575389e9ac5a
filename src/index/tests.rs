//! The index against a plain map of prompts, and what its bounds do.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::prefix::{BlockHash, prefix_bytes};
use crate::rng::{Rng, mix};
use crate::shared::store::MemoryStore;
use crate::worker::WorkerId;

/// A chain whose blocks follow from what each part adds: equal parts from the start give equal blocks.
fn chain(parts: &[(u64, usize)]) -> Vec<BlockHash> {
    let mut hash = 1;
    let mut blocks = Vec::new();
    for &(part, count) in parts {
        for block in 0..count as u64 {
            hash = mix(hash ^ mix(part * 1_000 + block));
            blocks.push(BlockHash(hash));
        }
    }
    blocks
}

struct World {
    index: Index,
    store: MemoryStore,
    retentions: Vec<Retention>,
}

impl World {
    fn new(workers: usize, pages: u32) -> Self {
        let retention = Retention { generation: 0, odometer: 0, capacity: u32::MAX / 8 };
        Self {
            index: Index::new("warmroute/index/llm/", pages),
            store: MemoryStore::default(),
            retentions: vec![retention; workers],
        }
    }

    fn record(&mut self, blocks: &[BlockHash], worker: u16) -> Recorded {
        self.index.record(&mut self.store, blocks, WorkerId(worker), &mut self.retentions, 100)
    }

    fn find(&mut self, blocks: &[BlockHash]) -> Vec<u64> {
        let mut matched = vec![0; self.retentions.len()];
        self.index.find(&mut self.store, blocks, &self.retentions, &mut matched).unwrap();
        matched
    }
}

#[test]
fn each_worker_matches_as_much_as_it_was_sent() {
    let mut world = World::new(3, 64);
    let (shared, long) = (chain(&[(1, 20)]), chain(&[(1, 20), (2, 30)]));
    world.record(&shared, 0);
    world.record(&long, 1);
    let asked = chain(&[(1, 20), (2, 10), (3, 5)]);
    assert_eq!(world.find(&asked), [prefix_bytes(20), prefix_bytes(30), 0]);
    assert_eq!(world.find(&chain(&[(9, 40)])), [0, 0, 0]);
    assert_eq!(world.find(&[]), [0, 0, 0]);
}

/// What a plain list of everything sent would answer, with no bound on anything.
fn naive(sent: &[(Vec<BlockHash>, u16)], asked: &[BlockHash], workers: usize) -> Vec<u64> {
    let mut matched = vec![0; workers];
    for (blocks, worker) in sent {
        let common = blocks.iter().zip(asked).take_while(|(left, right)| left == right).count();
        let matched = &mut matched[usize::from(*worker)];
        *matched = prefix_bytes(common).max(*matched);
    }
    matched
}

#[test]
fn it_never_says_more_than_was_sent_and_hardly_ever_less() {
    let (mut asked_bytes, mut missed_bytes) = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let workers = 1 + rng.below(12) as usize;
        let (mut world, mut sent) = (World::new(workers, 512), Vec::new());
        for _ in 0..250 {
            let mut parts = vec![(u64::from(rng.below(3)), 1 + rng.below(40) as usize / 8 * 5)];
            for turn in 0..rng.below(4) {
                parts.push((u64::from(10 + turn * 10 + rng.below(6)), 1 + rng.below(25) as usize));
            }
            let blocks = chain(&parts);
            let (got, want) = (world.find(&blocks), naive(&sent, &blocks, workers));
            for (got, want) in got.iter().zip(&want) {
                assert!(got <= want, "seed {seed}: {got} of {want}");
                asked_bytes += want;
                missed_bytes += want - got;
            }
            let worker = rng.below(workers as u32) as u16;
            world.record(&blocks, worker);
            assert_eq!(world.find(&blocks)[usize::from(worker)], prefix_bytes(blocks.len()), "seed {seed}");
            sent.push((blocks, worker));
        }
    }
    // Less: where chains part within a stretch, and a worker that was sent both is last known to hold the common part.
    assert!(missed_bytes * 50 < asked_bytes, "{missed_bytes} of {asked_bytes}");
}

#[test]
fn a_prompt_of_32_blocks_costs_two_page_reads_and_one_more_where_prompts_parted() {
    let mut world = World::new(8, 1_024);
    let (first, second) = (chain(&[(1, 5), (2, 27)]), chain(&[(1, 5), (3, 27)]));
    (0..8).for_each(|worker| _ = world.record(&first, worker));
    let reads = |world: &mut World, blocks: &[BlockHash]| {
        world.store.reads = 0;
        world.find(blocks);
        world.store.reads
    };
    assert_eq!(reads(&mut world, &first), 2);
    world.record(&second, 0);
    assert_eq!(reads(&mut world, &second), 3);
    assert_eq!(reads(&mut world, &chain(&[(7, 1_000)])), 1);
}

#[test]
fn what_was_touched_longer_ago_than_a_cache_keeps_is_forgotten_the_oldest_first() {
    let mut world = World::new(1, 64);
    let chains: Vec<_> = (1..=4).map(|part| chain(&[(part, 16)])).collect();
    let spans = (prefix_bytes(16) / SPAN_BYTES) as u32;
    world.retentions[0].capacity = spans * 5 / 2;
    chains.iter().for_each(|blocks| _ = world.record(blocks, 0));
    let held: Vec<bool> = chains.iter().map(|blocks| world.find(blocks)[0] > 0).collect();
    assert_eq!(held, [false, true, true, true]);
    // Asking for the second again keeps it, and makes no room necessary.
    assert_eq!(world.record(&chains[1], 0).new_bytes, 0);
    world.record(&chain(&[(9, 16)]), 0);
    let held: Vec<bool> = chains.iter().map(|blocks| world.find(blocks)[0] > 0).collect();
    assert_eq!(held, [false, true, true, true]);
    world.record(&chain(&[(10, 16)]), 0);
    let held: Vec<bool> = chains.iter().map(|blocks| world.find(blocks)[0] > 0).collect();
    assert_eq!(held, [false, true, false, true]);
}

#[test]
fn a_worker_in_its_next_life_holds_nothing_and_the_others_what_they_did() {
    let mut world = World::new(2, 64);
    let blocks = chain(&[(1, 40)]);
    world.record(&blocks, 0);
    world.record(&blocks, 1);
    world.retentions[0].generation = 1;
    assert_eq!(world.find(&blocks), [0, prefix_bytes(40)]);
    assert_eq!(world.record(&blocks[..4], 0).new_bytes, prefix_bytes(4));
    assert_eq!(world.find(&blocks), [prefix_bytes(4), prefix_bytes(40)]);
}

#[test]
fn what_a_worker_did_not_build_is_taken_back_and_what_it_held_before_stays() {
    let mut world = World::new(2, 64);
    let (before, after) = (chain(&[(1, 20)]), chain(&[(1, 20), (2, 30)]));
    world.record(&before, 0);
    world.record(&after, 1);
    world.record(&after, 0);
    world.index.forget(&mut world.store, &after, WorkerId(0), prefix_bytes(20));
    assert_eq!(world.find(&after), [prefix_bytes(20), prefix_bytes(50)]);
    world.index.forget(&mut world.store, &after, WorkerId(1), 0);
    assert_eq!(world.find(&after), [prefix_bytes(20), 0]);
}

#[test]
fn recording_tells_what_was_there_and_how_long_ago() {
    let mut world = World::new(1, 64);
    let (prompt, other) = (chain(&[(1, 24)]), chain(&[(2, 16)]));
    assert_eq!(world.record(&prompt, 0).segments(), []);
    world.record(&other, 0);
    let next_turn = chain(&[(1, 24), (3, 10)]);
    let recorded = world.index.record(&mut world.store, &next_turn, WorkerId(0), &mut world.retentions, 160);
    let spans = |blocks| (prefix_bytes(blocks) / SPAN_BYTES) as u32;
    let segments: Vec<(u64, u32)> = recorded.segments().iter().map(|kept| (kept.end_bytes, kept.age)).collect();
    let first_age = spans(24) - spans(16) + spans(16);
    assert_eq!(segments, [(prefix_bytes(16), first_age), (prefix_bytes(24), spans(16))]);
    assert_eq!(recorded.segments()[0].idle_s, 60);
    assert_eq!(recorded.new_bytes, prefix_bytes(34) - prefix_bytes(24));
}

#[test]
fn a_prefix_that_hundreds_of_workers_hold_stays_known_for_most_and_conversations_for_all() {
    let mut world = World::new(512, 1_024);
    let conversation = |worker: u16| chain(&[(1, 16), (100 + u64::from(worker), 20)]);
    (0..512).for_each(|worker| _ = world.record(&conversation(worker), worker));
    let new_user = world.find(&chain(&[(1, 16), (7_777, 20)]));
    let knowing = new_user.iter().filter(|matched| **matched == prefix_bytes(16)).count();
    assert!(knowing >= 100, "{knowing} of 512");
    for worker in 0..512 {
        let matched = world.find(&conversation(worker))[usize::from(worker)];
        assert_eq!(matched, prefix_bytes(36), "worker {worker}");
    }
}

#[test]
fn memory_is_bounded_and_the_least_recently_used_makes_way() {
    let mut world = World::new(1, 2);
    let chains: Vec<_> = (0..1_000).map(|part| chain(&[(part + 10, 16)])).collect();
    for blocks in &chains {
        world.record(&chains[0], 0);
        world.record(blocks, 0);
    }
    let known = chains.iter().filter(|blocks| world.find(blocks)[0] > 0).count();
    assert!((32..=62).contains(&known), "{known}");
    assert!(world.find(&chains[0])[0] > 0);
    assert!(world.find(&chains[999])[0] > 0);
}

#[test]
fn damaged_pages_give_no_panic_and_no_endless_walk() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(4, 1);
        let chains: Vec<_> = (0..20).map(|part| chain(&[(part % 4, 9), (part, 30)])).collect();
        for (worker, blocks) in chains.iter().enumerate() {
            world.record(blocks, worker as u16 % 4);
        }
        let (bytes, version) = crate::shared::store::Store::get(&mut world.store, "warmroute/index/llm/0");
        let mut bytes = bytes.unwrap();
        for _ in 0..200 {
            let at = 6 + rng.below(bytes.len() as u32 - 6) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        assert!(crate::shared::store::Store::set(&mut world.store, "warmroute/index/llm/0", &bytes, version));
        for blocks in &chains {
            let longest = prefix_bytes(blocks.len());
            assert!(world.find(blocks).iter().all(|matched| *matched <= longest), "seed {seed}");
            world.record(blocks, rng.below(4) as u16);
            world.index.forget(&mut world.store, blocks, WorkerId(0), 0);
        }
    }
}

#[test]
fn what_is_taken_back_drives_nobody_out_and_takes_nothing_from_others() {
    let mut world = World::new(1, 1);
    let kept = chain(&[(1, 16)]);
    world.record(&kept, 0);
    for part in 0..40 {
        let refused = chain(&[(100 + part, 16)]);
        world.record(&refused, 0);
        world.index.forget(&mut world.store, &refused, WorkerId(0), 0);
    }
    assert_eq!(world.find(&kept)[0], prefix_bytes(16));
    let (mine, refused) = (chain(&[(2, 4), (3, 10)]), chain(&[(2, 4), (4, 5)]));
    world.record(&mine, 0);
    world.record(&refused, 0);
    world.index.forget(&mut world.store, &refused, WorkerId(0), prefix_bytes(4));
    assert_eq!(world.find(&mine)[0], prefix_bytes(14));
}

#[test]
fn a_stamp_ahead_of_the_odometer_is_new_and_not_ages_old() {
    let retention = Retention { generation: 0, odometer: 100, capacity: 10 };
    assert_eq!([90, 100, 101, 5_000].map(|stamp| retention.age(stamp)), [10, 0, 0, 0]);
    assert_eq!(Retention { odometer: 5, ..retention }.age(u32::MAX), 6, "it wraps");
}
