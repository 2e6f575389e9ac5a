//! One HTTP stream: is it ours, read its prompt once, decide, and settle it when it ends.

mod answer;
mod headers;
mod hints;
mod model;
mod refuse;

use std::cell::RefCell;
use std::rc::Rc;

use super::abi::{self, Action, Buffer, HeaderMap};
use super::plugin::Plugin;
use super::shared_data::SharedData;
use crate::config::{DirectMode, FailureMode};
use crate::direct::{DESTINATION_HEADER, HintSet, Outcome};
use crate::exchange::Exchange;
use crate::pool::Pool;
use crate::request::{Api, Headers, ParseError};
use crate::response::AnswerReader;
use crate::router::{Ask, Body, Model};
use crate::schedule::Decision;
use crate::schedule::policy::Needs;
use crate::stage::{self, Stage as Work};
use crate::stats::Stat;
use crate::time::Timestamp;
use crate::worker::WorkerId;
use headers::{Seen, announced_bytes};

/// The cluster that the request is routed to.
const CLUSTER_NAME: &str = "xds\0cluster_name";

/// Which policy the route wants: `metadata.filter_metadata.warmroute.policy`.
const ROUTE_POLICY: &str = "xds\0route_metadata\0filter_metadata\0warmroute\0policy";

/// One stream.
pub(super) struct Stream {
    plugin: Rc<RefCell<Plugin>>,
    stage: Stage,
    /// What is asked of the router; its pool is the one that the stream is routed to, and only then is it ours.
    ask: Ask,
    exchange: Exchange,
    /// Whether Envoy still tells the cluster of a route that a client has chosen by a header that is gone now.
    is_route_stale: bool,
    /// The headers by which the request says where it goes, and which are still there.
    hints: HintSet,
    /// Whether it carried a secret that is known.
    has_secret: bool,
    /// Whether it is a trusted hop's; known once its pool is.
    is_trusted: bool,
    /// Whether something that it said of where it goes was removed.
    has_lost_hints: bool,
    /// Whether `ask.pool` is the stream's: while its model is awaited it has none.
    has_pool: bool,
    /// Whether the destination header is ours.
    has_destination: bool,
    /// Whether the answer will tell its `usage`, as far as the request says.
    tells_usage: bool,
    /// Reads the answer's `usage` and name; `None` where nothing more is to be read.
    reader: Option<AnswerReader>,
    /// The worker that makes a response whose name is to be noted.
    response_maker: Option<WorkerId>,
    /// Whether it is a request of the Responses API, whose answer others may continue as far as is known.
    is_response: bool,
    /// Whether the answer has come to its end: what a part of it says teaches nothing.
    is_complete: bool,
}

