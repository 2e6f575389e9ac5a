//! Asks Envoy for the endpoints of the pools' clusters, and takes in what it answers.

use super::super::abi;
use super::super::plugin::Plugin;
use super::answered_page;
use crate::discovery::{DiscoveryError, FoundCluster, PAGE_BYTES_MAX, question, read_page};
use crate::shared::fleet::EndpointChanges;
use crate::stats::Stat;
use crate::time::Timestamp;

/// What the log has of a trouble already, so that it has it once.
#[derive(Debug, Default)]
pub(in super::super) struct DiscoveryTroubles {
    is_failing: bool,
    /// By pool: whether its cluster is missing, and how many endpoints have no place.
    missing: Vec<bool>,
    left_out: Vec<u32>,
}

impl DiscoveryTroubles {
    pub(in super::super) fn of(pools: usize) -> Self {
        Self { is_failing: false, missing: vec![false; pools], left_out: vec![0; pools] }
    }
}

impl Plugin {
    /// Asks for the clusters of all pools that this VM polls, if it is time to.
    pub(super) fn discover(&mut self, now: Timestamp) {
        let config = &self.router.config().discovery;
        if !config.is_on() {
            return;
        }
        let polled: Vec<usize> =
            self.pools.iter().enumerate().filter(|(_, pages)| pages.holds_lease).map(|(pool, _)| pool).collect();
        if polled.is_empty() || !self.inquiry.is_due(config, now) {
            return;
        }
        let clusters = polled.iter().filter_map(|pool| self.router.pool(*pool)).map(|pool| pool.cluster());
        let path = question(&config.path, clusters);
        let headers = [(":method", "GET"), (":path", &path), (":authority", "localhost")];
        let token = abi::http_call(&config.cluster, &headers, config.timeout_ms);
        self.inquiry.asked(token, polled, config, now);
        match token {
            Some(_) => self.stats.count(Stat::DiscoveriesSent),
            None => self.note_failed(&"Envoy refuses to send the question: discovery.cluster is unknown or full"),
        }
    }

    /// Takes in the answer to a question for these pools.
    pub(super) fn take_in_answer(&mut self, pools: &[usize], body_bytes: usize) {
        let clusters: Vec<&str> =
            pools.iter().filter_map(|pool| self.router.pool(*pool)).map(|pool| pool.cluster()).collect();
        let read = match body_bytes {
            ..=PAGE_BYTES_MAX => answered_page(body_bytes, PAGE_BYTES_MAX).map(|page| read_page(&page, &clusters)),
            bytes => Some(Err(DiscoveryError::TooLong { bytes })),
        };
        let found = match read {
            Some(Ok(found)) => found,
            Some(Err(error)) => return self.note_failed(&error),
            None => return self.note_failed(&"no answer with status 200"),
        };
        if found.iter().any(Option::is_some) {
            self.stats.count(Stat::DiscoveriesSucceeded);
            if std::mem::take(&mut self.troubles.is_failing) {
                log::info!("discovery works again");
            }
        } else {
            self.note_failed(
                &"the page has none of the pools' clusters: does discovery.cluster lead to Envoy's admin endpoint?",
            );
        }
        let now = abi::now();
        for (&pool, found) in pools.iter().zip(&found) {
            self.note_missing(pool, found.is_none());
            // What another VM has asked since is newer.
            let holds_lease = self.pools.get(pool).is_some_and(|pages| pages.holds_lease);
            if let Some(cluster) = found.as_ref().filter(|_| holds_lease) {
                self.take_in_cluster(pool, cluster, now);
            }
        }
    }

    fn take_in_cluster(&mut self, pool: usize, cluster: &FoundCluster, now: Timestamp) {
        let mut changes = EndpointChanges::default();
        self.update_fleet(pool, |fleet, state| {
            changes = fleet.take_in_endpoints(&cluster.endpoints, state.admission(), now);
            changes.is_changed
        });
        let Some(state) = self.router.pool_mut(pool) else { return };
        state.set_host_names(&cluster.endpoints);
        if !state.is_discovered() {
            return;
        }
        if (changes.added, changes.removed) != (0, 0) {
            let (name, workers) = (state.cluster(), state.addresses().len());
            log::info!("pool {name}: {} workers came, {} left, {workers} now", changes.added, changes.removed);
        }
        self.stats.add(Stat::WorkersAdded, changes.added);
        self.stats.add(Stat::WorkersRemoved, changes.removed);
        self.note_left_out(pool, changes.left_out.saturating_add(u32::try_from(cluster.left_out).unwrap_or(u32::MAX)));
    }

    /// So many workers of a pool have no row in the fleet page, and get no requests.
    pub(super) fn note_left_out(&mut self, pool: usize, left_out: u32) {
        let Some(known) = self.troubles.left_out.get_mut(pool).filter(|known| **known != left_out) else { return };
        *known = left_out;
        let name = self.router.pool(pool).map(|pool| pool.cluster()).unwrap_or_default();
        log::warn!("pool {name}: {left_out} workers have no place and get no requests");
    }

    fn note_missing(&mut self, pool: usize, is_missing: bool) {
        let Some(known) = self.troubles.missing.get_mut(pool).filter(|known| **known != is_missing) else { return };
        *known = is_missing;
        let name = self.router.pool(pool).map(|pool| pool.cluster()).unwrap_or_default();
        if is_missing {
            log::warn!("Envoy has no cluster {name}: what is known of its workers goes on to count");
        } else {
            log::info!("Envoy has the cluster {name} now");
        }
    }

    fn note_failed(&mut self, reason: &dyn std::fmt::Display) {
        self.stats.count(Stat::DiscoveriesFailed);
        if !std::mem::replace(&mut self.troubles.is_failing, true) {
            log::warn!("discovery fails, what is known goes on to count: {reason}");
        }
    }
}
