//! One plugin configuration in one VM: configuring it, its tick, its scrapes, and its view of the shared pages.

use std::cell::RefCell;
use std::rc::Rc;

use super::abi::{self, Buffer, HeaderMap};
use super::shared_data;
use super::stats::Stats;
use crate::config::Config;
use crate::engine;
use crate::exchange::Exchange;
use crate::pool::Poll;
use crate::rng::mix;
use crate::router::Router;
use crate::schedule::Decision;
use crate::shared::PageKind;
use crate::shared::fleet::Fleet;
use crate::shared::inflight::{Held, InflightPage};
use crate::shared::lease::{self, LeaseStep};
use crate::shared::trunk::TrunkPage;
use crate::stats::Stat;
use crate::time::Timestamp;
use crate::worker::DatedReport;

/// A root context of the host: one configuration, once it was accepted.
pub(super) struct Root {
    context_id: u32,
    plugin: Option<Rc<RefCell<Plugin>>>,
}

impl Root {
    pub(super) const fn new(context_id: u32) -> Self {
        Self { context_id, plugin: None }
    }

    pub(super) const fn plugin(&self) -> Option<&Rc<RefCell<Plugin>>> {
        self.plugin.as_ref()
    }

    /// Takes the configuration, or refuses it and says why: the host then keeps the one before.
    pub(super) fn on_configure(&mut self, configuration_bytes: usize) -> bool {
        let text = abi::buffer(Buffer::PluginConfiguration, configuration_bytes).unwrap_or_default();
        let config = match Config::from_bytes(&text) {
            Ok(config) => config,
            Err(error) => {
                log::error!("configuration refused: {error}");
                return false;
            }
        };
        let tick_ms = (config.poll.interval_ms / 5).clamp(TICK_MS_MIN, TICK_MS_MAX);
        self.plugin = Some(Rc::new(RefCell::new(Plugin::new(config))));
        abi::set_tick_period(tick_ms);
        true
    }

    pub(super) fn on_tick(&self) {
        if let Some(Ok(mut plugin)) = self.plugin.as_ref().map(|plugin| plugin.try_borrow_mut()) {
            // The host ticks in the root's context already; calls made from it must be the root's in any case.
            if abi::set_effective_context(self.context_id) {
                plugin.on_tick();
            }
        }
    }

    pub(super) fn on_call_response(&self, token: u32, body_bytes: usize) {
        if let Some(Ok(mut plugin)) = self.plugin.as_ref().map(|plugin| plugin.try_borrow_mut()) {
            plugin.on_call_response(token, body_bytes);
        }
    }
}

/// A configuration at work: the router, and where its pages are.
pub(super) struct Plugin {
    pub(super) router: Router,
    pub(super) stats: Stats,
    pools: Vec<PoolPages>,
    wrote_slots_at: Timestamp,
}

/// One pool's keys in shared data, and how this VM stands to its pages.
struct PoolPages {
    fleet: String,
    inflight: String,
    lease: String,
    trunk: String,
    holds_lease: bool,
    /// Whether this VM's slot says more than zeros, so that it must be kept alive.
    has_slot: bool,
}

