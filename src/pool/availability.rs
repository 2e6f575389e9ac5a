//! Which workers may be candidates: one rule for every policy, and for whatever else chooses a worker.
//!
//! Two marks of a worker are independent. It is *told* unhealthy: by Envoy, or because its scrapes fail. It is *ejected*:
//! it failed its requests. A worker without a mark is *ready*; one that was ejected and whose time is over is ready too, but
//! not *proven*: a request is about to show whether it works.
//!
//! | so many are ready | who is a candidate |
//! |---|---|
//! | enough | the ready ones, of as many tiers as it takes |
//! | fewer than `health.ejectedMaxPercent` leaves | those with one mark as well: rather the requests, or the checks, are what is broken |
//! | none, and none has one mark only | those that drain and have no mark, for Envoy would send the requests there too |
//! | nobody drains without a mark either | all in service |
//! | nobody is in service | those that drain: without a mark, else with one, else all |
//!
//! Of which tier a worker is says who is used first, and not who works: one that holds the response that a request continues,
//! or that a trusted hop names, is asked whether it is *available*, which its tier is no part of.
//!
//! A worker that is not in Envoy's cluster is never one: Envoy would pass over it.

use super::{Member, Pool};
use crate::config::{Config, HealthConfig, PollConfig};
use crate::schedule::{Picks, Policy, Query};
use crate::shared::fleet::FleetWorker;
use crate::time::Timestamp;
use crate::worker::{Standing, WorkerId};

/// What of the configuration says who may be a candidate.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'c> {
    /// How old reports may be, and how many scrapes may fail.
    pub poll: &'c PollConfig,
    /// When a worker is ejected.
    pub health: &'c HealthConfig,
}

impl<'c> Rules<'c> {
    /// Those of a configuration.
    #[must_use]
    pub const fn of(config: &'c Config) -> Self {
        Self { poll: &config.poll, health: &config.health }
    }
}

/// How a worker stands now: 0 is well, and each way not to be has its bits. One number, for there is one for each worker in
/// each decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fitness(u32);

impl Fitness {
    const WELL: Self = Self(0);
    const TOLD_UNHEALTHY: u32 = 1;
    const EJECTED: u32 = 2;
    /// Not ejected any more, and a request is about to show whether it works.
    const ON_TRIAL: u32 = 4;
    /// It finishes what it has.
    const DRAINING: u32 = 8;
    /// It cannot be reached through Envoy.
    const OUT: u32 = 16;
    /// From here on its [`Tier`].
    const TIER_SHIFT: u32 = 8;

    const fn new(bits: u32, tier: Tier) -> Self {
        Self(bits | (tier.0 as u32) << Self::TIER_SHIFT)
    }

    const fn has(self, any: u32) -> bool {
        self.0 & any != 0
    }

    const fn tier(self) -> Tier {
        Tier((self.0 >> Self::TIER_SHIFT) as u16)
    }

    const fn is_in_service(self) -> bool {
        !self.has(Self::DRAINING | Self::OUT)
    }

    const fn marks(self) -> u32 {
        (self.0 & (Self::TOLD_UNHEALTHY | Self::EJECTED)).count_ones()
    }

    /// Without a mark, and not on trial.
    const fn is_proven(self) -> bool {
        !self.has(Self::TOLD_UNHEALTHY | Self::EJECTED | Self::ON_TRIAL)
    }
}

/// Who is used first: the healthy ones of all priorities come before the degraded ones of any, as in Envoy. The priority, and
/// above it whether the worker is degraded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Tier(u16);

impl Tier {
    const LAST: Self = Self(u16::MAX);

    const fn new(is_degraded: bool, priority: u8) -> Self {
        Self((is_degraded as u16) << 8 | priority as u16)
    }

    const fn priority(self) -> u8 {
        self.0 as u8
    }
}

/// How many workers of a pool stand how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) in_service: Marked,
    pub(super) draining: Marked,
    /// Of those in service.
    pub(super) ejected: u32,
    has_tiers: bool,
}

/// How many of some workers have which marks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marked {
    pub(super) workers: u32,
    pub(super) ready: u32,
    with_one_mark: u32,
    proven: u32,
}

impl Marked {
    fn add(&mut self, fitness: Fitness) {
        self.workers += 1;
        self.ready += u32::from(fitness.marks() == 0);
        self.with_one_mark += u32::from(fitness.marks() == 1);
        self.proven += u32::from(fitness.is_proven());
    }

    /// The least marks that any of them has.
    const fn marks_min(&self) -> u32 {
        match (self.ready, self.with_one_mark) {
            (1.., _) => 0,
            (0, 1..) => 1,
            (0, 0) => MARKS_MAX,
        }
    }
}

/// Told unhealthy, and ejected.
const MARKS_MAX: u32 = 2;

impl Tally {
    fn add_well(&mut self, workers: u32) {
        self.in_service.workers += workers;
        self.in_service.ready += workers;
        self.in_service.proven += workers;
    }

