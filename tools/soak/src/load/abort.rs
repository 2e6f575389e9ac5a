//! Clients that leave: in their upload, before the answer, within a stream.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use warmroute_harness::client::{Socket, body};

use super::conversation::{self, Conversation};
use super::exchange::{CHAT, JSON, header, told};
use super::{Outcome, User};

impl User {
    /// Sends a part of a body, long or short, and closes.
    pub(super) async fn leave_upload(&mut self) -> Outcome {
        let body = match self.rng.below(2) {
            0 => self.chat_body(false, 4),
            _ => conversation::large(&mut self.rng),
        };
        let part = self.rng.below(body.len() as u32) as usize;
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let sent = async {
            let mut socket = Socket::connect(self.shared.gateway).await?;
            socket.write(head.as_bytes()).await?;
            socket.write(&body.as_bytes()[..part]).await?;
            sleep(Duration::from_millis(5)).await;
            anyhow::Ok(())
        };
        match sent.await {
            Ok(()) => Outcome::Aborted,
            Err(error) => Outcome::Lost(format!("an upload is not taken: {error:#}")),
        }
    }

    /// Waits a short while for a long answer, and leaves.
    pub(super) async fn leave_waiting(&mut self) -> Outcome {
        let (body, patience_ms) = (self.chat_body(false, 500), u64::from(1 + self.rng.below(300)));
        let answer = self.exchange(body, false);
        match timeout(Duration::from_millis(patience_ms), answer).await {
            Ok((outcome, _)) => outcome,
            Err(_) => Outcome::Aborted,
        }
    }

    /// Reads some of a stream, and leaves.
    pub(super) async fn leave_stream(&mut self) -> Outcome {
        let (body_sent, pieces, start) = (self.chat_body(true, 500), 1 + self.rng.below(30), Instant::now());
        let mut stream = match self.client.open("POST", CHAT, &[JSON], body(body_sent)).await {
            Ok(stream) if stream.status == 200 => stream,
            Ok(stream) => return Outcome::Lost(told(stream).await),
            Err(error) => return Outcome::Lost(format!("{error:#}")),
        };
        for _ in 0..pieces {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return self.cut(&header(&stream, "x-worker"), start, "an early end"),
                Err(error) => return self.cut(&header(&stream, "x-worker"), start, &format!("{error:#}")),
            }
        }
        Outcome::Aborted
    }

    /// A conversation's first turn.
    fn chat_body(&mut self, is_stream: bool, max_tokens: u32) -> String {
        let mut conversation = Conversation::new(&mut self.rng);
        conversation.ask(&mut self.rng);
        conversation.body(is_stream, max_tokens)
    }
}
