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
//! | none, and none has one mark only | all in service |
//! | nobody is in service | those that drain, for Envoy would send the requests there too |
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

/// How a worker stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fitness {
    service: Service,
    is_told_unhealthy: bool,
    is_ejected: bool,
    /// Not ejected, and no request is about to show whether it works.
    is_proven: bool,
    tier: Tier,
}

/// Whether a worker takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    In,
    /// It finishes what it has.
    Draining,
    /// It cannot be reached through Envoy.
    Out,
}

/// Who is used first: the healthy ones of all priorities come before the degraded ones of any, as in Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Tier {
    is_degraded: bool,
    priority: u8,
}

impl Tier {
    const LAST: Self = Self { is_degraded: true, priority: u8::MAX };
}

impl Fitness {
    const OUT: Self =
        Self { service: Service::Out, is_told_unhealthy: false, is_ejected: false, is_proven: false, tier: Tier::LAST };

    const fn marks(self) -> u8 {
        self.is_told_unhealthy as u8 + self.is_ejected as u8
    }

    /// In service and without a mark.
    fn is_ready(self) -> bool {
        self.service == Service::In && self.marks() == 0
    }

    fn is_proven(self) -> bool {
        self.is_ready() && self.is_proven
    }
}

/// How many workers of a pool stand how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) draining: u32,
    pub(super) ejected: u32,
    pub(super) ready: u32,
    in_service: u32,
    with_one_mark: u32,
    proven: u32,
    has_tiers: bool,
}

impl Tally {
    fn add(&mut self, fitness: Fitness) {
        self.draining += u32::from(fitness.service == Service::Draining);
        if fitness.service != Service::In {
            return;
        }
        self.in_service += 1;
        self.ready += u32::from(fitness.marks() == 0);
        self.with_one_mark += u32::from(fitness.marks() == 1);
        self.ejected += u32::from(fitness.is_ejected);
        self.proven += u32::from(fitness.is_proven());
        self.has_tiers |= fitness.tier != Tier::default();
    }
}

/// Who is let in among the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    /// Whether too few workers are ready, so that others are let in.
    pub(super) is_panic: bool,
    service: Service,
    marks_max: u8,
    tier_max: Tier,
    /// Whether some who are let in are not proven although others are.
    is_mixed: bool,
}

impl Admission {
    fn decide(fits: &[Fitness], tally: &Tally, ejected_percent_max: u32) -> Self {
        let left_percent = 100_u32.saturating_sub(ejected_percent_max);
        let ready_min = tally.in_service.saturating_mul(left_percent).div_ceil(100).max(1);
        let of_service = |marks_max| Self {
            is_panic: true,
            service: Service::In,
            marks_max,
            tier_max: Tier::LAST,
            is_mixed: tally.proven > 0,
        };
        if tally.in_service == 0 {
            return Self { service: Service::Draining, ..of_service(2) };
        }
        if tally.ready < ready_min && tally.with_one_mark > 0 {
            return of_service(1);
        }
        if tally.ready == 0 {
            return of_service(2);
        }
        let tier_max = if tally.has_tiers { last_tier(fits) } else { Tier::LAST };
        Self { is_panic: false, tier_max, is_mixed: tally.proven < tally.ready, ..of_service(0) }
    }

    pub(super) fn admits(&self, fitness: Fitness) -> bool {
        fitness.service == self.service && fitness.marks() <= self.marks_max && fitness.tier <= self.tier_max
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
            let tier = Tier { is_degraded, priority };
            let (mut members, mut proven) = (0_u32, 0_u32);
            for fitness in fits.iter().filter(|fitness| fitness.service == Service::In) {
                members += u32::from(fitness.tier.priority == priority);
                proven += u32::from(fitness.tier == tier && fitness.is_proven());
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
    let in_service = fits.iter().filter(|fitness| fitness.service == Service::In);
    in_service.map(|fitness| fitness.tier.priority).filter(|priority| u16::from(*priority) >= priority_min).min()
}

const OVERPROVISIONING_PERCENT: u32 = 140;

impl Pool {
    /// Looks at each worker once, and decides who is let in.
    pub(super) fn admit(&mut self, rules: &Rules<'_>, now: Timestamp) -> Admission {
        let tally = self.survey(rules, now);
        Admission::decide(&self.fits, &tally, rules.health.ejected_percent_max)
    }

    /// Looks at each worker once.
    pub(super) fn survey(&mut self, rules: &Rules<'_>, now: Timestamp) -> Tally {
        let mut tally = Tally::default();
        let mut fits = std::mem::take(&mut self.fits);
        fits.clear();
        for member in &self.members {
            let fitness = self.fitness(member, rules, now);
            tally.add(fitness);
            fits.push(fitness);
        }
        self.fits = fits;
        tally
    }

    fn fitness(&self, member: &Member, rules: &Rules<'_>, now: Timestamp) -> Fitness {
        let Some(id) = member.id else { return Fitness::OUT };
        let Some(worker) = self.fleet.worker(id) else { return Fitness::OUT };
        let service = match worker.standing {
            Standing::Gone => return Fitness::OUT,
            _ if member.is_draining => Service::Draining,
            Standing::Draining => Service::Draining,
            Standing::Untold | Standing::Healthy | Standing::Degraded | Standing::Unhealthy => Service::In,
        };
        let learned = self.learned.get(usize::from(id.0));
        Fitness {
            service,
            is_told_unhealthy: worker.standing == Standing::Unhealthy || self.fails_scrapes(worker, rules.poll),
            is_ejected: learned.is_some_and(|learned| learned.failures.is_ejected(now, rules.health)),
            is_proven: learned.is_none_or(|learned| !learned.failures.is_marked),
            tier: Tier { is_degraded: worker.standing == Standing::Degraded, priority: worker.priority },
        }
    }

    /// Whether the worker does not answer its scrapes. One that was never scraped is given the benefit of the doubt, and so
    /// are all where scrapes are off: what an earlier configuration found out, nobody will ever correct.
    fn fails_scrapes(&self, worker: &FleetWorker, poll: &PollConfig) -> bool {
        self.is_scraped && !poll.cluster.is_empty() && u32::from(worker.scrape_failures) >= poll.failures_max
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
        let is_proven = |worker: &WorkerId| !unproven.contains(worker);
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
