//! The index of the workers' caches against a plain list of what was recorded, and on damaged pages.

use std::collections::HashMap;

use warmroute::index::{Index, Retention};
use warmroute::prefix::{BlockHash, prefix_bytes};
use warmroute::rng::mix;
use warmroute::shared::store::{MemoryStore, Store};
use warmroute::worker::WorkerId;

use crate::choices::Choices;

/// So few that no stretch needs a second bucket.
const WORKERS: usize = 6;

/// So few that a chain's own stretches never drive each other out of one page.
const BLOCKS_OF_CHAIN_MAX: usize = 200;

/// So many that what a run records fits in.
const PAGES_THAT_ARE_NEVER_FULL: u32 = 1_024;

/// More than a test can send: nothing is forgotten for its age.
const CAPACITY_SPANS: u32 = 1 << 30;

/// Records, finds and forgets chains that part from each other anywhere; now and then a page is damaged.
///
/// # Panics
/// When a worker that was just recorded is not found with all of the chain; when somebody is believed to hold more than
/// he was ever sent; when a match or an odometer is out of bounds.
pub fn index(data: &[u8]) {
    let mut choices = Choices::new(data);
    let pages = [1, 2, PAGES_THAT_ARE_NEVER_FULL][choices.below(3)];
    let mut world = World {
        index: Index::new("warmroute/index/llm/", pages),
        pages,
        store: MemoryStore::default(),
        retentions: vec![Retention { capacity: CAPACITY_SPANS, ..Retention::default() }; WORKERS],
        recorded: vec![Vec::new(); WORKERS],
        prefixes: HashMap::new(),
        is_damaged: false,
        has_forgotten: false,
    };
    for now_s in 1..=STEPS_MAX {
        if choices.is_empty() {
            break;
        }
        let chain = world.chain(&mut choices);
        let worker = choices.below(WORKERS);
        match choices.below(12) {
            0 => world.restart(worker),
            1 => world.damage(&mut choices),
            2 => world.forget(&chain, worker, choices.u32()),
            3..=5 => world.find(&chain),
            _ => world.record(&chain, worker, now_s),
        }
    }
}

const STEPS_MAX: u32 = 200;

struct World {
    index: Index,
    pages: u32,
    store: MemoryStore,
    retentions: Vec<Retention>,
    /// By worker, what it was sent in its present life.
    recorded: Vec<Vec<Vec<BlockHash>>>,
    /// The number of each different prefix: no two have the same hash, nor the same low bits of it.
    prefixes: HashMap<(u64, u8), u64>,
    is_damaged: bool,
    /// Whether somebody has forgotten anything: see `forget`.
    has_forgotten: bool,
}

impl World {
    /// A chain over few symbols, which begins as others do.
    fn chain(&mut self, choices: &mut Choices<'_>) -> Vec<BlockHash> {
        let (length, parts_at, symbol) = (choices.below(BLOCKS_OF_CHAIN_MAX), choices.byte(), choices.byte() % 4);
        let mut before = 0;
        let next = |at: usize| {
            let symbol = if at < usize::from(parts_at) { 0 } else { symbol };
            let count = self.prefixes.len() as u64 + 1;
            before = *self.prefixes.entry((before, symbol)).or_insert(mix(count) & !0xffff | count & 0xffff);
            BlockHash(before)
        };
        (0..length).map(next).collect()
    }

    fn restart(&mut self, worker: usize) {
        let retention = &mut self.retentions[worker];
        retention.generation = retention.generation.wrapping_add(1);
        self.recorded[worker].clear();
    }

    fn damage(&mut self, choices: &mut Choices<'_>) {
        let key = format!("warmroute/index/llm/{}", choices.u32() % self.pages.min(4));
        let (page, version) = self.store.get(&key);
        if let Some(page) = choices.damage(page.unwrap_or_default()) {
            self.store.set(&key, &page, version);
            self.is_damaged = true;
        }
    }

    fn matched(&mut self, chain: &[BlockHash]) -> Vec<u64> {
        let mut matched_bytes = vec![0; WORKERS];
        // What a page of a newer version leaves unread counts as not there.
        let _ = self.index.find(&mut self.store, chain, &self.retentions, &mut matched_bytes);
        matched_bytes
    }

    fn find(&mut self, chain: &[BlockHash]) {
        for (worker, matched) in self.matched(chain).into_iter().enumerate() {
            assert!(matched <= prefix_bytes(chain.len()), "worker {worker}: {matched}");
            let common = |sent: &Vec<BlockHash>| sent.iter().zip(chain).take_while(|(a, b)| a == b).count();
            let sent = self.recorded[worker].iter().map(common).max().unwrap_or_default();
            assert!(self.is_damaged || matched <= prefix_bytes(sent), "worker {worker} was sent {sent}: {matched}");
        }
    }

    fn record(&mut self, chain: &[BlockHash], worker: usize, now_s: u32) {
        let odometer = self.retentions[worker].odometer;
        let id = WorkerId(worker as u16);
        let recorded = self.index.record(&mut self.store, chain, id, &mut self.retentions, now_s);
        self.recorded[worker].push(chain.to_vec());
        assert!(recorded.new_bytes <= prefix_bytes(chain.len()), "{recorded:?}");
        let spans = self.retentions[worker].odometer.wrapping_sub(odometer);
        assert!(u64::from(spans) <= recorded.new_bytes / 64, "the odometer goes on by what is new: {spans}");
        let ends = recorded.segments().iter().map(|segment| segment.end_bytes);
        assert!(ends.is_sorted(), "{recorded:?}");
        if !self.is_damaged {
            assert_eq!(recorded.lost_pages, 0);
            assert_eq!(self.matched(chain)[worker], prefix_bytes(chain.len()), "what was recorded is found");
        }
        self.find(chain);
    }

    fn forget(&mut self, chain: &[BlockHash], worker: usize, from: u32) {
        let from_bytes = u64::from(from) % (prefix_bytes(chain.len()) + 1);
        let before = self.matched(chain);
        self.index.forget(&mut self.store, chain, WorkerId(worker as u16), from_bytes);
        let after = self.matched(chain);
        if !self.is_damaged {
            assert!(after[worker] <= before[worker].min(from_bytes), "{before:?} {from_bytes} {after:?}");
        }
        // A worker that forgets less than it held, which no request does, is no holder of a stretch in the middle any more;
        // where the last other one forgets it too, nobody's walk gets past it. The same comes of full pages.
        if !self.is_damaged && !self.has_forgotten && self.pages == PAGES_THAT_ARE_NEVER_FULL {
            let is_other = |(other, _): &(usize, _)| *other != worker;
            let others = |matched: &[u64]| matched.iter().copied().enumerate().filter(is_other).collect::<Vec<_>>();
            assert_eq!(others(&after), others(&before), "nobody else forgets");
        }
        self.has_forgotten = true;
    }
}
