//! The `worker-sim` program: any number of simulated workers in one process, until SIGINT or SIGTERM.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use worker_sim::{SimConfig, WorkerSim};

/// Simulated vLLM-like workers: OpenAI API, prefix cache, step timing, metrics, injectable faults.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// One worker on each of these ports, for instance 8001,8002
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["count", "base_port"])]
    ports: Vec<u16>,
    /// Number of workers, on consecutive ports from --base-port
    #[arg(long, default_value_t = 1)]
    count: u16,
    /// First port; 0 lets the system choose every port
    #[arg(long, default_value_t = 0)]
    base_port: u16,
    /// Threads that serve all workers; by default one per core
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    config: SimConfig,
}

impl Args {
    /// The ports to listen on.
    fn ports(&self) -> Result<Vec<u16>> {
        if !self.ports.is_empty() {
            return Ok(self.ports.clone());
        }
        if self.base_port == 0 {
            return Ok(vec![0; usize::from(self.count)]);
        }
        let port = |offset| self.base_port.checked_add(offset).context("--base-port plus --count is beyond 65535");
        (0..self.count).map(port).collect()
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        runtime.worker_threads(threads.max(1));
    }
    runtime.enable_all().build()?.block_on(run(&args))
}

async fn run(args: &Args) -> Result<()> {
    // Before the first line is printed: whoever reads it may send a signal at once.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut workers = Vec::new();
    for port in args.ports()? {
        let config = SimConfig { addr: SocketAddr::new(args.host, port), ..args.config.clone() };
        let worker = WorkerSim::start(config)?;
        println!("listening {}", worker.addr());
        workers.push(worker);
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    for worker in &mut workers {
        worker.stop().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_from_a_list_or_a_range() {
        let ports = |line: &str| Args::try_parse_from(line.split(' ')).map(|args| args.ports().ok());
        assert_eq!(ports("sim --ports 8001,8003").unwrap(), Some(vec![8001, 8003]));
        assert_eq!(ports("sim --count 3 --base-port 9000").unwrap(), Some(vec![9000, 9001, 9002]));
        assert_eq!(ports("sim --count 2").unwrap(), Some(vec![0, 0]));
        assert_eq!(ports("sim --count 2 --base-port 65535").unwrap(), None);
        assert!(ports("sim --ports 1 --count 2").is_err());
    }

    #[test]
    fn flags_reach_the_config_and_default_to_it() {
        let args = Args::try_parse_from(["sim", "--time-scale", "0.1", "--metrics-fault", "notFound", "--hang"]);
        let config = args.unwrap().config;
        assert!((config.timing.time_scale - 0.1).abs() < 1e-12 && config.faults.hang);
        let plain = Args::try_parse_from(["sim"]).unwrap().config;
        assert_eq!(format!("{plain:?}"), format!("{:?}", SimConfig::default()));
    }
}
