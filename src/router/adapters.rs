//! Requests for LoRA adapters: what was sent of late, as all VMs know it.

use super::Router;
use crate::exchange::Exchange;
use crate::shared::adapters::AdaptersPage;
use crate::shared::store::{Store, Version, update, update_from};
use crate::time::Timestamp;
use crate::worker::{AdapterHash, AskedAdapter, WorkerId};

/// A request for an adapter, and the page of what was sent as it was read for its decision.
#[derive(Debug)]
pub(super) struct ForAdapter {
    pub(super) adapter: AdapterHash,
    /// `None` if it is a newer version's: then only reports tell, and nothing is written.
    page: Option<AdaptersPage>,
    version: Version,
}

impl Router {
    /// What of late was sent to the pool's workers for adapters. Not read, and empty, where no worker tells of any.
    pub fn read_adapters(&mut self, store: &mut impl Store, pool: usize) -> AdaptersPage {
        let tells_adapters = self.pools.get(pool).is_some_and(|state| state.tells_adapters());
        let page = if tells_adapters { self.open_adapters(store, pool).0 } else { None };
        page.unwrap_or_default()
    }

    /// Finds out whether a request for `name` is for an adapter, and if so prepares the pool for it; `None` if it is not.
    /// Costs no read where that is plain.
    pub(super) fn find_adapter(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        name: Option<AskedAdapter>,
    ) -> Option<ForAdapter> {
        let name = name?;
        if !self.pools.get(pool)?.may_be_adapter(name) {
            return None;
        }
        let (page, version) = self.open_adapters(store, pool);
        let nothing_sent = AdaptersPage::default();
        let adapter = self.pools.get_mut(pool)?.find_adapter(page.as_ref().unwrap_or(&nothing_sent), name)?;
        Some(ForAdapter { adapter, page, version })
    }

    /// Notes that the request is sent to `worker`: the next one for its adapter finds it there.
    pub(super) fn note_adapter(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        request: ForAdapter,
        worker: WorkerId,
        now: Timestamp,
    ) {
        let (Some(state), Some(page)) = (self.pools.get(pool), request.page) else { return };
        let (adapter, generation) = (request.adapter, state.generation(worker));
        let mut read = Some(page);
        let updated = update_from(store, &state.keys().adapters, (None, request.version), |bytes| {
            let mut page = read.take().map_or_else(|| AdaptersPage::open(bytes), Ok)?;
            let is_changed = page.note(adapter, worker, generation, now);
            Ok((is_changed.then(|| page.into_bytes()), ()))
        });
        self.note(updated.map(|((), is_stored)| is_stored));
    }

    /// The answer has come, or never will: where the first pick did not serve the request, it did not load the adapter
    /// either. Who did, has it. `server` = who answered that it serves the request.
    pub(super) fn settle_adapter(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        exchange: &Exchange,
        server: Option<WorkerId>,
    ) {
        let (Some(adapter), Some(state)) = (exchange.adapter(), self.pools.get(pool)) else { return };
        let Some(pick) = exchange.decision().and_then(|decision| decision.picks.first()) else { return };
        let sent_at = exchange.decided_at();
        let updated = update(store, &state.keys().adapters, |bytes| {
            let mut page = AdaptersPage::open(bytes)?;
            let is_forgotten = server != Some(pick) && page.forget(adapter, pick, sent_at);
            let confirm = |worker| page.confirm(adapter, worker, state.generation(worker), sent_at);
            let is_confirmed = server.is_some_and(confirm);
            Ok(((is_forgotten || is_confirmed).then(|| page.into_bytes()), ()))
        });
        self.note(updated.map(|((), is_stored)| is_stored));
    }

    /// The page; `None` if a newer version of the plugin wrote it.
    fn open_adapters(&mut self, store: &mut impl Store, pool: usize) -> (Option<AdaptersPage>, Version) {
        let Some(state) = self.pools.get(pool) else { return (None, 0) };
        let (bytes, version) = store.get(&state.keys().adapters);
        let opened = AdaptersPage::open(bytes);
        self.incidents.newer += u32::from(opened.is_err());
        (opened.ok(), version)
    }
}