/// Where a stream is routed to.
#[derive(Clone, Copy, Debug)]
struct Route {
    pool: usize,
    /// Whether it is the route that the host tells of, so that its metadata count.
    is_told: bool,
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
    /// It was answered here: nothing more is done with it.
    Refused,
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
            is_route_stale: false,
            hints: HintSet::default(),
            has_secret: false,
            is_trusted: false,
            has_lost_hints: false,
            has_pool: false,
            has_destination: false,
            tells_usage: false,
            reader: None,
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
        if self.stage == Stage::Refused {
            return Action::Pause;
        }
        let is_there = self.hints.iter().any(|(_, hint)| hint.name == DESTINATION_HEADER);
        if is_there && action == Action::Continue && !self.has_destination {
            abi::remove_header(HeaderMap::Request, DESTINATION_HEADER);
        }
        action
    }

    fn read_headers(&mut self, is_end: bool) -> Action {
        let plugin = Rc::clone(&self.plugin);
        // What is not looked at may not choose a host either.
        let unseen = || {
            abi::remove_header(HeaderMap::Request, DESTINATION_HEADER);
            Action::Continue
        };
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return unseen() };
        let pairs = abi::header_pairs(HeaderMap::Request);
        if pairs.is_empty() {
            return unseen();
        }
        let seen = Seen::of(Headers::new(&pairs), plugin.router.config());
        self.hints = seen.hints;
        self.has_secret = seen.take_secret(plugin.router.config());
        self.is_route_stale = seen.has_model;
        if seen.has_model {
            model::remove_header(&plugin);
        }
        self.ask.session = seen.session(plugin.router.config());
        let Some(api) = api(&seen, &plugin) else {
            self.route_other(&mut plugin, !is_end && seen.method == Some(b"POST"));
            return Action::Continue;
        };
        self.is_response = api == Api::Responses;
        let is_encoded = !is_end && seen.is_encoded();
        if !is_end && !is_encoded && model::chooses_route(&plugin) {
            self.stage = Stage::Reading(api);
            return Action::Pause;
        }
        if !self.enter_pool(&plugin, None) {
            if is_encoded {
                self.note_unread(&plugin, None);
            }
            self.leave_astray(&plugin, true);
            return Action::Continue;
        }
        if is_end && !self.says_where(&plugin) {
            self.leave(&plugin, Stat::UnroutedNoBody);
            return Action::Continue;
        }
        if is_encoded {
            plugin.stats.count(Stat::BodyEncoded);
            model::forward(&plugin, None);
        }
        if is_end || is_encoded || !self.wants_body(&plugin) {
            if !is_end {
                self.note_unread(&plugin, Some(self.ask.pool));
            }
            self.ask.prompt_bytes = announced_bytes().unwrap_or_default();
            let started_ns = abi::now().as_ns();
            self.decide(&mut plugin, started_ns);
            return Action::Continue;
        }
        self.stage = Stage::Reading(api);
        Action::Pause
    }

    /// Whether the stream is routed to one of our pools: then pool and policy are noted, it is ours to its end, and what it
    /// says of where it goes is noted or removed.
    fn enter_pool(&mut self, plugin: &Plugin, model: Option<&Model>) -> bool {
        let Some(route) = self.find_pool(plugin, model) else {
            self.stage = Stage::Passing;
            return false;
        };
        self.enter(plugin, route);
        self.take_hints(plugin, route.is_told);
        true
    }

    /// The pool that the stream is routed to, if it is one of ours.
    ///
    /// Envoy tells cluster and metadata of the route that it chose first. Where the model has chosen another one, the pool is
    /// known by the model, and the policy is the one of all routes; and where a client's header had chosen the first one,
    /// what it says counts for nothing.
    fn find_pool(&mut self, plugin: &Plugin, model: Option<&Model>) -> Option<Route> {
        let of_model = model.and_then(|model| plugin.router.find_pool_of_model(&model.name));
        let is_told = of_model.is_none() && !self.is_route_stale;
        if of_model.is_none() && self.is_route_stale {
            // It may lead to one of our pools all the same, so what it says of where it goes must not go on.
            self.take_hints(plugin, false);
        }
        let routed = || abi::property(CLUSTER_NAME).and_then(|cluster| plugin.router.find_pool(&cluster));
        let pool = if is_told { routed() } else { of_model };
        pool.map(|pool| Route { pool, is_told })
    }

    fn enter(&mut self, plugin: &Plugin, route: Route) {
        self.ask.pool = route.pool;
        self.ask.policy = if route.is_told { route_policy(plugin) } else { 0 };
        self.has_pool = true;
        self.stage = Stage::Sent;
        plugin.stats.count(Stat::Requests);
    }

    /// Whether prompt, session or model are to be read from the body.
    fn wants_body(&self, plugin: &Plugin) -> bool {
        let config = plugin.router.config();
        let needs = config.policies.get(self.ask.policy).map_or(Needs::Nothing, |policy| policy.policy.needs());
        let is_session_in_body = self.ask.session.is_none() && !config.session.body_key.is_empty();
        // A trusted hop may name its worker in the body, and there what a stranger says of it has to go.
        let engine = config.pools.get(self.ask.pool).map(|pool| pool.engine);
        let is_directed = self.is_trusted || engine.is_some_and(|engine| engine.is_dynamo() == Some(true));
        needs > Needs::Nothing || is_session_in_body || self.is_response || is_directed || !config.models.is_empty()
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
        let mut bytes = abi::buffer(Buffer::RequestBody, bytes_max.saturating_add(1)).unwrap_or_default();
        stage::end(Work::ReadBody);
        let started_ns = abi::now().as_ns();
        let is_truncated = !is_whole || bytes.len() > bytes_max;
        bytes.truncate(bytes_max);
        let announced_bytes = if is_truncated { announced_bytes() } else { None };
        let body = Body { bytes: &bytes, is_truncated, announced_bytes };
        let reading = plugin.router.read_prompt(api, &body, self.ask.session);
        if model::chooses_route(plugin) {
            let model = model::of(reading.as_ref().ok());
            model::choose_route(plugin, model);
            if !self.enter_pool(plugin, model) {
                if is_truncated {
                    self.note_unread(plugin, None);
                }
                if self.is_route_stale && reading.as_ref().is_ok_and(|reading| reading.has_hints) {
                    self.take_body_hints(plugin, &bytes);
                }
                model::forward(plugin, reading.as_ref().ok());
                return self.leave_astray(plugin, true);
            }
        }
        plugin.stats.record(Stat::BodyBytes, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if is_truncated {
            plugin.stats.count(Stat::BodyTruncated);
        }
        if reading.as_ref().is_ok_and(|reading| reading.has_hints) {
            self.take_body_hints(plugin, &bytes);
        }
        if is_truncated || reading.as_ref().is_err_and(|error| *error != ParseError::Empty) {
            self.note_unread(plugin, Some(self.ask.pool));
        }
        model::forward(plugin, reading.as_ref().ok());
        match reading {
            Ok(reading) => {
                self.tells_usage = reading.tells_usage;
                self.is_response &= reading.keeps_response;
                self.ask.take_in(&reading);
                self.decide(plugin, started_ns);
            }
            // Where it goes was said: its prompt is not needed.
            Err(_) if self.says_where(plugin) => self.decide(plugin, started_ns),
            Err(error) => {
                log::debug!("body not routed: {error}");
                let is_empty = error == ParseError::Empty;
                self.leave(plugin, if is_empty { Stat::UnroutedNoBody } else { Stat::UnroutedUnreadable });
            }
        }
    }

    fn decide(&mut self, plugin: &mut Plugin, started_ns: u64) {
        let now = Timestamp::from_ns(started_ns);
        let Some(decision) = plugin.router.decide(&mut SharedData, &self.ask, &mut self.exchange, now) else {
            plugin.count_incidents();
            return self.leave_undecided(plugin);
        };
        plugin.keep_slot(self.ask.pool);
        let destinations = destinations(plugin, self.ask.pool, &decision);
        self.has_destination = abi::set_header(HeaderMap::Request, DESTINATION_HEADER, &destinations);
        if self.exchange.is_bound() {
            limit_retries(decision.picks.as_slice().len());
        }
        stage::end(Work::SetHeader);
        plugin.stats.record(Stat::DecisionUs, abi::now().as_ns().saturating_sub(started_ns) / 1_000);
        plugin.stats.count(Stat::Routed);
        plugin.stats.count(decision.branch.into());
        plugin.stats.count(decision.rung.into());
        self.count_outcome(plugin);
        plugin.count_incidents();
        if decision.is_panic {
            plugin.stats.count(Stat::AllUnavailable);
        }
        if self.exchange.credit().is_some() {
            plugin.stats.record(Stat::MatchPercent, match_percent(&decision, self.exchange.prompt().tokens));
        }
    }

    /// There is no decision: because a trusted hop's wish cannot be fulfilled, or because there are no workers.
    fn leave_undecided(&mut self, plugin: &Plugin) {
        match self.exchange.outcome() {
            Some(Outcome::Refused(refusal)) => {
                self.count_outcome(plugin);
                self.refuse(plugin, refusal.word(), refusal.message());
            }
            // Whatever was wished, nobody came to fulfil or to ignore it.
            _ => self.leave(plugin, Stat::UnroutedNoWorkers),
        }
    }

    /// Whether something was said of the request's worker on which alone it can be decided, or for which it is refused.
    fn says_where(&self, plugin: &Plugin) -> bool {
        let is_strict = plugin.router.config().direct_mode == DirectMode::Strict;
        let has_ranks = || plugin.router.pool(self.ask.pool).is_some_and(Pool::has_ranks);
        self.ask.directions.as_ref().is_some_and(|directions| {
            directions.names_workers()
                || (directions.is_malformed && is_strict)
                || (directions.rank.is_some() && has_ranks())
        })
    }

    /// The request has no pool. Where that is only because a client chose its first route by the model's header, the route
    /// that Envoy takes now may lead to one of ours: what must not go to a worker unjudged is refused. `is_inference` = it
    /// would be a pool's request then.
    fn leave_astray(&mut self, plugin: &Plugin, is_inference: bool) {
        if !self.is_route_stale || self.has_pool {
            return;
        }
        let config = plugin.router.config();
        let is_directed = self.ask.directions.is_some();
        let is_refused = is_directed && config.direct_mode == DirectMode::Strict;
        if is_directed {
            plugin.stats.count(if is_refused { Stat::DirectedRefused } else { Stat::DirectedIgnored });
        }
        if is_refused {
            self.refuse(plugin, UNKNOWN_POOL, "the request says where it goes, and its pool is not known");
        } else if is_inference && config.failure_mode == FailureMode::Closed {
            plugin.stats.count(Stat::RefusedUndecided);
            self.refuse(plugin, UNKNOWN_POOL, "the request's pool is not known");
        }
    }

    fn count_outcome(&self, plugin: &Plugin) {
        match self.exchange.outcome() {
            Some(Outcome::Followed) => plugin.stats.count(Stat::Directed),
            Some(Outcome::Ignored(_)) => plugin.stats.count(Stat::DirectedIgnored),
            Some(Outcome::Refused(_)) => plugin.stats.count(Stat::DirectedRefused),
            None => {}
        }
    }

    /// Nothing can be decided, and `why` counts it: the last step of the ladder. The host's fallback policy chooses, or the
    /// request is refused.
    fn leave(&mut self, plugin: &Plugin, why: Stat) {
        plugin.stats.count(why);
        plugin.stats.count(Stat::LadderNoDecision);
        if plugin.router.config().failure_mode == FailureMode::Closed {
            let (reason, message) = match why {
                Stat::UnroutedNoBody => ("no_body", "the request has no body"),
                Stat::UnroutedUnreadable => ("unreadable", "the request's body cannot be read"),
                _ => ("no_workers", "no worker of the pool is known"),
            };
            plugin.stats.count(Stat::RefusedUndecided);
            self.refuse(plugin, reason, message);
        }
    }

    /// Answers the request 503, in the plugin's name. If the host does not take the answer, the request goes on undecided.
    fn refuse(&mut self, plugin: &Plugin, reason: &str, message: &str) {
        let tells_rung = plugin.router.config().response_headers;
        if refuse::refuse(reason, message, tells_rung) {
            self.stage = Stage::Refused;
        } else {
            abi::remove_header(HeaderMap::Request, DESTINATION_HEADER);
        }
    }
}

