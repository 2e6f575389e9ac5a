//! A configuration at work in one VM: its decisions, and its own slot in the in-flight pages.

use xxhash_rust::xxh3::xxh3_64;

use super::abi;
use super::shared_data::SharedData;
use super::stats::Stats;
use super::tick::DiscoveryTroubles;
use crate::config::{Config, PoolConfig};
use crate::discovery::Inquiry;
use crate::rng::mix;
use crate::router::Router;
use crate::shared::store::{Version, update};
use crate::shared::{LAYOUT, LAYOUT_KEY};
use crate::stats::Stat;
use crate::time::Timestamp;
use crate::worker::DatedReport;

/// The router, and where its pages are. What it does on its ticks is in `tick`.
pub(super) struct Plugin {
    pub(super) router: Router,
    pub(super) stats: Stats,
    pub(super) pools: Vec<PoolPages>,
    /// The questions to Envoy for its clusters.
    pub(super) inquiry: Inquiry,
    pub(super) troubles: DiscoveryTroubles,
    pub(super) started_at: Timestamp,
    wrote_slots_at: Timestamp,
}

/// How this VM stands to one pool's pages.
pub(super) struct PoolPages {
    /// What the lease has to say of this VM: see [`crate::shared::lease::next_step`].
    pub(super) polled: u64,
    pub(super) holds_lease: bool,
    /// Version of the fleet page that was taken in last.
    pub(super) fleet_version: Option<Version>,
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
        if let Some(before) = enter_layout() {
            log::info!("shared pages have layout {LAYOUT} now and had {before} before: caches are learned anew");
            stats.count(Stat::LayoutChanges);
        }
        let pools: Vec<PoolPages> =
            config.pools.iter().map(|pool| PoolPages::new(fingerprint(pool, &config))).collect();
        let (inquiry, troubles) = (Inquiry::default(), DiscoveryTroubles::of(pools.len()));
        let router = Router::new(config, owner, mix(owner ^ now.as_ns()));
        let mut plugin = Self { router, stats, pools, inquiry, troubles, started_at: now, wrote_slots_at: now };
        for pool in 0..plugin.router.pool_count() {
            plugin.admit_workers(pool, now);
        }
        plugin
    }

    /// Sees to it that this VM's slot in a pool's in-flight page is kept alive while it says more than zeros.
    pub(super) fn keep_slot(&mut self, pool: usize) {
        if let Some(pages) = self.pools.get_mut(pool) {
            pages.has_slot = true;
        }
    }

    /// Counts what the router met in shared pages.
    pub(super) fn count_incidents(&mut self) {
        let incidents = self.router.take_incidents();
        self.stats.add(Stat::PageConflicts, incidents.conflicts);
        self.stats.add(Stat::PageNewer, incidents.newer);
        self.stats.add(Stat::Ejections, incidents.ejections);
    }

    /// Writes what this VM has not yet told the others, and keeps its slots alive while it has requests in flight.
    pub(super) fn beat(&mut self) {
        let now = abi::now();
        for pool in 0..self.pools.len() {
            self.router.flush(&mut SharedData, pool, now);
        }
        if now.ms_between(self.wrote_slots_at) < HEARTBEAT_MS {
            return;
        }
        self.wrote_slots_at = now;
        for pool in 0..self.pools.len() {
            if let Some(pages) = self.pools.get_mut(pool).filter(|pages| pages.has_slot) {
                pages.has_slot = self.router.publish(&mut SharedData, pool, now);
            }
        }
        self.count_incidents();
    }
}

impl PoolPages {
    fn new(polled: u64) -> Self {
        Self {
            polled,
            holds_lease: false,
            fleet_version: None,
            admitted_at: Timestamp::default(),
            outcomes: Vec::new(),
            has_slot: false,
        }
    }
}

/// Equal for configurations that find and poll the same workers in the same way.
fn fingerprint(pool: &PoolConfig, config: &Config) -> u64 {
    xxh3_64(format!("{pool:?} {:?} {:?}", config.poll, config.discovery).as_bytes())
}

/// Notes that pages of this layout are in use; returns the other one that was before.
fn enter_layout() -> Option<u16> {
    let entered = update(&mut SharedData, LAYOUT_KEY, |bytes| {
        let before = bytes.and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
        let is_same = before == Some(LAYOUT);
        Ok(((!is_same).then(|| LAYOUT.to_le_bytes().to_vec()), before.filter(|_| !is_same)))
    });
    // Of several VMs that begin at once only the one whose write counts tells of it.
    entered.ok().and_then(|(before, is_stored)| before.filter(|_| is_stored))
}

/// A number that no other plugin of this Envoy has, larger than those of all older ones: the next of a counter in shared
/// data, and below it some bits of the clock, for two VMs may create the counter at once.
fn draw_owner(now: Timestamp) -> u64 {
    let drawn = update(&mut SharedData, OWNERS_KEY, |bytes| {
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
