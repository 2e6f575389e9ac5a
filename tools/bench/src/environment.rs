//! What the figures were measured on, for `environment.json` beside them.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use warmroute_harness::artefacts::Artefacts;

/// The machine, the versions and the command: `environment.json`; what the file lacks is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Environment {
    /// UTC, at the start.
    pub date: String,
    /// As typed.
    pub command_line: Vec<String>,
    /// Cores that this process may use.
    pub cores: usize,
    /// The first core's name.
    pub processor: String,
    /// `Linux 6.1..`
    pub kernel: String,
    /// As Envoy prints it.
    pub envoy: String,
    /// Bytes of the plugin.
    pub plugin_bytes: u64,
    /// Of the last minute, before the first burst: what else ran.
    pub load_average_before: String,
    /// After the last one.
    pub load_average_after: String,
    /// How far `envoy/round-robin` lies apart over the rounds of a cell, as a share of its median: the highest of all cells.
    pub cpu_noise_max: f64,
}

impl Environment {
    /// What is known before a run.
    pub(crate) fn before(plugin: Option<&std::path::Path>) -> Self {
        let artefacts = Artefacts::find().ok();
        let plugin = plugin.or_else(|| artefacts.as_ref().and_then(|artefacts| artefacts.wasm().ok()));
        let processor = read("/proc/cpuinfo");
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command_line: std::env::args().skip(1).collect(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: processor.map_or_else(String::new, |(_, name)| name.to_owned()),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            envoy: artefacts.as_ref().map_or_else(String::new, |artefacts| envoy_version(&artefacts.envoy)),
            plugin_bytes: plugin.and_then(|plugin| fs::metadata(plugin).ok()).map_or(0, |file| file.len()),
            load_average_before: load_average(),
            load_average_after: String::new(),
            cpu_noise_max: 0.0,
        }
    }
}

/// Of the last minute.
pub(crate) fn load_average() -> String {
    read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned()
}

/// What cannot be read is left out: the figures are worth keeping without it.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn envoy_version(envoy: &std::path::Path) -> String {
    let output = Command::new(envoy).arg("--version").output();
    let text = output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.lines()
        .find_map(|line| line.split_once("version: "))
        .map_or_else(String::new, |(_, version)| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known() {
        let environment = Environment::before(None);
        assert!(environment.cores > 0 && environment.kernel.len() > "Linux ".len(), "{environment:?}");
        assert!(environment.date.ends_with('Z') && environment.load_average_before.parse::<f64>().is_ok());
    }
}
