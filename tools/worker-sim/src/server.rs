//! A worker's life: its listener, its connections, its engine loop, and how they start, restart and are killed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use hyper::header::HeaderValue;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::body::Cut;
use crate::config::SimConfig;
use crate::engine::Engine;
use crate::faults::{ErrorDice, Faults, MetricsFault};
use crate::responses::ResponseStore;
use crate::routes::{Connection, handle};
use crate::stats::{Stats, StatsSnapshot};

const LISTEN_BACKLOG: u32 = 1024;
/// Streams that one HTTP/2 connection may have open; Envoy puts all of a worker thread's requests on one.
const HTTP2_STREAMS_MAX: u32 = 4096;

/// What all connections of a worker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: SimConfig,
    pub(crate) engine: Arc<Engine>,
    pub(crate) stats: Arc<Stats>,
    /// What of the Responses API this process keeps.
    pub(crate) responses: Arc<ResponseStore>,
    faults: watch::Sender<Faults>,
    /// Every send cuts the connections that are open.
    cut: watch::Sender<()>,
    process: Mutex<Process>,
    dice: Mutex<ErrorDice>,
    answers: AtomicU64,
}

/// The simulated process: replaced by a restart.
#[derive(Debug, Clone, Copy)]
struct Process {
    start_time_s: f64,
    /// From when `startDelayMs` counts.
    delay_from: Instant,
}

impl Process {
    fn new() -> Self {
        Self { start_time_s: unix_time_s(), delay_from: Instant::now() }
    }
}

/// Seconds since the epoch; 0 on a clock before it.
pub(crate) fn unix_time_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Shared {
    fn new(config: SimConfig) -> Self {
        Self {
            engine: Arc::new(Engine::new(config.clone())),
            stats: Arc::default(),
            responses: Arc::default(),
            faults: watch::Sender::new(config.faults),
            cut: watch::Sender::new(()),
            process: Mutex::new(Process::new()),
            dice: Mutex::new(ErrorDice::new(config.seed)),
            answers: AtomicU64::new(0),
            config,
        }
    }

    pub(crate) fn faults(&self) -> Faults {
        *self.faults.borrow()
    }

    pub(crate) fn set_faults(&self, faults: Faults) -> Result<()> {
        faults.validate()?;
        lock(&self.process).delay_from = Instant::now();
        self.faults.send_replace(faults);
        Ok(())
    }

    /// A new process in place of the old one: empty cache and queue, zero metrics, no connections.
    pub(crate) fn restart(&self) {
        self.cut.send_replace(());
        self.engine.restart();
        self.responses.clear();
        *lock(&self.process) = Process::new();
    }

    pub(crate) fn snapshot(&self) -> StatsSnapshot {
        self.stats.snapshot(&self.engine.state())
    }

    pub(crate) fn start_time_s(&self) -> f64 {
        lock(&self.process).start_time_s
    }

    pub(crate) fn is_starting(&self) -> bool {
        let delay_ms = self.faults().start_delay_ms;
        delay_ms > 0 && lock(&self.process).delay_from.elapsed() < Duration::from_millis(delay_ms)
    }

    pub(crate) fn draws_error(&self) -> bool {
        let rate = self.faults().error_rate;
        rate > 0.0 && lock(&self.dice).fails(rate)
    }

    /// Unique among the answers of this worker, and unlikely to be another worker's.
    pub(crate) fn next_answer_id(&self) -> u64 {
        let count = self.answers.fetch_add(1, Ordering::Relaxed);
        count.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.start_time_s().to_bits()
    }

    /// Returns once `hang` is off.
    pub(crate) async fn not_hanging(&self) -> Result<(), Cut> {
        self.until(|faults| !faults.hang).await
    }

    /// Returns once `/metrics` does not hang.
    pub(crate) async fn metrics_not_hanging(&self) -> Result<(), Cut> {
        self.until(|faults| faults.metrics != MetricsFault::Hang).await
    }

    async fn until(&self, well: impl Fn(&Faults) -> bool) -> Result<(), Cut> {
        if well(&self.faults.borrow()) {
            return Ok(());
        }
        self.faults.subscribe().wait_for(|faults| well(faults)).await.map(drop).map_err(|_| Cut)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One simulated worker. Dropping it kills it; its tasks run on the runtime that started it.
#[derive(Debug)]
pub struct WorkerSim {
    shared: Arc<Shared>,
    addr: SocketAddr,
    process: Option<Running>,
}

/// Dropping it closes the listener and the connections, and ends the engine loop, soon after.
#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    accept: JoinHandle<()>,
    engine: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.abort();
    }
}

