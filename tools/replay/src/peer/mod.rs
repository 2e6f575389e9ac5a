//! Other systems' routing policies, one file each, from their published formulas and defaults. To add one: write its
//! file, add its two lines here.
//!
//! They are written anew on common counts (`bookkeeping`) and a common approximate index (`index`), so a difference
//! between two of them is one of their formulas, not of their data structures. Where a project leaves a tie to the
//! order of its list or map, it is broken by chance here, which only helps it. Each value is one gateway's: it sees the
//! requests that it routed itself, and the workers' reports. Prompts are matched by whole pieces, finer than some of
//! these projects do and coarser than others.

mod aibrix_prefix_cache;
mod bookkeeping;
mod chwbl;
mod dynamo_linear;
mod index;
mod least_request;
mod llm_d_default;
mod llm_d_optimized_baseline;
mod lmetric;
mod power_of_two;
mod random;
mod round_robin;
mod sglang_cache_aware;
mod sticky_session;

pub use bookkeeping::Peer;

use crate::policy::View;
use crate::request::Request;

/// What a peer is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSetup {
    /// Seed of its random choices; a number of its own for each gateway.
    pub seed: u64,
}

/// A peer's entry in [`PEERS`].
#[derive(Clone, Copy, Debug)]
pub struct PeerRegistration {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// What it does, one line for the report.
    pub doc: &'static str,
    /// Whether several gateways of it know nothing of each other.
    pub shares_nothing: bool,
    /// Builds one gateway's.
    pub build: fn(PeerSetup) -> Box<dyn Peer>,
}

/// Every peer, the simplest first. Plan, report and the laws below find them here.
pub const PEERS: &[PeerRegistration] = &[
    round_robin::REGISTRATION,
    random::REGISTRATION,
    least_request::REGISTRATION,
    power_of_two::REGISTRATION,
    chwbl::FIRST_PIECE,
    chwbl::THREE_PIECES,
    sticky_session::REGISTRATION,
    sglang_cache_aware::REGISTRATION,
    aibrix_prefix_cache::REGISTRATION,
    llm_d_default::REGISTRATION,
    llm_d_optimized_baseline::REGISTRATION,
    dynamo_linear::REGISTRATION,
    lmetric::REGISTRATION,
];

/// Tokens left to prefill when `matched_tokens` are cached, as a gateway without a tokenizer estimates them.
fn estimated_uncached_tokens(request: &Request, view: &View<'_>, matched_tokens: u32) -> u32 {
    (f64::from(request.prompt_tokens - matched_tokens) * view.token_error).round() as u32
}

#[cfg(test)]
pub(crate) mod testing {
    //! Requests and views in the shortest form, for the peers' tests.

    use std::sync::Arc;

    use super::bookkeeping::{Counted, Load, Rule};
    use super::*;
    use crate::policy::{Exact, Outcome, Policy, Report};

    /// A request of whole pieces of 64 tokens.
    pub(crate) fn request(pieces: &[u64]) -> Request {
        Request {
            arrival_s: 0.0,
            pieces: Arc::from(pieces),
            piece_tokens: 64,
            prompt_tokens: 64 * pieces.len() as u32,
            output_tokens: 100,
            output_pieces: Arc::from([]),
            session: pieces.first().copied().unwrap_or_default(),
        }
    }

    /// Engines that hold nothing and do nothing.
    pub(crate) struct Idle;

    impl Exact for Idle {
        fn cached_tokens(&self, _worker: usize, _request: &Request) -> u32 {
            0
        }
        fn backlog_tokens(&self, _worker: usize) -> f64 {
            0.0
        }
        fn requests(&self, _worker: usize) -> u32 {
            0
        }
        fn ttft_s(&self, _worker: usize, _request: &Request) -> f64 {
            1.0
        }
    }

    /// A view of these members at time 0.
    pub(crate) fn view<'a>(is_member: &'a [bool], reports: &'a [Option<Report>]) -> View<'a> {
        View { now_s: 0.0, is_member, reports, kv_tokens: 1_000_000, token_error: 1.0, exact: &Idle }
    }

