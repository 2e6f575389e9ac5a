//! Response bodies: one piece, or server-sent events that follow the engine.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::engine::Ticket;
use crate::openai::{Answer, StreamOptions};
use crate::scheduler::Progress;
use crate::stats::{RecordId, Stats};

/// The engine was restarted under a request: its connection is cut without a proper end.
#[derive(Debug)]
pub(crate) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the engine was restarted")
    }
}

impl std::error::Error for Cut {}

#[derive(Debug)]
pub(crate) enum SimBody {
    /// Sent with its length; `None` once sent or if empty.
    Full(Option<Bytes>),
    Events(Box<Events>),
}

impl SimBody {
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()).filter(|bytes| !bytes.is_empty()))
    }
}

/// A stream of chat or completion chunks. Each event is a frame of its own, as vLLM sends them.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) ticket: Ticket,
    pub(crate) answer: Answer,
    pub(crate) options: StreamOptions,
    pub(crate) stats: Arc<Stats>,
    pub(crate) record: RecordId,
    /// Ready to be sent.
    pub(crate) queue: VecDeque<String>,
    pub(crate) done: bool,
}

impl Events {
    fn queue_progress(&mut self, progress: Progress) {
        let Progress { generated_tokens, cached_tokens, done } = progress;
        if generated_tokens == 1 {
            self.stats.served(self.record, self.answer.prompt_tokens, cached_tokens);
            self.queue.extend(self.answer.role_chunk(self.options));
        }
        self.queue.push_back(self.answer.token_chunk(generated_tokens, done, self.options));
        if done {
            self.done = true;
            if self.options.include_usage {
                self.queue.push_back(self.answer.usage_chunk(generated_tokens, cached_tokens));
            }
            self.queue.extend(self.answer.done_event());
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.queue.is_empty() && !self.done {
            match ready!(self.ticket.poll_progress(cx)) {
                Some(progress) => self.queue_progress(progress),
                None => return Poll::Ready(Some(Err(Cut))),
            }
        }
        Poll::Ready(self.queue.pop_front().map(|event| Ok(Frame::data(event.into()))))
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => events.poll_event(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Events(events) => events.done && events.queue.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}