impl WorkerSim {
    /// Starts a worker on `config.addr`, on the current tokio runtime. It accepts connections when this returns.
    ///
    /// # Errors
    /// If the configuration is out of range or the address cannot be had.
    ///
    /// # Panics
    /// Outside a tokio runtime, as tokio does.
    pub fn start(config: SimConfig) -> Result<Self> {
        config.validate()?;
        let addr = config.addr;
        let mut sim = Self { shared: Arc::new(Shared::new(config)), addr, process: None };
        sim.listen(addr)?;
        Ok(sim)
    }

    /// Starts again after [`Self::stop`] on this address, usually the old one, as a new process with an empty cache.
    /// Faults and statistics are kept.
    ///
    /// # Errors
    /// If the worker is running or the address cannot be had.
    pub fn start_at(&mut self, addr: SocketAddr) -> Result<()> {
        if self.process.is_some() {
            bail!("the worker on {} is running", self.addr);
        }
        self.shared.restart();
        self.listen(addr)
    }

    fn listen(&mut self, addr: SocketAddr) -> Result<()> {
        let listener = bind(addr).with_context(|| format!("cannot listen on {addr}"))?;
        self.addr = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let engine = tokio::spawn(Arc::clone(&self.shared.engine).run(self.shared.faults.subscribe()));
        let accept = tokio::spawn(accept(Arc::clone(&self.shared), listener, stopped));
        self.process = Some(Running { stop, accept, engine });
        Ok(())
    }

    /// Where the worker listens, or listened last.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What `GET /sim/stats` answers.
    #[must_use]
    pub fn stats(&self) -> StatsSnapshot {
        self.shared.snapshot()
    }

    /// Replaces the faults in force; `Faults::default()` heals. Requests held by a hang go on when it ends.
    ///
    /// # Errors
    /// If the faults are out of range; the old ones stay.
    pub fn set_faults(&self, faults: Faults) -> Result<()> {
        self.shared.set_faults(faults)
    }

    /// Restarts the simulated process at once: all connections are cut, the cache is empty, the metrics are zero and
    /// the process start time is new. Faults and statistics are kept.
    pub fn restart(&self) {
        self.shared.restart();
    }

    /// Zeroes the statistics and empties the prefix cache; running requests go on.
    pub fn reset(&self) {
        self.shared.stats.reset();
        self.shared.engine.reset();
    }

    /// Kills the worker: when this returns, its port is closed and its connections are cut. Without effect on one that
    /// is stopped.
    pub async fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let (stop, _) = oneshot::channel();
            drop(std::mem::replace(&mut process.stop, stop));
            // Only a panic in the task makes this an error, and then it has ended as well.
            let _ = (&mut process.accept).await;
            self.shared.restart();
        }
    }
}

fn bind(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A killed worker's connections may linger in TIME_WAIT; its successor takes the port all the same.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Accepts until `stopped`, then closes the listener and cuts every connection.
async fn accept(shared: Arc<Shared>, listener: TcpListener, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // Both a message and a dropped sender mean the end.
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(Arc::clone(&shared), stream))),
                // Out of file descriptors, most likely: wait for some to be closed.
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// Serves one connection until it ends or is cut. A cut closes the socket as the death of a process does.
async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let mut cut = shared.cut.subscribe();
    let _ = stream.set_nodelay(true);
    let Ok(local) = stream.local_addr() else { return };
    let Ok(worker) = HeaderValue::from_str(&local.to_string()) else { return };
    let context = Arc::new(Connection { worker, spared: AtomicBool::new(false) });
    let service = service_fn(|request| handle(Arc::clone(&shared), Arc::clone(&context), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(HTTP2_STREAMS_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    loop {
        tokio::select! {
            // The end of a connection, also a broken one, is the client's business.
            _ = &mut connection => return,
            changed = cut.changed() => {
                if changed.is_err() || !context.spared.swap(false, Ordering::Relaxed) {
                    return;
                }
            }
        }
    }
}
