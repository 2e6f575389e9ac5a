//! The ways that requests can take to the workers, and how each is started.

use std::any::Any;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute::schedule::POLICIES;
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, PlainPolicy, WORKER_CLUSTER, http_manager};
use warmroute_harness::envoy::Envoy;
use warmroute_harness::peers::{Peer, PeerKind};

use crate::picker::Picker;

/// What the files in `envoy/` give a route of large bodies; the same for every Envoy here.
const REQUEST_BODY_BUFFER_BYTES_MAX: u32 = 2 << 20;

/// One way from the load to the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    /// Its name in the results.
    pub name: &'static str,
    /// Its policy's name; empty where it has none.
    pub policy: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// To the first worker itself.
    Direct,
    Envoy(PlainPolicy),
    /// Envoy with a wasm filter that only waits for the body.
    NoOp,
    /// Envoy that asks a picker process; whether that reads the usage out of the answers, as the plugin does.
    EndpointPicker {
        reads_usage: bool,
    },
    Warmroute,
    /// The plugin's other build.
    WarmrouteOther,
    Peer(PeerKind),
}

/// What all paths of a run have in common.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// A build of the plugin instead of `target/warmroute.wasm`.
    pub wasm: Option<PathBuf>,
    /// A second build, for `warmroute-other`.
    pub wasm_other: Option<PathBuf>,
    /// Envoy's worker threads.
    pub concurrency: u32,
    /// `index.pages` of the plugin; its default if none.
    pub index_pages: Option<u32>,
    /// `poll.intervalMs` of the plugin; its default if none.
    pub poll_interval_ms: Option<u32>,
}

/// A started path. Dropping it ends its processes.
pub(crate) struct Running {
    /// Which one.
    pub path: Path,
    /// Where requests go.
    pub address: SocketAddr,
    /// Whose CPU time and memory are the path's.
    pub process_ids: Vec<u32>,
    /// Ends the processes when dropped.
    _processes: Vec<Box<dyn Any + Send>>,
}

impl Setting {
    /// The plugin as built last, with its own defaults, on one thread.
    pub(crate) fn new() -> Self {
        Self { wasm: None, wasm_other: None, concurrency: 1, index_pages: None, poll_interval_ms: None }
    }

    /// Every path that this setting allows, the base of all ratios first.
    pub(crate) fn paths(&self, with_peers: bool) -> Vec<Path> {
        let path = |name, policy, kind| Path { name, policy, kind };
        let mut paths = vec![
            BASE,
            path("direct", "", Kind::Direct),
            path("envoy", "least-request", Kind::Envoy(PlainPolicy::LeastRequest)),
            path("envoy-noop", "", Kind::NoOp),
            path("endpoint-picker", "hybrid", Kind::EndpointPicker { reads_usage: false }),
            path("endpoint-picker-usage", "hybrid", Kind::EndpointPicker { reads_usage: true }),
        ];
        paths.extend(POLICIES.iter().map(|policy| path("warmroute", policy.name, Kind::Warmroute)));
        if self.wasm_other.is_some() {
            paths.push(path("warmroute-other", "hybrid", Kind::WarmrouteOther));
        }
        if with_peers {
            for (kind, policies) in [
                (PeerKind::SglangRouter, ["cache_aware", "round_robin"]),
                (PeerKind::VllmRouter, ["cache_aware", "consistent_hash"]),
            ] {
                paths.extend(policies.map(|policy| path(kind.name(), policy, Kind::Peer(kind))));
            }
        }
        paths
    }

    /// The plugin's configuration.
    fn plugin(&self, policy: &str, workers: &[SocketAddr]) -> Value {
        let rows: Vec<Value> = workers.iter().map(|address| json!({ "address": address })).collect();
        let mut plugin = json!({
            "policy": policy,
            "pools": [{ "cluster": WORKER_CLUSTER, "workers": rows }],
            "poll": { "cluster": POLL_CLUSTER },
        });
        if policy == "session" {
            plugin["session"] = json!({ "header": "x-session-id" });
        }
        if let Some(pages) = self.index_pages {
            plugin["index"] = json!({ "pages": pages });
        }
        if let Some(interval_ms) = self.poll_interval_ms {
            plugin["poll"]["intervalMs"] = interval_ms.into();
        }
        plugin
    }
}

/// What everything is compared with.
pub(crate) const BASE: Path = Path { name: "envoy", policy: "round-robin", kind: Kind::Envoy(PlainPolicy::RoundRobin) };

