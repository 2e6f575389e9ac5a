//! The thread that load and workers share: on a machine of two cores the other one is left to the router.

use std::future::Future;
use std::thread;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime of its own; dropping it ends it.
pub(crate) struct LoadThread {
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl LoadThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("load".into()).spawn(move || {
            // An error says that the sender is gone, which is the same wish.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs `work` on the thread.
    ///
    /// # Errors
    /// Those of `work`, and when it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.runtime.spawn(work).await.map_err(|error| anyhow!(error)).context("on the load thread")?
    }
}

impl Drop for LoadThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
