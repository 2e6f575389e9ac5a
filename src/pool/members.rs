//! Who is in a pool: the workers that its configuration lists, or those that its cluster has.

use std::net::SocketAddr;

use xxhash_rust::xxh3::xxh3_64;

use super::Pool;
use crate::config::PoolConfig;
use crate::rng::mix;
use crate::shared::fleet::{Admission, Fleet};
use crate::shared::inflight::Held;
use crate::time::Timestamp;
use crate::worker::{Endpoint, WorkerId};

/// One worker of the pool.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) address: String,
    /// Where its metrics are.
    pub(super) metrics_address: String,
    /// The name of its host, if Envoy told this VM one: only the one that polls is told.
    pub(super) authority: Option<String>,
    /// The data-parallel rank of which its metrics are, if not of all.
    pub(super) rank: Option<u32>,
    /// Hash of `address`, mixed: see [`crate::schedule::Candidate::identity`].
    pub(super) identity: u64,
    /// Its row in the fleet page; `None` until the page has been read, or when the page is full.
    pub(super) id: Option<WorkerId>,
    /// Whether it is configured to get no new requests.
    pub(super) is_draining: bool,
}

/// What makes a worker a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// The configuration lists it, and Envoy is not asked.
    Listed,
    /// The configuration lists it, and Envoy tells how it stands.
    ListedAndTold,
    /// The cluster has it.
    Told {
        /// The port of its metrics, if not its own.
        metrics_port: Option<u16>,
    },
}

impl Membership {
    pub(super) const fn of(config: &PoolConfig, is_told: bool) -> Self {
        match (is_told, config.workers.is_empty()) {
            (false, _) => Self::Listed,
            (true, false) => Self::ListedAndTold,
            (true, true) => Self::Told { metrics_port: config.metrics.port },
        }
    }
}

impl Member {
    pub(super) fn new(address: &str, metrics_port: Option<u16>) -> Self {
        let metrics_address = metrics_port.and_then(|port| {
            let mut metrics_address: SocketAddr = address.parse().ok()?;
            metrics_address.set_port(port);
            Some(metrics_address.to_string())
        });
        Self {
            address: address.to_owned(),
            metrics_address: metrics_address.unwrap_or_else(|| address.to_owned()),
            authority: None,
            rank: None,
            identity: mix(xxh3_64(address.as_bytes())),
            id: None,
            is_draining: false,
        }
    }
}

impl Pool {
    /// The workers' addresses, in order.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = &str> {
        self.members.iter().map(|member| member.address.as_str())
    }

    /// How many workers have no row in the fleet page, because it is full.
    #[must_use]
    pub fn unplaced(&self) -> u32 {
        let unplaced = self.members.iter().filter(|member| member.id.is_none()).count();
        u32::try_from(unplaced).unwrap_or(u32::MAX)
    }

    /// Whether its workers are whatever the cluster has.
    #[must_use]
    pub const fn is_discovered(&self) -> bool {
        matches!(self.membership, Membership::Told { .. })
    }

    /// Which endpoints of the cluster get a row in the fleet page.
    #[must_use]
    pub const fn admission(&self) -> Admission {
        if self.is_discovered() { Admission::All } else { Admission::Known }
    }

    /// Sees to it that the pool's workers keep their rows in `fleet`, the page as it is now; returns whether it has changed.
    ///
    /// Where they are discovered those that are in the cluster keep theirs, also while Envoy does not answer; only what it
    /// answers adds any.
    pub fn admit_to(&self, fleet: &mut Fleet, now: Timestamp) -> bool {
        if self.is_discovered() { fleet.admit_told(now) } else { fleet.admit(self.addresses(), now) }
    }

    /// Takes in the fleet page as it was read.
    pub fn set_fleet(&mut self, fleet: Fleet) {
        self.adapters.take_in(&fleet);
        self.fleet = fleet;
        match self.membership {
            Membership::Listed => self.fleet.forget_standings(),
            Membership::ListedAndTold => {}
            Membership::Told { metrics_port } => self.derive_members(metrics_port),
        }
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

    /// Makes the members those that are in the cluster, by their ids. Nothing is made anew for those who stay.
    fn derive_members(&mut self, metrics_port: Option<u16>) {
        let told = || self.fleet.workers().filter(|worker| worker.standing.is_in_cluster());
        if told().map(|worker| worker.address.as_str()).eq(self.addresses()) {
            return;
        }
        let mut before: Vec<Option<Member>> = std::mem::take(&mut self.members).into_iter().map(Some).collect();
        let mut places = Vec::new();
        for worker in told() {
            let is_it =
                |member: &Option<Member>| member.as_ref().is_some_and(|member| member.address == worker.address);
            let place = before.iter().position(is_it);
            let kept = place.and_then(|place| before.get_mut(place)?.take());
            self.members.push(kept.unwrap_or_else(|| {
                let is_draining = self.draining.binary_search(&worker.address).is_ok();
                Member { is_draining, ..Member::new(&worker.address, metrics_port) }
            }));
            places.push(place);
        }
        self.polls.regroup(places.into_iter());
    }

    /// Takes in the names that Envoy has for the workers' hosts: scrapes then ask by them. `endpoints` are in the order of
    /// their addresses. Of listed workers the configuration says how they are asked.
    pub fn set_host_names(&mut self, endpoints: &[Endpoint]) {
        for member in self.members.iter_mut().filter(|_| matches!(self.membership, Membership::Told { .. })) {
            let found = endpoints.binary_search_by(|endpoint| endpoint.address.as_str().cmp(&member.address));
            let endpoint = found.ok().and_then(|index| endpoints.get(index));
            let name = endpoint.map(|endpoint| endpoint.hostname.as_str()).filter(|name| !name.is_empty());
            if member.authority.as_deref() != name {
                member.authority = name.map(str::to_owned);
            }
        }
    }

    /// The worker at `address`, as Envoy prints it. Where workers are discovered it may have left the pool: what it was sent
    /// before it still answers.
    #[must_use]
    pub fn find(&self, address: &str) -> Option<WorkerId> {
        if self.is_discovered() {
            return self.fleet.find(address);
        }
        self.members.iter().find(|member| member.address == address)?.id
    }
}
