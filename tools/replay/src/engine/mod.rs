//! Models of an inference engine: what the simulation drives, and what can be seen of one from outside and inside.

use crate::policy::Report;
use crate::request::Request;

pub mod batching;
pub mod kv_cache;
mod sequence;
pub mod serial;
pub mod step_time;

/// What became of a request in an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// The first token of the answer has left the engine.
    FirstByte,
    /// The last token has left; the prompt's tokens that were found in the cache when it first got its turn.
    Finished {
        /// `usage.prompt_tokens_details.cached_tokens`.
        cached_tokens: u32,
    },
    /// The engine died with it, or could never have held it.
    Failed,
}

/// One step of one request's life, at the moment of the call that returned it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineEvent {
    /// The request, as named at [`Engine::submit`].
    pub ticket: u64,
    /// What happened.
    pub progress: Progress,
}

/// A model of one engine under a clock that the caller turns.
///
/// The caller advances it to each [`next_event_s`](Self::next_event_s) before it goes on to a later moment. Every
/// submitted request ends in exactly one `Finished` or `Failed`, and has at most one `FirstByte` before that.
pub trait Engine {
    /// A request arrives.
    fn submit(&mut self, ticket: u64, request: &Request, now_s: f64, events: &mut Vec<EngineEvent>);

    /// When something happens next if nothing arrives before, seconds.
    fn next_event_s(&self) -> Option<f64>;

    /// Does all that is due at `now_s`, and appends what it did.
    fn advance(&mut self, now_s: f64, events: &mut Vec<EngineEvent>);

    /// What its metrics page says.
    fn report(&self, now_s: f64) -> Report;

    /// The process is killed and comes back with an empty cache; all its requests fail.
    fn restart(&mut self, now_s: f64, events: &mut Vec<EngineEvent>);

    /// As [`Exact::cached_tokens`](crate::policy::Exact::cached_tokens). Prompts that are already here and will be
    /// computed before it count as cached: queues are first come, first served, so it would find them.
    fn cached_tokens(&self, request: &Request) -> u32;

    /// As [`Exact::backlog_tokens`](crate::policy::Exact::backlog_tokens).
    fn backlog_tokens(&self, now_s: f64) -> f64;

    /// As [`Exact::requests`](crate::policy::Exact::requests).
    fn requests(&self) -> u32;

    /// As [`Exact::ttft_s`](crate::policy::Exact::ttft_s).
    fn ttft_s(&self, request: &Request, now_s: f64) -> f64;

    /// KV-cache capacity, tokens, as its metrics tell.
    fn kv_tokens(&self) -> u32;
}
