//! Soak and chaos from the command line: one run, its progress on the terminal, its report in a folder.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use warmroute_soak::options::Options;

/// Runs the plugin in Envoy under load while workers, configurations and clients fail, and checks that nothing is lost.
#[derive(Debug, Parser)]
#[command(name = "warmroute-soak")]
struct Flags {
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = Flags::parse().options;
    let report = warmroute_soak::run(&options, |line| println!("{line}")).await?;
    report.write(&options.folder)?;
    println!("\n{}", report.page());
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
