//! The workers that a trusted hop means, found among those of a pool that are available.

use super::Pool;
use super::members::Member;
use crate::direct::{Pin, Refusal, Wish};
use crate::schedule::{Branch, Picks};
use crate::worker::WorkerId;

/// The workers that come first, whatever the policy says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pinned {
    picks: Picks,
    is_only: bool,
}

impl Pinned {
    /// Whether no others may be tried after them.
    pub(super) const fn is_only(&self) -> bool {
        self.is_only
    }

    /// Puts them before the policy's picks, or in their place.
    pub(super) fn apply(&self, picks: &mut Picks, branch: &mut Branch) {
        if self.picks.first().is_none() {
            return;
        }
        let others = std::mem::replace(picks, self.picks);
        if !self.is_only {
            others.as_slice().iter().for_each(|other| picks.push(*other));
        }
        *branch = Branch::Directed;
    }
}

impl Pool {
    /// Leaves the candidates that `wish` allows, which may be none of those that are used first, and finds the workers that it
    /// names among all that are available; `None` if the request is not to be decided.
    pub(super) fn follow(&mut self, wish: &mut Wish<'_>) -> Option<Pinned> {
        let none = Pinned::default();
        let Some(directions) = wish.directions() else { return Some(none) };
        if directions.has_gateway_subset() {
            if !self.keep_candidates(|member| directions.gateway_allows(&member.address)) {
                wish.refuse(Refusal::SubsetEmpty);
                return None;
            }
            wish.follow(true);
        }
        if directions.is_malformed {
            return wish.fail(Refusal::MalformedHint).then_some(none);
        }
        let has_subset = directions.has_subset();
        let has_ranks = directions.rank.is_some() && self.has_ranks();
        if has_subset || has_ranks {
            let is_of_rank = |member: &Member| !has_ranks || member.rank == directions.rank;
            if !self.keep_candidates(|member| is_of_rank(member) && directions.allows(&member.address)) {
                let refusal = if has_subset { Refusal::SubsetEmpty } else { Refusal::WorkerUnavailable };
                return wish.fail(refusal).then_some(none);
            }
            wish.follow(has_subset);
        }
        if directions.pins.is_empty() {
            return Some(none);
        }
        let (mut picks, mut is_known) = (Picks::default(), false);
        for worker in directions.pins.iter().filter_map(|pin| self.find_pin(pin)) {
            is_known = true;
            if self.is_available(worker) {
                picks.push(worker);
            }
        }
        if picks.first().is_none() {
            let refusal = if is_known { Refusal::WorkerUnavailable } else { Refusal::UnknownWorker };
            return wish.fail(refusal).then_some(none);
        }
        wish.follow(false);
        Some(Pinned { picks, is_only: wish.is_strict() })
    }

    /// Whether workers of this pool have data-parallel ranks, so that a rank says which.
    #[must_use]
    pub fn has_ranks(&self) -> bool {
        self.members.iter().any(|member| member.rank.is_some())
    }

    /// Leaves the workers that may be chosen; `false` if none of them is available, and then all stay.
    fn keep_candidates(&mut self, may_be_chosen: impl Fn(&Member) -> bool) -> bool {
        let mut allowed = vec![false; self.fleet.len()];
        for member in &self.members {
            if let Some(slot) = member.id.and_then(|id| allowed.get_mut(usize::from(id.0))) {
                *slot = may_be_chosen(member);
            }
        }
        self.leave_only(&allowed)
    }

    /// The worker of this pool that is meant.
    fn find_pin(&self, pin: &Pin) -> Option<WorkerId> {
        match pin {
            Pin::Address(address) => self.find(address),
            Pin::Name(name) => {
                let configured = self.names.iter().find(|(hash, _)| hash == name);
                configured.map_or_else(|| self.find_discovered(*name), |(_, address)| self.find(address))
            }
            Pin::Place(place) => self.members.get(*place)?.id,
        }
    }

    /// The worker that Envoy has a name for.
    fn find_discovered(&self, name: u64) -> Option<WorkerId> {
        let is_it = |id: &WorkerId| self.fleet.worker(*id).is_some_and(|worker| worker.name_hash == Some(name));
        self.members.iter().filter_map(|member| member.id).find(is_it)
    }
}
