//! A pool's workers as candidates for one request: what is known of each, as plain numbers.

use super::Pool;
use super::availability::{Admission, Rules};
use crate::config::{IndexConfig, PollConfig};
use crate::direct::Wish;
use crate::index::{Index, Recorded, Retention, SPAN_BYTES};
use crate::prefix::BlockHash;
use crate::schedule::{Branch, Candidate, Decision, Picks, Policy, Query};
use crate::shared::PageError;
use crate::shared::fleet::FleetWorker;
use crate::shared::inflight::InflightPage;
use crate::shared::learned::{FailureRecord, LearnedPage};
use crate::shared::store::Store;
use crate::stage::{self, Stage};
use crate::time::Timestamp;
use crate::worker::{AdapterHash, LoadReport, WorkerId};

/// A request's sizes, and what turns one into another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestSizes {
    /// Bytes of prompt that make a token.
    pub bytes_per_token: f64,
    /// Tokens of a request of this pool that were in no cache, on average.
    pub uncached_tokens: f64,
    /// The adapter that the request is for, as [`Pool::find_adapter`] found it; `None` if it is for none.
    pub adapter: Option<AdapterHash>,
}

impl Pool {
    /// Takes in what was learned of each worker, for the steps of one decision that follow; no worker holds anything of
    /// the prompt yet.
    pub fn prepare(&mut self, learned: &LearnedPage, index: &IndexConfig) {
        let spans_per_token = learned.bytes_per_token() / SPAN_BYTES as f64;
        let rows = learned.rows_by_worker();
        self.learned.clear();
        self.retentions.clear();
        for (id, worker) in self.fleet.workers().enumerate() {
            let known = rows.get(id, worker.generation);
            let capacity = kv_tokens(Some(worker), index) * spans_per_token * f64::from(known.capacity_factor);
            self.retentions.push(Retention {
                generation: worker.generation as u8,
                odometer: known.odometer,
                capacity: capacity as u32,
            });
            self.learned.push(known);
        }
        self.matched_bytes.clear();
        self.matched_bytes.resize(self.retentions.len(), 0);
    }

    /// Finds how much of a chain each worker holds.
    ///
    /// # Errors
    /// See [`Index::find`].
    pub fn find_matches(&mut self, store: &mut impl Store, blocks: &[BlockHash]) -> Result<(), PageError> {
        self.index.find(store, blocks, &self.retentions, &mut self.matched_bytes)
    }

    /// Records in the index that `worker` is sent a chain.
    pub fn record(
        &mut self,
        store: &mut impl Store,
        blocks: &[BlockHash],
        worker: WorkerId,
        now: Timestamp,
    ) -> Recorded {
        let now_s = u32::try_from(now.as_ns() / 1_000_000_000).unwrap_or(u32::MAX);
        self.index.record(store, blocks, worker, &mut self.retentions, now_s)
    }

    /// The index.
    pub fn index_mut(&mut self) -> &mut Index {
        &mut self.index
    }

    /// Tokens that a worker's KV cache has room for, as its metrics tell or as assumed.
    #[must_use]
    pub fn kv_tokens(&self, worker: WorkerId, index: &IndexConfig) -> f64 {
        kv_tokens(self.fleet.worker(worker), index)
    }

    /// Tokens that the largest KV cache of the pool has room for: no prompt is longer.
    #[must_use]
    pub fn kv_tokens_max(&self, index: &IndexConfig) -> f64 {
        let workers = self.members.iter().filter_map(|member| member.id);
        workers.map(|worker| self.kv_tokens(worker, index)).fold(1.0, f64::max)
    }

