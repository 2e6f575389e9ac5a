//! One HTTP stream: is it ours, read its prompt once, decide, and settle it when it ends.

use std::cell::RefCell;
use std::rc::Rc;

use super::abi::{self, Action, Buffer, HeaderMap};
use super::plugin::Plugin;
use crate::exchange::{Answerer, Exchange, Source};
use crate::request::Api;
use crate::router::estimate_tokens;
use crate::schedule::Decision;
use crate::stats::Stat;

/// Where the cluster's `override_host` policy finds the workers to try, in order.
///
/// Source: Gateway API Inference Extension, proposal 004 (endpoint picker protocol).
const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";

/// What the host says of an answer that came from a worker; of its own it says the reason.
///
/// Source: Envoy's documentation, "Response code details".
const VIA_UPSTREAM: &[u8] = b"via_upstream";

/// One stream.
pub(super) struct Stream {
    plugin: Rc<RefCell<Plugin>>,
    stage: Stage,
    /// The pool that the stream is routed to; only then is it ours.
    pool: usize,
    exchange: Exchange,
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not ours: whatever comes, it passes.
    Passing,
    /// Its body is awaited.
    Reading(Api),
    /// On its way to a worker, with a decision or without.
    Sent,
    /// A worker's headers have come.
    Answered,
    /// A worker's first body byte has come.
    Streaming,
    /// Over.
    Ended,
}

impl Stream {
    pub(super) fn new(plugin: Rc<RefCell<Plugin>>) -> Self {
        Self { plugin, stage: Stage::Passing, pool: 0, exchange: Exchange::default() }
    }

