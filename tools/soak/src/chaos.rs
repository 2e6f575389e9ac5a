//! Injects the planned faults, heals them, and writes both down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpSocket;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use worker_sim::{Faults, SimConfig, Timing, WorkerSim};

use crate::fault::Inject;
use crate::gateway::Gateway;
use crate::journal::Journal;
use crate::plan::{Planned, Stretch};
use crate::relay::Passing;

/// How long a worker that left the pool may still have requests: the longest stream takes a few seconds.
const DRAIN_MAX: Duration = Duration::from_secs(15);
/// How long another process may have a worker's port.
const PORT_MAX: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The workers and the gateway, as those who do harm to them see them.
pub(crate) struct Chaos {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) journal: Arc<Journal>,
    /// By number; spares last, which do not run.
    pub(crate) workers: Vec<Mutex<WorkerSim>>,
}

/// An engine that is quick to begin and takes 3 ms a token, however much it has to do: load is not what is tested.
pub(crate) fn engine() -> SimConfig {
    let timing = Timing { step_base_us: 3_000.0, prefill_us_per_token: 0.2, decode_us_per_seq: 0.0, time_scale: 1.0 };
    SimConfig { timing, metrics_filler_bytes: 16_000, ..SimConfig::default() }
}

impl Chaos {
    /// Injects and heals all faults of a stretch; returns when it is over.
    pub(crate) async fn run(self: &Arc<Self>, stretch: &Stretch) {
        let (start, mut faults) = (Instant::now(), JoinSet::new());
        for planned in stretch.faults.iter().copied() {
            let chaos = Arc::clone(self);
            faults.spawn(async move {
                sleep_until(start + Duration::from_millis(planned.at_ms)).await;
                chaos.one(planned).await;
            });
        }
        while let Some(ended) = faults.join_next().await {
            if let Err(panic) = ended {
                self.journal.violated(format!("a fault's task ended: {panic}"));
            }
        }
        sleep_until(start + Duration::from_millis(stretch.length_ms)).await;
    }

    async fn one(&self, planned: Planned) {
        let fault = planned.fault();
        let worker = match planned.worker.and_then(|number| self.workers.get(number)) {
            Some(worker) => Some(worker.lock().await.addr()),
            None => None,
        };
        let id = self.journal.injected(fault, worker);
        if let Err(error) = self.inject_and_heal(planned).await {
            self.journal.violated(format!("{}: {error:#}", fault.name));
        }
        self.journal.healed(id);
    }

    async fn inject_and_heal(&self, planned: Planned) -> Result<()> {
        let lasts = Duration::from_millis(planned.lasts_ms);
        match (planned.fault().inject, planned.worker.and_then(|number| self.workers.get(number))) {
            (Inject::SwapConfig, _) => self.gateway.swap_config().await,
            (Inject::SwapBinary, _) => self.gateway.swap_binary().await,
            (Inject::BadConfig, _) => self.gateway.push_bad_config().await,
            (Inject::AdminCut, _) => self.break_admin(Passing::Cut, lasts).await,
            (Inject::AdminSilent, _) => self.break_admin(Passing::Silent, lasts).await,
            (inject, Some(worker)) => self.harm(inject, &mut *worker.lock().await, lasts).await,
            (_, None) => Ok(()),
        }
    }

    async fn break_admin(&self, passing: Passing, lasts: Duration) -> Result<()> {
        self.gateway.break_admin(passing);
        sleep(lasts).await;
        self.gateway.restore_admin()
    }

    async fn harm(&self, inject: Inject, worker: &mut WorkerSim, lasts: Duration) -> Result<()> {
        let address = worker.addr();
        match inject {
            Inject::Kill => {
                worker.stop().await;
                let port = hold(address)?;
                sleep(lasts).await;
                start_again(worker, port).await?;
            }
            Inject::Hang => faulty(worker, Faults { hang: true, ..Faults::default() }, lasts).await?,
            Inject::SlowStart => {
                let start_delay_ms = u64::try_from(lasts.as_millis())?;
                worker.set_faults(Faults { start_delay_ms, ..Faults::default() })?;
                worker.restart();
                sleep(lasts).await;
                worker.set_faults(Faults::default())?;
            }
            Inject::Restart => worker.restart(),
            Inject::Metrics(metrics) => faulty(worker, Faults { metrics, ..Faults::default() }, lasts).await?,
            Inject::ScaleDown => {
                let port = self.leave(worker).await?;
                sleep(lasts).await;
                start_again(worker, port).await?;
                self.gateway.add_worker(address).await?;
            }
            Inject::ScaleUp => {
                // A spare was started once to get its port.
                start_again(worker, hold(address)?).await?;
                self.gateway.add_worker(address).await?;
                sleep(lasts).await;
                drop(self.leave(worker).await?);
            }
            Inject::AdminCut | Inject::AdminSilent | Inject::SwapConfig | Inject::SwapBinary | Inject::BadConfig => {}
        }
        Ok(())
    }

    /// Takes a worker out of the pool and stops it when it has answered all that it had.
    async fn leave(&self, worker: &mut WorkerSim) -> Result<TcpSocket> {
        self.gateway.remove_worker(worker.addr()).await?;
        // Threads take the change a moment after the main thread.
        sleep(5 * LOOK_INTERVAL).await;
        let deadline = Instant::now() + DRAIN_MAX;
        loop {
            let stats = worker.stats();
            if stats.running + stats.waiting == 0 {
                break;
            }
            ensure!(Instant::now() < deadline, "{} still has requests {DRAIN_MAX:?} after it left", worker.addr());
            sleep(LOOK_INTERVAL).await;
        }
        // What is answered may still be on its way.
        sleep(LOOK_INTERVAL).await;
        worker.stop().await;
        hold(worker.addr())
    }
}

async fn faulty(worker: &WorkerSim, faults: Faults, lasts: Duration) -> Result<()> {
    worker.set_faults(faults)?;
    sleep(lasts).await;
    worker.set_faults(Faults::default())
}

/// Keeps a stopped worker's port from being given to a connection of somebody else; connections to it are refused.
fn hold(address: SocketAddr) -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("holding the port of {address}"))?;
    Ok(socket)
}

async fn start_again(worker: &mut WorkerSim, port: TcpSocket) -> Result<()> {
    let (address, deadline) = (worker.addr(), Instant::now() + PORT_MAX);
    while let Err(error) = worker.start_at(address) {
        ensure!(Instant::now() < deadline, "{error:#}");
        sleep(LOOK_INTERVAL).await;
    }
    drop(port);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_held_port_refuses_connections_until_its_worker_starts_again() {
        let mut worker = WorkerSim::start(engine()).unwrap();
        let address = worker.addr();
        for _ in 0..3 {
            assert!(TcpStream::connect(address).await.is_ok());
            worker.stop().await;
            let port = hold(address).unwrap();
            assert!(TcpStream::connect(address).await.is_err());
            start_again(&mut worker, port).await.unwrap();
        }
        assert!(TcpStream::connect(address).await.is_ok());
    }
}
