//! The workers of one Envoy cluster: what is known of them now, and one decision over them.

mod poller;

pub use poller::{Poll, PollSchedule};

use xxhash_rust::xxh3::xxh3_64;

use crate::config::PollConfig;
use crate::rng::Rng;
use crate::schedule::{Candidate, Decision, Picks, Policy, Query};
use crate::shared::fleet::{Fleet, FleetWorker};
use crate::shared::inflight::{Held, InflightPage};
use crate::time::Timestamp;
use crate::worker::{DatedReport, WorkerId};

/// One configured worker.
#[derive(Debug)]
struct Member {
    address: String,
    /// Hash of `address`: see [`Candidate::identity`].
    identity: u64,
    /// Its row in the fleet page; `None` until the page has been read, or when the page is full.
    id: Option<WorkerId>,
}

/// One pool: its configured workers, the fleet page as last read, and what this VM itself has in flight.
///
/// Bounded by [`crate::worker::WORKERS_MAX`] in all parts.
#[derive(Debug)]
pub struct Pool {
    cluster: String,
    members: Vec<Member>,
    fleet: Fleet,
    /// This VM's own requests in flight, by worker id: the truth of its slot in the in-flight page.
    held: Vec<Held>,
    /// Scratch, kept to allocate nothing per request: all VMs' requests in flight by worker id, and the candidates.
    totals: Vec<Held>,
    candidates: Vec<Candidate>,
    polls: PollSchedule,
}

/// How the pool stands, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Requests in flight, all VMs.
    pub requests: u32,
    /// Workers that answer their scrapes (or were never scraped).
    pub available_workers: u32,
    /// Workers whose load is known.
    pub known_workers: u32,
    /// Age of the oldest report that the pool has, fresh or not; 0 without reports.
    pub report_age_ms_max: u64,
}

impl Pool {
    /// The pool of the Envoy cluster named `cluster` with the workers at `addresses`, nothing known of them yet.
    #[must_use]
    pub fn new(cluster: &str, addresses: &[String]) -> Self {
        let member =
            |address: &String| Member { address: address.clone(), identity: xxh3_64(address.as_bytes()), id: None };
        Self {
            cluster: cluster.to_owned(),
            members: addresses.iter().map(member).collect(),
            fleet: Fleet::default(),
            held: Vec::new(),
            totals: Vec::new(),
            candidates: Vec::with_capacity(addresses.len()),
            polls: PollSchedule::default(),
        }
    }