/// Why a request is refused whose route is not the one that the host tells of, and whose model is no pool's.
const UNKNOWN_POOL: &str = "unknown_pool";

/// Has the host try the picks and nobody else: beyond their list its fallback policy would choose. What a trusted hop allows
/// less stays.
///
/// Source: Envoy's documentation, `x-envoy-max-retries`: it takes precedence over the route's own number, and goes no further.
fn limit_retries(picks: usize) {
    let retries = picks.saturating_sub(1);
    let allowed = abi::header(HeaderMap::Request, MAX_RETRIES_HEADER);
    let allowed = allowed.and_then(|allowed| std::str::from_utf8(&allowed).ok()?.parse().ok());
    let retries = allowed.map_or(retries, |allowed: usize| allowed.min(retries));
    abi::set_header(HeaderMap::Request, MAX_RETRIES_HEADER, &retries.to_string());
}

const MAX_RETRIES_HEADER: &str = "x-envoy-max-retries";

/// The API that a request is for; `None` if it is none that is read.
fn api(seen: &Seen<'_>, plugin: &Plugin) -> Option<Api> {
    let api = Api::from_path(seen.path?, &plugin.router.config().request.base_paths)?;
    (seen.method? == b"POST").then_some(api)
}

/// The number of the policy that the route chooses.
fn route_policy(plugin: &Plugin) -> usize {
    let config = plugin.router.config();
    let policies = config.policies.get(..config.other_policy.unwrap_or(config.policies.len())).unwrap_or_default();
    let name = if policies.len() > 1 { abi::property(ROUTE_POLICY) } else { None };
    let Some(name) = name else { return 0 };
    policies.iter().position(|policy| policy.route_name.as_bytes() == name).unwrap_or_else(|| {
        plugin.stats.count(Stat::RoutePolicyUnknown);
        0
    })
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

/// How much of the prompt the first pick is believed to hold, 0 to 100.
fn match_percent(decision: &Decision, prompt_tokens: u32) -> u64 {
    u64::from(decision.matched_tokens) * 100 / u64::from(prompt_tokens.max(1))
}
