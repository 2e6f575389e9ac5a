//! What a process has used: CPU time by the kernel's own clock, and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::ClockId;
use nix::unistd::Pid;

/// User and system time of all its threads since its start, those that have ended too. The clock counts nanoseconds;
/// `/proc/<id>/stat` counts ticks of 10 ms, of which a short burst has few.
///
/// # Errors
/// When there is no such process.
pub(crate) fn cpu_time(process_id: u32) -> Result<Duration> {
    let process = Pid::from_raw(i32::try_from(process_id)?);
    let clock = ClockId::pid_cpu_clock_id(process).with_context(|| format!("no CPU clock of process {process_id}"))?;
    Ok(clock.now()?.into())
}

/// The CPU time of several processes together.
///
/// # Errors
/// As [`cpu_time`].
pub(crate) fn cpu_time_of_all(process_ids: &[u32]) -> Result<Duration> {
    process_ids.iter().map(|&process_id| cpu_time(process_id)).sum()
}

/// Its memory that is in RAM now, MB of 10^6 bytes.
///
/// # Errors
/// When there is no such process.
pub(crate) fn resident_mb(process_id: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process_id}/status"))
        .with_context(|| format!("no status of process {process_id}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in a process's status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_and_memory_show() {
        let own = std::process::id();
        let before = cpu_time(own).unwrap();
        let mut sum = 0u64;
        while cpu_time(own).unwrap() < before + Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert_eq!(cpu_time_of_all(&[]).unwrap(), Duration::ZERO);
        assert!(cpu_time_of_all(&[own, own]).unwrap() > before * 2);
        assert!((1.0..100_000.0).contains(&resident_mb(own).unwrap()));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // Just above the highest process id that Linux can be told to use.
        let nobody = (1 << 22) + 1;
        assert!(cpu_time(nobody).is_err() && resident_mb(nobody).is_err());
    }
}
