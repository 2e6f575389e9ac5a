//! Requests by kind and outcome.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use warmroute_report::statistics::Distribution;

/// Latencies kept of a kind; of a longer run those of its beginning.
const LATENCIES_MAX: usize = 1_000_000;

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 200 from a worker, complete, and the worker got the bytes that were sent.
    Answered,
    /// Not 200, as it should be: the request was no good one.
    Refused,
    /// The client left, as it meant to.
    Aborted,
    /// An answer that had begun broke off, for its worker was killed or hung: nothing is retried after the first byte.
    Cut,
    /// Well-formed, wanted, and not answered.
    Lost(String),
    /// The worker got other bytes, or the client did.
    Corrupt(String),
}

/// Requests of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Requests {
    /// All of them.
    pub sent: u64,
    /// 200 from a worker, complete, with the bytes intact.
    pub answered: u64,
    /// Refused as they should be.
    pub refused: u64,
    /// Given up by the client.
    pub aborted: u64,
    /// Begun answers that broke off when their worker was killed or hung.
    pub cut: u64,
    /// Not answered: none is allowed.
    pub lost: u64,
    /// Bytes changed on the way: none are allowed.
    pub corrupt: u64,
    /// Of what was answered.
    pub latency: Latency,
}

/// From the first byte sent to the last byte of the answer, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Half of them took at most this long.
    pub p50_ms: f64,
    /// 95 of a hundred.
    pub p95_ms: f64,
    /// 99 of a hundred.
    pub p99_ms: f64,
    /// All of them.
    pub max_ms: f64,
}

/// Counts what clients report.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    kinds: Mutex<BTreeMap<&'static str, Kind>>,
}

#[derive(Debug, Default)]
struct Kind {
    requests: Requests,
    latencies_ms: Vec<f64>,
}

impl Tally {
    pub(crate) fn ended(&self, kind: &'static str, outcome: &Outcome, took: Duration) {
        let mut kinds = self.kinds();
        let Kind { requests, latencies_ms } = kinds.entry(kind).or_default();
        requests.sent += 1;
        *match outcome {
            Outcome::Answered => &mut requests.answered,
            Outcome::Refused => &mut requests.refused,
            Outcome::Aborted => &mut requests.aborted,
            Outcome::Cut => &mut requests.cut,
            Outcome::Lost(_) => &mut requests.lost,
            Outcome::Corrupt(_) => &mut requests.corrupt,
        } += 1;
        if *outcome == Outcome::Answered && latencies_ms.len() < LATENCIES_MAX {
            latencies_ms.push(took.as_secs_f64() * 1e3);
        }
    }

    /// All kinds that were sent, with their latencies.
    pub(crate) fn requests(&self) -> BTreeMap<&'static str, Requests> {
        let told = |(name, kind): (&&'static str, &Kind)| {
            let latencies = Distribution::new(kind.latencies_ms.clone());
            let [p50_ms, p95_ms, p99_ms, max_ms] =
                [50.0, 95.0, 99.0, 100.0].map(|percent| latencies.percentile(percent));
            (*name, Requests { latency: Latency { p50_ms, p95_ms, p99_ms, max_ms }, ..kind.requests.clone() })
        };
        self.kinds().iter().map(told).collect()
    }

    /// Requests of a kind, for faults that clients make.
    pub(crate) fn sent(&self, kind: &str) -> u64 {
        self.kinds().get(kind).map_or(0, |kind| kind.requests.sent)
    }

    /// Sent, cut and lost, of all kinds.
    pub(crate) fn totals(&self) -> [u64; 3] {
        let kinds = self.kinds();
        let sum = |count: fn(&Requests) -> u64| kinds.values().map(|kind| count(&kind.requests)).sum();
        [sum(|kind| kind.sent), sum(|kind| kind.cut), sum(|kind| kind.lost)]
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<&'static str, Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_count_and_only_answers_have_a_latency() {
        let tally = Tally::default();
        let lost = || Outcome::Lost("503".into());
        let outcomes = [Outcome::Answered, Outcome::Cut, lost(), lost(), Outcome::Aborted, Outcome::Refused];
        for (number, outcome) in outcomes.iter().enumerate() {
            tally.ended("chat", outcome, Duration::from_millis(10 + number as u64));
        }
        assert_eq!((tally.sent("chat"), tally.sent("stream"), tally.totals()), (6, 0, [6, 1, 2]));
        let chat = &tally.requests()["chat"];
        assert_eq!((chat.answered, chat.aborted, chat.refused, chat.corrupt), (1, 1, 1, 0));
        assert!((chat.latency.max_ms - 10.0).abs() < 1e-6);
    }
}
