//! What outlives a request in one VM: the configuration, the pools, and scratch space for reading prompts.
//!
//! A request's way: [`Router::read_prompt`] (`reading.rs`), [`Router::decide`] (`decision.rs`), and what its answer settles
//! and teaches, [`Router::answered`], [`Router::first_byte`], [`Router::end`] (`answer.rs`).

mod adapters;
mod answer;
mod decision;
mod learning;
mod lesson;
mod prompt;
mod reading;
mod responses;

pub use answer::Prediction;
pub use decision::Ask;
pub use reading::{Body, Model, Reading};

use xxhash_rust::xxh3::xxh3_64;

use crate::config::Config;
use crate::pool::{Pool, PoolStatus, Rules};
use crate::prefix::Chain;
use crate::rng::Rng;
use crate::shared::PageError;
use crate::shared::inflight::{Held, InflightPage};
use crate::shared::store::{Store, update};
use crate::shared::trunk::TrunkPage;
use crate::time::Timestamp;
use learning::Learning;
use prompt::ReadPrompt;

/// One plugin configuration at work in one VM.
#[derive(Debug)]
pub struct Router {
    config: Config,
    pools: Vec<Pool>,
    /// This router's name in shared pages: its in-flight slot and its leases.
    owner: u64,
    rng: Rng,
    /// Scratch: the prompt that was read last.
    chain: Chain,
    /// What was learned, by pool.
    learning: Vec<Learning>,
    incidents: Incidents,
}

/// What went wrong, with shared pages and workers, since it was last asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incidents {
    /// Writes given up because other VMs were faster.
    pub conflicts: u32,
    /// Pages left alone because a newer version of the plugin wrote them.
    pub newer: u32,
    /// Workers ejected for their failed requests.
    pub ejections: u32,
}

