//! What Envoy tells of its cluster, taken into the fleet: who has come, who has gone, and how all stand.

use super::{Fleet, FleetWorker};
use crate::time::Timestamp;
use crate::worker::{Endpoint, Standing};

/// What [`Fleet::take_in_endpoints`] has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointChanges {
    /// Workers that are in the cluster and were not.
    pub added: u32,
    /// Workers that were in the cluster and are not.
    pub removed: u32,
    /// Endpoints that found no row: the page is full of others that are in the cluster.
    pub left_out: u32,
    /// Whether the page has to be written at all.
    pub is_changed: bool,
}

/// Which of a cluster's endpoints get a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// All of them: the pool is whatever the cluster has.
    All,
    /// Those that have one already, because a configuration lists them.
    Known,
}

impl Fleet {
    /// Takes in the cluster's `endpoints`, each address once and in the order of addresses.
    ///
    /// A worker that is not among them is [`Standing::Gone`] and in its next life at once, so that nothing which the index
    /// has of it counts when it comes back, be it within a second: what was removed was as likely restarted. It keeps its row,
    /// as its last requests are still counted there, until [`super::RECLAIM_MS`] later or until the page is full.
    pub fn take_in_endpoints(
        &mut self,
        endpoints: &[Endpoint],
        admission: Admission,
        now: Timestamp,
    ) -> EndpointChanges {
        let last_at = self.admitted_at;
        let mut changes = EndpointChanges { is_changed: self.note_admission(now), ..EndpointChanges::default() };
        let mut has_row = vec![false; endpoints.len()];
        for worker in &mut self.workers {
            let found = endpoints.binary_search_by(|endpoint| endpoint.address.as_str().cmp(&worker.address));
            let was_in_cluster = worker.standing.is_in_cluster();
            match found.ok().and_then(|index| Some((endpoints.get(index)?, has_row.get_mut(index)?))) {
                Some((endpoint, has_row)) => {
                    *has_row = true;
                    changes.added += u32::from(!was_in_cluster);
                    changes.is_changed |= worker.mark_seen(last_at, now) | worker.stand_as(endpoint);
                }
                None if worker.standing != Standing::Gone => {
                    changes.removed += u32::from(was_in_cluster);
                    changes.is_changed = true;
                    worker.leave(now);
                }
                None => {}
            }
        }
        if admission == Admission::Known {
            return changes;
        }
        for (endpoint, _) in endpoints.iter().zip(has_row).filter(|(_, has_row)| !has_row) {
            let id = if self.add(&endpoint.address, now) { self.find(&endpoint.address) } else { None };
            let Some(worker) = id.and_then(|id| self.workers.get_mut(usize::from(id.0))) else {
                changes.left_out += 1;
                continue;
            };
            worker.stand_as(endpoint);
            changes.added += 1;
            changes.is_changed = true;
        }
        changes
    }

    /// Marks all workers that are in the cluster as seen at `now`, as [`Fleet::admit`] does those of a list; returns whether
    /// anything changed. So they keep their rows also while Envoy does not answer.
    pub fn admit_told(&mut self, now: Timestamp) -> bool {
        let last_at = self.admitted_at;
        let mut is_changed = self.note_admission(now);
        for worker in self.workers.iter_mut().filter(|worker| worker.standing.is_in_cluster()) {
            is_changed |= worker.mark_seen(last_at, now);
        }
        is_changed
    }

    /// Forgets what Envoy told, for a configuration by which it is never asked: nobody would ever correct it.
    pub fn forget_standings(&mut self) {
        for worker in &mut self.workers {
            (worker.standing, worker.priority, worker.name_hash) = (Standing::Untold, 0, None);
        }
    }
}

impl FleetWorker {
    /// In the cluster, as `endpoint` says; returns whether anything is new.
    fn stand_as(&mut self, endpoint: &Endpoint) -> bool {
        let was = (self.standing, self.priority, self.name_hash);
        let is = (endpoint.standing, endpoint.priority, Endpoint::name_hash(&endpoint.hostname));
        (self.standing, self.priority, self.name_hash) = is;
        was != is
    }

    /// No longer in the cluster.
    fn leave(&mut self, now: Timestamp) {
        self.begin_next_life(now);
        self.standing = Standing::Gone;
    }
}
