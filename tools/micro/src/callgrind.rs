//! Counts the instructions of the stages: this process runs them all under valgrind's callgrind, which collects in
//! `measured` alone and writes what it collected each time that function returns.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::baseline::Counts;
use crate::stages::NativeStage;

/// Argument that tells the process that it is the one that is counted.
pub const COUNTED: &str = "counted";

/// Scratch space grows to its size and pages come into being before a stage is counted.
const WARM_UP_RUNS: usize = 3;

/// Its name as callgrind has it. A pattern would do to collect, but not to write what was collected.
const MEASURED: &str = "warmroute_micro::callgrind::measured";

/// What the C library may choose by the processor would count differently on another machine.
const NO_PROCESSOR_CHOICES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load";

/// Runs `stage` once. The one place where callgrind collects.
#[inline(never)]
fn measured(stage: &mut dyn FnMut() -> u64) -> u64 {
    // Not the last thing that it does, or the call would become a jump and this function none.
    black_box(stage())
}

/// Runs all stages, each warmed up, and prints their names in that order.
pub fn run_counted(stages: Vec<NativeStage>) {
    for mut stage in stages {
        for _ in 0..WARM_UP_RUNS {
            black_box((stage.run)());
        }
        black_box(measured(&mut *stage.run));
        println!("{}", stage.name());
    }
}

/// Counts the instructions of all stages, in a process of `program` under callgrind that leaves its files in `folder`.
///
/// # Errors
/// When valgrind is missing or fails, or what it wrote does not fit the stages.
pub fn count(program: &Path, folder: &Path) -> Result<Counts> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        fs::remove_file(entry?.path())?;
    }
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", folder.join("out").display()))
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(format!("--dump-after={MEASURED}"))
        .arg(program)
        .arg(COUNTED)
        .env_clear()
        .env("GLIBC_TUNABLES", NO_PROCESSOR_CHOICES)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .context("running valgrind; Debian's package has that name")?;
    ensure!(output.status.success(), "valgrind: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    let mut dumps = Vec::new();
    for entry in fs::read_dir(folder)? {
        dumps.extend(read_dump(&fs::read_to_string(entry?.path())?));
    }
    dumps.sort_unstable();
    let names = String::from_utf8(output.stdout)?;
    let names: Vec<&str> = names.lines().collect();
    ensure!(dumps.len() == names.len(), "{} stages ran, callgrind counted {}", names.len(), dumps.len());
    let counts: Counts = names.iter().zip(dumps).map(|(name, (_, count))| ((*name).to_owned(), count)).collect();
    ensure!(counts.len() == names.len(), "two stages have one name: {names:?}");
    Ok(counts)
}

/// A dump's number and its instructions; `None` for a dump that is not of `measured`, as the last one, at the end.
fn read_dump(text: &str) -> Option<(u32, u64)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    field("desc: Trigger: ").filter(|trigger| trigger.ends_with(MEASURED))?;
    Some((field("part: ")?.trim().parse().ok()?, field("totals: ")?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_of_the_measured_function_are_read_and_others_are_not() {
        let of = |trigger: &str| format!("# callgrind format\npart: 12\ndesc: Trigger: {trigger}\n\ntotals: 4711\n");
        assert_eq!(read_dump(&of("--dump-after=warmroute_micro::callgrind::measured")), Some((12, 4_711)));
        assert_eq!(read_dump(&of("Program termination")), None);
    }
}