    /// Whether no worker holds any of the prompt.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.matched_bytes.iter().all(|matched| *matched == 0)
    }

    /// Which life of the worker this is.
    #[must_use]
    pub fn generation(&self, worker: WorkerId) -> u32 {
        self.fleet().worker(worker).map_or(0, |worker| worker.generation)
    }

    /// Notes what became of its requests, until the next decision reads what all VMs know.
    pub(crate) fn set_failures(&mut self, worker: WorkerId, failures: FailureRecord) {
        if let Some(learned) = self.learned.get_mut(usize::from(worker.0)) {
            learned.failures = failures;
        }
    }

    /// Whether its answers are known to tell how many prompt tokens were cached, as of the last decision.
    #[must_use]
    pub fn tells_cached(&self, worker: WorkerId) -> bool {
        self.learned.get(usize::from(worker.0)).is_some_and(|learned| learned.tells_cached)
    }

    /// The requests that it failed, as far as was known at the last decision, and those that failed here since.
    #[must_use]
    pub fn failures(&self, worker: WorkerId) -> FailureRecord {
        self.learned.get(usize::from(worker.0)).map(|learned| learned.failures).unwrap_or_default()
    }

    /// How many bytes of the prompt the index found at `worker`.
    #[must_use]
    pub fn matched_bytes(&self, worker: WorkerId) -> u64 {
        self.matched_bytes.get(usize::from(worker.0)).copied().unwrap_or_default()
    }

    /// Decides where a request goes, given what all VMs have in flight; `None` if the pool has no workers.
    ///
    /// Changes nothing that a second call would see: on a lost race over the page, read it again and decide anew.
    pub fn decide(
        &mut self,
        policy: &dyn Policy,
        query: &Query,
        sizes: &RequestSizes,
        page: &InflightPage,
        rules: &Rules<'_>,
        now: Timestamp,
    ) -> Option<Decision> {
        self.decide_as_wished(policy, query, (sizes, &mut Wish::none()), page, rules, now)
    }

    /// As [`Self::decide`], for a request that may say where it goes; `None` also if it cannot go there and nothing else
    /// will do.
    pub fn decide_as_wished(
        &mut self,
        policy: &dyn Policy,
        query: &Query,
        (sizes, wish): (&RequestSizes, &mut Wish<'_>),
        page: &InflightPage,
        rules: &Rules<'_>,
        now: Timestamp,
    ) -> Option<Decision> {
        page.add_up(self.owner, &self.held, now, &mut self.totals);
        stage::end(Stage::AddUp);
        let is_panic = self.collect_candidates(query, sizes, rules, now);
        let pinned = self.follow(wish)?;
        if self.candidates.is_empty() {
            // Of those that the wish allows none is of the tiers that are used first.
            self.collect(self.admission.of_all_tiers(), query, sizes, rules, now);
        }
        let rung = self.rung(query, rules.poll, now);
        stage::end(Stage::Candidates);
        let mut picks = Picks::default();
        let query = Query { turn: page.turn(), ..*query };
        let mut branch = policy.pick(&query, &self.candidates, &mut picks);
        if let Some(holder) = query.response_holder.filter(|holder| self.is_available(*holder)) {
            picks.put_first(holder);
            branch = Branch::PreviousResponse;
        }
        pinned.apply(&mut picks, &mut branch);
        if !pinned.is_only() {
            self.keep_proven_pick(policy, &query, &mut picks);
        }
        stage::end(Stage::Score);
        let first = picks.first()?;
        let matched_tokens = self.matched_tokens(first, &query, sizes) as u32;
        Some(Decision { picks, branch, is_panic, rung, matched_tokens })
    }

    fn matched_tokens(&self, worker: WorkerId, query: &Query, sizes: &RequestSizes) -> f64 {
        (self.matched_bytes(worker) as f64 / sizes.bytes_per_token).min(query.prompt_tokens)
    }

    /// Fills the candidates; returns whether so few workers are ready that others are among them.
    pub(super) fn collect_candidates(
        &mut self,
        query: &Query,
        sizes: &RequestSizes,
        rules: &Rules<'_>,
        now: Timestamp,
    ) -> bool {
        let admission = self.admit(rules, now);
        self.collect(admission, query, sizes, rules, now);
        admission.is_panic
    }

    /// Fills the candidates with those who are let in.
    fn collect(
        &mut self,
        admission: Admission,
        query: &Query,
        sizes: &RequestSizes,
        rules: &Rules<'_>,
        now: Timestamp,
    ) {
        self.candidates.clear();
        self.unproven.clear();
        let mut foreign_max = ForeignLoad::default();
        for (member, fitness) in self.members.iter().zip(&self.fits) {
            let Some(id) = member.id else { continue };
            if admission.is_unsure(*fitness) {
                // Also where it is not let in: it may hold the response.
                self.unproven.resize(self.fleet.len(), false);
                self.unproven.get_mut(usize::from(id.0)).into_iter().for_each(|is_unproven| *is_unproven = true);
            }
            if !admission.admits(*fitness) {
                continue;
            }
            let Some(worker) = self.fleet.worker(id) else { continue };
            let learned = self.learned.get(usize::from(id.0));
            let own = self.totals.get(usize::from(id.0)).copied().unwrap_or_default();
            let report = worker.fresh_report(now, rules.poll.report_age_ms_max);
            let told = report.and_then(|report| foreign_load_in(worker, report));
            let foreign = told.unwrap_or_default();
            foreign_max = foreign_max.max(foreign);
            let matched_tokens = self.matched_tokens(id, query, sizes);
            let fit = |adapter| self.adapter_fit(id, worker, report, adapter, matched_tokens > 0.0);
            let adapter = sizes.adapter.map(fit);
            let report = report.unwrap_or(&NO_REPORT);
            self.candidates.push(Candidate {
                worker: id,
                identity: member.identity,
                load_requests: f64::from(own.requests) + foreign.requests,
                own_requests: own.requests,
                backlog_tokens: f64::from(own.prefill_tokens) + foreign.waiting * sizes.uncached_tokens,
                matched_tokens,
                is_known: told.is_some(),
                waiting: report.waiting,
                running: report.running,
                kv_usage: report.kv_usage,
                adapter,
                cold_pick_at: learned.map(|learned| learned.cold_pick_at).unwrap_or_default(),
            });
        }
        for candidate in self.candidates.iter_mut().filter(|candidate| !candidate.is_known) {
            candidate.load_requests += foreign_max.requests;
            candidate.backlog_tokens += foreign_max.waiting * sizes.uncached_tokens;
        }
    }
}

