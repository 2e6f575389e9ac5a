//! A configuration at work in one VM: its decisions, and its own slot in the in-flight pages.

use xxhash_rust::xxh3::xxh3_64;

use super::abi::{self, Cas};
use super::shared_data;
use super::stats::Stats;
use crate::config::{Config, PollConfig, PoolConfig};
use crate::exchange::Exchange;
use crate::rng::mix;
use crate::router::Router;
use crate::schedule::Decision;
use crate::shared::PageKind;
use crate::shared::inflight::{Held, InflightPage};
use crate::shared::trunk::TrunkPage;
use crate::stats::Stat;
use crate::time::Timestamp;
use crate::worker::DatedReport;

/// The router, and where its pages are. What it does on its ticks is in `tick`.
pub(super) struct Plugin {
    pub(super) router: Router,
    pub(super) stats: Stats,
    pub(super) pools: Vec<PoolPages>,
    wrote_slots_at: Timestamp,
}

/// One pool's keys in shared data, and how this VM stands to its pages.
pub(super) struct PoolPages {
    pub(super) fleet: String,
    pub(super) inflight: String,
    pub(super) lease: String,
    trunk: String,
    /// What the lease has to say of this VM: see [`crate::shared::lease::next_step`].
    pub(super) polled: u64,
    pub(super) holds_lease: bool,
    /// Version of the fleet page that was taken in last.
    pub(super) fleet_cas: Cas,
    /// When the configured workers' rows were last seen to.
    pub(super) admitted_at: Timestamp,
    /// Answered scrapes that the fleet page does not have yet. Bounded by the scrapes that can be under way.
    pub(super) outcomes: Vec<PollOutcome>,
    /// Whether this VM's slot says more than zeros, so that it must be kept alive.
    has_slot: bool,
}

/// What came of a scrape.
pub(super) struct PollOutcome {
    pub(super) address: String,
    /// `None`: it failed.
    pub(super) report: Option<DatedReport>,
    /// This gateway's own requests in flight there at that time, and those of them without a first byte.
    pub(super) in_flight: u32,
    pub(super) prefilling: u32,
}

impl Plugin {
    pub(super) fn new(config: Config) -> Self {
        let now = abi::now();
        let owner = draw_owner(now);
        let stats = Stats::define(config.pools.iter().map(|pool| pool.cluster.as_str()));
        let pools =
            config.pools.iter().map(|pool| PoolPages::new(&pool.cluster, fingerprint(pool, &config.poll))).collect();
        let router = Router::new(config, owner, mix(owner ^ now.as_ns()));
        let mut plugin = Self { router, stats, pools, wrote_slots_at: now };
        for pool in 0..plugin.router.pool_count() {
            plugin.admit_workers(pool, now);
        }
        plugin
    }

    /// Counts the prompt that was read last in the pool's trunk; returns the hash by which it is known.
    pub(super) fn prefix(&mut self, pool: usize) -> Option<u64> {
        let key = &self.pools.get(pool)?.trunk;
        let (page, cas) = abi::shared_data(key);
        let Ok(mut trunk) = TrunkPage::open(page.as_deref()) else {
            self.stats.count(Stat::PageNewer);
            // Without knowing what is popular, the first part of the prompt it is.
            return self.router.prefix(pool, &mut TrunkPage::open(None).ok()?);
        };
        let prefix = self.router.prefix(pool, &mut trunk);
        // Best effort: what a lost race leaves uncounted is one sighting of many.
        abi::set_shared_data(key, trunk.as_bytes(), cas);
        prefix
    }

