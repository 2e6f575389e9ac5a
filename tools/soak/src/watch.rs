//! Looks at Envoy all along: is it there, does it scrape, is its memory flat, has a VM crashed.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use warmroute_harness::config::WORKER_CLUSTER;

use crate::gateway::Gateway;
use crate::journal::Journal;
use crate::membership::LEASE_MS;
use crate::tally::Tally;

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Looks between two lines of progress.
const PROGRESS_LOOKS: usize = 10;
/// The longest time without a scrape: somebody always holds the lease, and when its holder is gone another follows.
const SCRAPE_PAUSE_MAX: Duration = Duration::from_millis(3 * LEASE_MS);
const PREFIX: &str = "wasmcustom.warmroute_";

/// What one look saw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Seconds since the start.
    pub at_s: f64,
    /// Envoy's memory that is in RAM, MB of 10^6 bytes.
    pub resident_mb: f64,
    /// Requests in flight, as the plugin's gauge tells.
    pub inflight: u64,
}

/// What all looks saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// In order.
    pub samples: Vec<Sample>,
    /// The plugin's counters, by name without the prefix, over all its configurations and binaries.
    pub counters: BTreeMap<String, u64>,
    /// The longest time in which no scrape was sent, seconds.
    pub scrape_pause_max_s: f64,
    /// VMs that crashed and were made anew.
    pub vm_reloads: u64,
    /// Envoy's log when the first violation was seen.
    pub log_at_violation: Option<String>,
}

/// A running watch.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    looks: JoinHandle<Seen>,
}

impl Watch {
    /// Begins to look; `progress` gets a line every five seconds.
    pub(crate) fn start(
        gateway: &Arc<Gateway>,
        journal: &Arc<Journal>,
        tally: &Arc<Tally>,
        progress: fn(&str),
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut looks = Looks {
            gateway: Arc::clone(gateway),
            journal: Arc::clone(journal),
            tally: Arc::clone(tally),
            progress,
            seen: Seen::default(),
            last: BTreeMap::new(),
            scrapes: Scrapes::default(),
        };
        let end = Arc::clone(&is_over);
        let looks = tokio::spawn(async move {
            while !end.load(Ordering::Relaxed) {
                looks.look().await;
                sleep(LOOK_INTERVAL).await;
            }
            looks.seen
        });
        Self { is_over, looks }
    }

    /// Looks no more; what was seen.
    pub(crate) async fn stop(self) -> Result<Seen> {
        self.is_over.store(true, Ordering::Relaxed);
        self.looks.await.context("the watch ended")
    }
}

struct Looks {
    gateway: Arc<Gateway>,
    journal: Arc<Journal>,
    tally: Arc<Tally>,
    progress: fn(&str),
    seen: Seen,
    /// The plugin's counters at the last look.
    last: BTreeMap<String, u64>,
    scrapes: Scrapes,
}

impl Looks {
    async fn look(&mut self) {
        match resident_mb(self.gateway.envoy.process_id()) {
            Ok(resident_mb) => {
                if let Err(error) = self.look_at_stats(resident_mb).await {
                    self.journal.violated(format!("the admin interface does not answer: {error:#}"));
                }
            }
            Err(error) => self.journal.violated(format!("Envoy is gone: {error:#}")),
        }
        if self.seen.log_at_violation.is_none() && self.journal.violations().0 > 0 {
            self.seen.log_at_violation = Some(self.gateway.envoy.log_tail());
        }
        if self.seen.samples.len() % PROGRESS_LOOKS == PROGRESS_LOOKS - 1 {
            self.tell();
        }
    }

