//! `make instructions`: counts the instructions of all native stages and holds them to `instructions.json`.
//!
//! With `accept` the counts become the baseline instead.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use warmroute_micro::baseline::Baseline;
use warmroute_micro::callgrind::{self, COUNTED};

fn main() -> Result<ExitCode> {
    let argument = env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        COUNTED => callgrind::run_counted(warmroute_micro::all()?),
        "" | "accept" => return guard(argument == "accept"),
        other => anyhow::bail!("{other}: expected nothing, or accept"),
    }
    Ok(ExitCode::SUCCESS)
}

fn guard(is_accepting: bool) -> Result<ExitCode> {
    let program = env::current_exe()?;
    let folder = program.parent().context("the program is in a folder")?.join("callgrind");
    let new = Baseline {
        compiler: compiler()?,
        architecture: env::consts::ARCH.to_owned(),
        instructions: callgrind::count(&program, &folder)?,
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json");
    if is_accepting {
        fs::write(&path, new.to_json())?;
        println!("{} stages are the baseline now: tools/micro/instructions.json", new.instructions.len());
        return Ok(ExitCode::SUCCESS);
    }
    let text = fs::read_to_string(&path).context("no baseline; make one: make instructions ACCEPT=1")?;
    let verdict = Baseline::from_json(&text)?.compare(&new);
    println!("{}", verdict.message);
    Ok(if verdict.is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The compiler that cargo uses, as it says itself.
fn compiler() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().context("running rustc")?;
    ensure!(output.status.success(), "rustc --version: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
