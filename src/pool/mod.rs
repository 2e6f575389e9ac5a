//! The workers of one Envoy cluster: what is known of them now, and one decision over them.

mod adapters;
mod availability;
mod candidates;
mod directed;
mod members;
mod poller;

pub use availability::Rules;
pub use candidates::RequestSizes;
pub use poller::{Poll, PollSchedule};

use std::sync::Arc;

use crate::config::{PollConfig, PoolConfig};
use crate::direct::name_hash;
use crate::engine::{Engine, PageError, PageReader};
use crate::index::{Index, Retention};
use crate::rng::Rng;
use crate::schedule::{Candidate, Query, Rung};
use crate::shared::PageKind;
use crate::shared::fleet::{Fleet, FleetWorker};
use crate::shared::inflight::{Held, InflightPage};
use crate::shared::learned::LearnedWorker;
use crate::shared::responses;
use crate::time::Timestamp;
use crate::worker::{DatedReport, LoadReport, WorkerId};
use adapters::PoolAdapters;
use availability::{Admission, Fitness};
use candidates::foreign_load;
use members::{Member, Membership};

/// One pool: its workers, the fleet page as last read, and what this VM itself has in flight.
///
/// Bounded by [`crate::worker::WORKERS_MAX`] in all parts.
#[derive(Debug)]
pub struct Pool {
    cluster: String,
    members: Vec<Member>,
    membership: Membership,
    /// Addresses of workers that are configured to get no new requests, in order.
    draining: Vec<String>,
    fleet: Fleet,
    /// This VM's name in shared pages.
    owner: u64,
    /// This VM's own requests in flight, by worker id: the truth of its slot in the in-flight page.
    held: Vec<Held>,
    /// When that slot was written last, and whether `held` has changed since.
    slot_written_at: Timestamp,
    is_slot_behind: bool,
    adapters: PoolAdapters,
    index: Index,
    keys: PageKeys,
    polls: PollSchedule,
    /// The configured names of its workers, by [`name_hash`], and their addresses.
    names: Vec<(u64, String)>,
    /// Whether its workers tell their load at all.
    is_scraped: bool,
    /// Where the page of metrics is, if not where all pools' are.
    metrics_path: Option<String>,
    reader: PageReader,
    /// Scratch, kept to allocate nothing per request. By worker id: all VMs' requests in flight, what was learned, what is
    /// believed of the caches, and how much of the prompt each holds. And the candidates.
    totals: Vec<Held>,
    learned: Vec<LearnedWorker>,
    retentions: Vec<Retention>,
    matched_bytes: Vec<u64>,
    candidates: Vec<Candidate>,
    /// More scratch: how each member stands and who is let in; and, by worker id, who may be broken although others surely are
    /// not: empty if nobody is.
    fits: Vec<Fitness>,
    admission: Admission,
    unproven: Vec<bool>,
}

/// Where the pool's pages are in shared data; those of the index apart.
#[derive(Clone, Debug)]
pub struct PageKeys {
    /// See [`crate::shared::adapters`].
    pub adapters: String,
    /// See [`crate::shared::fleet`].
    pub fleet: String,
    /// See [`crate::shared::inflight`]. Shared, for a decision needs it beside the pool.
    pub inflight: Arc<str>,
    /// See [`crate::shared::learned`].
    pub learned: String,
    /// See [`crate::shared::lease`].
    pub lease: String,
    /// See [`crate::shared::trunk`].
    pub trunk: String,
    /// See [`crate::shared::responses`].
    responses: Vec<String>,
}

impl PageKeys {
    fn new(cluster: &str) -> Self {
        Self {
            adapters: PageKind::Adapters.key(cluster),
            fleet: PageKind::Fleet.key(cluster),
            inflight: PageKind::Inflight.key(cluster).into(),
            learned: PageKind::Learned.key(cluster),
            lease: PageKind::Lease.key(cluster),
            trunk: PageKind::Trunk.key(cluster),
            responses: (0..responses::PAGES)
                .map(|page| format!("{}/{page}", PageKind::Responses.key(cluster)))
                .collect(),
        }
    }

    /// Where a page of [`crate::shared::responses`] is, by its number.
    #[must_use]
    pub fn response(&self, page: usize) -> Option<&str> {
        self.responses.get(page).map(String::as_str)
    }
}

/// How the pool stands, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Requests in flight, all VMs.
    pub requests: u32,
    /// Workers of the pool.
    pub workers: u32,
    /// Workers that get no new requests.
    pub draining_workers: u32,
    /// Workers out of use for their failed requests.
    pub ejected_workers: u32,
    /// Workers in use.
    pub available_workers: u32,
    /// Workers whose load is known.
    pub known_workers: u32,
    /// Age of the oldest report that the pool has, fresh or not; 0 without reports.
    pub report_age_ms_max: u64,
}

