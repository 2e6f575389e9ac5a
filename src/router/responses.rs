//! A request that continues a response goes to the worker that holds it: see [`crate::shared::responses`].
//!
//! Only requests of the Responses API pay for it: an answer one page read and written, a follow-up one page read.
//!
//! A follow-up's prompt is the stored conversation, which the gateway does not see, and then what is in its body. So the
//! body's prompt is no beginning of anything: it is neither looked up nor recorded in the index nor counted in the trunk,
//! its length is taken for less than it is, and what its answer tells of the cache teaches nothing.

use super::Router;
use crate::shared::responses::{Holder, ResponsesPage, page_of};
use crate::shared::store::{Store, update};
use crate::worker::WorkerId;

impl Router {
    /// The worker that holds the response with this hash (see [`crate::response::response_hash`]); `None` if nobody does
    /// as far as is known, or if its engine has restarted since.
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
        (self.pools.get(pool)?.generation(holder.worker) as u8 == holder.generation).then_some(holder.worker)
    }

    /// Notes that `worker` has made the response with this hash.
    ///
    /// To be called before the client gets to read the response's name: its next request may come at once, and through
    /// another VM.
    pub fn note_response(&mut self, store: &mut impl Store, pool: usize, worker: WorkerId, response: u64) {
        let Some(state) = self.pools.get(pool) else { return };
        let holder = Holder { worker, generation: state.generation(worker) as u8 };
        let Some(key) = state.keys().response(page_of(response)) else { return };
        let updated = update(store, key, |bytes| {
            let mut page = ResponsesPage::open(bytes)?;
            page.record(response, holder);
            Ok((Some(page.into_bytes()), ()))
        });
        self.note(updated.map(|((), is_stored)| is_stored));
    }
}
