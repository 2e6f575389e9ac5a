//! Soak and chaos: a real Envoy with the plugin under load while workers, operators and clients do what they should not.
//!
//! [`run`] does one run and tells what it has shown. What goes wrong is a table ([`fault::FAULTS`]), when it does follows
//! from a seed ([`plan::plan`]), and some workers are untouched at any time, so each well-formed request could be served.
//! These must hold all along, or a [`journal::Violation`] is told:
//!
//! - Each request that is well-formed and not given up by its client is answered with 200, whole, and the worker got the
//!   bytes that were sent. Only an answer that had begun may break off, and only if its worker was killed or hung.
//! - In each lull, the plugin's count of requests in flight returns to zero.
//! - Somebody scrapes: no longer pause than three periods of the lease.
//! - Envoy's memory is flat after a warm-up: see `memory.rs` for what the allocator keeps.
//! - Envoy lives, and no VM of it crashes.
//! - What an operator does takes effect: a new configuration or binary is taken, a bad one is refused, a worker that
//!   leaves the pool is drained.
//!
//! A worker that answers 500 is no fault here: the route does not retry an answer of a worker, so clients see it.

mod chaos;
pub mod fault;
mod gateway;
pub mod journal;
pub mod load;
mod membership;
pub mod memory;
pub mod options;
pub mod plan;
mod relay;
pub mod report;
mod tally;
pub mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use worker_sim::WorkerSim;

pub use tally::{Latency, Requests};

use crate::chaos::{Chaos, engine};
use crate::fault::{FAULTS, Inject};
use crate::gateway::Gateway;
use crate::journal::{Count, Journal};
use crate::load::{KINDS, Load};
use crate::memory::Memory;
use crate::options::Options;
use crate::report::{FaultRow, Report};
use crate::tally::Tally;
use crate::watch::{Watch, inflight_gauge};

/// How long requests may take to end in a lull: three attempts that time out, and a stream.
const LAST_REQUESTS_MAX: Duration = Duration::from_secs(30);
/// How long the count of requests in flight may take to return to zero.
const SETTLE_MAX: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Does one run. `progress` gets a line every five seconds.
///
/// # Errors
/// When the options are out of range, or Envoy or a worker does not start. What goes wrong later is in the report.
pub async fn run(options: &Options, progress: fn(&str)) -> Result<Report> {
    options.validate()?;
    let mut workers = Vec::new();
    for number in 0..options.workers + options.spares {
        let mut worker = WorkerSim::start(engine())?;
        if number >= options.workers {
            worker.stop().await;
        }
        workers.push(worker);
    }
    let addresses: Vec<SocketAddr> = workers[..options.workers].iter().map(WorkerSim::addr).collect();
    let gateway = Arc::new(Gateway::start(options, &addresses).await?);
    let (journal, tally) = (Arc::new(Journal::new()), Arc::new(Tally::default()));
    let workers = workers.into_iter().map(Mutex::new).collect();
    let chaos = Arc::new(Chaos { gateway: Arc::clone(&gateway), journal: Arc::clone(&journal), workers });

    wait_workers(&gateway, &journal).await;
    let watch = Watch::start(&gateway, &journal, &tally, progress);
    let load = Load::start(options.clients, options.seed, gateway.envoy.address(), &journal, &tally);
    let (mut lulls, mut by_clients, mut warm) = (0, ByClients::default(), Warm::default());
    let stretches = plan::plan(options);
    for (number, stretch) in (1..).zip(&stretches) {
        chaos.run(stretch).await;
        if number == stretches.len() {
            load.end();
        }
        lull(&load, &gateway, &journal).await;
        by_clients.end_stretch(&journal, &tally);
        journal.end_stretch();
        lulls += 1;
        if lulls == 1 {
            warm = Warm::now(&journal);
        }
    }
    load.join().await;
    let took_s = journal.now_s();
    let seen = watch.stop().await?;
    let memory = warm.memory(&seen.samples, &journal);
    if !memory.is_flat() {
        journal.violated(format!("memory grew by {:.0} MB after the warm-up", memory.growth_mb()));
    }
    check_counters(options, &journal, &seen.counters);
    let (violations_total, violations) = journal.violations();
    Ok(Report {
        options: options.clone(),
        took_s,
        faults: fault_rows(options, &journal, &by_clients),
        requests: tally.requests(),
        memory,
        lulls,
        seen,
        violations_total,
        violations,
        log_tail: gateway.envoy.log_tail(),
    })
}

