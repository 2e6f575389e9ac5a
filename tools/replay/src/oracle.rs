//! Policies that see the engines from inside: what could be reached, not what a gateway can do.
//!
//! Both are greedy, deciding for one request at a time, so they are reference points and no bounds.

use warmroute::rng::Rng;

use crate::policy::{Outcome, Policy, View};
use crate::request::Request;

/// An oracle's name and how to build it from a seed, which only breaks ties.
#[derive(Clone, Copy, Debug)]
pub struct OracleRegistration {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// What it does, one line for the report.
    pub doc: &'static str,
    /// Builds it.
    pub build: fn(u64) -> Box<dyn Policy>,
}

/// The oracles.
pub const ORACLES: &[OracleRegistration] = &[
    OracleRegistration {
        name: "oracle-ttft",
        doc: "sees the engines: the earliest first byte for this request",
        build: |seed| Box::new(Oracle { cost: ttft_s, rng: Rng::new(seed) }),
    },
    OracleRegistration {
        name: "oracle-marginal",
        doc: "sees the engines: this request's delay and the delay it puts on others",
        build: |seed| Box::new(Oracle { cost: marginal_tokens, rng: Rng::new(seed) }),
    },
];

/// Tokens of prefill that others' delay is worth, for each of a request's own and each request there.
const OTHERS_PER_TOKEN: f64 = 0.3;
/// Tokens of prefill that a request's decoding costs each request there.
const OTHERS_PER_REQUEST_TOKENS: f64 = 240.0;

/// The lowest `cost` of the view's truth.
#[derive(Debug)]
struct Oracle {
    cost: fn(usize, &Request, &View<'_>) -> f64,
    rng: Rng,
}

/// Seconds to the request's first byte.
fn ttft_s(worker: usize, request: &Request, view: &View<'_>) -> f64 {
    view.exact.ttft_s(worker, request)
}

/// The total delay of the placement in tokens of prefill: the wait, the own work, and what both put on others.
fn marginal_tokens(worker: usize, request: &Request, view: &View<'_>) -> f64 {
    let uncached_tokens = f64::from(request.prompt_tokens.saturating_sub(view.exact.cached_tokens(worker, request)));
    let others = f64::from(view.exact.requests(worker));
    view.exact.backlog_tokens(worker)
        + uncached_tokens * (1.0 + OTHERS_PER_TOKEN * others)
        + OTHERS_PER_REQUEST_TOKENS * others
}

impl Policy for Oracle {
    fn route(&mut self, _ticket: u64, request: &Request, view: &View<'_>) -> usize {
        let members = view.is_member.iter().enumerate().filter(|(_, is_member)| **is_member);
        // Equals by chance: an idle pool would otherwise fill its first worker's cache alone.
        let keyed = members.map(|(worker, _)| ((self.cost)(worker, request, view), self.rng.next_u64(), worker));
        keyed.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, _, worker)| worker).unwrap_or_default()
    }

    fn first_byte(&mut self, _ticket: u64, _now_s: f64) {}

    fn finished(&mut self, _ticket: u64, _outcome: &Outcome, _now_s: f64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::testing::{request, view};
    use crate::policy::Exact;

    /// (cached tokens, backlog tokens, requests) of each worker; 1,000 tokens a second.
    struct Engines(Vec<(u32, f64, u32)>);

    impl Exact for Engines {
        fn cached_tokens(&self, worker: usize, _request: &Request) -> u32 {
            self.0[worker].0
        }
        fn backlog_tokens(&self, worker: usize) -> f64 {
            self.0[worker].1
        }
        fn requests(&self, worker: usize) -> u32 {
            self.0[worker].2
        }
        fn ttft_s(&self, worker: usize, request: &Request) -> f64 {
            (self.0[worker].1 + f64::from(request.prompt_tokens - self.0[worker].0)) / 1_000.0
        }
    }

    #[test]
    fn one_looks_at_its_own_first_byte_and_the_other_at_all() {
        // 1,280 tokens. Own delay: 1,280 against 1,000 + 80; with others: 1,280 against 1,080 + 80 * 0.3 * 4 + 960.
        let engines = Engines(vec![(0, 0.0, 0), (1_200, 1_000.0, 4), (1_200, 0.0, 0)]);
        let request = request(&(0..20).collect::<Vec<u64>>());
        let choose = |name: &str, is_member: &[bool]| {
            let oracle = ORACLES.iter().find(|oracle| oracle.name == name).unwrap();
            let view = View { exact: &engines, ..view(is_member, &[None; 3]) };
            (oracle.build)(1).route(0, &request, &view)
        };
        assert_eq!(choose("oracle-ttft", &[true, true, false]), 1);
        assert_eq!(choose("oracle-marginal", &[true, true, false]), 0);
        assert_eq!(choose("oracle-ttft", &[true; 3]), 2);
        assert_eq!(choose("oracle-marginal", &[true; 3]), 2);
    }
}