/// Tokens that a worker's KV cache has room for. Reports are large: none is copied.
fn kv_tokens(worker: Option<&FleetWorker>, index: &IndexConfig) -> f64 {
    let told = worker.and_then(|worker| worker.report.as_ref()).and_then(|dated| dated.report.kv_tokens());
    told.unwrap_or_else(|| f64::from(index.kv_tokens_assumed))
}

/// What is known of a worker without a fresh report.
const NO_REPORT: LoadReport = LoadReport::UNKNOWN;

/// Others' requests at a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ForeignLoad {
    /// In its queue or its batch.
    pub(super) requests: f64,
    /// In its queue.
    pub(super) waiting: f64,
}

impl ForeignLoad {
    fn max(self, other: Self) -> Self {
        Self { requests: self.requests.max(other.requests), waiting: self.waiting.max(other.waiting) }
    }
}

/// Requests of others at the worker: what its fresh report shows beyond our own of that time; `None` if unknown.
///
/// A request of ours that is in the report is also in our own in-flight count: hence the difference, so that none
/// counts twice.
pub(super) fn foreign_load(worker: &FleetWorker, poll: &PollConfig, now: Timestamp) -> Option<ForeignLoad> {
    foreign_load_in(worker, worker.fresh_report(now, poll.report_age_ms_max)?)
}

/// As [`foreign_load`], by a report that is fresh.
fn foreign_load_in(worker: &FleetWorker, report: &LoadReport) -> Option<ForeignLoad> {
    if report.waiting.is_none() && report.running.is_none() {
        return None;
    }
    let waiting = report.waiting.unwrap_or_default();
    let requests = waiting + report.running.unwrap_or_default();
    Some(ForeignLoad {
        requests: (requests - f64::from(worker.in_flight_at_report)).max(0.0),
        waiting: (waiting - f64::from(worker.prefilling_at_report)).max(0.0),
    })
}