impl Plugin {
    fn new(config: Config) -> Self {
        let now = abi::now();
        let owner = draw_owner(now);
        let stats = Stats::define(config.pools.iter().map(|pool| pool.cluster.as_str()));
        let pages_of = |cluster: &str| PoolPages {
            fleet: PageKind::Fleet.key(cluster),
            inflight: PageKind::Inflight.key(cluster),
            lease: PageKind::Lease.key(cluster),
            trunk: PageKind::Trunk.key(cluster),
            holds_lease: false,
            has_slot: false,
        };
        let pools = config.pools.iter().map(|pool| pages_of(&pool.cluster)).collect();
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
            return None;
        };
        let prefix = self.router.prefix(pool, &mut trunk);
        // Best effort: what a lost race leaves uncounted is one sighting of many.
        abi::set_shared_data(key, trunk.as_bytes(), cas);
        prefix
    }

    /// Decides over the newest in-flight page and counts the request in it, as one step: when another VM writes in
    /// between, the decision is made anew over what it wrote. So no two requests are decided on the same counts.
    pub(super) fn decide(&mut self, pool: usize, prefix: Option<u64>, exchange: &mut Exchange) -> Option<Decision> {
        let now = abi::now();
        let pages = self.pools.get_mut(pool)?;
        let router = &mut self.router;
        let mut decide_over = |page: &InflightPage| {
            let decision = router.decide(pool, prefix, page, now)?;
            exchange.handle_decision(router.pool_mut(pool)?, decision);
            Some((decision, router.owner(), router.pool(pool)?.held().to_vec()))
        };
        let updated = shared_data::update(&pages.inflight, |bytes| {
            let mut page = InflightPage::open(bytes)?;
            let Some((decision, owner, held)) = decide_over(&page) else { return Ok((None, None)) };
            page.write_slot(owner, &held, now);
            page.advance_turn();
            Ok((Some(page.into_bytes()), Some(decision)))
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
                let own_view = InflightPage::open(None).ok()?;
                decide_over(&own_view).map(|(decision, ..)| decision)
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
            Ok(((), false)) => self.stats.count(Stat::PageConflicts),
            Err(_) => self.stats.count(Stat::PageNewer),
        }
    }

    /// Keeps this VM's slots alive while it has requests in flight.
    pub(super) fn beat(&mut self) {
        let now = abi::now();
        if now.ms_since(self.wrote_slots_at) < HEARTBEAT_MS {
            return;
        }
        self.wrote_slots_at = now;
        for pool in 0..self.pools.len() {
            if self.pools.get(pool).is_some_and(|pages| pages.has_slot) {
                self.publish(pool);
            }
        }
    }

    fn on_tick(&mut self) {
        let now = abi::now();
        for pool in 0..self.pools.len() {
            self.read_fleet(pool, now);
            self.update_lease(pool, now);
            if self.pools.get(pool).is_some_and(|pages| pages.holds_lease) {
                self.admit_workers(pool, now);
                self.read_status(pool, now);
                self.send_polls(pool, now);
            }
        }
    }

    fn read_fleet(&mut self, pool: usize, now: Timestamp) {
        let Some(pages) = self.pools.get(pool) else { return };
        let page = shared_data::read(&pages.fleet);
        match Fleet::decode(page.as_deref()) {
            Ok(fleet) if !fleet.is_empty() => {
                if let Some(pool) = self.router.pool_mut(pool) {
                    pool.set_fleet(fleet);
                }
            }
            Ok(_) => self.admit_workers(pool, now),
            Err(_) => self.stats.count(Stat::PageNewer),
        }
    }

    /// Sees to it that each configured worker has its row, and takes the page in.
    fn admit_workers(&mut self, pool: usize, now: Timestamp) {
        self.update_fleet(pool, |fleet, addresses| fleet.admit(addresses.iter().map(String::as_str), now));
    }

    /// Changes the fleet page and takes in what it then says. `change` gets the configured addresses and tells whether
    /// anything is to be written.
    fn update_fleet(&mut self, pool: usize, mut change: impl FnMut(&mut Fleet, &[String]) -> bool) {
        let (Some(pages), Some(configured)) = (self.pools.get(pool), self.router.config().pools.get(pool)) else {
            return;
        };
        let updated = shared_data::update(&pages.fleet, |bytes| {
            let mut fleet = Fleet::decode(bytes.as_deref())?;
            let is_changed = change(&mut fleet, &configured.workers);
            Ok((is_changed.then(|| fleet.encode()), fleet))
        });
        let fleet = match updated {
            Ok((fleet, is_stored)) => {
                if !is_stored {
                    self.stats.count(Stat::PageConflicts);
                }
                fleet
            }
            Err(_) => {
                self.stats.count(Stat::PageNewer);
                // On our own: the ids are only this VM's, and so is what it knows.
                let known = self.router.pool(pool).map(|pool| pool.fleet().clone());
                let mut fleet = known.unwrap_or_default();
                change(&mut fleet, &configured.workers);
                fleet
            }
        };
        if let Some(pool) = self.router.pool_mut(pool) {
            pool.set_fleet(fleet);
        }
    }

    fn update_lease(&mut self, pool: usize, now: Timestamp) {
        let owner = self.router.owner();
        let lease_ms = u64::from(self.router.config().poll.interval_ms).saturating_mul(2).max(LEASE_MS_MIN);
        let Some(pages) = self.pools.get_mut(pool) else { return };
        let (page, cas) = abi::shared_data(&pages.lease);
        let holds_lease = match lease::next_step(page.as_deref(), owner, now, lease_ms) {
            Ok(LeaseStep::Hold) => true,
            Ok(LeaseStep::Write(next)) => abi::set_shared_data(&pages.lease, &next, cas),
            Ok(LeaseStep::Wait) => false,
            Err(_) => {
                self.stats.count(Stat::PageNewer);
                false
            }
        };
        if holds_lease && !pages.holds_lease {
            self.stats.count(Stat::LeaseTaken);
        }
        pages.holds_lease = holds_lease;
        if let Some(pool) = self.router.pool_mut(pool).filter(|_| !holds_lease) {
            pool.polls_mut().rest();
        }
    }

    /// Adds up what all VMs have in flight, for the gauges and for the scrapes that follow.
    fn read_status(&mut self, pool: usize, now: Timestamp) {
        let Some(pages) = self.pools.get(pool) else { return };
        let Ok(page) = InflightPage::open(shared_data::read(&pages.inflight)) else { return };
        let poll = self.router.config().poll.clone();
        if let Some(state) = self.router.pool_mut(pool) {
            self.stats.set_status(pool, &state.status(&page, &poll, now));
        }
    }

    fn send_polls(&mut self, pool: usize, now: Timestamp) {
        for member in self.router.due_polls(pool, now) {
            let (Some(state), poll) = (self.router.pool(pool), &self.router.config().poll) else { return };
            let Some(address) = state.addresses().nth(member) else { return };
            let held = state.total_at(address);
            let headers = [
                (":method", "GET"),
                (":path", poll.path.as_str()),
                (":authority", address),
                ("x-envoy-original-dst-host", address),
            ];
            let Some(token) = abi::http_call(&poll.cluster, &headers, poll.timeout_ms) else {
                // No fault of the worker: it was not asked.
                self.stats.count(Stat::PollsRefused);
                continue;
            };
            self.stats.count(Stat::PollsSent);
            let (in_flight, prefilling) = (held.requests, held.prefilling);
            if let Some(state) = self.router.pool_mut(pool) {
                state.polls_mut().sent(Poll { token, member, sent_at: now, in_flight, prefilling });
            }
        }
    }

    fn on_call_response(&mut self, token: u32, body_bytes: usize) {
        let answered = (0..self.pools.len()).find_map(|pool| {
            let state = self.router.pool_mut(pool)?;
            let poll = state.polls_mut().answered(token)?;
            let address = state.addresses().nth(poll.member)?.to_owned();
            Some((pool, poll, address))
        });
        let Some((pool, poll, address)) = answered else { return };
        let now = abi::now();
        self.read_status(pool, now);
        let held = self.router.pool(pool).map(|pool| pool.total_at(&address)).unwrap_or_default();
        let Some(report) = read_report(body_bytes) else {
            self.stats.count(Stat::PollsFailed);
            self.update_fleet(pool, |fleet, _| {
                fleet.record_failure(&address);
                true
            });
            return;
        };
        self.stats.count(Stat::PollsSucceeded);
        // The engine wrote its page somewhere between our question and its answer. The larger of our two counts errs
        // towards "those are ours": a foreign request too few for one interval, rather than one of ours twice.
        let (in_flight, prefilling) = (held.requests.max(poll.in_flight), held.prefilling.max(poll.prefilling));
        let dated = DatedReport { taken_at: now, report };
        self.update_fleet(pool, |fleet, _| {
            fleet.record_report(&address, dated, in_flight, prefilling);
            true
        });
    }
}

