//! What one run is told.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

/// The library's input and the binary's flags.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Options {
    /// How long faults and load last; lulls and starting come on top
    #[arg(long, default_value_t = Options::default().minutes)]
    pub minutes: f64,
    /// Decides the faults, their victims and times, and what is sent
    #[arg(long, default_value_t = Options::default().seed)]
    pub seed: u64,
    /// Workers that the run starts with
    #[arg(long, default_value_t = Options::default().workers)]
    pub workers: usize,
    /// Workers that come and go on top
    #[arg(long, default_value_t = Options::default().spares)]
    pub spares: usize,
    /// Workers that no fault touches, at any time
    #[arg(long, default_value_t = Options::default().healthy_min)]
    pub healthy_min: usize,
    /// Envoy's worker threads
    #[arg(long, default_value_t = Options::default().threads)]
    pub threads: u32,
    /// Clients at a time, each with one request after the other; every third speaks HTTP/2
    #[arg(long, default_value_t = Options::default().clients)]
    pub clients: usize,
    /// Retries of the route. Two are what is recommended; with none the run has to find lost requests
    #[arg(long, default_value_t = Options::default().retries)]
    pub retries: u32,
    /// The plugin's configuration lists its workers; else it learns them from Envoy's admin endpoint
    #[arg(long)]
    pub listed: bool,
    /// Where the report goes
    #[arg(long, default_value = "target/soak")]
    pub folder: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            minutes: 1.0,
            seed: 1,
            workers: 8,
            spares: 2,
            healthy_min: 2,
            threads: 4,
            clients: 12,
            retries: 2,
            listed: false,
            folder: PathBuf::from("target/soak"),
        }
    }
}

impl Options {
    /// Refuses a run in which nothing could be injected or nothing could be survived.
    ///
    /// # Errors
    /// Names the first option that is out of range, and its value.
    pub fn validate(&self) -> Result<()> {
        ensure!((0.1..=10_000.0).contains(&self.minutes), "--minutes is {}, must be 0.1 to 10000", self.minutes);
        ensure!(self.healthy_min > 0, "--healthy-min must be at least 1");
        ensure!(
            (self.healthy_min + 1..=64).contains(&self.workers),
            "--workers is {}, must be above --healthy-min and at most 64",
            self.workers
        );
        ensure!((1..=64).contains(&self.spares), "--spares is {}, must be 1 to 64", self.spares);
        ensure!((1..=64).contains(&self.threads), "--threads is {}, must be 1 to 64", self.threads);
        ensure!((1..=1_000).contains(&self.clients), "--clients is {}, must be 1 to 1000", self.clients);
        Ok(())
    }

    /// How long faults and load last.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }
}
