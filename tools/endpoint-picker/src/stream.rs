//! One HTTP stream as `ext_proc` tells of it: the same calls of the core, in the same order, as the plugin makes.

use warmroute::exchange::{Exchange, Source};
use warmroute::request::{Api, cookie_value};
use warmroute::response::UsageReader;
use warmroute::router::{Ask, Body, session_hash};
use warmroute::schedule::policy::Needs;

use crate::picker::{self, POOL, Picker, now};
use crate::wire::{
    CommonResponse, HeaderMutation, HeaderValue, HeaderValueOption, HttpBody, HttpHeaders, OVERWRITE_IF_EXISTS_OR_ADD,
    PartResponse, ProcessingRequest, ProcessingResponse, Request, Response,
};

/// Where the cluster's `override_host` policy finds the workers to try, in order.
///
/// Source: Gateway API Inference Extension, proposal 004 (endpoint picker protocol).
pub(crate) const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";

/// One stream. Dropping it ends the request, however that came to its end.
pub(crate) struct Stream {
    stage: Stage,
    ask: Ask,
    announced_bytes: Option<u64>,
    exchange: Exchange,
    /// Whether Envoy sends the answer's body too.
    gets_answer: bool,
    /// Reads the answer's `usage`; `None` where it cannot be read.
    usage: Option<UsageReader>,
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
    /// Its answer's headers have come.
    Answered,
    /// Its answer's first body byte has come, or is taken to have come.
    Streaming,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            stage: Stage::Passing,
            ask: Ask { pool: POOL, ..Ask::default() },
            announced_bytes: None,
            exchange: Exchange::default(),
            gets_answer: false,
            usage: None,
            is_complete: false,
        }
    }
}

impl Stream {
    /// Takes one event and answers it; `None` for one that this picker does not ask for.
    pub(crate) fn handle(&mut self, message: ProcessingRequest) -> Option<ProcessingResponse> {
        if let Some(protocol) = message.protocol_config {
            self.gets_answer = protocol.response_body_mode != 0;
        }
        let request = message.request?;
        let response = picker::with(|picker| match request {
            Request::RequestHeaders(head) => Response::RequestHeaders(reply(self.on_request_headers(picker, &head))),
            Request::RequestBody(body) => Response::RequestBody(reply(self.on_request_body(picker, &body))),
            Request::ResponseHeaders(head) => {
                self.on_response_headers(picker, &head);
                Response::ResponseHeaders(PartResponse::default())
            }
            Request::ResponseBody(body) => {
                self.on_response_body(picker, &body);
                Response::ResponseBody(PartResponse::default())
            }
        })?;
        Some(ProcessingResponse { response: Some(response) })
    }

    /// The destinations, where they are known without the body.
    fn on_request_headers(&mut self, picker: &mut Picker, head: &HttpHeaders) -> Option<String> {
        let config = picker.router.config();
        let api = Api::from_path(head.value(":path")?, &config.request.base_paths)?;
        if head.value(":method")? != b"POST" {
            return None;
        }
        self.stage = Stage::Sent;
        if head.end_of_stream {
            picker.counts.unrouted += 1;
            return None;
        }
        self.announced_bytes = announced_bytes(head);
        self.ask.session = named_session(picker, head);
        let is_encoded = head.value("content-encoding").is_some_and(|value| !value.eq_ignore_ascii_case(b"identity"));
        let needs = config.policies.first().map_or(Needs::Nothing, |policy| policy.policy.needs());
        let wants_session = self.ask.session.is_none() && !config.session.body_key.is_empty();
        if is_encoded || !(needs > Needs::Nothing || wants_session) {
            self.ask.prompt_bytes = self.announced_bytes.unwrap_or_default();
            return self.decide(picker);
        }
        self.stage = Stage::Reading(api);
        None
    }

