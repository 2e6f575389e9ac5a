//! The demo: the same load through Envoy with warmroute and through Envoy's own load balancing, and what the difference is.
//!
//! `make demo` runs it. It needs no GPU: the workers are simulated (tools/worker-sim), Envoy and the plugin are real.

mod decisions;
mod drive;
mod quality;
mod report;
mod run;
mod sse;
#[cfg(test)]
mod stickiness;
mod summary;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use warmroute::schedule::POLICIES;
use warmroute_harness::artefacts::repository_root;
use warmroute_harness::config::PlainPolicy;

use crate::run::{Balancer, Outcome, Setting, run};
use crate::summary::Summary;
use crate::workload::{Shape, Workload};

/// Sends one workload through Envoy with warmroute, then through Envoy's own round robin and least request, and compares.
#[derive(Debug, Parser)]
#[command(name = "warmroute-demo")]
struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    /// Decides the workload, every byte and every arrival
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Chats open at the same time
    #[arg(long, default_value_t = 72)]
    conversations: usize,
    /// Requests per second, on average, at time scale 1
    #[arg(long, default_value_t = 25.0)]
    rate: f64,
    /// Seconds in which requests arrive, at time scale 1
    #[arg(long, default_value_t = 30.0)]
    duration_s: f64,
    /// Stretches all time, arrivals and engines alike: 0.5 takes half as long
    #[arg(long, default_value_t = 1.0)]
    time_scale: f64,
    /// warmroute's policy
    #[arg(long, default_value = "hybrid", value_parser = policies())]
    policy: String,
    /// Envoy's worker threads, in all runs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Run warmroute only
    #[arg(long)]
    skip_baseline: bool,
}

/// What else the program does.
#[derive(Debug, Subcommand)]
enum Command {
    /// Measure how long the plugin takes for a decision, in its VM in Envoy
    Decisions(decisions::Flags),
    /// Compare routing by what users wait for, over HTTP, with Envoy's own policies and with other routers
    Quality(quality::Flags),
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(POLICIES.iter().map(|policy| policy.name))
}

impl Flags {
    fn shape(&self) -> Result<Shape> {
        for (name, value) in [("rate", self.rate), ("duration-s", self.duration_s), ("time-scale", self.time_scale)] {
            ensure!(value.is_finite() && value > 0.0, "--{name} is {value}, must be above 0");
        }
        ensure!((1..=10_000).contains(&self.conversations), "--conversations must be 1 to 10000");
        let requests = self.rate * self.duration_s;
        ensure!(requests <= 100_000.0, "--rate times --duration-s is {requests:.0} requests, must be at most 100000");
        let Self { seed, conversations, rate: rate_per_s, duration_s, .. } = *self;
        Ok(Shape { seed, conversations, rate_per_s, duration_s })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    // A signal must not leave an Envoy behind: what it interrupts is dropped, and dropping ends what was started.
    let ended = tokio::select! {
        ended = async {
            match &flags.command {
                Some(Command::Decisions(flags)) => decisions::measure(flags).await,
                Some(Command::Quality(flags)) => quality::measure(flags).await,
                None => demo(&flags).await,
            }
        } => ended,
        signal = interrupted() => signal,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nIt failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminated.recv() => {}
    }
    bail!("it was interrupted")
}

async fn demo(flags: &Flags) -> Result<()> {
    let shape = flags.shape()?;
    let files = repository_root().join("target/demo");
    let workload = Workload::generate(&shape);
    println!("{}", report::header(&shape, &workload, flags.time_scale));

    let Flags { time_scale, threads: envoy_threads, .. } = *flags;
    let setting = Setting { time_scale, envoy_threads, with_session: false, with_render: false, files: &files };
    println!("== Envoy with warmroute, policy {}", flags.policy);
    let warmroute = run(Balancer::Warmroute(&flags.policy), &workload, &setting).await?;
    println!("{}", report::workers(&warmroute));
    println!("Why the workers were chosen (wasmcustom.warmroute_decision_*_total in Envoy's /stats)");
    println!("{}", report::decisions(&warmroute));
    if let Some(prediction) = &warmroute.prediction {
        println!("{}", report::prediction(prediction));
    }
    if let Some(answer) = &warmroute.example {
        println!("One more request, with responseHeaders: true");
        println!("{}", report::example(&workload.example, answer));
    }

    let mut baselines = Vec::new();
    let policies = [("round robin", PlainPolicy::RoundRobin), ("least request", PlainPolicy::LeastRequest)];
    for (name, policy) in policies.into_iter().filter(|_| !flags.skip_baseline) {
        println!("== The same workload, new workers, Envoy's own {name}");
        let outcome = run(Balancer::Envoy(policy), &workload, &setting).await?;
        println!("{}", report::workers(&outcome));
        baselines.push((name, outcome));
    }

    println!("== Side by side (TTFT: time to the first byte of content)");
    println!("{}", report::totals(&flags.policy, &warmroute, &baselines));
    let summary = write_summary(&files, &Summary::new(&warmroute, &baselines))?;
    println!("Summary  {}", summary.display());
    println!("Envoy    {}, the configuration with warmroute", files.join("envoy.json").display());
    refuse_errors(std::iter::once(&warmroute).chain(baselines.iter().map(|(_, outcome)| outcome)))
}

fn write_summary(files: &Path, summary: &Summary) -> Result<PathBuf> {
    let path = files.join("summary.json");
    fs::create_dir_all(files)?;
    fs::write(&path, serde_json::to_string_pretty(summary)? + "\n")
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn refuse_errors<'o>(outcomes: impl Iterator<Item = &'o Outcome> + Clone) -> Result<()> {
    let errors: usize = outcomes.clone().map(|outcome| outcome.errors).sum();
    let texts: Vec<&str> = outcomes.flat_map(|outcome| &outcome.error_texts).take(5).map(String::as_str).collect();
    ensure!(errors == 0, "{errors} requests failed, among them:\n{}", texts.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_of_the_plugin_can_be_chosen_and_no_other() {
        let parse = |policy: &str| Flags::try_parse_from(["warmroute-demo", "--policy", policy]);
        assert!(POLICIES.iter().all(|policy| parse(policy.name).is_ok()));
        assert!(parse("guess").is_err());
    }

    #[test]
    fn flags_out_of_range_are_refused_by_name() {
        for (flag, value) in
            [("--rate", "0"), ("--time-scale", "nan"), ("--duration-s", "inf"), ("--conversations", "0")]
        {
            let flags = Flags::try_parse_from(["warmroute-demo", flag, value]).unwrap();
            assert!(flags.shape().unwrap_err().to_string().contains(flag), "{flag} {value}");
        }
    }
}
