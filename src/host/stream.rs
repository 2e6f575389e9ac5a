//! One HTTP stream: is it ours, read its prompt once, decide, and settle it when it ends.

use std::cell::RefCell;
use std::rc::Rc;

use super::abi::{self, Action, Buffer, HeaderMap};
use super::plugin::Plugin;
use super::shared_data::SharedData;
use crate::exchange::{Answerer, Exchange, Source};
use crate::request::{Api, cookie_value};
use crate::response::UsageReader;
use crate::router::{Ask, session_hash};
use crate::schedule::Decision;
use crate::schedule::policy::Needs;
use crate::stage::{self, Stage as Work};
use crate::stats::Stat;
use crate::time::Timestamp;
use crate::worker::WorkerId;

/// Where the cluster's `override_host` policy finds the workers to try, in order.
///
/// Source: Gateway API Inference Extension, proposal 004 (endpoint picker protocol).
const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";

/// Which policy the route wants: `metadata.filter_metadata.warmroute.policy`.
const ROUTE_POLICY: &str = "xds\0route_metadata\0filter_metadata\0warmroute\0policy";

/// What the host says of an answer that came from a worker; of its own it says the reason.
///
/// Source: Envoy's documentation, "Response code details".
const VIA_UPSTREAM: &[u8] = b"via_upstream";