    /// How an ordinary request ends.
    pub(crate) const ANSWERED: Outcome =
        Outcome { is_answered: true, cached_tokens: None, prompt_tokens: 1, output_tokens: 1 };

    /// What a rule chooses when each worker has these requests and tokens under way, and no reports.
    pub(in crate::peer) fn choose(rule: &mut impl Rule, pieces: &[u64], loads: &[(u32, u64)]) -> usize {
        let loads: Vec<Load> =
            loads.iter().map(|&(in_flight, pending_tokens)| Load { in_flight, pending_tokens }).collect();
        let (is_member, reports) = (vec![true; loads.len()], vec![None; loads.len()]);
        rule.choose(&request(pieces), &view(&is_member, &reports), &loads).worker
    }

    /// The workers that `rule` gives `count` equal requests which never end.
    pub(in crate::peer) fn route_all(rule: impl Rule, workers: usize, count: u64) -> Vec<usize> {
        let mut policy = Counted::new(rule);
        let (is_member, reports) = (vec![true; workers], vec![None; workers]);
        (0..count).map(|ticket| policy.route(ticket, &request(&[1]), &view(&is_member, &reports))).collect()
    }
}

#[cfg(test)]
mod tests {
    use warmroute::rng::Rng;

    use super::testing::{ANSWERED, request, view};
    use super::*;
    use crate::policy::Report;

    const WORKERS: usize = 5;

    /// Sends 400 requests through the peer, ends them in any order, some without a first byte; where each went.
    ///
    /// The pool changes on the way; worker 2 is always in it.
    fn drive(peer: &mut dyn Peer, seed: u64) -> Vec<usize> {
        let mut rng = Rng::new(seed);
        let (mut open, mut sent_to) = (Vec::new(), Vec::new());
        for ticket in 0..400 {
            let is_member: Vec<bool> = (0..WORKERS).map(|worker| worker == 2 || rng.below(4) > 0).collect();
            let reports: Vec<Option<Report>> = (0..WORKERS)
                .map(|_| {
                    let report = Report {
                        waiting: rng.below(9),
                        kv_usage: f64::from(rng.below(100)) / 100.0,
                        ..Report::default()
                    };
                    (rng.below(3) > 0).then_some(report)
                })
                .collect();
            let pieces: Vec<u64> = (0..=rng.below(6)).map(|depth| u64::from(depth * 100 + rng.below(2))).collect();
            let mut now = view(&is_member, &reports);
            now.now_s = ticket as f64;
            now.token_error = 0.8;
            let worker = peer.route(ticket, &request(&pieces), &now);
            assert!(is_member[worker], "request {ticket} of seed {seed} went to {worker} of {is_member:?}");
            sent_to.push(worker);
            open.push(ticket);
            if rng.below(2) == 0 {
                let ended = open.swap_remove(rng.below(open.len() as u32) as usize);
                if rng.below(4) > 0 {
                    peer.first_byte(ended, now.now_s);
                }
                peer.finished(ended, &ANSWERED, now.now_s);
            }
        }
        assert!(peer.counted() > 0);
        for ticket in open {
            peer.first_byte(ticket, 400.0);
            peer.finished(ticket, &ANSWERED, 401.0);
        }
        sent_to
    }

    #[test]
    fn every_peer_sends_each_request_to_a_member_and_ends_with_nothing_counted() {
        for peer in PEERS {
            for seed in 0..20 {
                let mut policy = (peer.build)(PeerSetup { seed });
                drive(&mut *policy, seed);
                assert_eq!(policy.counted(), 0, "{} seed {seed}", peer.name);
            }
        }
    }

    #[test]
    fn every_peer_repeats_itself_with_the_same_seed() {
        for peer in PEERS {
            let run = || drive(&mut *(peer.build)(PeerSetup { seed: 7 }), 3);
            assert_eq!(run(), run(), "{}", peer.name);
        }
    }

    #[test]
    fn names_are_unique_and_docs_are_one_line() {
        for (position, peer) in PEERS.iter().enumerate() {
            assert!(PEERS.iter().skip(position + 1).all(|other| other.name != peer.name), "{}", peer.name);
            assert!(!peer.doc.is_empty() && !peer.doc.contains('\n'), "{}", peer.name);
        }
    }
}
