//! A request that continues a response goes to the worker that holds it: see [`crate::shared::responses`].
//!
//! Only requests of the Responses API pay for it: an answer one page read and written, a follow-up one page read.
//!
//! A follow-up's prompt is the stored conversation, which the gateway does not see, and then what is in its body. So the
//! body's prompt is no beginning of anything: it is neither looked up nor recorded in the index nor counted in the trunk,
//! its length is taken for less than it is, and what its answer tells of the cache teaches nothing.

use super::Router;
use crate::pool::Pool;
use crate::shared::responses::{Holder, ResponsesPage, page_of};
use crate::shared::store::{Store, update};
use crate::worker::WorkerId;

impl Router {
    /// The worker that holds the response with this hash (see [`crate::response::response_hash`]); `None` if nobody does
    /// as far as is known, or if the one that did has left the pool.
    ///
    /// Whether its engine has restarted since is not asked: often that is only likely, and then every other worker would
    /// answer 404 for sure.
    pub(super) fn find_response(&mut self, store: &mut impl Store, pool: usize, response: u64) -> Option<WorkerId> {
        let key = self.pools.get(pool)?.keys().response(page_of(response))?;
        let page = match ResponsesPage::open(store.get(key).0) {
            Ok(page) => page,
            Err(newer) => {
                self.note(Err(newer));
                return None;
            }
        };
        let holder = page.find(response)?;
        is_there(self.pools.get(pool)?, holder).then_some(holder.worker)
    }

    /// Notes that `worker` has made the response with this hash, unless another that is still there was noted to have.
    ///
    /// With some engines a client may choose its response's name (vLLM and SGLang take a `request_id`): who gives it that of
    /// somebody else's must not lead the other's requests away.
    ///
    /// To be called before the client gets to read the response's name: its next request may come at once, and through
    /// another VM.
    pub fn note_response(&mut self, store: &mut impl Store, pool: usize, worker: WorkerId, response: u64) {
        let Some(state) = self.pools.get(pool) else { return };
        let Some(address) = state.address(worker) else { return };
        let holder = Holder::new(worker, address);
        let Some(key) = state.keys().response(page_of(response)) else { return };
        let updated = update(store, key, |bytes| {
            let mut page = ResponsesPage::open(bytes)?;
            if page.find(response).is_some_and(|first| first != holder && is_there(state, first)) {
                return Ok((None, ()));
            }
            page.record(response, holder);
            Ok((Some(page.into_bytes()), ()))
        });
        self.note(updated.map(|((), is_stored)| is_stored));
    }
}

/// Whether the holder is in the fleet still: its id may be that of a worker at another address now.
fn is_there(pool: &Pool, holder: Holder) -> bool {
    pool.address(holder.worker).is_some_and(|address| Holder::new(holder.worker, address) == holder)
}