    /// The destinations. The body is whole, as Envoy buffers it.
    fn on_request_body(&mut self, picker: &mut Picker, body: &HttpBody) -> Option<String> {
        let Stage::Reading(api) = self.stage else { return None };
        self.stage = Stage::Sent;
        let bytes_max = picker.router.config().request.scan_bytes_max;
        let scanned = body.body.get(..bytes_max).unwrap_or(&body.body);
        let is_truncated = scanned.len() < body.body.len();
        let body = Body { bytes: scanned, is_truncated, announced_bytes: self.announced_bytes };
        match picker.router.read_prompt(api, &body, self.ask.session) {
            Ok(reading) => {
                self.ask.take_in(&reading);
                self.decide(picker)
            }
            Err(_) => {
                picker.counts.unrouted += 1;
                None
            }
        }
    }

    /// Addresses in order, parted by commas.
    fn decide(&mut self, picker: &mut Picker) -> Option<String> {
        let decision = picker.router.decide(&mut picker.store, &self.ask, &mut self.exchange, now());
        let Some(decision) = decision else {
            picker.counts.unrouted += 1;
            return None;
        };
        picker.counts.routed += 1;
        let pool = picker.router.pool(POOL)?;
        let addresses: Vec<&str> =
            decision.picks.as_slice().iter().filter_map(|worker| pool.address(*worker)).collect();
        Some(addresses.join(","))
    }

    /// The answer is taken to be of the first pick: Envoy does not say whose it is, and a retry is rare.
    fn on_response_headers(&mut self, picker: &mut Picker, head: &HttpHeaders) {
        if self.stage != Stage::Sent {
            return;
        }
        self.stage = Stage::Answered;
        let Picker { router, store, .. } = picker;
        let status = head.value(":status").and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
        let pick = self.exchange.decision().and_then(|decision| decision.picks.first());
        let source = pick.map_or(Source::Host { tried: None }, Source::Worker);
        router.answered(store, POOL, &mut self.exchange, source, status.unwrap_or_default(), now());
        if !self.gets_answer {
            self.stage = Stage::Streaming;
            router.first_byte(store, POOL, &mut self.exchange, now());
        } else if self.exchange.credit().is_some() && head.value("content-encoding").is_none() {
            self.usage = Some(UsageReader::default());
        }
    }

    fn on_response_body(&mut self, picker: &mut Picker, body: &HttpBody) {
        self.is_complete |= body.end_of_stream;
        if body.body.is_empty() {
            return;
        }
        if let Some(reader) = &mut self.usage {
            reader.feed(&body.body);
        }
        if self.stage != Stage::Answered {
            return;
        }
        self.stage = Stage::Streaming;
        let Picker { router, store, .. } = picker;
        router.first_byte(store, POOL, &mut self.exchange, now());
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.stage == Stage::Passing {
            return;
        }
        let usage = self.usage.as_ref().filter(|_| self.is_complete).and_then(UsageReader::usage);
        picker::with(|picker| {
            let Picker { router, store, counts, .. } = picker;
            if let Some(prediction) = router.end(store, POOL, &mut self.exchange, usage, now()) {
                counts.cached_tokens += u64::from(prediction.cached_tokens);
            }
        });
    }
}

/// Lets the event pass, with the destinations as a header if there are any.
fn reply(destinations: Option<String>) -> PartResponse {
    let set = |destinations: String| {
        let header =
            HeaderValue { key: DESTINATION_HEADER.into(), raw_value: destinations.into(), ..HeaderValue::default() };
        let option = HeaderValueOption { header: Some(header), append_action: OVERWRITE_IF_EXISTS_OR_ADD };
        CommonResponse { header_mutation: Some(HeaderMutation { set_headers: vec![option] }) }
    };
    PartResponse { response: destinations.map(set) }
}

/// The hash of the session that header or cookie names, where they are configured.
fn named_session(picker: &Picker, head: &HttpHeaders) -> Option<u64> {
    let names = &picker.router.config().session;
    let header = || (!names.header.is_empty()).then(|| head.value(&names.header)).flatten().and_then(session_hash);
    let cookie = || {
        let cookies = (!names.cookie.is_empty()).then(|| head.value("cookie")).flatten()?;
        session_hash(cookie_value(cookies, names.cookie.as_bytes())?)
    };
    header().or_else(cookie)
}

/// How many bytes the body is announced to have.
fn announced_bytes(head: &HttpHeaders) -> Option<u64> {
    std::str::from_utf8(head.value("content-length")?).ok()?.parse().ok()
}
