//! What one gateway counts of the requests that it sent itself, and the part of a peer that is the same for all.

use std::collections::HashMap;

use crate::policy::{Outcome, Policy, Report, View};
use crate::request::Request;

/// What one gateway has sent to one worker and not seen the end of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Requests sent and not ended.
    pub in_flight: u32,
    /// Tokens that the engine has to prefill, by the gateway's own match, of requests without a first byte.
    pub pending_tokens: u64,
}

/// What a peer's rule has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The worker that gets the request.
    pub worker: usize,
    /// Tokens of the prompt that it will have to prefill, as the peer believes.
    pub uncached_tokens: u32,
}

/// The part that makes a peer what it is.
pub(super) trait Rule {
    /// Decides, and records what it wants to remember of its decision. `loads` has an entry for each worker.
    fn choose(&mut self, request: &Request, view: &View<'_>, loads: &[Load]) -> Choice;

    /// A request that this rule sent to `worker` has ended.
    fn ended(&mut self, worker: usize, request: &Request) {
        let _ = (worker, request);
    }
}

/// A rule with the counts that every gateway keeps: each request is counted from `route` to `finished`, its prefill to
/// its first byte, and both are taken back exactly once.
#[derive(Debug)]
pub(super) struct Counted<R> {
    rule: R,
    loads: Vec<Load>,
    flights: HashMap<u64, Flight>,
}

/// A request under way.
#[derive(Debug)]
struct Flight {
    choice: Choice,
    is_prefilling: bool,
    request: Request,
}

impl<R: Rule> Counted<R> {
    /// The rule before its first request.
    pub(super) fn new(rule: R) -> Self {
        Self { rule, loads: Vec::new(), flights: HashMap::new() }
    }
}

impl<R: Rule> Policy for Counted<R> {
    fn route(&mut self, ticket: u64, request: &Request, view: &View<'_>) -> usize {
        self.loads.resize(view.is_member.len().max(self.loads.len()), Load::default());
        let choice = self.rule.choose(request, view, &self.loads);
        let load = &mut self.loads[choice.worker];
        load.in_flight += 1;
        load.pending_tokens += u64::from(choice.uncached_tokens);
        self.flights.insert(ticket, Flight { choice, is_prefilling: true, request: request.clone() });
        choice.worker
    }

    fn first_byte(&mut self, ticket: u64, _now_s: f64) {
        if let Some(flight) = self.flights.get_mut(&ticket) {
            end_prefill(&mut self.loads, flight);
        }
    }

    fn finished(&mut self, ticket: u64, _outcome: &Outcome, _now_s: f64) {
        if let Some(mut flight) = self.flights.remove(&ticket) {
            end_prefill(&mut self.loads, &mut flight);
            self.loads[flight.choice.worker].in_flight -= 1;
            self.rule.ended(flight.choice.worker, &flight.request);
        }
    }

    fn report(&mut self, _worker: usize, _report: &Report, _now_s: f64) {}
}

/// A policy whose counts can be looked at, for the laws over all peers.
pub trait Peer: Policy {
    /// Requests and tokens that it still counts as under way: 0 when all requests have ended.
    fn counted(&self) -> u64;
}

impl<R: Rule> Peer for Counted<R> {
    fn counted(&self) -> u64 {
        let of_loads: u64 = self.loads.iter().map(|load| u64::from(load.in_flight) + load.pending_tokens).sum();
        of_loads + self.flights.len() as u64
    }
}

/// Takes the request's prefill back, once.
fn end_prefill(loads: &mut [Load], flight: &mut Flight) {
    if flight.is_prefilling {
        flight.is_prefilling = false;
        loads[flight.choice.worker].pending_tokens -= u64::from(flight.choice.uncached_tokens);
    }
}

/// The numbers of the workers that are in the pool, in order.
pub(super) fn members<'a>(view: &'a View<'_>) -> impl Iterator<Item = usize> + Clone + 'a {
    view.is_member.iter().enumerate().filter(|(_, is_member)| **is_member).map(|(worker, _)| worker)
}

/// Of `candidates` the one with the lowest `cost`, equals by chance; the first pool member if there are none.
///
/// Chance and not the list's order, for peers whose own tie rule is an accident of their map's order: the first worker
/// would otherwise get all requests of a quiet pool (sgl-project/sglang issue 32983).
pub(super) fn cheapest(
    candidates: impl Iterator<Item = usize>,
    rng: &mut warmroute::rng::Rng,
    cost: impl Fn(usize) -> f64,
) -> usize {
    let (mut best, mut best_cost, mut equals) = (0, f64::INFINITY, 0_u32);
    for worker in candidates {
        let its_cost = cost(worker);
        if its_cost < best_cost {
            (best, best_cost, equals) = (worker, its_cost, 1);
        } else if its_cost <= best_cost {
            equals += 1;
            if rng.below(equals) == 0 {
                best = worker;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use warmroute::rng::Rng;

    use super::*;

    #[test]
    fn the_lowest_cost_wins_and_equals_share() {
        let costs = [2.0, 1.0, 1.0, 3.0];
        let mut rng = Rng::new(1);
        let mut seen = [0; 4];
        for _ in 0..1_000 {
            seen[cheapest(0..4, &mut rng, |worker| costs[worker])] += 1;
        }
        assert_eq!((seen[0], seen[3]), (0, 0));
        assert!(seen[1] > 400 && seen[2] > 400, "{seen:?}");
    }
}
