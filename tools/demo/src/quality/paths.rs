//! The paths from a client to the engines that are compared.

use std::fmt;

use warmroute_harness::config::PlainPolicy;
use warmroute_harness::peers::PeerKind;

use crate::drive::SESSION_HEADER;
use crate::run::Balancer;

/// One path: a router with one of its policies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The router's name.
    pub(crate) path: &'static str,
    /// The policy's name there.
    pub(crate) policy: &'static str,
    /// The same, to be run.
    pub(crate) balancer: Balancer<'static>,
    /// The requests name their chats in [`SESSION_HEADER`].
    pub(crate) with_session: bool,
    /// The engines render prompts for who asks.
    pub(crate) with_render: bool,
    /// Measured only together with the peers.
    pub(crate) is_with_peers: bool,
}

/// What the others are compared with: the first of [`PATHS`].
pub(crate) const BASELINE: (&str, &str) = ("envoy", "round_robin");

/// All of them.
pub(crate) const PATHS: [Route; 10] = [
    envoy("round_robin", PlainPolicy::RoundRobin),
    envoy("least_request", PlainPolicy::LeastRequest),
    Route { path: "warmroute", policy: "hybrid", balancer: Balancer::Warmroute("hybrid"), ..BARE },
    Route {
        path: "warmroute",
        policy: "hybrid",
        balancer: Balancer::Warmroute("hybrid"),
        with_session: true,
        is_with_peers: true,
        ..BARE
    },
    peer(PeerKind::SglangRouter, "sglang-router", "cache_aware"),
    peer(PeerKind::SglangRouter, "sglang-router", "round_robin"),
    peer(PeerKind::VllmRouter, "vllm-router", "cache_aware"),
    Route { with_render: true, ..peer(PeerKind::VllmRouter, "vllm-router", "cache_aware") },
    peer(PeerKind::VllmRouter, "vllm-router", "consistent_hash"),
    Route { with_session: true, ..peer(PeerKind::VllmRouter, "vllm-router", "consistent_hash") },
];

/// With nothing that a client or an engine is not already.
const BARE: Route = envoy("round_robin", PlainPolicy::RoundRobin);

const fn envoy(policy: &'static str, plain: PlainPolicy) -> Route {
    Route {
        path: "envoy",
        policy,
        balancer: Balancer::Envoy(plain),
        with_session: false,
        with_render: false,
        is_with_peers: false,
    }
}

const fn peer(kind: PeerKind, path: &'static str, policy: &'static str) -> Route {
    Route { path, policy, balancer: Balancer::Peer(kind, policy), is_with_peers: true, ..BARE }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self.path, self.policy, self.with_session.then_some(SESSION_HEADER), self.with_render))
    }
}

/// How a path is called in tables.
pub(crate) fn name(path: &str, policy: &str, session_header: Option<&str>, with_render: bool) -> String {
    let session = session_header.map_or_else(String::new, |header| format!(" + {header}"));
    let render = if with_render { " + render" } else { "" };
    format!("{path} {policy}{session}{render}")
}
