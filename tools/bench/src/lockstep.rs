//! Keeps a streaming worker one event ahead of its reader.
//!
//! A worker that wrote as fast as it can would fill the sockets, the router would read dozens of events at once, and what
//! one event costs it would vanish. Real tokens come one by one.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Streams at a time: each has a number below this, which its request tells the worker.
pub(crate) const STREAMS_MAX: usize = 512;

/// How many events the reader of each stream has got.
pub(crate) struct Lockstep {
    streams: Vec<Stream>,
}

#[derive(Default)]
struct Stream {
    received: AtomicU64,
    changed: Notify,
}

impl Lockstep {
    /// Nothing received.
    pub(crate) fn new() -> Self {
        Self { streams: (0..STREAMS_MAX).map(|_| Stream::default()).collect() }
    }

    /// The reader has got so many more events.
    pub(crate) fn received(&self, stream: usize, events: u64) {
        if let Some(stream) = self.streams.get(stream).filter(|_| events > 0) {
            stream.received.fetch_add(events, Ordering::AcqRel);
            stream.changed.notify_one();
        }
    }

    /// What has been received so far, of this stream and those before it under the same number.
    pub(crate) fn so_far(&self, stream: usize) -> u64 {
        self.streams.get(stream).map_or(0, |stream| stream.received.load(Ordering::Acquire))
    }

    /// Waits until `events` have been received in all. For one writer at a time; a number out of range waits for nothing.
    pub(crate) async fn wait(&self, stream: usize, events: u64) {
        let Some(stream) = self.streams.get(stream) else { return };
        while stream.received.load(Ordering::Acquire) < events {
            stream.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn the_writer_waits_for_its_own_reader() {
        let lockstep = Arc::new(Lockstep::new());
        lockstep.received(3, 2);
        assert_eq!((lockstep.so_far(3), lockstep.so_far(4)), (2, 0));
        lockstep.wait(3, 2).await;
        let writer = tokio::spawn({
            let lockstep = Arc::clone(&lockstep);
            async move { lockstep.wait(3, 4).await }
        });
        lockstep.received(4, 9);
        lockstep.received(3, 1);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!writer.is_finished(), "only 3 of 4 have been received");
        lockstep.received(3, 1);
        writer.await.unwrap();
    }
}
