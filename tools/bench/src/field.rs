//! The workers and all paths before them, running side by side, and what is measured on them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::load::{Burst, Outcome, Workload};
use crate::load_thread::LoadThread;
use crate::lockstep::Lockstep;
use crate::path::{BASE, Path, Running, Setting};
use crate::process::resident_mb;
use crate::prompt::Shape;
use crate::row::Row;
use crate::statistics::{median, median_ratio, noise};
use crate::worker::{Workers, metrics_page};

/// What a real vLLM page has (0.32, idle).
pub(crate) const METRICS_PAGE_BYTES: usize = 58_000;
const FILL_BURST: Duration = Duration::from_millis(500);
/// Requests of each connection that a round begins further on than the one before.
const SKIP: usize = 7;

/// One combination of what is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The requests.
    pub shape: Shape,
    /// Connections with one request at a time on each.
    pub connections: usize,
    /// Workers behind each path.
    pub workers: usize,
}

/// How long it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Bursts of each path that count.
    pub rounds: usize,
    /// How long one takes.
    pub burst: Duration,
}

/// Running workers and paths. They outlive a cell: starting an Envoy with the plugin takes longer than a burst.
pub(crate) struct Field {
    /// The workers; dropped last.
    pub workers: Workers,
    /// The paths.
    pub paths: Vec<Running>,
    lockstep: Arc<Lockstep>,
}

impl Field {
    /// Starts workers and paths, one after the other.
    ///
    /// # Errors
    /// When a process does not start.
    pub(crate) async fn start(
        load: &LoadThread,
        setting: &Setting,
        paths: &[Path],
        workers: usize,
        metrics_page_bytes: usize,
    ) -> Result<Self> {
        let lockstep = Arc::new(Lockstep::new());
        let page = metrics_page(metrics_page_bytes).await?;
        let stepping = Arc::clone(&lockstep);
        let workers = load.run(async move { Workers::start(workers, &page, stepping).await }).await?;
        let mut field = Self { workers, paths: Vec::new(), lockstep };
        for path in paths {
            eprint!("\rstarting {:<40}", path.full_name());
            let running = path.start(setting, &field.workers.addresses).await;
            field.paths.push(running.with_context(|| path.full_name())?);
        }
        eprint!("\r{:<50}\r", "");
        Ok(field)
    }

    /// Measures a cell on those paths that `is_wanted`, in turns: in every round each has one burst, and the next round
    /// begins with another one.
    ///
    /// # Errors
    /// When an answer is broken, missing or no success.
    pub(crate) async fn measure(
        &self,
        load: &LoadThread,
        cell: &Cell,
        workload: Arc<Workload>,
        timing: Timing,
        is_wanted: impl Fn(Path) -> bool,
    ) -> Result<Vec<Row>> {
        let paths: Vec<&Running> = self.paths.iter().filter(|running| is_wanted(running.path)).collect();
        let mut rounds: Vec<Vec<Sample>> = vec![Vec::new(); paths.len()];
        for round in 0..=timing.rounds {
            for turn in 0..paths.len() {
                let at = (turn + round) % paths.len();
                let name = paths[at].path.full_name();
                eprint!("\r  round {round} of {}: {name:<40}", timing.rounds);
                // The first one only warms up.
                let duration = if round > 0 { timing.burst } else { timing.burst / 2 };
                // Not always the same prompts where a burst does not get through all of them.
                let burst = burst(paths[at], cell, duration, Arc::clone(&workload), round * SKIP);
                let lockstep = Arc::clone(&self.lockstep);
                let outcome = load.run(burst.run(lockstep)).await.with_context(|| format!("{name}, {cell}"))?;
                if round > 0 {
                    rounds[at].push(Sample::new(&outcome));
                }
            }
        }
        eprint!("\r{:<60}\r", "");
        let base = paths.iter().position(|running| running.path == BASE).map(|at| rounds[at].clone());
        paths.iter().zip(&rounds).map(|(running, rounds)| row(running, cell, rounds, base.as_deref())).collect()
    }

    /// Sends every path so many different prompts, most of them at least once.
    ///
    /// # Errors
    /// As [`Field::measure`].
    pub(crate) async fn fill(&self, load: &LoadThread, cell: &Cell, prompts: u64) -> Result<()> {
        let workload = Arc::new(Workload::numbered(cell.shape, prompts));
        // Plain Envoy remembers nothing.
        for running in self.paths.iter().filter(|running| running.path != BASE) {
            let mut answered = 0;
            while answered < prompts * 2 {
                eprint!("\r  filled {answered} of {}: {:<40}", prompts * 2, running.path.full_name());
                let skip = usize::try_from(answered)? / cell.connections;
                let burst = burst(running, cell, FILL_BURST, Arc::clone(&workload), skip);
                answered += load.run(burst.run(Arc::clone(&self.lockstep))).await?.answered;
            }
        }
        Ok(())
    }
}

fn burst(running: &Running, cell: &Cell, duration: Duration, workload: Arc<Workload>, skip: usize) -> Burst {
    let Running { address, ref process_ids, .. } = *running;
    Burst { address, connections: cell.connections, duration, skip, process_ids: process_ids.clone(), workload }
}

/// What one burst gave.
#[derive(Debug, Clone, Copy)]
struct Sample {
    requests_per_s: f64,
    cpu_us: f64,
    /// p50, p90, p99.
    latency_ms: [f64; 3],
}

impl Sample {
    fn new(outcome: &Outcome) -> Self {
        let answered = outcome.answered.max(1) as f64;
        Self {
            requests_per_s: answered / outcome.elapsed.as_secs_f64(),
            cpu_us: outcome.cpu.as_secs_f64() * 1e6 / answered,
            latency_ms: [0.5, 0.9, 0.99].map(|share| outcome.latency_us.value_at_quantile(share) as f64 / 1e3),
        }
    }
}

fn row(running: &Running, cell: &Cell, rounds: &[Sample], base: Option<&[Sample]>) -> Result<Row> {
    let of = |rounds: &[Sample], value: fn(&Sample) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let base_of = |value| base.map(|base| of(base, value)).unwrap_or_default();
    let rate: fn(&Sample) -> f64 = |sample| sample.requests_per_s;
    let cpu: fn(&Sample) -> f64 = |sample| sample.cpu_us;
    Ok(Row {
        path: running.path.name.to_owned(),
        policy: running.path.policy.to_owned(),
        body_bytes: cell.shape.body_bytes,
        connections: cell.connections,
        workers: cell.workers,
        stream_chunks: cell.shape.stream_chunks,
        rounds: rounds.len(),
        requests_per_s: median(&of(rounds, rate)),
        cpu_us_per_request: median(&of(rounds, cpu)),
        p50_ms: median(&of(rounds, |sample| sample.latency_ms[0])),
        p90_ms: median(&of(rounds, |sample| sample.latency_ms[1])),
        p99_ms: median(&of(rounds, |sample| sample.latency_ms[2])),
        rss_mb: running.process_ids.iter().try_fold(0.0, |sum, &id| anyhow::Ok(sum + resident_mb(id)?))?,
        cpu_ratio_to_envoy: median_ratio(&of(rounds, cpu), &base_of(cpu)),
        rps_ratio_to_envoy: median_ratio(&of(rounds, rate), &base_of(rate)),
        cpu_noise: noise(&of(rounds, cpu)),
    })
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kb = self.shape.body_bytes >> 10;
        write!(f, "{kb} KB, {} connections, {} workers", self.connections, self.workers)?;
        match self.shape.stream_chunks {
            0 => Ok(()),
            chunks => write!(f, ", streams of {chunks} chunks"),
        }
    }
}
