//! What a plugin does on its ticks: take in the fleet page, hold or wait for the leases, scrape, discover, set gauges.

mod discovery;

pub(super) use discovery::DiscoveryTroubles;

use super::abi::{self, HeaderMap};
use super::plugin::{Plugin, PollOutcome};
use super::shared_data::SharedData;
use crate::engine::prometheus::PAGE_BYTES_MAX as METRICS_BYTES_MAX;
use crate::pool::{Poll, Pool, PoolStatus};
use crate::shared::fleet::Fleet;
use crate::shared::inflight::InflightPage;
use crate::shared::lease::{self, LeaseStep};
use crate::shared::store::{Store, update};
use crate::stats::Stat;
use crate::time::Timestamp;
use crate::worker::DatedReport;

impl Plugin {
    pub(super) fn on_tick(&mut self) {
        let now = abi::now();
        for pool in 0..self.pools.len() {
            self.write_outcomes(pool);
            self.read_fleet(pool, now);
            // Every VM for its own configuration: the lease holder's may have other workers.
            self.admit_workers(pool, now);
            self.update_lease(pool, now);
            if self.pools.get(pool).is_some_and(|pages| pages.holds_lease) {
                self.router.refresh(&mut SharedData, pool, now);
                if let Some(status) = self.add_up(pool, now) {
                    self.stats.set_status(pool, &status);
                }
                self.send_polls(pool, now);
            }
        }
        self.discover(now);
    }

    /// Whether ticks should come fast: there are pools whose workers were to be discovered a moment ago, and none is known.
    pub(super) fn is_hurried(&self) -> bool {
        let is_empty = |pool: &Pool| pool.is_discovered() && pool.addresses().len() == 0;
        let has_empty = (0..self.pools.len()).filter_map(|pool| self.router.pool(pool)).any(is_empty);
        has_empty && abi::now().ms_between(self.started_at) < HURRY_MS
    }

    /// Takes the fleet page in, if it was written since. Requests then find it decoded.
    fn read_fleet(&mut self, pool: usize, now: Timestamp) {
        let (Some(pages), Some(state)) = (self.pools.get_mut(pool), self.router.pool(pool)) else { return };
        let (page, version) = SharedData.get(&state.keys().fleet);
        if page.is_some() && Some(version) == pages.fleet_version {
            return;
        }
        pages.fleet_version = Some(version);
        match Fleet::decode(page.as_deref()) {
            Ok(fleet) if !fleet.is_empty() => {
                if let Some(pool) = self.router.pool_mut(pool) {
                    pool.set_fleet(fleet);
                }
            }
            Ok(_) => {
                pages.admitted_at = Timestamp::default();
                self.admit_workers(pool, now);
            }
            Err(_) => self.stats.count(Stat::PageNewer),
        }
    }

    /// Sees to it, now and then, that each worker of the pool has its row.
    pub(super) fn admit_workers(&mut self, pool: usize, now: Timestamp) {
        let Some(pages) = self.pools.get_mut(pool) else { return };
        if now.ms_between(pages.admitted_at) < ADMIT_INTERVAL_MS {
            return;
        }
        pages.admitted_at = now;
        self.update_fleet(pool, |fleet, state| state.admit_to(fleet, now));
        if let Some(state) = self.router.pool(pool).filter(|pool| !pool.is_discovered()) {
            self.note_left_out(pool, state.unplaced());
        }
    }

    /// Writes what came of the scrapes since the last tick: together, for a large page is not rewritten for each.
    fn write_outcomes(&mut self, pool: usize) {
        let Some(pages) = self.pools.get_mut(pool) else { return };
        let outcomes = std::mem::take(&mut pages.outcomes);
        if outcomes.is_empty() {
            return;
        }
        let sent = self.router.read_adapters(&mut SharedData, pool);
        self.update_fleet(pool, |fleet, _| {
            // Before the reports: it is what they may have missed.
            fleet.remember_sent(&sent);
            for outcome in &outcomes {
                match outcome.report {
                    Some(dated) => {
                        fleet.record_report(&outcome.address, dated, outcome.in_flight, outcome.prefilling);
                    }
                    None => fleet.record_failure(&outcome.address),
                }
            }
            true
        });
    }

