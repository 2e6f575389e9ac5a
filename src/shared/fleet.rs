//! The workers of a pool: their ids, their last reports, their health. Written by who polls, read by every VM's tick.
//!
//! A worker's row number is its [`WorkerId`]. Workers are told apart by address; a row is given to another address only
//! when no VM has had the old one in its configuration or its cluster for [`RECLAIM_MS`], or when it has left the cluster and
//! all other rows are in use.

mod endpoints;
mod page;

pub use endpoints::{Admission, EndpointChanges};

use super::adapters::{AdaptersPage, Sending};
use crate::time::Timestamp;
use crate::worker::{AdapterHash, AdapterList, Adapters, DatedReport, LoadReport, Standing, WORKERS_MAX, WorkerId};

/// A worker that no configuration has named for this long may lose its row to another: where pods come and go under new
/// addresses the page stays as small as the pool.
pub const RECLAIM_MS: u64 = 600_000;

/// How often a configured worker's row is marked as seen, and the page as admitted to. As often as each VM admits its
/// workers, so that after any admission no row of that VM's configuration is older than this.
const SEEN_REFRESH_MS: u64 = 10_000;

/// A worker left unmarked for this long while others were admitted was in no configuration, and comes back as another.
///
/// Marks are up to twice [`SEEN_REFRESH_MS`] apart where several VMs take turns. Hence an absence of 60 s always shows,
/// and a VM that alone configures a worker may miss 10 s of ticks without a false alarm.
const ABSENT_MS: u64 = 30_000;

/// Two times further apart than this are not of one clock: it stepped in between.
const CLOCK_STEP_MS: u64 = 60_000;

/// Reports older than this say nothing of the foreign share: engines' loads change within seconds.
const SHARE_AGE_MS_MAX: u64 = 5_000;

/// What one report weighs in the foreign share. With 8 workers scraped every 200 ms that reaches back about a second.
const SHARE_WEIGHT: f64 = 0.02;

/// So many failed scrapes in a row may be a restart; a single one is rather a busy worker or a lost packet.
const RESTART_FAILURES: u16 = 2;

/// One worker, as all worker threads of this Envoy know it.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetWorker {
    /// `IP:port`, as Envoy prints the host's address.
    pub address: String,
    /// Counts the lives of the worker: one more for each restart seen or likely. What its cache held in an earlier life
    /// is gone.
    pub generation: u32,
    /// Scrapes that failed since the last one that succeeded; 0 for a worker never scraped.
    pub scrape_failures: u16,
    /// The last report; `None` until the first scrape succeeds.
    pub report: Option<DatedReport>,
    /// The LoRA adapters that it is believed to have in memory, last used first, as of the report: as many as its batch
    /// takes, or as a list has names. Engines tell only which are in use; what is idle stays loaded until another needs the
    /// place.
    pub loaded: AdapterList,
    /// This gateway's own requests in flight there when the report was taken: what of the report is our own.
    pub in_flight_at_report: u32,
    /// Those of them whose first byte had not come.
    pub prefilling_at_report: u32,
    /// What Envoy says of it in its cluster.
    pub standing: Standing,
    /// Its priority level in Envoy's cluster: 0 is used first.
    pub priority: u8,
    /// Hash of the name that Envoy has for it beside its address (a host name); `None` if it has none.
    pub name_hash: Option<u64>,
    seen_at: Timestamp,
}

/// All workers that the page knows, by [`WorkerId`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    workers: Vec<FleetWorker>,
    /// When any VM last admitted its workers, give or take [`SEEN_REFRESH_MS`].
    admitted_at: Timestamp,
    foreign_share: Option<f64>,
}

impl Fleet {
    /// Rows in the page: one more than the largest [`WorkerId`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether no worker is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// The worker with this id.
    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<&FleetWorker> {
        self.workers.get(usize::from(id.0))
    }

    /// All workers, in the order of their ids.
    pub fn workers(&self) -> impl Iterator<Item = &FleetWorker> {
        self.workers.iter()
    }

    /// The id of the worker at `address`.
    #[must_use]
    pub fn find(&self, address: &str) -> Option<WorkerId> {
        let index = self.workers.iter().position(|worker| worker.address == address)?;
        u16::try_from(index).ok().map(WorkerId)
    }

    /// Share of the workers' requests that are not this gateway's, 0.0 (all are) to 1.0 (none is), smoothed; `None`
    /// until a report showed any requests. About 1 - 1/G with G equal gateways.
    ///
    /// The mean of 1 - own / reported requests, weighted exponentially; both are sums over the workers, so that noise
    /// at one worker counts little.
    #[must_use]
    pub const fn foreign_share(&self) -> Option<f64> {
        self.foreign_share
    }

