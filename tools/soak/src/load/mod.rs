//! Clients: what they send, and what they make of the answers.

mod abort;
mod conversation;
mod exchange;
mod hostile;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use warmroute::rng::Rng;
use warmroute_harness::client::Client;

use crate::journal::Journal;
use crate::tally::{Outcome, Tally};
use conversation::Conversation;

/// Most of the conversations of one client that are open at a time.
const CONVERSATIONS: usize = 3;
/// Between two requests of a client: it is no benchmark.
const PAUSE_MS: (u32, u32) = (10, 50);

/// One kind of request.
#[derive(Debug)]
pub struct Kind {
    /// As in the report.
    pub name: &'static str,
    /// Whether it is a fault that a client makes.
    pub is_fault: bool,
    what: What,
    /// Of all requests, percent.
    share: u32,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Chat,
    Stream,
    Large,
    HostileBody,
    HostileHead,
    AbortedUpload,
    AbortedWait,
    AbortedStream,
}

/// All of them; the shares add up to 100.
pub const KINDS: &[Kind] = &[
    Kind { name: "chat", is_fault: false, what: What::Chat, share: 40 },
    Kind { name: "stream", is_fault: false, what: What::Stream, share: 23 },
    Kind { name: "large body", is_fault: false, what: What::Large, share: 8 },
    Kind { name: "hostile body", is_fault: true, what: What::HostileBody, share: 9 },
    Kind { name: "hostile head", is_fault: true, what: What::HostileHead, share: 5 },
    Kind { name: "client leaves in its upload", is_fault: true, what: What::AbortedUpload, share: 5 },
    Kind { name: "client leaves before the answer", is_fault: true, what: What::AbortedWait, share: 5 },
    Kind { name: "client leaves in a stream", is_fault: true, what: What::AbortedStream, share: 5 },
];

fn draw(rng: &mut Rng) -> &'static Kind {
    let mut point = rng.below(KINDS.iter().map(|kind| kind.share).sum());
    for kind in KINDS {
        match point.checked_sub(kind.share) {
            Some(rest) => point = rest,
            None => return kind,
        }
    }
    &KINDS[0]
}

/// The clients of a run.
pub(crate) struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

struct Shared {
    gateway: SocketAddr,
    journal: Arc<Journal>,
    tally: Arc<Tally>,
    /// Read while a request is under way, written while there may be none.
    gate: RwLock<()>,
    is_over: AtomicBool,
}

impl Load {
    /// Starts so many clients.
    pub(crate) fn start(
        clients: usize,
        seed: u64,
        gateway: SocketAddr,
        journal: &Arc<Journal>,
        tally: &Arc<Tally>,
    ) -> Self {
        let (journal, tally) = (Arc::clone(journal), Arc::clone(tally));
        let shared =
            Arc::new(Shared { gateway, journal, tally, gate: RwLock::default(), is_over: AtomicBool::new(false) });
        let user = |number: usize| User::new(&shared, number, seed).run();
        Self { clients: (0..clients).map(user).collect(), shared }
    }

    /// Lets no request begin, and waits until none is under way; they may begin again when what it returns is dropped.
    /// `None` if some are still under way after `limit`.
    pub(crate) async fn pause(&self, limit: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        timeout(limit, self.shared.gate.write()).await.ok()
    }

    /// Lets no client begin another request, ever.
    pub(crate) fn end(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until all clients have ended.
    pub(crate) async fn join(mut self) {
        self.end();
        while self.clients.join_next().await.is_some() {}
    }
}

/// One client.
struct User {
    shared: Arc<Shared>,
    client: Client,
    rng: Rng,
    conversations: Vec<Conversation>,
}

impl User {
    fn new(shared: &Arc<Shared>, number: usize, seed: u64) -> Self {
        let client = if number % 3 == 2 { Client::http2(shared.gateway) } else { Client::http1(shared.gateway) };
        let rng = Rng::new(warmroute::rng::mix(seed) ^ number as u64);
        Self { shared: Arc::clone(shared), client, rng, conversations: Vec::new() }
    }

    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let under_way = shared.gate.read().await;
            if shared.is_over.load(Ordering::Relaxed) {
                return;
            }
            let (kind, start) = (draw(&mut self.rng), Instant::now());
            let outcome = self.send(kind.what).await;
            shared.tally.ended(kind.name, &outcome, start.elapsed());
            if let Outcome::Lost(why) | Outcome::Corrupt(why) = outcome {
                shared.journal.violated(format!("{} after {:.1} s: {why}", kind.name, start.elapsed().as_secs_f64()));
            }
            drop(under_way);
            let (shortest, longest) = PAUSE_MS;
            sleep(Duration::from_millis(u64::from(shortest + self.rng.below(longest - shortest)))).await;
        }
    }

    async fn send(&mut self, what: What) -> Outcome {
        match what {
            What::Chat => self.chat(false).await,
            What::Stream => self.chat(true).await,
            What::Large => self.large().await,
            What::HostileBody => self.hostile_body().await,
            What::HostileHead => self.hostile_head().await,
            What::AbortedUpload => self.leave_upload().await,
            What::AbortedWait => self.leave_waiting().await,
            What::AbortedStream => self.leave_stream().await,
        }
    }

    /// One of the open conversations, a new one in place of one that has become long.
    fn conversation(&mut self) -> usize {
        if self.conversations.len() < CONVERSATIONS {
            self.conversations.push(Conversation::new(&mut self.rng));
            return self.conversations.len() - 1;
        }
        let number = self.rng.below(CONVERSATIONS as u32) as usize;
        if self.conversations[number].is_long() {
            self.conversations[number] = Conversation::new(&mut self.rng);
        }
        number
    }

    /// The next turn of a conversation; the answer becomes part of it.
    async fn chat(&mut self, is_stream: bool) -> Outcome {
        let number = self.conversation();
        let max_tokens = if !is_stream { 4 } else { [20, 60, 150, 600][self.rng.below(4) as usize] };
        let conversation = &mut self.conversations[number];
        conversation.ask(&mut self.rng);
        let body = conversation.body(is_stream, max_tokens);
        let (outcome, answer) = self.exchange(body, is_stream).await;
        self.conversations[number].answered(answer.as_deref().unwrap_or("-"));
        outcome
    }

    /// A body of some hundred KB, which streams through the plugin in part.
    async fn large(&mut self) -> Outcome {
        let body = conversation::large(&mut self.rng);
        self.exchange(body, false).await.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percents_and_every_kind_is_drawn_by_its_share() {
        assert_eq!(KINDS.iter().map(|kind| kind.share).sum::<u32>(), 100);
        let (mut rng, mut drawn) = (Rng::new(1), std::collections::BTreeMap::<&str, u32>::new());
        (0..10_000).for_each(|_| *drawn.entry(draw(&mut rng).name).or_default() += 1);
        for kind in KINDS {
            assert!(drawn[kind.name].abs_diff(kind.share * 100) < 200, "{}: {drawn:?}", kind.name);
        }
    }
}