impl Path {
    /// `warmroute/hybrid`, or the name alone.
    pub(crate) fn full_name(self) -> String {
        if self.policy.is_empty() { self.name.to_owned() } else { format!("{}/{}", self.name, self.policy) }
    }

    /// Whether it is measured in every cell, and not only in the first.
    pub(crate) fn is_main(self) -> bool {
        let first_policy = match self.kind {
            Kind::Direct => return false,
            Kind::Envoy(policy) => return policy == PlainPolicy::RoundRobin,
            Kind::NoOp => return true,
            Kind::EndpointPicker { reads_usage } => return !reads_usage,
            Kind::Warmroute | Kind::WarmrouteOther => "hybrid",
            Kind::Peer(_) => "cache_aware",
        };
        self.policy == first_policy
    }

    /// Whether answers that come in pieces are what it is measured for.
    pub(crate) fn is_for_streams(self) -> bool {
        self.is_main() || self.kind == Kind::EndpointPicker { reads_usage: true }
    }

    /// Starts it, and returns when it takes requests.
    ///
    /// # Errors
    /// When a process does not start.
    pub(crate) async fn start(self, setting: &Setting, workers: &[SocketAddr]) -> Result<Running> {
        let running =
            |address, process_ids, processes| Running { path: self, address, process_ids, _processes: processes };
        let mut picker = None;
        let config = match self.kind {
            Kind::Direct => {
                return Ok(running(*workers.first().context("no workers")?, Vec::new(), Vec::new()));
            }
            Kind::Peer(kind) => {
                let peer = Peer::start(kind, self.policy, workers).await?;
                return Ok(running(peer.address(), vec![peer.process_id()], vec![Box::new(peer)]));
            }
            Kind::Envoy(policy) => EnvoyConfig::plain(policy),
            Kind::NoOp => EnvoyConfig::no_op(),
            Kind::EndpointPicker { reads_usage } => {
                let asked = Picker::start(&setting.plugin(self.policy, workers))?;
                let config = EnvoyConfig::ext_proc(asked.address);
                picker = Some(asked);
                if reads_usage { config.picker_reads_usage() } else { config }
            }
            Kind::Warmroute => with_plugin(setting.wasm.as_ref(), setting.plugin(self.policy, workers)),
            Kind::WarmrouteOther => with_plugin(setting.wasm_other.as_ref(), setting.plugin(self.policy, workers)),
        };
        let config = config.workers(workers.iter().copied()).concurrency(setting.concurrency).retries_max(0);
        let envoy = Envoy::start(config.edit(with_room_for_bodies)).await?;
        let process_ids = std::iter::once(envoy.process_id()).chain(picker.as_ref().map(Picker::process_id)).collect();
        Ok(running(envoy.address(), process_ids, vec![Box::new(envoy), Box::new(picker)]))
    }
}

fn with_plugin(wasm: Option<&PathBuf>, plugin: Value) -> EnvoyConfig {
    let config = EnvoyConfig::warmroute(plugin);
    match wasm {
        Some(wasm) => config.plugin_file(wasm),
        None => config,
    }
}

fn with_room_for_bodies(bootstrap: &mut Value) {
    let route = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0];
    route["request_body_buffer_limit"] = REQUEST_BODY_BUFFER_BYTES_MAX.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_a_path_and_the_base_comes_first() {
        let setting = Setting { wasm_other: Some("other.wasm".into()), ..Setting::new() };
        let names: Vec<String> = setting.paths(true).into_iter().map(Path::full_name).collect();
        assert_eq!(names[0], "envoy/round-robin");
        for policy in POLICIES {
            assert!(names.contains(&format!("warmroute/{}", policy.name)), "{names:?}");
        }
        for name in [
            "direct",
            "envoy-noop",
            "endpoint-picker/hybrid",
            "warmroute-other/hybrid",
            "sglang-router/cache_aware",
            "vllm-router/consistent_hash",
        ] {
            assert!(names.iter().any(|have| have == name), "no {name} in {names:?}");
        }
    }

    #[test]
    fn few_paths_are_measured_everywhere() {
        let main: Vec<String> =
            Setting::new().paths(false).into_iter().filter(|path| path.is_main()).map(Path::full_name).collect();
        assert!(main.contains(&"envoy/round-robin".to_owned()) && main.contains(&"warmroute/hybrid".to_owned()));
        assert!(main.len() <= 4, "{main:?}");
    }
}