    /// Gives each of `addresses` a row and marks it as seen at `now`; returns whether anything changed.
    ///
    /// Every VM does this when it is configured and now and then, so that ids exist before the first request, whichever
    /// thread gets it. An address for which there is no room gets no row and thus no requests.
    ///
    /// A worker that comes back after it was in no configuration begins anew, with another generation. Absence is
    /// measured by what others did meanwhile and not by the clock: when the clock steps or the whole process sleeps,
    /// nobody was absent. Only after [`RECLAIM_MS`] without any admission is the pool taken for new as a whole, which a clock
    /// that steps forward by so much looks like too.
    pub fn admit<'a>(&mut self, addresses: impl Iterator<Item = &'a str>, now: Timestamp) -> bool {
        let last_at = self.admitted_at;
        let mut is_changed = self.note_admission(now);
        // First those that have rows: a newcomer must not be given the row of one whose turn is yet to come.
        let mut newcomers = Vec::new();
        for address in addresses {
            match self.workers.iter_mut().find(|worker| worker.address == address) {
                Some(worker) => is_changed |= worker.mark_seen(last_at, now),
                None => newcomers.push(address),
            }
        }
        for address in newcomers {
            is_changed |= self.find(address).is_none() && self.add(address, now);
        }
        is_changed
    }

    /// Notes now and then that workers are admitted; returns whether it did.
    fn note_admission(&mut self, now: Timestamp) -> bool {
        let is_due = now.ms_between(self.admitted_at) >= SEEN_REFRESH_MS;
        if is_due {
            self.admitted_at = now;
        }
        is_due
    }

    /// Gives `address` a row, and tells whether there was one to give: one that nobody had for long, a new one, or where the
    /// page is full that of the worker which left the cluster first. Its last requests then count at the newcomer until they
    /// end, but where pods come under new addresses with each roll-out, those that are there must not wait for those that were.
    fn add(&mut self, address: &str, now: Timestamp) -> bool {
        let is_abandoned = |worker: &&mut FleetWorker| now.ms_between(worker.seen_at) >= RECLAIM_MS;
        if let Some(gone) = self.workers.iter_mut().find(is_abandoned) {
            gone.begin_anew(address, now);
            return true;
        }
        if self.workers.len() < WORKERS_MAX {
            self.workers.push(FleetWorker::new(address, now));
            return true;
        }
        let gone = self.workers.iter_mut().filter(|worker| worker.standing == Standing::Gone);
        let Some(worker) = gone.min_by_key(|worker| worker.seen_at) else { return false };
        worker.begin_anew(address, now);
        true
    }

    /// Records a successful scrape of the worker at `address`. `in_flight` and `prefilling` are this gateway's own
    /// requests there at that time.
    ///
    /// Where the report gives away a restart of the engine, the generation goes up.
    pub fn record_report(&mut self, address: &str, dated: DatedReport, in_flight: u32, prefilling: u32) {
        let Some(worker) = self.workers.iter_mut().find(|worker| worker.address == address) else { return };
        // The answer to a former lease holder may come after a newer one.
        if worker.report.is_some_and(|kept| kept.taken_at > dated.taken_at && is_recent(kept.taken_at, dated.taken_at))
        {
            return;
        }
        if worker.may_have_restarted(&dated.report) {
            worker.generation = worker.generation.wrapping_add(1);
            worker.loaded = AdapterList::EMPTY;
        }
        worker.scrape_failures = 0;
        worker.report = Some(dated);
        worker.in_flight_at_report = in_flight;
        worker.prefilling_at_report = prefilling;
        // The order of those that run together says nothing; it is kept as it is told.
        for adapter in dated.report.adapters.running.listed().iter().rev() {
            worker.use_adapter(*adapter);
        }
        if dated.report.requests().is_some() {
            self.update_foreign_share(dated.taken_at);
        }
    }

    /// Takes in what each worker was sent since its last report and has served, before the next ones are recorded: a request for an
    /// adapter may come and go between two scrapes.
    pub fn remember_sent(&mut self, sent: &AdaptersPage) {
        let mut sendings: Vec<Sending> = sent.sendings().filter(|sending| sending.is_confirmed).collect();
        sendings.sort_unstable_by_key(|sending| sending.sent_at);
        for sending in sendings {
            let worker = self.workers.get_mut(usize::from(sending.worker.0));
            if let Some(worker) = worker.filter(|worker| worker.is_sent_since_report(&sending)) {
                worker.use_adapter(sending.adapter);
            }
        }
    }

    /// Takes the reports of now as one more sample of the foreign share; none if the workers are idle.
    fn update_foreign_share(&mut self, now: Timestamp) {
        let (mut own, mut reported) = (0.0, 0.0);
        for worker in &self.workers {
            let Some(requests) = worker.fresh_report(now, SHARE_AGE_MS_MAX).and_then(|report| report.requests()) else {
                continue;
            };
            own += f64::from(worker.in_flight_at_report);
            reported += requests;
        }
        // Not `<= 0.0`, which NaN passes: pages may hold anything.
        if !(reported > 0.0 && reported.is_finite()) {
            return;
        }
        // Our own count may be ahead of the engines': requests on their way there, or finished in between.
        let sample = (1.0 - own / reported).clamp(0.0, 1.0);
        let so_far = self.foreign_share.unwrap_or(sample);
        self.foreign_share = Some((so_far + SHARE_WEIGHT * (sample - so_far)).clamp(0.0, 1.0));
    }

    /// Sets what Envoy says of a worker, which otherwise only a page of its clusters does.
    #[cfg(test)]
    pub(crate) fn set_standing(&mut self, id: WorkerId, standing: Standing, priority: u8) {
        if let Some(worker) = self.workers.get_mut(usize::from(id.0)) {
            (worker.standing, worker.priority) = (standing, priority);
        }
    }

    /// Records that a scrape of the worker at `address` failed or told nothing.
    pub fn record_failure(&mut self, address: &str) {
        if let Some(worker) = self.workers.iter_mut().find(|worker| worker.address == address) {
            worker.scrape_failures = worker.scrape_failures.saturating_add(1);
        }
    }
}

