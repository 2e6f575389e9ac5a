//! `quality`: what a policy does for the users' waiting times, over real HTTP, for warmroute and for others.
//!
//! Two workloads, the demo's chats and tool-using agents, each sent to the same simulated engines, fresh for every run,
//! through each path. `target/quality/summary.json` has a row for each run; the tables are means over the seeds.

mod page;
mod paths;
mod row;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use warmroute_harness::artefacts::repository_root;

use self::paths::{PATHS, Route};
use self::row::Row;
use crate::run::{Outcome, Setting, run};
use crate::workload::agent::AgentShape;
use crate::workload::{Shape, Workload};

/// What is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct Flags {
    /// Also measure other routers, which tools/setup/peers.sh installs
    #[arg(long)]
    peers: bool,
    /// How many seeds, each with workloads of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Seconds in which requests of one run arrive
    #[arg(long, default_value_t = 20.0)]
    duration_s: f64,
    /// Chats that are open at the same time
    #[arg(long, default_value_t = 72)]
    conversations: usize,
    /// Requests of the chats per second, on average
    #[arg(long, default_value_t = 25.0)]
    rate: f64,
    /// Tasks of agents that are at work at the same time
    #[arg(long, default_value_t = 24)]
    tasks: usize,
    /// Envoy's worker threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Make the tables and the page of the rows that are in summary.json already, and measure nothing
    #[arg(long)]
    keep: bool,
    /// Write routing-quality-http.md and its plot into this folder
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// The two workloads, by the name they have in tables and rows.
pub(crate) const WORKLOADS: [&str; 2] = ["chat", "agents"];

impl Flags {
    fn workload(&self, name: &str, seed: u64) -> Workload {
        let Self { conversations, rate: rate_per_s, duration_s, tasks, .. } = *self;
        match name {
            "chat" => Workload::generate(&Shape { seed, conversations, rate_per_s, duration_s }),
            _ => Workload::agents(&AgentShape { seed, tasks, duration_s }),
        }
    }
}

/// Runs and prints.
///
/// # Errors
/// When something does not start, or a request fails on a path that is Envoy's; failures of others are in their rows.
pub(crate) async fn measure(flags: &Flags) -> Result<()> {
    ensure!(flags.duration_s.is_finite() && flags.duration_s > 0.0, "--duration-s must be above 0");
    ensure!(flags.rate.is_finite() && flags.rate > 0.0 && flags.tasks > 0, "--rate and --tasks must be above 0");
    let files = repository_root().join("target/quality");
    let summary = files.join("summary.json");
    let rows = if flags.keep { read(&summary)? } else { run_all(flags, &files, &summary).await? };
    for workload in WORKLOADS {
        println!("\n== {workload}, means over the seeds (TTFT: time to the first byte of content)");
        println!("{}", tables::of_workload(&rows, workload));
    }
    println!("Summary  {}", summary.display());
    if let Some(folder) = &flags.docs {
        println!("Page     {}", page::write(folder, &rows, &today()?)?.display());
    }
    let ours = rows.iter().filter(|row| row.is_on_envoy());
    let errors: usize = ours.map(|row| row.errors).sum();
    ensure!(errors == 0, "{errors} requests failed on Envoy's paths");
    Ok(())
}

async fn run_all(flags: &Flags, files: &Path, summary: &Path) -> Result<Vec<Row>> {
    let mut routes: Vec<&Route> = PATHS.iter().filter(|route| flags.peers || !route.is_with_peers).collect();
    fs::create_dir_all(files)?;
    let mut rows = Vec::new();
    for seed in (0..flags.seeds).map(|number| flags.first_seed + number) {
        for name in WORKLOADS {
            let workload = flags.workload(name, seed);
            describe(name, seed, &workload);
            for route in &routes {
                let &Route { balancer, with_session, with_render, .. } = *route;
                eprintln!("-- {name}, seed {seed}: {route}");
                let envoy_threads = flags.threads;
                let setting = Setting { time_scale: 1.0, envoy_threads, with_session, with_render, files };
                let outcome = run(balancer, &workload, &setting).await?;
                show(&outcome);
                rows.push(Row::new(name, route, seed, &outcome));
                // After every run: one that is interrupted has measured something all the same.
                row::compare(&mut rows);
                fs::write(summary, serde_json::to_string_pretty(&rows)? + "\n")
                    .with_context(|| format!("writing {}", summary.display()))?;
            }
            // No path always comes first, when the machine may be busier or calmer than later.
            routes.rotate_left(2);
        }
    }
    Ok(rows)
}

fn describe(name: &str, seed: u64, workload: &Workload) {
    println!(
        "{name}, seed {seed}: {} requests in {:.0} s, mean prompt {} tokens, {} chats or tasks; those open at one moment hold {:.0} k tokens",
        workload.requests.len(),
        workload.end_s(),
        workload.prompt_tokens_mean(),
        workload.chats,
        workload.open_tokens as f64 / 1e3,
    );
}

/// What the tables have no place for.
fn show(outcome: &Outcome) {
    for line in &outcome.peer_decisions {
        eprintln!("   {line}");
    }
    for text in outcome.error_texts.iter().take(3) {
        eprintln!("   failed: {text}");
    }
}

fn read(summary: &Path) -> Result<Vec<Row>> {
    let text = fs::read(summary).with_context(|| format!("{}: run without --keep first", summary.display()))?;
    Ok(serde_json::from_slice(&text)?)
}

/// The date, as the page states it: 2025-01-31.
fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%F"]).output().context("running date")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests;