/// Lets all requests end, then nothing may be counted as in flight.
async fn lull(load: &Load, gateway: &Gateway, journal: &Journal) {
    let Some(_closed) = load.pause(LAST_REQUESTS_MAX).await else {
        journal.violated(format!("requests are still under way {LAST_REQUESTS_MAX:?} after the last fault"));
        return;
    };
    // The gauge is set on a tick: twice in a row, for the first may be of before.
    let (deadline, mut in_a_row, mut inflight) = (Instant::now() + SETTLE_MAX, 0, None);
    while in_a_row < 2 {
        if Instant::now() > deadline {
            journal.violated(format!("{inflight:?} are in flight {SETTLE_MAX:?} after the last request"));
            return;
        }
        sleep(LOOK_INTERVAL).await;
        inflight = gateway.envoy.stats().await.ok().and_then(|stats| stats.get(&inflight_gauge()).copied());
        in_a_row = if inflight == Some(0) { in_a_row + 1 } else { 0 };
    }
    wait_workers(gateway, journal).await;
}

/// Waits until the plugin knows the workers that Envoy has: whatever came and went, and was not told meanwhile.
async fn wait_workers(gateway: &Gateway, journal: &Journal) {
    let deadline = Instant::now() + SETTLE_MAX;
    while !gateway.knows_its_workers().await {
        if Instant::now() > deadline {
            journal.violated(format!("the plugin knows other workers than Envoy has, for {SETTLE_MAX:?}"));
            return;
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// What must not have happened at all; and what must have, where workers are discovered: Envoy itself passes over those that
/// are gone, so that a plugin which learns nothing more would lose no request.
fn check_counters(options: &Options, journal: &Journal, counters: &BTreeMap<String, u64>) {
    let count = |name: &str| counters.get(name).copied().unwrap_or_default();
    for name in ["unrouted_no_workers_total", "page_newer_total"] {
        if count(name) > 0 {
            journal.violated(format!("{name} is {}", count(name)));
        }
    }
    let scaled = FAULTS.iter().filter(|fault| matches!(fault.inject, Inject::ScaleUp | Inject::ScaleDown));
    let scaled: u64 = scaled.map(|fault| journal.count(fault.name).injected).sum();
    for name in ["workers_added_total", "workers_removed_total"] {
        if !options.listed && scaled > 0 && count(name) == 0 {
            journal.violated(format!("the pool changed {scaled} times, and {name} is 0"));
        }
    }
}

/// Faults that clients make, which are requests.
#[derive(Debug, Default)]
struct ByClients {
    /// By kind; the last stretch's included.
    counts: [Count; KINDS.len()],
}

impl ByClients {
    fn end_stretch(&mut self, journal: &Journal, tally: &Tally) {
        for (count, kind) in self.counts.iter_mut().zip(KINDS) {
            let sent = tally.sent(kind.name);
            count.survived += if journal.is_stretch_clean() { sent - count.injected } else { 0 };
            count.injected = sent;
        }
    }
}

/// When the warm-up was over, and how many binaries there had been by then.
#[derive(Debug, Default)]
struct Warm {
    at_s: f64,
    binaries: u64,
}

impl Warm {
    fn now(journal: &Journal) -> Self {
        let swaps = FAULTS.iter().filter(|fault| fault.inject == Inject::SwapBinary);
        Self { at_s: journal.now_s(), binaries: swaps.map(|fault| journal.count(fault.name).injected).sum() }
    }

    fn memory(&self, samples: &[watch::Sample], journal: &Journal) -> Memory {
        Memory::new(samples, self.at_s, Self::now(journal).binaries - self.binaries)
    }
}

fn fault_rows(options: &Options, journal: &Journal, by_clients: &ByClients) -> Vec<FaultRow> {
    let planned = FAULTS.iter().map(|fault| FaultRow {
        name: fault.name,
        heal: fault.heal,
        count: journal.count(fault.name),
        is_felt: !options.listed || !fault.inject.needs_discovery(),
    });
    let sent = KINDS.iter().zip(by_clients.counts).filter(|(kind, _)| kind.is_fault);
    let sent = sent.map(|(kind, count)| FaultRow { name: kind.name, heal: "itself", count, is_felt: true });
    planned.chain(sent).collect()
}