    /// The Envoy cluster it is named after.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The configured workers' addresses, in order.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = &str> {
        self.members.iter().map(|member| member.address.as_str())
    }

    /// Takes in the fleet page as it was read.
    pub fn set_fleet(&mut self, fleet: Fleet) {
        self.fleet = fleet;
        for member in &mut self.members {
            // Rows hardly ever move: looking where it was keeps this linear in the pool.
            let is_at = |id: &WorkerId| self.fleet.worker(*id).is_some_and(|worker| worker.address == member.address);
            member.id = member.id.filter(is_at).or_else(|| self.fleet.find(&member.address));
        }
        let workers = self.fleet.len();
        // Never shrinks: a request in flight at a worker that left the page must still find its row.
        if workers > self.held.len() {
            self.held.resize(workers, Held::default());
            self.totals.resize(workers, Held::default());
        }
    }

    /// The fleet page as last read.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The worker at `address`, as Envoy prints it.
    #[must_use]
    pub fn find(&self, address: &str) -> Option<WorkerId> {
        self.members.iter().find(|member| member.address == address)?.id
    }

    /// The address of a worker.
    #[must_use]
    pub fn address(&self, worker: WorkerId) -> Option<&str> {
        self.fleet.worker(worker).map(|worker| worker.address.as_str())
    }

    /// Decides where a request goes, given what all VMs have in flight; `None` if the pool has no workers.
    ///
    /// Changes nothing that a second call would see: on a lost race over the page, read it again and decide anew.
    pub fn decide(
        &mut self,
        policy: &dyn Policy,
        query: &Query,
        page: &InflightPage,
        poll: &PollConfig,
        now: Timestamp,
    ) -> Option<Decision> {
        page.add_up(now, &mut self.totals);
        self.collect_candidates(poll, now, true);
        let is_panic = self.candidates.is_empty();
        if is_panic {
            self.collect_candidates(poll, now, false);
        }
        let mut picks = Picks::default();
        let query = Query { turn: page.turn(), ..*query };
        let branch = policy.pick(&query, &self.candidates, &mut picks);
        picks.first().map(|_| Decision { picks, branch, is_panic })
    }

    /// Fills the candidates: available workers only, or all.
    fn collect_candidates(&mut self, poll: &PollConfig, now: Timestamp, only_available: bool) {
        self.candidates.clear();
        let mut foreign_max = 0.0_f64;
        for member in &self.members {
            let Some(id) = member.id else { continue };
            let Some(worker) = self.fleet.worker(id) else { continue };
            if only_available && !is_available(worker, poll) {
                continue;
            }
            let own = self.totals.get(usize::from(id.0)).copied().unwrap_or_default();
            let foreign = foreign_requests(worker, poll, now);
            foreign_max = foreign_max.max(foreign.unwrap_or_default());
            self.candidates.push(Candidate {
                worker: id,
                identity: member.identity,
                load_requests: f64::from(own.requests) + foreign.unwrap_or_default(),
                is_known: foreign.is_some(),
            });
        }
        for candidate in self.candidates.iter_mut().filter(|candidate| !candidate.is_known) {
            candidate.load_requests += foreign_max;
        }
    }

    /// Counts `request` at `worker` as this VM's.
    pub fn hold(&mut self, worker: WorkerId, request: Held) {
        if let Some(held) = self.held.get_mut(usize::from(worker.0)) {
            held.add(request);
        }
    }

    /// Takes `request` off `worker` again.
    pub fn release(&mut self, worker: WorkerId, request: Held) {
        if let Some(held) = self.held.get_mut(usize::from(worker.0)) {
            held.subtract(request);
        }
    }

    /// What this VM has in flight, by worker id.
    #[must_use]
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// The scrapes of this pool.
    pub fn polls_mut(&mut self) -> &mut PollSchedule {
        &mut self.polls
    }

    /// See [`PollSchedule::due`].
    pub fn due_polls(&mut self, poll: &PollConfig, now: Timestamp, rng: &mut Rng) -> Vec<usize> {
        self.polls.due(self.members.len(), poll, now, rng)
    }

    /// What all VMs have in flight at the worker at `address`, by the totals of the last page that was added up.
    #[must_use]
    pub fn total_at(&self, address: &str) -> Held {
        let id = self.find(address).map(|id| usize::from(id.0));
        id.and_then(|index| self.totals.get(index)).copied().unwrap_or_default()
    }

    /// Adds up `page` anew and tells how the pool stands.
    pub fn status(&mut self, page: &InflightPage, poll: &PollConfig, now: Timestamp) -> PoolStatus {
        page.add_up(now, &mut self.totals);
        let mut status =
            PoolStatus { requests: self.totals.iter().map(|held| held.requests).sum(), ..PoolStatus::default() };
        for worker in self.members.iter().filter_map(|member| self.fleet.worker(member.id?)) {
            status.available_workers += u32::from(is_available(worker, poll));
            status.known_workers += u32::from(foreign_requests(worker, poll, now).is_some());
            let age_ms = worker.report.map_or(0, |dated: DatedReport| now.ms_between(dated.taken_at));
            status.report_age_ms_max = status.report_age_ms_max.max(age_ms);
        }
        status
    }
}

/// Whether the worker answers its scrapes. A worker never scraped is given the benefit of the doubt, and so are all where
/// scrapes are off: what an earlier configuration found out, nobody will ever correct.
fn is_available(worker: &FleetWorker, poll: &PollConfig) -> bool {
    poll.cluster.is_empty() || u32::from(worker.scrape_failures) < poll.failures_max
}

/// Requests of others at the worker: what its fresh report shows beyond our own of that time; `None` if unknown.
///
/// A request of ours that is in the report is also in our own in-flight count: hence the difference, so that none
/// counts twice.
fn foreign_requests(worker: &FleetWorker, poll: &PollConfig, now: Timestamp) -> Option<f64> {
    let report = worker.fresh_report(now, poll.report_age_ms_max)?;
    let (waiting, running) = (report.waiting, report.running);
    if waiting.is_none() && running.is_none() {
        return None;
    }
    let reported = waiting.unwrap_or_default() + running.unwrap_or_default();
    Some((reported - f64::from(worker.in_flight_at_report)).max(0.0))
}

#[cfg(test)]
mod tests;