    fn add(&mut self, fitness: Fitness) {
        if fitness.has(Fitness::OUT) {
            return;
        }
        if fitness.has(Fitness::DRAINING) {
            return self.draining.add(fitness);
        }
        self.in_service.add(fitness);
        self.ejected += u32::from(fitness.has(Fitness::EJECTED));
        self.has_tiers |= fitness.tier() != Tier::default();
    }
}

/// Who is let in among the candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Admission {
    /// Whether too few workers are ready, so that others are let in.
    pub(super) is_panic: bool,
    /// Those that drain, instead of those in service.
    is_of_draining: bool,
    marks_max: u32,
    tier_max: Tier,
    /// Whether some who are let in are not proven although others are.
    is_mixed: bool,
}

impl Admission {
    fn decide(fits: &[Fitness], tally: &Tally, ejected_percent_max: u32) -> Self {
        let left_percent = 100_u32.saturating_sub(ejected_percent_max);
        let Tally { in_service, draining, .. } = tally;
        let ready_min = in_service.workers.saturating_mul(left_percent).div_ceil(100).max(1);
        let all_with = |marks_max, among: &Marked| Self {
            is_panic: true,
            is_of_draining: false,
            marks_max,
            tier_max: Tier::LAST,
            is_mixed: among.proven > 0 && (marks_max > 0 || among.proven < among.ready),
        };
        let of_draining = |marks_max| Self { is_of_draining: true, ..all_with(marks_max, draining) };
        if in_service.workers == 0 {
            return of_draining(draining.marks_min());
        }
        if in_service.ready < ready_min && in_service.with_one_mark > 0 {
            return all_with(1, in_service);
        }
        if in_service.ready == 0 {
            // What fails its requests and its checks comes last of all that may still work.
            return if draining.ready > 0 { of_draining(0) } else { all_with(MARKS_MAX, in_service) };
        }
        let tier_max = if tally.has_tiers { last_tier(fits) } else { Tier::LAST };
        Self { is_panic: false, tier_max, ..all_with(0, in_service) }
    }

    pub(super) fn admits(&self, fitness: Fitness) -> bool {
        // Where anybody is well, those in service are let in, and it is of the first tier.
        if fitness == Fitness::WELL {
            return true;
        }
        self.is_available(fitness) && fitness.tier() <= self.tier_max
    }

    /// Whether one may get requests at all, whoever else is used first.
    pub(super) fn is_available(&self, fitness: Fitness) -> bool {
        let takes_part = !fitness.has(Fitness::OUT) && fitness.has(Fitness::DRAINING) == self.is_of_draining;
        takes_part && fitness.marks() <= self.marks_max
    }

    /// As it is, whatever tiers the workers are of.
    pub(super) const fn of_all_tiers(self) -> Self {
        Self { tier_max: Tier::LAST, ..self }
    }

    /// Whether one that is let in may not be relied on although others may.
    pub(super) fn is_unsure(&self, fitness: Fitness) -> bool {
        self.is_mixed && !fitness.is_proven()
    }
}

/// The last tier that is needed: each takes the share of its priority's workers that are of the tier and surely work, times
/// the factor by which priorities are taken to be larger than they need be, and all together have to take everything.
///
/// Source: Envoy's documentation, "Priority levels" and "Overprovisioning factor" (140 %), and its load balancer, which
/// spreads over the healthy workers of all priorities before the degraded ones. Envoy gives each tier its share; here the
/// policy chooses among all that are let in.
fn last_tier(fits: &[Fitness]) -> Tier {
    let mut percent = 0;
    for is_degraded in [false, true] {
        let mut priority_min = 0_u16;
        while let Some(priority) = next_priority(fits, priority_min) {
            let tier = Tier::new(is_degraded, priority);
            let (mut members, mut proven) = (0_u32, 0_u32);
            for fitness in fits.iter().filter(|fitness| fitness.is_in_service()) {
                members += u32::from(fitness.tier().priority() == priority);
                proven += u32::from(fitness.tier() == tier && fitness.is_proven());
            }
            percent += (proven * OVERPROVISIONING_PERCENT / members.max(1)).min(100);
            if percent >= 100 {
                return tier;
            }
            priority_min = u16::from(priority) + 1;
        }
    }
    Tier::LAST
}

/// The first priority from `priority_min` on that workers in service have.
fn next_priority(fits: &[Fitness], priority_min: u16) -> Option<u8> {
    let in_service = fits.iter().filter(|fitness| fitness.is_in_service());
    in_service.map(|fitness| fitness.tier().priority()).filter(|priority| u16::from(*priority) >= priority_min).min()
}

const OVERPROVISIONING_PERCENT: u32 = 140;

impl Pool {
    /// Looks at each worker once, and decides who is let in.
    pub(super) fn admit(&mut self, rules: &Rules<'_>, now: Timestamp) -> Admission {
        let tally = self.survey(rules, now);
        self.admission = Admission::decide(&self.fits, &tally, rules.health.ejected_percent_max);
        self.admission
    }