/// One stream.
pub(super) struct Stream {
    plugin: Rc<RefCell<Plugin>>,
    stage: Stage,
    /// What is asked of the router; its pool is the one that the stream is routed to, and only then is it ours.
    ask: Ask,
    exchange: Exchange,
    /// Whether the destination header is ours.
    has_destination: bool,
    /// Whether the answer will tell its `usage`, as far as the request says.
    tells_usage: bool,
    /// Reads the answer's `usage`; `None` where nothing is to be read.
    usage: Option<UsageReader>,
    /// The worker whose new response's name is to be read in the answer.
    response_maker: Option<WorkerId>,
    /// Whether it is a request of the Responses API.
    is_response: bool,
    /// Whether the answer has come to its end: what a part of it says teaches nothing.
    is_complete: bool,
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
        Self {
            plugin,
            stage: Stage::Passing,
            ask: Ask::default(),
            exchange: Exchange::default(),
            has_destination: false,
            tells_usage: false,
            usage: None,
            response_maker: None,
            is_response: false,
            is_complete: false,
        }
    }

    pub(super) fn on_request_headers(&mut self, is_end: bool) -> Action {
        let action = self.read_headers(is_end);
        self.guard_destination(action)
    }

    /// What a client says of the destination must never choose a host: a decision has replaced it, whatever else goes on
    /// goes on without it.
    fn guard_destination(&self, action: Action) -> Action {
        if action == Action::Continue && !self.has_destination {
            abi::remove_header(HeaderMap::Request, DESTINATION_HEADER);
        }
        action
    }

    fn read_headers(&mut self, is_end: bool) -> Action {
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
        self.ask.session = named_session(&plugin);
        self.ask.policy = Self::route_policy(&plugin);
        if is_encoded || !self.wants_body(&plugin) {
            self.ask.prompt_bytes = announced_bytes().unwrap_or_default();
            let started_ns = abi::now().as_ns();
            self.decide(&mut plugin, started_ns);
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
        self.ask.pool = plugin.router.find_pool(&abi::property("xds\0cluster_name")?)?;
        self.is_response = api == Api::Responses;
        Some(api)
    }

    /// The number of the policy that the route chooses.
    fn route_policy(plugin: &Plugin) -> usize {
        let policies = &plugin.router.config().policies;
        let name = if policies.len() > 1 { abi::property(ROUTE_POLICY) } else { None };
        let Some(name) = name else { return 0 };
        policies.iter().position(|policy| policy.route_name.as_bytes() == name).unwrap_or_else(|| {
            plugin.stats.count(Stat::RoutePolicyUnknown);
            0
        })
    }

    /// Whether the prompt, or the session, is to be read from the body.
    fn wants_body(&self, plugin: &Plugin) -> bool {
        let config = plugin.router.config();
        let needs = config.policies.get(self.ask.policy).map_or(Needs::Nothing, |policy| policy.policy.needs());
        needs > Needs::Nothing
            || self.is_response
            || (self.ask.session.is_none() && !config.session.body_key.is_empty())
    }

    /// `body_bytes` have been buffered so far.
    pub(super) fn on_request_body(&mut self, body_bytes: usize, is_end: bool) -> Action {
        let Stage::Reading(api) = self.stage else { return Action::Continue };
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return self.guard_destination(Action::Continue) };
        if !is_end && body_bytes < plugin.router.config().request.scan_bytes_max {
            return Action::Pause;
        }
        self.read_and_decide(&mut plugin, api, is_end);
        self.guard_destination(Action::Continue)
    }

    /// Trailers end a body for which no call said "end".
    pub(super) fn on_request_trailers(&mut self) -> Action {
        let Stage::Reading(api) = self.stage else { return Action::Continue };
        let plugin = Rc::clone(&self.plugin);
        if let Ok(mut plugin) = plugin.try_borrow_mut() {
            self.read_and_decide(&mut plugin, api, true);
        }
        self.guard_destination(Action::Continue)
    }

    /// Reads what is buffered, once. `is_whole` = nothing follows.
    fn read_and_decide(&mut self, plugin: &mut Plugin, api: Api, is_whole: bool) {
        self.stage = Stage::Sent;
        let bytes_max = plugin.router.config().request.scan_bytes_max;
        // One byte more tells a body that ends at the limit from one that goes on.
        let mut body = abi::buffer(Buffer::RequestBody, bytes_max.saturating_add(1)).unwrap_or_default();
        stage::end(Work::ReadBody);
        let started_ns = abi::now().as_ns();
        let is_truncated = !is_whole || body.len() > bytes_max;
        body.truncate(bytes_max);
        plugin.stats.record(Stat::BodyBytes, u64::try_from(body.len()).unwrap_or(u64::MAX));
        if is_truncated {
            plugin.stats.count(Stat::BodyTruncated);
        }
        let announced = if is_truncated { announced_bytes() } else { None };
        match plugin.router.read_prompt(api, &body, is_truncated, announced) {
            Ok(reading) => {
                self.ask.is_read = true;
                self.tells_usage = reading.tells_usage;
                self.ask.prompt_bytes = reading.prompt_bytes;
                self.ask.is_whole = reading.is_whole;
                self.ask.adapter = reading.adapter;
                self.ask.session = self.ask.session.or(reading.session);
                self.ask.previous = reading.previous;
                self.decide(plugin, started_ns);
            }
            Err(error) => {
                log::debug!("body not routed: {error}");
                let reason = if body.is_empty() { Stat::UnroutedNoBody } else { Stat::UnroutedUnreadable };
                plugin.stats.count(reason);
            }
        }
    }

    fn decide(&mut self, plugin: &mut Plugin, started_ns: u64) {
        let now = Timestamp::from_ns(started_ns);
        let Some(decision) = plugin.router.decide(&mut SharedData, &self.ask, &mut self.exchange, now) else {
            plugin.count_incidents();
            plugin.stats.count(Stat::UnroutedNoWorkers);
            return;
        };
        plugin.keep_slot(self.ask.pool);
        let destinations = destinations(plugin, self.ask.pool, &decision);
        self.has_destination = abi::set_header(HeaderMap::Request, DESTINATION_HEADER, &destinations);
        stage::end(Work::SetHeader);
        plugin.stats.record(Stat::DecisionUs, abi::now().as_ns().saturating_sub(started_ns) / 1_000);
        plugin.stats.count(Stat::Routed);
        plugin.stats.count(decision.branch.into());
        plugin.count_incidents();
        if decision.is_panic {
            plugin.stats.count(Stat::AllUnavailable);
        }
        if self.exchange.credit().is_some() {
            plugin.stats.record(Stat::MatchPercent, match_percent(&decision, self.exchange.prompt().tokens));
        }
    }

    pub(super) fn on_response_headers(&mut self) {
        // An upstream that echoes headers must not tell the client where requests are sent, on whatever path. To find that
        // there is none costs less than to remove what is not there.
        if abi::has_header(HeaderMap::Response, DESTINATION_HEADER) {
            abi::remove_header(HeaderMap::Response, DESTINATION_HEADER);
        }
        if !matches!(self.stage, Stage::Reading(_) | Stage::Sent) {
            return;
        }
        self.stage = Stage::Answered;
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return };
        // The host keeps the address of a worker that it tried in vain: its own answers have it too. Nor does their status
        // tell: to a gRPC request all of them are 200.
        let details = abi::property("response\0code_details");
        let is_of_worker = details.as_ref().is_none_or(|details| details == VIA_UPSTREAM);
        let address = abi::property("upstream\0address").unwrap_or_default();
        let address = String::from_utf8_lossy(&address);
        let Some(state) = plugin.router.pool(self.ask.pool) else { return };
        let source = match state.find(&address) {
            Some(worker) if is_of_worker => Source::Worker(worker),
            None if is_of_worker && !address.is_empty() => Source::Stranger,
            tried => {
                Source::Host { tried: tried.filter(|_| details.is_some_and(|details| is_workers_fault(&details))) }
            }
        };
        let status = if is_of_worker { status(HeaderMap::Response) } else { 0 };
        stage::end(Work::ResponseHeaders);
        let answerer =
            plugin.router.answered(&mut SharedData, self.ask.pool, &mut self.exchange, source, status, abi::now());
        stage::end(Work::Answered);
        plugin.count_incidents();
        plugin.stats.count(match answerer {
            Answerer::FirstPick => Stat::AnsweredFirstPick,
            Answerer::LaterPick => Stat::AnsweredLaterPick,
            Answerer::Other => Stat::AnsweredOther,
            Answerer::Host => Stat::AnsweredByHost,
        });
        self.response_maker = match source {
            Source::Worker(worker) if self.is_response && (200..300).contains(&status) => Some(worker),
            _ => None,
        };
        if self.response_maker.is_some() || (self.tells_usage && self.exchange.credit().is_some()) {
            // Of a compressed answer it finds nothing, which is as good as not reading it.
            self.usage = Some(UsageReader::default());
        }
        if plugin.router.config().response_headers {
            let address = if is_of_worker { &*address } else { "" };
            self.explain(&plugin, address);
        }
    }

    /// Tells the client who answered, who was picked and why.
    fn explain(&self, plugin: &Plugin, address: &str) {
        if !address.is_empty() {
            abi::set_header(HeaderMap::Response, "x-warmroute-worker", address);
        }
        if let Some(policy) = plugin.router.config().policies.get(self.ask.policy) {
            abi::set_header(HeaderMap::Response, "x-warmroute-policy", policy.name);
        }
        if let Some(decision) = self.exchange.decision() {
            let picks = destinations(plugin, self.ask.pool, decision);
            abi::set_header(HeaderMap::Response, "x-warmroute-picks", &picks);
            abi::set_header(HeaderMap::Response, "x-warmroute-reason", decision.branch.name());
        }
    }

    /// `body_bytes` of the answer have come: with the first ones its prompt is prefilled, and in some of them is `usage`.
    pub(super) fn on_response_body(&mut self, body_bytes: usize, is_end: bool) {
        self.is_complete |= is_end;
        if body_bytes == 0 {
            return;
        }
        if let Some(reader) = &mut self.usage
            && let Some(bytes) = abi::buffer(Buffer::ResponseBody, body_bytes)
        {
            stage::end(Work::ReadAnswer);
            reader.feed(&bytes);
            stage::end(Work::ReadUsage);
            if let (Some(worker), Some(response)) = (self.response_maker, reader.response())
                && let Ok(mut plugin) = self.plugin.try_borrow_mut()
            {
                // Before the client can read it: the next request may come at once.
                self.response_maker = None;
                plugin.router.note_response(&mut SharedData, self.ask.pool, worker, response);
                plugin.count_incidents();
            }
        }
        if self.stage != Stage::Answered {
            return;
        }
        self.stage = Stage::Streaming;
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return };
        plugin.router.first_byte(&mut SharedData, self.ask.pool, &mut self.exchange, abi::now());
        stage::end(Work::FirstByte);
        plugin.count_incidents();
    }

    /// The stream is over, however it came to its end.
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
        let usage = self.usage.as_ref().filter(|_| self.is_complete).and_then(UsageReader::usage);
        let ended = plugin.router.end(&mut SharedData, self.ask.pool, &mut self.exchange, usage, abi::now());
        stage::end(Work::End);
        plugin.count_incidents();
        if let Some(prediction) = ended {
            let (predicted, cached) = (prediction.predicted_tokens, prediction.cached_tokens);
            plugin.stats.add(Stat::PredictedCachedTokens, predicted);
            plugin.stats.add(Stat::CachedTokens, cached);
            plugin.stats.record(Stat::PredictionErrorTokens, predicted.abs_diff(cached).into());
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

/// Whether the host could not talk to the worker: it refused, or broke the connection off. A time-out says as much of the
/// request as of the worker, and a limit of the host nothing.
///
/// Source: Envoy's documentation, "Response code details": `upstream_reset_before_response_started{reason}`.
fn is_workers_fault(details: &[u8]) -> bool {
    details.starts_with(b"upstream_reset_before_response_started{") && !details.ends_with(b"{overflow}")
}

/// How much of the prompt the first pick is believed to hold, 0 to 100.
fn match_percent(decision: &Decision, prompt_tokens: u32) -> u64 {
    u64::from(decision.matched_tokens) * 100 / u64::from(prompt_tokens.max(1))
}

/// The hash of the session that header or cookie names, where they are configured.
fn named_session(plugin: &Plugin) -> Option<u64> {
    let names = &plugin.router.config().session;
    let header = || {
        let header = (!names.header.is_empty()).then(|| abi::header(HeaderMap::Request, &names.header)).flatten()?;
        session_hash(&header)
    };
    let cookie = || {
        let cookies = (!names.cookie.is_empty()).then(|| abi::header(HeaderMap::Request, "cookie")).flatten()?;
        session_hash(cookie_value(&cookies, names.cookie.as_bytes())?)
    };
    header().or_else(cookie)
}

/// The answer's status; 0 if it has none.
fn status(map: HeaderMap) -> u32 {
    let status = abi::header(map, ":status");
    status.and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok()).unwrap_or_default()
}

/// How many bytes the body is announced to have.
fn announced_bytes() -> Option<u64> {
    let length = abi::header(HeaderMap::Request, "content-length")?;
    std::str::from_utf8(&length).ok()?.parse().ok()
}
