//! Which requests are for a LoRA adapter, and how well each worker of a pool suits it.

use super::Pool;
use crate::shared::adapters::{AdaptersPage, Sending};
use crate::shared::fleet::{Fleet, FleetWorker};
use crate::time::Timestamp;
use crate::worker::{AdapterFit, AdapterHash, AdapterList, Adapters, AskedAdapter, LoadReport, SentSince, WorkerId};

/// What the reports of a pool tell of adapters, and scratch space for one request's.
#[derive(Debug, Default)]
pub(super) struct PoolAdapters {
    /// Whether any worker tells of adapters: where none does, no request is known to be for one.
    is_told: bool,
    /// Places of the worker that has the fewest, of those that tell.
    places: Option<u16>,
    /// Names that are base models'.
    base_models: AdapterList,
    /// Whether a worker that takes adapters names its base models, all of them: then a name that is nobody's base model is
    /// an adapter's, even if nobody has it yet. So is a second name of a base model, of which vLLM's metrics tell but the
    /// first (`--served-model-name`): its requests then keep together as far as an adapter's would. Where a list of base
    /// models is cut it is not closed: an engine that takes any name for its base model cuts its own.
    is_closed: bool,
    /// What was sent for the request's adapter since the reports, by worker id.
    sent: Vec<Sent>,
}

/// What was sent to one worker since its report.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    since: SentSince,
    /// When the last request for the adapter was, if any.
    sent_at: Timestamp,
}

impl Sent {
    fn count(&mut self, sending: &Sending, is_own: bool, is_known: bool) {
        if is_own {
            self.since.is_sent = true;
            self.sent_at = sending.sent_at;
            return;
        }
        if !sending.is_confirmed {
            // Perhaps no adapter at all.
            return;
        }
        let is_later = self.since.is_sent && sending.sent_at > self.sent_at;
        self.since.later = self.since.later.saturating_add(is_later.into());
        self.since.new = self.since.new.saturating_add((!is_known).into());
    }
}

impl PoolAdapters {
    /// What the fleet tells. Names do not age, so a report that is too old for loads will do.
    pub(super) fn take_in(&mut self, fleet: &Fleet) {
        let mut told = Self { sent: std::mem::take(&mut self.sent), ..Self::default() };
        for report in fleet.workers().filter_map(|worker| worker.report.as_ref()).map(|dated| &dated.report) {
            let (adapters, models) = (&report.adapters, &report.models);
            told.is_told |= adapters.is_told();
            told.places = told.places.into_iter().chain(adapters.max).min();
            told.base_models.merge(models);
            told.is_closed |= adapters.max.is_some() && models.count() > 0;
        }
        told.is_closed &= !told.base_models.is_cut();
        *self = told;
    }

    /// Whether a request for this model may be for an adapter: whether it is worth to ask what was sent.
    fn may_be_adapter(&self, name: AdapterHash) -> bool {
        self.is_told && !self.base_models.contains(name)
    }
}

impl Pool {
    /// Whether a request for `name` may be for an adapter here. Where it may not, [`Self::find_adapter`] need not be asked.
    #[must_use]
    pub fn may_be_adapter(&self, name: AskedAdapter) -> bool {
        match name {
            AskedAdapter::Named(_) => self.adapters.is_told,
            AskedAdapter::Model(name) => self.adapters.may_be_adapter(name),
        }
    }

    /// Whether any worker tells of adapters.
    #[must_use]
    pub const fn tells_adapters(&self) -> bool {
        self.adapters.is_told
    }

    /// The adapter that a request for `name` is for, which is then the one that candidates are collected for; `None` if it
    /// is for no adapter, or as far as anybody can tell. `page` = what was sent of late.
    ///
    /// A model's name is an adapter's if a worker is known to have or want it, or if it is no base model's where those are
    /// told.
    pub fn find_adapter(&mut self, page: &AdaptersPage, name: AskedAdapter) -> Option<AdapterHash> {
        if !self.may_be_adapter(name) {
            return None;
        }
        let (is_named, name) = match name {
            AskedAdapter::Named(name) => (true, name),
            AskedAdapter::Model(name) => (false, name),
        };
        let is_sent = self.add_up_sent(page, name);
        let is_adapter = is_named
            || self.adapters.is_closed
            || is_sent
            || self.fleet.workers().any(|worker| worker.knows_adapter(name));
        is_adapter.then_some(name)
    }

    /// Adds up, for each worker, what was sent since its report; returns whether anything was for `adapter`.
    fn add_up_sent(&mut self, page: &AdaptersPage, adapter: AdapterHash) -> bool {
        let (fleet, sent) = (&self.fleet, &mut self.adapters.sent);
        sent.clear();
        sent.resize(fleet.len(), Sent::default());
        let mut is_sent = false;
        // Its own first: the others are compared with them.
        for is_own in [true, false] {
            for sending in page.sendings().filter(|sending| (sending.adapter == adapter) == is_own) {
                let index = usize::from(sending.worker.0);
                let (Some(worker), Some(sent)) = (fleet.worker(sending.worker), sent.get_mut(index)) else { continue };
                if worker.is_sent_since_report(&sending) {
                    is_sent |= is_own;
                    sent.count(&sending, is_own, worker.knows_adapter(sending.adapter));
                }
            }
        }
        is_sent
    }

    /// How well a worker suits a request for `adapter`. `report` = its fresh report, if any; `is_warm` = it has part of the
    /// prompt.
    pub(super) fn adapter_fit(
        &self,
        id: WorkerId,
        worker: &FleetWorker,
        report: Option<&LoadReport>,
        adapter: AdapterHash,
        is_warm: bool,
    ) -> AdapterFit {
        let sent = self.adapters.sent.get(usize::from(id.0)).map(|sent| sent.since).unwrap_or_default();
        match report.map(|report| &report.adapters) {
            Some(told) if told.is_told() => told.fit_with(adapter, &worker.loaded, sent),
            // Its prompt's hash is the adapter's own: it served the adapter.
            _ if is_warm => AdapterFit::Loaded,
            // vLLM tells of adapters from its first step on: this one has none yet, and is taken to be like the others.
            Some(_) => {
                Adapters { max: self.adapters.places, ..Adapters::UNTOLD }.fit_with(adapter, &worker.loaded, sent)
            }
            None => Adapters::UNTOLD.fit_with(adapter, &worker.loaded, sent),
        }
    }
}
