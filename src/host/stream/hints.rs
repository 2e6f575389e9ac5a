//! What a request says of where it goes: removed where it is a stranger's, understood where a trusted hop says it.

use super::Stream;
use super::headers::announced_bytes;
use crate::direct::{BODY_HINTS, Directions, SUBSET_METADATA};
use crate::host::abi::{self, Buffer, HeaderMap};
use crate::host::plugin::Plugin;
use crate::request::{Headers, wipe_hints};
use crate::router::session_hash;
use crate::stats::Stat;
use crate::trust::says_yes;

/// The caller's address and port.
const SOURCE_ADDRESS: &str = "source\0address";

/// Whether all that comes in by the listener is trusted.
const LISTENER_TRUSTED: &str = "xds\0listener_metadata\0filter_metadata\0warmroute\0trusted";

/// Whether all that takes the route is trusted.
const ROUTE_TRUSTED: &str = "xds\0route_metadata\0filter_metadata\0warmroute\0trusted";

impl Stream {
    /// Finds out whether the request is trusted; then what it says of where it goes is noted, else removed. What is for this
    /// router alone goes no further in any case. `is_told` = its route is the one that the host tells of.
    pub(super) fn take_hints(&mut self, plugin: &Plugin, is_told: bool) {
        let config = plugin.router.config();
        self.is_trusted = self.has_secret || is_trusted(plugin, is_told);
        let hints = std::mem::take(&mut self.hints);
        let mut directions = Directions::default();
        if !hints.is_empty() && self.is_trusted {
            let pairs = abi::header_pairs(HeaderMap::Request);
            let (told, contradicted) = Directions::of_headers(Headers::new(&pairs), &config.session.header);
            directions = told;
            for (place, hint) in hints.iter() {
                if hint.is_consumed || contradicted.contains(place) {
                    abi::remove_header(HeaderMap::Request, hint.name);
                }
            }
        } else if !hints.is_empty() {
            self.note_removed(plugin);
            hints.iter().for_each(|(_, hint)| abi::remove_header(HeaderMap::Request, hint.name));
        }
        if config.trust.metadata
            && let Some(subset) = abi::property_if_empty_too(SUBSET_METADATA)
        {
            directions.add_subset_metadata(&subset);
        }
        if let Some(key) = directions.routing_key.as_ref().and_then(|key| session_hash(key)) {
            self.ask.session = Some(key);
        }
        self.ask.directions = Some(directions).filter(|directions| !directions.is_empty()).map(Box::new);
    }

    /// The body has members that may say where it goes: that is noted, or wiped out of it.
    pub(super) fn take_body_hints(&mut self, plugin: &Plugin, bytes: &[u8]) {
        if self.is_trusted {
            let mut directions = self.ask.directions.take().unwrap_or_default();
            directions.add_body(bytes);
            self.ask.directions = Some(directions).filter(|directions| !directions.is_empty());
            return;
        }
        // More may be buffered than was read, and only all of it can be replaced.
        let Some(mut buffered) = abi::buffer(Buffer::RequestBody, usize::MAX >> 1) else { return };
        let (members, _) = wipe_hints(&mut buffered, &BODY_HINTS);
        if members > 0 && abi::replace_buffer(Buffer::RequestBody, &buffered) {
            self.note_removed(plugin);
        }
    }

    /// Counts a body of which not all was looked at, where that matters: where a stranger's may choose a worker of NVIDIA
    /// Dynamo, and where a trusted hop's may have said more than its headers did. `pool` = the one that it is for; without
    /// one it may come to any, if its route is not known, and else to none.
    pub(super) fn note_unread(&self, plugin: &Plugin, pool: Option<usize>) {
        let pools = &plugin.router.config().pools;
        let may_be_its = |number: usize| pool.map_or(self.is_route_stale, |pool| pool == number);
        let its_pools = pools.iter().enumerate().filter(|(number, _)| may_be_its(*number));
        let may_be_dynamo =
            || its_pools.map(|(_, pool)| pool.engine.is_dynamo()).any(|is_dynamo| is_dynamo != Some(false));
        if if self.is_trusted { self.ask.directions.is_none() } else { may_be_dynamo() } {
            plugin.stats.count(Stat::HintsUnread);
        }
    }

    /// A request that no format reads: it is not looked at, but may be sent where the load is least, or where a trusted hop
    /// says. `has_body` = it is one that may have hints in its body.
    pub(super) fn route_other(&mut self, plugin: &mut Plugin, has_body: bool) {
        let config = plugin.router.config();
        let policy = config.other_policy;
        let may_be_led = policy.is_some() || !self.hints.is_empty() || config.trust.metadata;
        if !may_be_led && !has_body {
            return;
        }
        let Some(route) = self.find_pool(plugin, None) else { return self.leave_astray(plugin, false) };
        self.take_hints(plugin, route.is_told);
        if has_body {
            self.note_unread(plugin, Some(route.pool));
        }
        if !may_be_led || (policy.is_none() && self.ask.directions.is_none()) {
            return;
        }
        self.enter(plugin, route);
        self.ask.policy = policy.unwrap_or(self.ask.policy);
        self.ask.prompt_bytes = announced_bytes().unwrap_or_default();
        self.decide(plugin, abi::now().as_ns());
    }

    fn note_removed(&mut self, plugin: &Plugin) {
        if !std::mem::replace(&mut self.has_lost_hints, true) {
            plugin.stats.count(Stat::HintsRemoved);
        }
    }
}

/// Whether the request is trusted for where it comes from. Nothing is asked of the host that is not configured.
fn is_trusted(plugin: &Plugin, is_told: bool) -> bool {
    let trust = &plugin.router.config().trust;
    let says_so = |path| abi::property(path).is_some_and(|value| says_yes(&value));
    let is_known = || abi::property(SOURCE_ADDRESS).is_some_and(|address| trust.knows_source(&address));
    let has_metadata = || says_so(LISTENER_TRUSTED) || (is_told && says_so(ROUTE_TRUSTED));
    (!trust.source_ranges.is_empty() && is_known()) || (trust.metadata && has_metadata())
}