/// Whether `later` is so little after `earlier` that both are of one clock: it did not step back in between.
const fn is_recent(later: Timestamp, earlier: Timestamp) -> bool {
    later.ms_between(earlier) < CLOCK_STEP_MS
}

/// Start times nearer than this are the same life: Linux derives them from clock ticks of 10 ms.
const RESTART_TOLERANCE_S: f64 = 0.5;

impl FleetWorker {
    fn new(address: &str, seen_at: Timestamp) -> Self {
        Self {
            address: address.to_owned(),
            generation: 0,
            scrape_failures: 0,
            report: None,
            loaded: AdapterList::EMPTY,
            in_flight_at_report: 0,
            prefilling_at_report: 0,
            standing: Standing::Untold,
            priority: 0,
            name_hash: None,
            seen_at,
        }
    }

    /// Gives the row to another address.
    fn begin_anew(&mut self, address: &str, now: Timestamp) {
        let generation = self.generation.wrapping_add(1);
        *self = Self { generation, ..Self::new(address, now) };
    }

    /// Makes the row that of a new life at its address: what is known is of another one. How the address stands in Envoy's
    /// cluster is no matter of its life.
    fn begin_next_life(&mut self, now: Timestamp) {
        let address = std::mem::take(&mut self.address);
        let (standing, priority, name_hash) = (self.standing, self.priority, self.name_hash);
        self.begin_anew(&address, now);
        (self.standing, self.priority, self.name_hash) = (standing, priority, name_hash);
    }

    /// Marks a worker that is admitted at `now` as seen, now and then, and as another one after an absence; returns whether
    /// anything changed. `last_at` is when workers were admitted before.
    fn mark_seen(&mut self, last_at: Timestamp, now: Timestamp) -> bool {
        if now.ms_between(last_at) >= RECLAIM_MS || last_at.ms_between(self.seen_at) >= ABSENT_MS {
            self.begin_next_life(now);
            return true;
        }
        let is_due = now.ms_between(self.seen_at) >= SEEN_REFRESH_MS;
        if is_due {
            self.seen_at = now;
        }
        is_due
    }

    /// Whether the engine that now says `next` is another process than the one of the last report, as far as one knows.
    ///
    /// Without start times to compare, one that was away and answers again may have restarted. To take a warm cache for
    /// empty costs less than to queue for one that is gone.
    fn may_have_restarted(&self, next: &LoadReport) -> bool {
        match (self.report.and_then(|dated| dated.report.started_at_s), next.started_at_s) {
            (Some(before), Some(after)) => (before - after).abs() > RESTART_TOLERANCE_S,
            _ => self.scrape_failures >= RESTART_FAILURES,
        }
    }

    /// Whether a request for an adapter was sent in this life of the worker, and so late that its report cannot tell of it.
    #[must_use]
    pub fn is_sent_since_report(&self, sending: &Sending) -> bool {
        // What seems to be of the far future is of a clock that stepped back since.
        let is_since = |taken_at| sending.sent_at >= taken_at && is_recent(sending.sent_at, taken_at);
        sending.is_of(self.generation) && self.report.as_ref().is_none_or(|dated| is_since(dated.taken_at))
    }

    /// Whether it is known to have the adapter, or to have a request for it, as of its last report.
    #[must_use]
    pub fn knows_adapter(&self, adapter: AdapterHash) -> bool {
        let is_told = |told: &Adapters| told.running.contains(adapter) || told.waiting.contains(adapter);
        self.loaded.contains(adapter) || self.report.as_ref().is_some_and(|dated| is_told(&dated.report.adapters))
    }

    /// The adapter is used: another one may have to leave the worker's memory for it.
    fn use_adapter(&mut self, adapter: AdapterHash) {
        let count_max = self.report.as_ref().and_then(|dated| dated.report.adapters.max);
        self.loaded.put_first(adapter, count_max.unwrap_or(u16::MAX));
    }

    /// The report, if it was taken less than `age_max_ms` before `now`: an older one tells nothing of now.
    #[must_use]
    pub fn fresh_report(&self, now: Timestamp, age_max_ms: u64) -> Option<&LoadReport> {
        self.report.as_ref().filter(|dated| now.ms_between(dated.taken_at) < age_max_ms).map(|dated| &dated.report)
    }
}

#[cfg(test)]
mod adapter_tests;
#[cfg(test)]
mod endpoint_tests;
#[cfg(test)]
mod tests;