    pub(super) fn on_request_headers(&mut self, is_end: bool) -> Action {
        // Whatever becomes of the request: what a client says here must never choose a host.
        abi::remove_header(HeaderMap::Request, DESTINATION_HEADER);
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return Action::Continue };
        let Some(api) = self.claim(&plugin) else { return Action::Continue };
        plugin.stats.count(Stat::Requests);
        self.stage = Stage::Sent;
        if is_end {
            plugin.stats.count(Stat::UnroutedNoBody);
            return Action::Continue;
        }
        let is_encoded = abi::header(HeaderMap::Request, "content-encoding")
            .is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity"));
        if is_encoded {
            plugin.stats.count(Stat::BodyEncoded);
        }
        if is_encoded || !plugin.router.config().policy.reads_prompt() {
            let started_ns = abi::now().as_ns();
            self.decide(&mut plugin, None, announced_tokens(), started_ns);
            return Action::Continue;
        }
        self.stage = Stage::Reading(api);
        Action::Pause
    }

    /// Whether the request is one that we route: then its pool is noted.
    fn claim(&mut self, plugin: &Plugin) -> Option<Api> {
        let path = abi::header(HeaderMap::Request, ":path")?;
        let api = Api::from_path(&path, &plugin.router.config().request.path_prefixes)?;
        if abi::header(HeaderMap::Request, ":method")? != b"POST" {
            return None;
        }
        self.pool = plugin.router.find_pool(&abi::property("xds\0cluster_name")?)?;
        Some(api)
    }

    /// `body_bytes` have been buffered so far.
    pub(super) fn on_request_body(&mut self, body_bytes: usize, is_end: bool) -> Action {
        let Stage::Reading(api) = self.stage else { return Action::Continue };
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return Action::Continue };
        if !is_end && body_bytes < plugin.router.config().request.scan_bytes_max {
            return Action::Pause;
        }
        self.read_and_decide(&mut plugin, api, is_end);
        Action::Continue
    }

    /// Trailers end a body for which no call said "end".
    pub(super) fn on_request_trailers(&mut self) -> Action {
        if let Stage::Reading(api) = self.stage {
            let plugin = Rc::clone(&self.plugin);
            if let Ok(mut plugin) = plugin.try_borrow_mut() {
                self.read_and_decide(&mut plugin, api, true);
            }
        }
        Action::Continue
    }

    /// Reads what is buffered, once. `is_whole` = nothing follows.
    fn read_and_decide(&mut self, plugin: &mut Plugin, api: Api, is_whole: bool) {
        self.stage = Stage::Sent;
        let bytes_max = plugin.router.config().request.scan_bytes_max;
        // One byte more tells a body that ends at the limit from one that goes on.
        let mut body = abi::buffer(Buffer::RequestBody, bytes_max.saturating_add(1)).unwrap_or_default();
        let started_ns = abi::now().as_ns();
        let is_truncated = !is_whole || body.len() > bytes_max;
        body.truncate(bytes_max);
        plugin.stats.record(Stat::BodyBytes, u64::try_from(body.len()).unwrap_or(u64::MAX));
        if is_truncated {
            plugin.stats.count(Stat::BodyTruncated);
        }
        match plugin.router.read_prompt(api, &body, is_truncated) {
            Ok(prompt_tokens) => {
                let prefix = plugin.prefix(self.pool);
                self.decide(plugin, prefix, prompt_tokens, started_ns);
            }
            Err(error) => {
                log::debug!("body not routed: {error}");
                let reason = if body.is_empty() { Stat::UnroutedNoBody } else { Stat::UnroutedUnreadable };
                plugin.stats.count(reason);
            }
        }
    }

    fn decide(&mut self, plugin: &mut Plugin, prefix: Option<u64>, prompt_tokens: u32, started_ns: u64) {
        self.exchange = Exchange::new(prompt_tokens);
        let Some(decision) = plugin.decide(self.pool, prefix, &mut self.exchange) else {
            plugin.stats.count(Stat::UnroutedNoWorkers);
            return;
        };
        abi::set_header(HeaderMap::Request, DESTINATION_HEADER, &destinations(plugin, self.pool, &decision));
        plugin.stats.count(Stat::Routed);
        plugin.stats.count(decision.branch.into());
        if decision.is_panic {
            plugin.stats.count(Stat::AllUnavailable);
        }
        plugin.stats.record(Stat::DecisionUs, abi::now().as_ns().saturating_sub(started_ns) / 1_000);
    }

    pub(super) fn on_response_headers(&mut self) {
        // An upstream that echoes headers must not tell the client where requests are sent, on whatever path.
        abi::remove_header(HeaderMap::Response, DESTINATION_HEADER);
        if !matches!(self.stage, Stage::Reading(_) | Stage::Sent) {
            return;
        }
        self.stage = Stage::Answered;
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return };
        // The host keeps the address of a worker that it tried in vain: its own answers have it too.
        let is_of_worker = abi::property("response\0code_details").is_none_or(|details| details == VIA_UPSTREAM);
        let address = is_of_worker.then(|| abi::property("upstream\0address")).flatten().unwrap_or_default();
        let address = String::from_utf8_lossy(&address);
        let Some(pool) = plugin.router.pool_mut(self.pool) else { return };
        let source = match pool.find(&address) {
            Some(worker) => Source::Worker(worker),
            None if address.is_empty() => Source::Host,
            None => Source::Stranger,
        };
        let answerer = self.exchange.handle_answer(pool, source);
        plugin.stats.count(match answerer {
            Answerer::FirstPick => Stat::AnsweredFirstPick,
            Answerer::LaterPick => Stat::AnsweredLaterPick,
            Answerer::Other => Stat::AnsweredOther,
            Answerer::Host => Stat::AnsweredByHost,
        });
        if matches!(answerer, Answerer::LaterPick | Answerer::Other) {
            plugin.publish(self.pool);
        }
        if plugin.router.config().response_headers {
            self.explain(&plugin, &address);
        }
    }

    /// Tells the client who answered, who was picked and why.
    fn explain(&self, plugin: &Plugin, address: &str) {
        if !address.is_empty() {
            abi::set_header(HeaderMap::Response, "x-warmroute-worker", address);
        }
        abi::set_header(HeaderMap::Response, "x-warmroute-policy", plugin.router.config().policy_name);
        if let Some(decision) = self.exchange.decision() {
            let picks = destinations(plugin, self.pool, decision);
            abi::set_header(HeaderMap::Response, "x-warmroute-picks", &picks);
            abi::set_header(HeaderMap::Response, "x-warmroute-reason", decision.branch.name());
        }
    }

    /// `body_bytes` of the answer have come. Each chunk of a stream calls; only the first one matters.
    pub(super) fn on_response_body(&mut self, body_bytes: usize) {
        if self.stage != Stage::Answered || body_bytes == 0 {
            return;
        }
        self.stage = Stage::Streaming;
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return };
        let is_changed = plugin.router.pool_mut(self.pool).is_some_and(|pool| self.exchange.handle_first_byte(pool));
        if is_changed {
            plugin.publish(self.pool);
        }
    }

    /// The stream is over, however it came to its end. A second call does nothing.
    pub(super) fn on_end(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        if matches!(stage, Stage::Passing | Stage::Ended) {
            return;
        }
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return };
        if matches!(stage, Stage::Reading(_) | Stage::Sent) {
            plugin.stats.count(Stat::Unanswered);
        }
        if plugin.router.pool_mut(self.pool).is_some_and(|pool| self.exchange.handle_end(pool)) {
            plugin.publish(self.pool);
        }
    }
}

/// The decision as the header has it: addresses in order, parted by commas.
fn destinations(plugin: &Plugin, pool: usize, decision: &Decision) -> String {
    let mut destinations = String::new();
    for worker in decision.picks.as_slice() {
        if let Some(address) = plugin.router.pool(pool).and_then(|pool| pool.address(*worker)) {
            if !destinations.is_empty() {
                destinations.push(',');
            }
            destinations.push_str(address);
        }
    }
    destinations
}

/// About how many tokens a body has that is not read, by its announced length.
fn announced_tokens() -> u32 {
    let length = abi::header(HeaderMap::Request, "content-length");
    let bytes = length.and_then(|length| std::str::from_utf8(&length).ok()?.parse().ok());
    estimate_tokens(bytes.unwrap_or_default())
}