    /// Whether a worker may get the request that is being decided, as far as its service and its marks say: which tiers are
    /// used first is no matter to a request that needs this very worker.
    pub(super) fn is_available(&self, worker: WorkerId) -> bool {
        let mut members = self.members.iter().zip(&self.fits);
        let found = members.find(|(member, _)| member.id == Some(worker));
        found.is_some_and(|(_, fitness)| self.admission.is_available(*fitness))
    }

    /// Leaves out of the request that is being decided all workers but those that are `allowed`, by their ids, and takes from
    /// the candidates those that are left; returns `false` and changes nothing if none is available. Candidates may be missing
    /// then: those that are of tiers that are used later.
    pub(super) fn leave_only(&mut self, allowed: &[bool]) -> bool {
        let is_allowed = |id: WorkerId| allowed.get(usize::from(id.0)).is_some_and(|is_allowed| *is_allowed);
        let is_left = |member: &Member| member.id.is_some_and(is_allowed);
        let mut members = self.members.iter().zip(&self.fits);
        if !members.any(|(member, fitness)| is_left(member) && self.admission.is_available(*fitness)) {
            return false;
        }
        for (member, fitness) in self.members.iter().zip(&mut self.fits) {
            if !is_left(member) {
                *fitness = Fitness(Fitness::OUT);
            }
        }
        self.candidates.retain(|candidate| is_allowed(candidate.worker));
        true
    }

    /// Looks at each worker once.
    pub(super) fn survey(&mut self, rules: &Rules<'_>, now: Timestamp) -> Tally {
        let (mut tally, mut well) = (Tally::default(), 0);
        let mut fits = std::mem::take(&mut self.fits);
        fits.clear();
        fits.extend(self.members.iter().map(|member| {
            let fitness = self.fitness(member, rules, now);
            if fitness == Fitness::WELL {
                well += 1;
            } else {
                tally.add(fitness);
            }
            fitness
        }));
        self.fits = fits;
        tally.add_well(well);
        tally
    }

    fn fitness(&self, member: &Member, rules: &Rules<'_>, now: Timestamp) -> Fitness {
        let worker = member.id.and_then(|id| Some((self.fleet.worker(id)?, self.learned.get(usize::from(id.0)))));
        let Some((worker, learned)) = worker else { return Fitness(Fitness::OUT) };
        let mut bits = 0;
        if self.fails_scrapes(worker, rules.poll) {
            bits |= Fitness::TOLD_UNHEALTHY;
        }
        if member.is_draining {
            bits |= Fitness::DRAINING;
        }
        if let Some(learned) = learned.filter(|learned| learned.failures.is_marked) {
            let is_ejected = learned.failures.is_ejected(now, rules.health);
            bits |= if is_ejected { Fitness::EJECTED } else { Fitness::ON_TRIAL };
        }
        bits |= match worker.standing {
            Standing::Untold | Standing::Healthy | Standing::Degraded => 0,
            Standing::Unhealthy => Fitness::TOLD_UNHEALTHY,
            Standing::Draining => Fitness::DRAINING,
            Standing::Gone => Fitness::OUT,
        };
        Fitness::new(bits, Tier::new(worker.standing == Standing::Degraded, worker.priority))
    }

    /// Whether the worker does not answer its scrapes. One that was never scraped is given the benefit of the doubt, and so
    /// are all where scrapes are off: what an earlier configuration found out, nobody will ever correct.
    fn fails_scrapes(&self, worker: &FleetWorker, poll: &PollConfig) -> bool {
        u32::from(worker.scrape_failures) >= poll.failures_max && self.is_scraped && !poll.cluster.is_empty()
    }

    /// Whether Envoy says that the worker is not in its cluster.
    #[must_use]
    pub fn is_gone(&self, worker: WorkerId) -> bool {
        self.fleet.worker(worker).is_some_and(|worker| worker.standing == Standing::Gone)
    }

    /// Sees to it that a proven worker is one of the first two picks, if there is one: what fails at the first pick is then
    /// served, whatever the policy thinks of workers that may be broken.
    pub(super) fn keep_proven_pick(&mut self, policy: &dyn Policy, query: &Query, picks: &mut Picks) {
        let Self { unproven, candidates, .. } = self;
        if unproven.is_empty() {
            return;
        }
        let is_proven = |worker: &WorkerId| !unproven.get(usize::from(worker.0)).copied().unwrap_or_default();
        if picks.as_slice().iter().take(2).any(is_proven) {
            return;
        }
        let mut proven = Picks::default();
        picks.as_slice().iter().filter(|worker| is_proven(worker)).for_each(|worker| proven.push(*worker));
        if proven.first().is_none() {
            candidates.retain(|candidate| is_proven(&candidate.worker));
            policy.pick(query, candidates, &mut proven);
        }
        let (Some(first), Some(second)) = (picks.first(), proven.first()) else { return };
        picks.put_first(second);
        picks.put_first(first);
    }
}

#[cfg(test)]
mod tests;