    /// Decides over the newest in-flight page and counts the request in it, as one step: when another VM writes in
    /// between, the decision is made anew over what it wrote. So no two requests are decided on the same counts, unless
    /// all tries lose their race.
    pub(super) fn decide(&mut self, pool: usize, prefix: Option<u64>, exchange: &mut Exchange) -> Option<Decision> {
        let now = abi::now();
        let pages = self.pools.get_mut(pool)?;
        let router = &mut self.router;
        let updated = shared_data::update(&pages.inflight, |bytes| {
            let mut page = InflightPage::open(bytes)?;
            let decision = decide_over(router, exchange, pool, prefix, &page, now);
            if let (Some(_), Some(state)) = (decision, router.pool(pool)) {
                page.write_slot(router.owner(), state.held(), now);
                page.advance_turn();
            }
            Ok((decision.is_some().then(|| page.into_bytes()), decision))
        });
        pages.has_slot = true;
        match updated {
            Ok((decision, is_stored)) => {
                if !is_stored {
                    self.stats.count(Stat::PageConflicts);
                }
                decision
            }
            Err(_) => {
                self.stats.count(Stat::PageNewer);
                // On our own: what this VM has in flight is all that is known.
                let mut own = InflightPage::open(None).ok()?;
                own.write_slot(router.owner(), router.pool(pool)?.held(), now);
                decide_over(router, exchange, pool, prefix, &own, now)
            }
        }
    }

    /// Writes what this VM has in flight in a pool.
    pub(super) fn publish(&mut self, pool: usize) {
        let now = abi::now();
        let (Some(pages), Some(state)) = (self.pools.get_mut(pool), self.router.pool(pool)) else { return };
        pages.has_slot = state.held().iter().any(|held| *held != Held::default());
        let updated = shared_data::update(&pages.inflight, |bytes| {
            let mut page = InflightPage::open(bytes)?;
            page.write_slot(self.router.owner(), state.held(), now);
            Ok((Some(page.into_bytes()), ()))
        });
        match updated {
            Ok(((), true)) => {}
            // Said again at the next heartbeat, should nothing else be written before.
            Ok(((), false)) => {
                pages.has_slot = true;
                self.stats.count(Stat::PageConflicts);
            }
            Err(_) => self.stats.count(Stat::PageNewer),
        }
    }

    /// Keeps this VM's slots alive while it has requests in flight.
    pub(super) fn beat(&mut self) {
        let now = abi::now();
        if now.ms_between(self.wrote_slots_at) < HEARTBEAT_MS {
            return;
        }
        self.wrote_slots_at = now;
        for pool in 0..self.pools.len() {
            if self.pools.get(pool).is_some_and(|pages| pages.has_slot) {
                self.publish(pool);
            }
        }
    }
}

impl PoolPages {
    fn new(cluster: &str, polled: u64) -> Self {
        Self {
            polled,
            fleet: PageKind::Fleet.key(cluster),
            inflight: PageKind::Inflight.key(cluster),
            lease: PageKind::Lease.key(cluster),
            trunk: PageKind::Trunk.key(cluster),
            holds_lease: false,
            fleet_cas: Cas::default(),
            admitted_at: Timestamp::default(),
            outcomes: Vec::new(),
            has_slot: false,
        }
    }
}

/// Decides over `page`, and counts the request where the decision sends it. A later call for the same request moves it.
fn decide_over(
    router: &mut Router,
    exchange: &mut Exchange,
    pool: usize,
    prefix: Option<u64>,
    page: &InflightPage,
    now: Timestamp,
) -> Option<Decision> {
    let decision = router.decide(pool, prefix, page, now)?;
    exchange.handle_decision(router.pool_mut(pool)?, decision);
    Some(decision)
}

/// Equal for configurations that poll the same workers in the same way.
fn fingerprint(pool: &PoolConfig, poll: &PollConfig) -> u64 {
    xxh3_64(format!("{pool:?} {poll:?}").as_bytes())
}

/// A number that no other plugin of this Envoy has, larger than those of all older ones: the next of a counter in shared
/// data, and below it some bits of the clock, for two VMs may create the counter at once.
fn draw_owner(now: Timestamp) -> u64 {
    let drawn = shared_data::update(OWNERS_KEY, |bytes| {
        let last = bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        let next = last.wrapping_add(1);
        Ok((Some(next.to_le_bytes().to_vec()), next))
    });
    let number = drawn.map_or(0_u64, |(number, _)| number);
    number << CLOCK_BITS | mix(now.as_ns()) >> (u64::BITS - CLOCK_BITS)
}

const CLOCK_BITS: u32 = 24;

const OWNERS_KEY: &str = "warmroute/owners";

/// Well below the expiry of a slot.
const HEARTBEAT_MS: u64 = 1_000;
