//! `make micro`: where a request's microseconds go in the plugin's VM, in a real Envoy.
//!
//! Runs the build with the feature `stage-times` and prints what it measured of itself, with the native stages' times of
//! the last `cargo bench` beside it.

mod native;
mod rows;
mod vm;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use warmroute_harness::artefacts::repository_root;

#[derive(Debug, Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Drive the plugin in Envoy and print what its stages take
    Vm(vm::Flags),
}

#[tokio::main]
async fn main() -> Result<()> {
    let Command::Vm(flags) = Arguments::parse().command;
    let native = native::medians_us(&target_folder().join("criterion"));
    let mut all = Vec::new();
    for &body_bytes in &flags.body_bytes {
        let run = vm::run(&flags, body_bytes).await?;
        let rows = rows::of_run(&run, &native);
        rows::print(&run, &rows);
        all.extend(rows.iter().map(rows::Row::to_json));
    }
    println!("Times are the VM's own; what its readings of the clock cost is taken out.");
    println!("What the host does between callbacks, and entering the VM, is in none of them: see `make bench`.");
    let path = repository_root().join("target/bench/stages.json");
    std::fs::create_dir_all(path.parent().context("is in a folder")?)?;
    std::fs::write(&path, serde_json::to_string_pretty(&all)?)?;
    println!("as JSON: target/bench/stages.json");
    Ok(())
}

/// Where cargo builds, and so criterion writes.
fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository_root().join("target"), PathBuf::from)
}