    /// Changes the fleet page and takes in what it then says. `change` gets the pool, as it was before, and tells whether
    /// anything is to be written.
    fn update_fleet(&mut self, pool: usize, mut change: impl FnMut(&mut Fleet, &Pool) -> bool) {
        let Some(state) = self.router.pool(pool) else { return };
        let updated = update(&mut SharedData, &state.keys().fleet, |bytes| {
            let mut fleet = Fleet::decode(bytes.as_deref())?;
            let is_changed = change(&mut fleet, state);
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
                let mut fleet = state.fleet().clone();
                change(&mut fleet, state);
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
        let (Some(pages), Some(state)) = (self.pools.get_mut(pool), self.router.pool(pool)) else { return };
        let (page, version) = SharedData.get(&state.keys().lease);
        let holds_lease = match lease::next_step(page.as_deref(), owner, pages.polled, now, lease_ms) {
            Ok(LeaseStep::Hold) => true,
            Ok(LeaseStep::Write(next)) => SharedData.set(&state.keys().lease, &next, version),
            Ok(LeaseStep::Wait) => false,
            Err(_) => {
                self.stats.count(Stat::PageNewer);
                false
            }
        };
        if holds_lease && !pages.holds_lease {
            self.inquiry.hasten();
            self.stats.count(Stat::LeaseTaken);
        }
        pages.holds_lease = holds_lease;
        if let Some(pool) = self.router.pool_mut(pool).filter(|_| !holds_lease) {
            pool.polls_mut().rest();
        }
    }

    /// Adds up what all VMs have in flight, for the scrapes that follow; tells how the pool stands.
    fn add_up(&mut self, pool: usize, now: Timestamp) -> Option<PoolStatus> {
        let page = InflightPage::open(SharedData.get(&self.router.pool(pool)?.keys().inflight).0).ok()?;
        Some(self.router.status(pool, &page, now))
    }

    fn send_polls(&mut self, pool: usize, now: Timestamp) {
        for member in self.router.due_polls(pool, now) {
            let (Some(state), poll) = (self.router.pool(pool), &self.router.config().poll) else { return };
            let Some(target) = state.poll_target(member, poll) else { return };
            let (worker, held) = (target.worker.to_owned(), state.total_at(target.worker));
            let headers = [
                (":method", "GET"),
                (":path", target.path),
                (":authority", target.authority),
                ("x-envoy-original-dst-host", target.address),
            ];
            let Some(token) = abi::http_call(&poll.cluster, &headers, poll.timeout_ms) else {
                // No fault of the worker: it was not asked.
                self.stats.count(Stat::PollsRefused);
                continue;
            };
            self.stats.count(Stat::PollsSent);
            let (in_flight, prefilling) = (held.requests, held.prefilling);
            if let Some(state) = self.router.pool_mut(pool) {
                state.polls_mut().sent(Poll { token, worker, sent_at: now, in_flight, prefilling });
            }
        }
    }

    pub(super) fn on_call_response(&mut self, token: u32, body_bytes: usize) {
        if let Some(pools) = self.inquiry.answered(token) {
            return self.take_in_answer(&pools, body_bytes);
        }
        let answered = (0..self.pools.len())
            .find_map(|pool| Some((pool, self.router.pool_mut(pool)?.polls_mut().answered(token)?)));
        let Some((pool, poll)) = answered else { return };
        let address = poll.worker;
        let now = abi::now();
        // Dated by the question: on a busy thread the answer may have waited to be read.
        let page = answered_page(body_bytes, METRICS_BYTES_MAX);
        let report = page.and_then(|page| self.router.pool(pool)?.read_page(&address, &page).ok());
        let report = report.map(|report| DatedReport { taken_at: poll.sent_at, report });
        self.stats.count(if report.is_some() { Stat::PollsSucceeded } else { Stat::PollsFailed });
        self.add_up(pool, now);
        let held = self.router.pool(pool).map(|pool| pool.total_at(&address)).unwrap_or_default();
        // The engine wrote its page somewhere between our question and its answer. The larger of our two counts errs
        // towards "those are ours": a foreign request too few for one interval, rather than one of ours twice.
        let (in_flight, prefilling) = (held.requests.max(poll.in_flight), held.prefilling.max(poll.prefilling));
        if let Some(pages) = self.pools.get_mut(pool) {
            pages.outcomes.push(PollOutcome { address, report, in_flight, prefilling });
        }
    }
}

/// The page in the answer of the call that the host is telling us of. Transport failures look like HTTP 503 and 504.
fn answered_page(body_bytes: usize, bytes_max: usize) -> Option<Vec<u8>> {
    let status = abi::header(HeaderMap::CallResponse, ":status")?;
    if status != b"200" {
        return None;
    }
    abi::buffer(abi::Buffer::CallResponseBody, body_bytes.min(bytes_max))
}

/// How often the configured workers' rows are seen to: far below the time after which a row may be given away.
const ADMIT_INTERVAL_MS: u64 = 10_000;

/// Ticks come up to twice as late as asked, and a busy thread may miss some.
const LEASE_MS_MIN: u64 = 500;

/// How long a pool without workers makes ticks come fast at the start; one that has none later on is scaled to zero.
const HURRY_MS: u64 = 5_000;