/// Whom to ask for a worker's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollTarget<'p> {
    /// The address of the worker.
    pub worker: &'p str,
    /// Where its metrics are, which may be elsewhere.
    pub address: &'p str,
    /// By which name it is asked: that of its host if Envoy tells one, else its address.
    pub authority: &'p str,
    /// Under which path.
    pub path: &'p str,
}

impl Pool {
    /// The pool of the Envoy cluster named `cluster` with the workers at `addresses`, nothing known of them yet, and an
    /// index of so many pages. `owner` is this VM's name in shared pages.
    #[must_use]
    pub fn new(cluster: &str, addresses: &[String], index_pages: u32, owner: u64) -> Self {
        Self {
            cluster: cluster.to_owned(),
            members: addresses.iter().map(|address| Member::new(address, None)).collect(),
            membership: Membership::Listed,
            draining: Vec::new(),
            fleet: Fleet::default(),
            owner,
            held: Vec::new(),
            slot_written_at: Timestamp::default(),
            is_slot_behind: false,
            adapters: PoolAdapters::default(),
            index: Index::new(&[&PageKind::Index.key(cluster), "/"].concat(), index_pages),
            keys: PageKeys::new(cluster),
            polls: PollSchedule::default(),
            names: Vec::new(),
            is_scraped: true,
            metrics_path: None,
            reader: PageReader::new(Engine::Auto, &[]),
            totals: Vec::new(),
            learned: Vec::new(),
            retentions: Vec::new(),
            matched_bytes: Vec::new(),
            candidates: Vec::with_capacity(addresses.len()),
            fits: Vec::with_capacity(addresses.len()),
            admission: Admission::default(),
            unproven: Vec::new(),
        }
    }

    /// The pool that `config` describes; else as [`Pool::new`]. `is_told`: whether Envoy is asked for its clusters.
    #[must_use]
    pub fn configured(config: &PoolConfig, is_told: bool, index_pages: u32, owner: u64) -> Self {
        let addresses: Vec<String> = config.addresses().map(str::to_owned).collect();
        let mut pool = Self::new(&config.cluster, &addresses, index_pages, owner);
        for (member, worker) in pool.members.iter_mut().zip(&config.workers) {
            member.metrics_address.clone_from(worker.metrics_address.as_ref().unwrap_or(&worker.address));
            member.rank = worker.data_parallel_rank;
        }
        pool.membership = Membership::of(config, is_told);
        pool.draining.clone_from(&config.draining);
        pool.draining.sort_unstable();
        for member in &mut pool.members {
            member.is_draining = pool.draining.binary_search(&member.address).is_ok();
        }
        let names = config.workers.iter().filter(|worker| !worker.name.is_empty());
        pool.names = names.map(|worker| (name_hash(&worker.name), worker.address.clone())).collect();
        pool.is_scraped = config.engine != Engine::Silent;
        pool.metrics_path.clone_from(&config.metrics.path);
        pool.reader = PageReader::new(config.engine, &config.metrics.renamed);
        pool
    }

    /// The Envoy cluster it is named after.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Where its pages are.
    #[must_use]
    pub const fn keys(&self) -> &PageKeys {
        &self.keys
    }

    /// The fleet page as last read.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The address of a worker.
    #[must_use]
    pub fn address(&self, worker: WorkerId) -> Option<&str> {
        self.fleet.worker(worker).map(|worker| worker.address.as_str())
    }

    /// Counts `request` at `worker` as this VM's.
    pub fn hold(&mut self, worker: WorkerId, request: Held) {
        if let Some(held) = self.held.get_mut(usize::from(worker.0)) {
            held.add(request);
            self.is_slot_behind = true;
        }
    }

    /// Takes `request` off `worker` again.
    pub fn release(&mut self, worker: WorkerId, request: Held) {
        if let Some(held) = self.held.get_mut(usize::from(worker.0)) {
            held.subtract(request);
            self.is_slot_behind = true;
        }
    }

    /// What this VM has in flight, by worker id.
    #[must_use]
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// This VM's slot in the in-flight page says what it holds.
    pub fn note_slot_written(&mut self, now: Timestamp) {
        (self.slot_written_at, self.is_slot_behind) = (now, false);
    }

