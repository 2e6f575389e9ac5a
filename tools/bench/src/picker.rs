//! The endpoint picker as a process of its own, so that its CPU time can be read: this program once more, told to be it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The subcommand by which this program becomes a picker.
pub const SUBCOMMAND: &str = "endpoint-picker";

/// Serves until the input ends, whose first line is the plugin's configuration; the first line of the output says where.
///
/// # Errors
/// When the configuration is refused.
pub fn serve() -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let mut config = String::new();
    input.read_line(&mut config)?;
    let server = warmroute_endpoint_picker::start(config.as_bytes(), (Ipv4Addr::LOCALHOST, 0).into())?;
    println!("{}", server.address());
    std::io::stdout().flush()?;
    // Whoever started this holds the other end, so that it never outlives the benchmark.
    input.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A running picker. Dropping it ends the process.
pub(crate) struct Picker {
    child: Child,
    /// Where Envoy finds it.
    pub address: SocketAddr,
}

impl Picker {
    /// Starts one with the plugin's configuration.
    ///
    /// # Errors
    /// When it does not start or refuses the configuration, or when the program that is running is no `warmroute-bench`.
    pub(crate) fn start(plugin: &serde_json::Value) -> Result<Self> {
        let program = std::env::current_exe()?;
        let is_bench = program.file_name().is_some_and(|name| name == "warmroute-bench");
        ensure!(is_bench, "the endpoint picker runs only within warmroute-bench, not {}", program.display());
        let mut child = Command::new(program).arg(SUBCOMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answer = (|| {
            writeln!(child.stdin.as_mut().context("its input")?, "{plugin}")?;
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().context("its output")?).read_line(&mut line)?;
            line.trim().parse().context("the endpoint picker did not start")
        })();
        let unset = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut picker = Self { child, address: unset };
        picker.address = answer?;
        Ok(picker)
    }

    /// The process.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Picker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