    async fn look_at_stats(&mut self, resident_mb: f64) -> Result<()> {
        let asked_at = Instant::now();
        let stats = self.gateway.envoy.stats().await?;
        let inflight = stats.get(&inflight_gauge()).copied().unwrap_or(0);
        self.seen.samples.push(Sample { at_s: self.journal.now_s(), resident_mb, inflight });

        let reloads = stats.iter().filter(|(name, _)| name.contains("vm_reload")).map(|(_, count)| count).sum();
        if reloads > self.seen.vm_reloads {
            self.journal.violated(format!("{} VMs crashed and were made anew", reloads - self.seen.vm_reloads));
            self.seen.vm_reloads = reloads;
        }
        for (name, &count) in &stats {
            let Some(name) = name.strip_prefix(PREFIX).filter(|name| name.ends_with("_total")) else { continue };
            let last = self.last.insert(name.to_owned(), count).unwrap_or(0);
            // Counters may begin anew with a new binary.
            *self.seen.counters.entry(name.to_owned()).or_default() += if count < last { count } else { count - last };
        }
        let sent = self.last.get("polls_sent_total").copied().unwrap_or(0);
        let pause = self.scrapes.saw(sent, asked_at, Instant::now());
        self.seen.scrape_pause_max_s = self.seen.scrape_pause_max_s.max(pause.as_secs_f64());
        if pause > SCRAPE_PAUSE_MAX && !self.scrapes.is_told {
            self.scrapes.is_told = true;
            self.journal.violated(format!("no scrape was sent for {pause:.1?}: nobody holds the lease"));
        }
        Ok(())
    }

    fn tell(&self) {
        let Some(sample) = self.seen.samples.last() else { return };
        let [sent, cut, lost] = self.tally.totals();
        (self.progress)(&format!(
            "{:6.0} s  {sent} requests, {cut} cut, {lost} lost; {} faults, {} going on; {} in flight; {:.0} MB; {} violations",
            sample.at_s,
            self.journal.injected_total(),
            self.journal.going_on(),
            sample.inflight,
            sample.resident_mb,
            self.journal.violations().0,
        ));
    }
}

/// When the number of scrapes changed last.
///
/// A pause is counted from the first look that saw a number to the question of the last one that did: what is surely one,
/// also when Envoy's main thread is slow to answer because it compiles.
#[derive(Debug, Default)]
struct Scrapes {
    sent: u64,
    since: Option<Instant>,
    /// Whether this pause was told as a violation.
    is_told: bool,
}

impl Scrapes {
    fn saw(&mut self, sent: u64, asked_at: Instant, answered_at: Instant) -> Duration {
        match self.since {
            Some(since) if self.sent == sent => asked_at.saturating_duration_since(since),
            _ => {
                *self = Self { sent, since: Some(answered_at), is_told: false };
                Duration::ZERO
            }
        }
    }
}

/// The gauge of requests in flight.
pub(crate) fn inflight_gauge() -> String {
    format!("{PREFIX}pool.{WORKER_CLUSTER}.inflight_requests")
}

/// The gauge of the pool's workers.
pub(crate) fn workers_gauge() -> String {
    format!("{PREFIX}pool.{WORKER_CLUSTER}.workers")
}

/// A process's memory that is in RAM now.
fn resident_mb(process_id: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process_id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("it has no memory")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_what_is_surely_one_and_ends_with_the_next_scrape() {
        let (mut scrapes, start) = (Scrapes::default(), Instant::now());
        let ms = |ms| start + Duration::from_millis(ms);
        // (scrapes sent, asked at, answered at, pause)
        for (sent, asked, answered, want) in [
            (0, 0, 10, 0),
            (0, 500, 510, 490),
            (7, 1_000, 3_000, 0),
            (7, 3_500, 3_600, 500),
            (7, 4_100, 9_000, 1_100),
            (1, 9_100, 9_200, 0),
        ] {
            assert_eq!(scrapes.saw(sent, ms(asked), ms(answered)), Duration::from_millis(want), "{sent} at {asked} ms");
        }
    }

    #[test]
    fn own_memory_shows_and_a_process_that_is_not_there_is_an_error() {
        assert!((1.0..100_000.0).contains(&resident_mb(std::process::id()).unwrap()));
        // Just above the highest process id that Linux can be told to use.
        assert!(resident_mb((1 << 22) + 1).is_err());
    }
}