/// The report in the answer of the call that the host is telling us of. Transport failures look like HTTP 503 and 504.
fn read_report(body_bytes: usize) -> Option<crate::worker::LoadReport> {
    let status = abi::header(HeaderMap::CallResponse, ":status")?;
    if status != b"200" {
        return None;
    }
    let page = abi::buffer(Buffer::CallResponseBody, body_bytes.min(engine::prometheus::PAGE_BYTES_MAX))?;
    engine::DIALECTS.iter().find_map(|dialect| engine::read_report(&page, dialect).ok())
}

/// A number that no other plugin of this Envoy has: the next of a counter in shared data.
fn draw_owner(now: Timestamp) -> u64 {
    let drawn = shared_data::update(OWNERS_KEY, |bytes| {
        let last = bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        let next = last.wrapping_add(1);
        Ok((Some(next.to_le_bytes().to_vec()), next))
    });
    match drawn {
        Ok((owner, true)) => owner,
        // Never seen; the clock then tells the VMs apart as well as can be.
        _ => mix(now.as_ns()),
    }
}

const OWNERS_KEY: &str = "warmroute/owners";

/// Ticks read the fleet page and renew the lease; a fifth of the scrape interval keeps scrapes on time.
const TICK_MS_MIN: u32 = 10;
const TICK_MS_MAX: u32 = 100;

/// Well below the expiry of a slot.
const HEARTBEAT_MS: u64 = 1_000;

/// Ticks come up to twice as late as asked, and a busy thread may miss some.
const LEASE_MS_MIN: u64 = 500;