    /// Whether a change of what this VM holds should be written at once; else its slot was a moment ago and the VM is
    /// busy: the next decision or tick takes the change along.
    #[must_use]
    pub fn is_slot_due(&self, now: Timestamp) -> bool {
        let is_busy = self.held.iter().map(|held| held.requests).sum::<u32>() >= BUSY_REQUESTS;
        !is_busy || now.ms_between(self.slot_written_at) >= SLOT_INTERVAL_MS
    }

    /// Whether this VM's slot does not say what it holds.
    #[must_use]
    pub const fn is_slot_behind(&self) -> bool {
        self.is_slot_behind
    }

    /// The scrapes of this pool.
    pub fn polls_mut(&mut self) -> &mut PollSchedule {
        &mut self.polls
    }

    /// See [`PollSchedule::due`]. Nothing is ever due where the workers tell nothing.
    pub fn due_polls(&mut self, poll: &PollConfig, now: Timestamp, rng: &mut Rng) -> Vec<usize> {
        if !self.is_scraped {
            return Vec::new();
        }
        let addresses = self.members.iter().map(|member| member.address.as_str());
        self.polls.due(addresses, poll, now, rng)
    }

    /// Whom to ask for the load of a worker, by its place in the pool.
    #[must_use]
    pub fn poll_target<'p>(&'p self, member: usize, poll: &'p PollConfig) -> Option<PollTarget<'p>> {
        let member = self.members.get(member)?;
        Some(PollTarget {
            worker: &member.address,
            address: &member.metrics_address,
            authority: member.authority.as_ref().unwrap_or(&member.metrics_address),
            path: self.metrics_path.as_ref().unwrap_or(&poll.path),
        })
    }

    /// The report of the worker at `address` in the page that it, or its target, answered.
    ///
    /// # Errors
    /// As [`PageReader::read`].
    pub fn read_page(&self, address: &str, page: &[u8]) -> Result<LoadReport, PageError> {
        let member = self.members.iter().find(|member| member.address == address);
        self.reader.read(page, member.and_then(|member| member.rank))
    }

    /// What all VMs have in flight at the worker at `address`, by the totals of the last page that was added up.
    #[must_use]
    pub fn total_at(&self, address: &str) -> Held {
        let id = self.find(address).map(|id| usize::from(id.0));
        id.and_then(|index| self.totals.get(index)).copied().unwrap_or_default()
    }

    /// On how much a decision over the candidates of now stands.
    fn rung(&self, query: &Query, poll: &PollConfig, now: Timestamp) -> Rung {
        let is_asked = self.is_scraped && !poll.cluster.is_empty();
        let has_report = |worker: &FleetWorker| worker.fresh_report(now, poll.report_age_ms_max).is_some();
        let is_known = |candidate: &Candidate| self.fleet.worker(candidate.worker).is_some_and(has_report);
        match () {
            () if query.is_blind => Rung::NoIndex,
            () if is_asked && !self.candidates.iter().any(is_known) => Rung::NoReports,
            () => Rung::Full,
        }
    }

    /// Adds up `page` anew and tells how the pool stands.
    pub fn status(&mut self, page: &InflightPage, rules: &Rules<'_>, now: Timestamp) -> PoolStatus {
        page.add_up(self.owner, &self.held, now, &mut self.totals);
        let tally = self.survey(rules, now);
        let mut status = PoolStatus {
            requests: self.totals.iter().map(|held| held.requests).sum(),
            workers: u32::try_from(self.members.len()).unwrap_or(u32::MAX),
            draining_workers: tally.draining.workers,
            ejected_workers: tally.ejected,
            available_workers: tally.in_service.ready,
            ..PoolStatus::default()
        };
        for worker in self.members.iter().filter_map(|member| self.fleet.worker(member.id?)) {
            status.known_workers += u32::from(foreign_load(worker, rules.poll, now).is_some());
            let age_ms = worker.report.map_or(0, |dated: DatedReport| now.ms_between(dated.taken_at));
            status.report_age_ms_max = status.report_age_ms_max.max(age_ms);
        }
        status
    }
}

/// What ends within so many milliseconds of a decision is written with the next one, where the VM is busy: the page is then
/// written once for each request and not three times. Other VMs see it so much later, and in a lull with the next tick.
const SLOT_INTERVAL_MS: u64 = 5;

/// From so many requests in flight on a VM is busy: there one more or less matters little, and decisions come soon. A VM
/// with few tells at once that they have ended, or other VMs would send the next turn of a conversation elsewhere.
const BUSY_REQUESTS: u32 = 8;

#[cfg(test)]
mod adapter_tests;
#[cfg(test)]
mod members_tests;
#[cfg(test)]
mod tests;