impl Router {
    /// A router for `config`. `owner` must differ from that of every other router of this Envoy, `random` may be any.
    #[must_use]
    pub fn new(config: Config, owner: u64, random: u64) -> Self {
        let is_told = config.discovery.is_on();
        let pools =
            config.pools.iter().map(|pool| Pool::configured(pool, is_told, config.index.pages, owner)).collect();
        let learning = config.pools.iter().map(|_| Learning::default()).collect();
        Self {
            config,
            pools,
            owner,
            rng: Rng::new(random),
            chain: Chain::new(),
            learning,
            incidents: Incidents::default(),
        }
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// This router's name in shared pages.
    #[must_use]
    pub const fn owner(&self) -> u64 {
        self.owner
    }

    /// How many pools there are.
    #[must_use]
    pub fn pool_count(&self) -> usize {
        self.pools.len()
    }

    /// The number of the pool for a routed cluster; `None` if the cluster is not ours.
    #[must_use]
    pub fn find_pool(&self, cluster: &[u8]) -> Option<usize> {
        self.pools.iter().position(|pool| pool.cluster().as_bytes() == cluster)
    }

    /// The number of the pool that requests for a model are routed to; `None` if no pool names it.
    #[must_use]
    pub fn find_pool_of_model(&self, model: &str) -> Option<usize> {
        self.config.pools.iter().position(|pool| pool.models.iter().any(|name| name == model))
    }

    /// A pool by its number.
    #[must_use]
    pub fn pool(&self, index: usize) -> Option<&Pool> {
        self.pools.get(index)
    }

    /// A pool by its number.
    pub fn pool_mut(&mut self, index: usize) -> Option<&mut Pool> {
        self.pools.get_mut(index)
    }

    /// What went wrong with shared pages since the last call.
    pub fn take_incidents(&mut self) -> Incidents {
        let ejections = self.learning.iter_mut().map(Learning::take_ejections).sum();
        Incidents { ejections, ..std::mem::take(&mut self.incidents) }
    }

    /// Reads a prompt that `feed` feeds; returns its bytes. It is then the one that [`Self::decide`] speaks of.
    pub fn read_with(&mut self, seed: u64, feed: impl FnOnce(&mut Chain)) -> u64 {
        self.chain.reset(seed);
        feed(&mut self.chain);
        self.chain.prompt_bytes()
    }

    /// The hash by which the prompt that was read last is known in the pool's traffic, which it is counted in; `None`
    /// for an empty prompt.
    pub fn prefix(&mut self, pool: usize, trunk: &mut TrunkPage) -> Option<u64> {
        let workers = self.pools.get(pool)?.addresses().len();
        trunk.observe(&ReadPrompt(&self.chain), workers)
    }

    /// Adds up what all VMs have in flight in `page`, and tells how the pool stands. Who is ejected is told as of the last
    /// decision, or of [`Self::refresh`].
    pub fn status(&mut self, pool: usize, page: &InflightPage, now: Timestamp) -> PoolStatus {
        let rules = Rules::of(&self.config);
        self.pools.get_mut(pool).map(|pool| pool.status(page, &rules, now)).unwrap_or_default()
    }

    /// Takes in what all VMs have learned of a pool: in one that decides nothing, no decision does.
    pub fn refresh(&mut self, store: &mut impl Store, pool: usize, now: Timestamp) {
        self.read_learned(store, pool, now);
    }

    /// The workers to scrape now, by their place in the pool. Only for the holder of the pool's lease.
    pub fn due_polls(&mut self, pool: usize, now: Timestamp) -> Vec<usize> {
        match self.pools.get_mut(pool) {
            Some(pool) if !self.config.poll.cluster.is_empty() => pool.due_polls(&self.config.poll, now, &mut self.rng),
            _ => Vec::new(),
        }
    }

    /// Writes what this VM has in flight in a pool; returns whether its slot says more than zeros or could not be
    /// written, and so has to be written again by and by.
    pub fn publish(&mut self, store: &mut impl Store, pool: usize, now: Timestamp) -> bool {
        let (owner, Some(state)) = (self.owner, self.pools.get(pool)) else { return false };
        let updated = update(store, &state.keys().inflight, |bytes| {
            let mut page = InflightPage::open(bytes)?;
            page.write_slot(owner, state.held(), now);
            Ok((Some(page.into_bytes()), ()))
        });
        let is_holding = state.held().iter().any(|held| *held != Held::default());
        let is_stored = self.note(updated.map(|((), is_stored)| is_stored));
        if is_stored && let Some(state) = self.pools.get_mut(pool) {
            state.note_slot_written(now);
        }
        !is_stored || is_holding
    }

    /// Writes what this VM has in flight in a pool, unless it was written a moment ago: then the next decision does.
    fn publish_soon(&mut self, store: &mut impl Store, pool: usize, now: Timestamp) {
        if self.pools.get(pool).is_some_and(|pool| pool.is_slot_due(now)) {
            self.publish(store, pool, now);
        }
    }

    /// Writes what this VM has not yet told the others of a pool: in a lull there is no decision to take it along.
    pub fn flush(&mut self, store: &mut impl Store, pool: usize, now: Timestamp) {
        if self.pools.get(pool).is_some_and(Pool::is_slot_behind) {
            self.publish(store, pool, now);
        }
        if self.learning.get(pool).is_some_and(Learning::is_ahead) {
            self.sync_learned(store, pool, now);
        }
    }

    /// Counts what went wrong with a page's update; returns whether it is stored.
    fn note(&mut self, updated: Result<bool, PageError>) -> bool {
        match updated {
            Ok(true) => return true,
            Ok(false) => self.incidents.conflicts += 1,
            Err(PageError::Newer { .. }) => self.incidents.newer += 1,
        }
        false
    }
}

/// Hash of a session's name; `None` for an empty one, which names nothing.
#[must_use]
pub fn session_hash(name: &[u8]) -> Option<u64> {
    (!name.is_empty()).then(|| xxh3_64(name))
}

#[cfg(test)]
mod adapter_tests;
#[cfg(test)]
mod conduct_tests;
#[cfg(test)]
mod directed_tests;
#[cfg(test)]
mod flood_tests;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod responses_tests;
#[cfg(test)]
mod tests;
