//! A stream's answer: who gives it, what is told of it, and what its end settles.

use std::rc::Rc;

use super::refuse::{REASON_HEADER, RUNG_HEADER, UNDECIDED};
use super::{Stage, Stream, destinations};
use crate::direct::DESTINATION_HEADER;
use crate::exchange::{Answerer, Source};
use crate::host::abi::{self, Buffer, HeaderMap};
use crate::host::plugin::Plugin;
use crate::host::shared_data::SharedData;
use crate::response::AnswerReader;
use crate::stage::{self, Stage as Work};
use crate::stats::Stat;

/// What the host says of an answer that came from a worker; of its own it says the reason.
///
/// Source: Envoy's documentation, "Response code details".
const VIA_UPSTREAM: &[u8] = b"via_upstream";

/// Which header of an answer says who gave it.
const WORKER_HEADER: &str = "x-warmroute-worker";

/// Which ones say who was picked, and by which policy; with `responseHeaders`.
const PICKS_HEADER: &str = "x-warmroute-picks";
const POLICY_HEADER: &str = "x-warmroute-policy";

impl Stream {
    pub(in crate::host) fn on_response_headers(&mut self) {
        // An upstream that echoes headers must not tell the client where requests are sent, on whatever path. To find that
        // there is none costs less than to remove what is not there.
        if abi::has_header(HeaderMap::Response, DESTINATION_HEADER) {
            abi::remove_header(HeaderMap::Response, DESTINATION_HEADER);
        }
        if !self.has_pool || !matches!(self.stage, Stage::Reading(_) | Stage::Sent) {
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
        let first = self.exchange.decision().and_then(|decision| decision.picks.first());
        if let Source::Worker(worker) = source
            && first != Some(worker)
        {
            // Whoever answers instead of the first pick: which of the picks were tried at all?
            self.exchange.note_attempts(abi::property("upstream\0request_attempt_count").and_then(number));
        }
        stage::end(Work::ResponseHeaders);
        let answerer =
            plugin.router.answered(&mut SharedData, self.ask.pool, &mut self.exchange, source, status, abi::now());
        stage::end(Work::Answered);
        plugin.count_incidents();
        plugin.stats.count(match answerer {
            Answerer::FirstPick => Stat::AnsweredFirstPick,
            Answerer::LaterPick => Stat::AnsweredLaterPick,
            Answerer::Other if self.exchange.decision().is_none() => Stat::AnsweredUndecided,
            Answerer::Other => Stat::AnsweredOther,
            Answerer::Host => Stat::AnsweredByHost,
        });
        self.response_maker = match source {
            Source::Worker(worker) if self.is_response && (200..300).contains(&status) => Some(worker),
            _ => None,
        };
        // Of a compressed answer it finds nothing, which is as good as not reading it.
        let wants_usage = self.tells_usage && self.exchange.credit().is_some();
        self.reader = AnswerReader::new(wants_usage, self.response_maker.is_some());
        let address = if is_of_worker { &*address } else { "" };
        if plugin.router.config().response_headers {
            self.explain(&plugin);
        }
        self.tell_worker(&plugin, address);
    }

    /// Tells who answered to those who are trusted. To nobody else: another gateway like this one behind it may trust this
    /// one, and tell it. That one tells its worker wherever it tells anything, so that one question finds all.
    fn tell_worker(&self, plugin: &Plugin, address: &str) {
        if self.is_trusted || plugin.router.config().response_headers {
            if !address.is_empty() {
                abi::set_header(HeaderMap::Response, WORKER_HEADER, address);
            }
        } else if abi::has_header(HeaderMap::Response, WORKER_HEADER) {
            for header in [WORKER_HEADER, PICKS_HEADER, POLICY_HEADER, REASON_HEADER, RUNG_HEADER] {
                abi::remove_header(HeaderMap::Response, header);
            }
        }
    }

    /// Tells the client who was picked and why.
    fn explain(&self, plugin: &Plugin) {
        if let Some(policy) = plugin.router.config().policies.get(self.ask.policy) {
            abi::set_header(HeaderMap::Response, POLICY_HEADER, policy.name);
        }
        if let Some(decision) = self.exchange.decision() {
            let picks = destinations(plugin, self.ask.pool, decision);
            abi::set_header(HeaderMap::Response, PICKS_HEADER, &picks);
            abi::set_header(HeaderMap::Response, REASON_HEADER, decision.branch.name());
            abi::set_header(HeaderMap::Response, RUNG_HEADER, decision.rung.name());
        } else {
            abi::set_header(HeaderMap::Response, RUNG_HEADER, UNDECIDED);
        }
    }

    /// `body_bytes` of the answer have come: with the first ones its prompt is prefilled, and in some of them are `usage` and
    /// name.
    pub(in crate::host) fn on_response_body(&mut self, body_bytes: usize, is_end: bool) {
        self.is_complete |= is_end;
        if body_bytes == 0 {
            return;
        }
        self.read_answer(body_bytes);
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

    /// Reads the next `body_bytes` of the answer, if anything in them is wanted.
    fn read_answer(&mut self, body_bytes: usize) {
        let Some(reader) = &mut self.reader else { return };
        let Some(bytes) = abi::buffer(Buffer::ResponseBody, body_bytes) else { return };
        stage::end(Work::ReadAnswer);
        let response = reader.feed(&bytes);
        stage::end(Work::ReadUsage);
        if reader.is_done() {
            self.reader = None;
        }
        if let (Some(worker), Some(response)) = (self.response_maker, response)
            && let Ok(mut plugin) = self.plugin.try_borrow_mut()
        {
            // Before the client can read it: the next request may come at once.
            plugin.router.note_response(&mut SharedData, self.ask.pool, worker, response);
            plugin.count_incidents();
        }
    }

    /// The stream is over, however it came to its end.
    pub(in crate::host) fn on_end(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        if !self.has_pool || matches!(stage, Stage::Passing | Stage::Refused | Stage::Ended) {
            return;
        }
        let plugin = Rc::clone(&self.plugin);
        let Ok(mut plugin) = plugin.try_borrow_mut() else { return };
        if matches!(stage, Stage::Reading(_) | Stage::Sent) {
            plugin.stats.count(Stat::Unanswered);
        }
        let is_begun = matches!(stage, Stage::Answered | Stage::Streaming);
        if is_begun
            && !self.is_complete
            && abi::property("response\0code_details").is_some_and(|told| is_broken_off(&told))
        {
            plugin.router.broke_off(&mut SharedData, self.ask.pool, &self.exchange, abi::now());
        }
        let usage = self.reader.as_ref().filter(|_| self.is_complete).and_then(AnswerReader::usage);
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

/// Whether the host could not talk to the worker: it refused, or broke the connection off. A time-out says as much of the
/// request as of the worker, and a limit of the host nothing.
///
/// Source: Envoy's documentation, "Response code details": `upstream_reset_before_response_started{reason}`.
fn is_workers_fault(details: &[u8]) -> bool {
    details.starts_with(b"upstream_reset_before_response_started{") && !details.ends_with(b"{overflow}")
}

/// Whether the worker broke off an answer that it had begun; else the client left, or a time-out of the host came.
///
/// Source: Envoy's documentation, "Response code details": `upstream_reset_after_response_started{reason}`.
fn is_broken_off(details: &[u8]) -> bool {
    details.starts_with(b"upstream_reset_after_response_started{")
}

/// A property that is a number: the host writes all of them in eight bytes.
fn number(bytes: Vec<u8>) -> Option<u32> {
    u32::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// The answer's status; 0 if it has none.
fn status(map: HeaderMap) -> u32 {
    let status = abi::header(map, ":status");
    status.and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok()).unwrap_or_default()
}
