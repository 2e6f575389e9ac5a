//! `make bench` runs it: the cost of the plugin beside plain Envoy and other routers.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use warmroute_bench::{cost, growth, page, picker};

/// Measures what the plugin costs.
#[derive(Debug, Parser)]
#[command(name = "warmroute-bench")]
struct Command {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// CPU, latency and memory for each request, beside plain Envoy and other routers
    Cost(cost::Flags),
    /// How the cost grows with bodies, workers, index, threads and metrics pages
    Growth(growth::Flags),
    /// Write the page about costs from what was measured
    Render(page::Flags),
    /// What this program starts itself as, for the path of that name
    #[command(name = picker::SUBCOMMAND, hide = true)]
    EndpointPicker,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> ExitCode {
    match run(Command::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    // 512 workers and the connections that several routers keep to each of them.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let work = async {
        match command.subject {
            Subject::Cost(flags) => cost::measure(&flags).await.map(drop),
            Subject::Growth(flags) => growth::measure(&flags).await,
            Subject::Render(flags) => page::render(&flags),
            Subject::EndpointPicker => picker::serve(),
        }
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Dropping the work ends the processes that it started.
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("ended"),
    }
}
