//! What a routing policy sees, and what it is asked and told.

use crate::request::Request;

/// What a worker's metrics page said at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// When the engine wrote it, seconds.
    pub taken_at_s: f64,
    /// Requests in its queue.
    pub waiting: u32,
    /// Requests in its running batch.
    pub running: u32,
    /// Share of its KV-cache blocks that running requests use, 0 to 1.
    pub kv_usage: f64,
    /// Counts the engine's lives: one more after each restart.
    pub life: u32,
}

/// What can be seen of an engine from inside: for oracles and for tests only.
pub trait Exact {
    /// Tokens of the request's prompt that worker would find in its cache if it started now.
    fn cached_tokens(&self, worker: usize, request: &Request) -> u32;
    /// Prompt tokens that the worker has still to prefill: of its queue and of its running batch.
    fn backlog_tokens(&self, worker: usize) -> f64;
    /// Requests in its queue and in its batch.
    fn requests(&self, worker: usize) -> u32;
    /// Seconds until the request's first byte, if it were sent there now and nothing else came.
    fn ttft_s(&self, worker: usize, request: &Request) -> f64;
}

/// What a policy sees when it decides.
pub struct View<'a> {
    /// The moment, seconds.
    pub now_s: f64,
    /// Which workers there are, by number: `false` = not (yet, any more) in the pool. At least one is `true`.
    pub is_member: &'a [bool],
    /// The last report of each worker that has reached this gateway.
    pub reports: &'a [Option<Report>],
    /// KV-cache capacity of each worker, tokens, as its metrics tell.
    pub kv_tokens: u32,
    /// The gateway's estimate of this prompt's tokens over the true number: 1 = exact.
    pub token_error: f64,
    /// The truth.
    pub exact: &'a dyn Exact,
}

/// How a request ended, as its answer tells the gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Whether it was answered; `false` = refused or reset.
    pub is_answered: bool,
    /// `usage.prompt_tokens_details.cached_tokens`, if the engine tells.
    pub cached_tokens: Option<u32>,
    /// `usage.prompt_tokens`.
    pub prompt_tokens: u32,
    /// `usage.completion_tokens`.
    pub output_tokens: u32,
}

/// One gateway's routing policy. Several gateways are several values, which share nothing.
///
/// For each request that a gateway gets: `route`, then `first_byte`, then `finished`, the latter exactly once. `ticket`
/// names the request between these calls.
pub trait Policy {
    /// The worker that gets the request; one with `is_member`.
    fn route(&mut self, ticket: u64, request: &Request, view: &View<'_>) -> usize;

    /// The first byte of the request's answer has come.
    fn first_byte(&mut self, ticket: u64, now_s: f64);

    /// The request has ended.
    fn finished(&mut self, ticket: u64, outcome: &Outcome, now_s: f64);

    /// A report has arrived (also in [`View::reports`] from now on).
    fn report(&mut self, worker: usize, report: &Report, now_s: f64) {
        let _ = (worker, report, now_s);
    }
}
