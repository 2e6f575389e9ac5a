//! Listens, serves, and scrapes the workers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::server::conn::http2;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};
use warmroute::engine::prometheus::PAGE_BYTES_MAX;
use warmroute::pool::PoolStatus;

use crate::picker::{self, Counts, Scrape};
use crate::service::Service;

/// A running picker, on a thread of its own. Dropping it ends it.
pub struct Server {
    address: SocketAddr,
    standing: Arc<Mutex<Standing>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How a picker stood at its last tick, at most a tenth of a second ago unless it is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Of its pool.
    pub pool: PoolStatus,
    /// What it has done so far.
    pub counts: Counts,
}

/// Starts a picker. `config` is the plugin's configuration, as JSON, with exactly one pool; that `poll.cluster` is set
/// says that the workers are scraped, its name does not matter.
///
/// # Errors
/// When the configuration is refused, or the address cannot be listened on.
pub fn start(config: &[u8], listen: SocketAddr) -> Result<Server> {
    let (config, standing) = (config.to_vec(), Arc::new(Mutex::new(Standing::default())));
    let (ready, started) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    let told = Arc::clone(&standing);
    // One thread, as one of Envoy's worker threads: several would only pass requests to each other.
    let thread = std::thread::Builder::new().name("picker".into()).spawn(move || {
        let begun = picker::install(&config).and_then(|()| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let listener = runtime.block_on(TcpListener::bind(listen));
            Ok((runtime, listener.with_context(|| format!("listening on {listen}"))?))
        });
        match begun {
            Ok((runtime, listener)) => {
                let _ = ready.send(listener.local_addr().context("the address that was picked"));
                runtime.spawn(scrape_all(told));
                runtime.spawn(serve(listener));
                let _ = runtime.block_on(stopped);
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    })?;
    let address = started.recv().context("the picker's thread ended")??;
    Ok(Server { address, standing, stop: Some(stop), thread: Some(thread) })
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it stood a moment ago.
    #[must_use]
    pub fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener) {
    while let Ok((connection, _)) = listener.accept().await {
        let _ = connection.set_nodelay(true);
        let mut server = http2::Builder::new(TokioExecutor::new());
        // Each stream is a request of Envoy's, which has one connection here for each of its threads: no limit may hold
        // them back. Large windows and frames, so that a prompt crosses in few pieces.
        server
            .timer(TokioTimer::new())
            .max_concurrent_streams(None)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(64 << 20)
            .max_frame_size(256 << 10);
        tokio::spawn(server.serve_connection(TokioIo::new(connection), Service));
    }
}

async fn scrape_all(standing: Arc<Mutex<Standing>>) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    // As the plugin's ticks.
    let tick_ms = picker::with(|picker| picker.router.config().poll.interval_ms / 5).unwrap_or_default().clamp(10, 100);
    let mut ticks = interval(Duration::from_millis(tick_ms.into()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The pages are this process's own, so no newer version can have written them.
        let ticked = picker::with(|picker| {
            let scrapes = picker.tick().unwrap_or_default();
            (scrapes, Standing { pool: picker.status(), counts: picker.counts })
        });
        let Some((scrapes, now)) = ticked else { return };
        *standing.lock().unwrap_or_else(PoisonError::into_inner) = now;
        for scrape in scrapes {
            let client = client.clone();
            tokio::spawn(async move {
                let limit = Duration::from_millis(scrape.timeout_ms.into());
                let page = timeout(limit, read_page(&client, &scrape)).await.ok().and_then(Result::ok);
                picker::with(|picker| picker.scraped(scrape.token, page.as_deref()));
            });
        }
    }
}

async fn read_page(client: &Client<HttpConnector, Empty<Bytes>>, scrape: &Scrape) -> Result<Bytes> {
    let response = client.get(format!("http://{}{}", scrape.address, scrape.path).parse()?).await?;
    ensure!(response.status() == 200, "status {}", response.status());
    let page = Limited::new(response.into_body(), PAGE_BYTES_MAX).collect().await;
    Ok(page.map_err(anyhow::Error::from_boxed)?.to_bytes())
}
