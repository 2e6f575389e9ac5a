//! The Envoy configuration of a run, as JSON (which is YAML too).
//!
//! The same shape as the files in `envoy/`: what the tests run is what people are told to deploy.

mod comparison;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::artefacts::noop_path;
use comparison::ExtProc;
pub use comparison::{NO_OP, PICKER_CLUSTER};

/// The header by which the plugin tells Envoy its choice, and the metadata key it is moved to.
pub const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";
/// The cluster that requests are routed to.
pub const WORKER_CLUSTER: &str = "llm";
/// The cluster through which the plugin reads the workers' `/metrics`.
pub const POLL_CLUSTER: &str = "warmroute_poll";
/// The plugin's name, also as the resource that extension config discovery asks for.
pub const PLUGIN: &str = "warmroute";

/// Below the run's directory: where the plugin's config is watched.
pub(crate) const ECDS_DIRECTORY: &str = "ecds";
pub(crate) const ECDS_FILE: &str = "ecds/warmroute.json";
const WASM_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";

/// Envoy's own load balancing, without the plugin: what the plugin is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainPolicy {
    /// In order.
    RoundRobin,
    /// Of two random workers the one with fewer active requests.
    LeastRequest,
}

/// How the plugin's configuration is written in Envoy's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PluginForm {
    /// `google.protobuf.Struct`: plain keys, as in the files in `envoy/`.
    #[default]
    Struct,
    /// `google.protobuf.StringValue`: JSON as text.
    Text,
}

#[derive(Debug, Clone)]
pub(crate) enum Routing {
    Warmroute { plugin: Value },
    Plain(PlainPolicy),
    NoOp,
    ExtProc(ExtProc),
}

/// Changes the finished bootstrap, for what no method here covers.
type Edit = Box<dyn Fn(&mut Value) + Send>;

/// How one Envoy is to run. Made by [`EnvoyConfig::warmroute`], [`EnvoyConfig::plain`], [`EnvoyConfig::no_op`] or
/// [`EnvoyConfig::ext_proc`], refined by the methods below.
pub struct EnvoyConfig {
    pub(crate) routing: Routing,
    pub(crate) concurrency: u32,
    pub(crate) log_level: String,
    pub(crate) plugin_form: PluginForm,
    pub(crate) plugin_file: Option<PathBuf>,
    workers: Vec<SocketAddr>,
    connection_buffer_bytes_max: Option<u32>,
    per_try_timeout_ms: Option<u64>,
    retries_max: u32,
    filters_before: Vec<Value>,
    filters_after: Vec<Value>,
    clusters: Vec<Value>,
    edits: Vec<Edit>,
}

impl EnvoyConfig {
    /// With the plugin, which gets `plugin` as its configuration.
    pub fn warmroute(plugin: Value) -> Self {
        Self::new(Routing::Warmroute { plugin })
    }

    /// Without the plugin.
    pub fn plain(policy: PlainPolicy) -> Self {
        Self::new(Routing::Plain(policy))
    }

    fn new(routing: Routing) -> Self {
        Self {
            routing,
            concurrency: 2,
            log_level: "warning".into(),
            plugin_form: PluginForm::default(),
            plugin_file: None,
            workers: Vec::new(),
            connection_buffer_bytes_max: None,
            per_try_timeout_ms: None,
            retries_max: 2,
            filters_before: Vec::new(),
            filters_after: Vec::new(),
            clusters: Vec::new(),
            edits: Vec::new(),
        }
    }

    /// Adds one worker to the cluster [`WORKER_CLUSTER`].
    pub fn worker(self, address: SocketAddr) -> Self {
        self.workers([address])
    }

    /// Adds workers to the cluster [`WORKER_CLUSTER`].
    pub fn workers(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.workers.extend(addresses);
        self
    }

    /// Worker threads of Envoy, hence VMs that serve requests. Two unless set.
    pub fn concurrency(mut self, threads: u32) -> Self {
        self.concurrency = threads;
        self
    }

    /// Envoy's log level (`trace` to `critical`). `warning` unless set; the plugin's own lines appear from `info` on always.
    pub fn log_level(mut self, level: &str) -> Self {
        self.log_level = level.into();
        self
    }

    /// How the plugin's configuration is written, also in later pushes. [`PluginForm::Struct`] unless set.
    pub fn plugin_form(mut self, form: PluginForm) -> Self {
        self.plugin_form = form;
        self
    }

    /// Another build of the plugin than [`crate::artefacts::Artefacts::wasm`], for comparing two.
    pub fn plugin_file(mut self, wasm: &Path) -> Self {
        self.plugin_file = Some(wasm.to_path_buf());
        self
    }

    /// `per_connection_buffer_limit_bytes` of the listener. Envoy's own default (1 MiB) unless set.
    pub fn connection_buffer_bytes_max(mut self, bytes: u32) -> Self {
        self.connection_buffer_bytes_max = Some(bytes);
        self
    }

    /// Time after which an attempt is given up and retried on the next worker. None unless set.
    pub fn per_try_timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.per_try_timeout_ms = Some(timeout_ms);
        self
    }

    /// Retries after the first attempt. Two unless set; 0 takes the whole retry policy out.
    pub fn retries_max(mut self, retries: u32) -> Self {
        self.retries_max = retries;
        self
    }

    /// Adds an HTTP filter that runs before the plugin.
    pub fn filter_before(mut self, filter: Value) -> Self {
        self.filters_before.push(filter);
        self
    }

    /// Adds an HTTP filter that runs after the plugin (and after the header has become metadata), before the router.
    pub fn filter_after(mut self, filter: Value) -> Self {
        self.filters_after.push(filter);
        self
    }

    /// Adds a cluster.
    pub fn cluster(mut self, cluster: Value) -> Self {
        self.clusters.push(cluster);
        self
    }

    /// Changes the finished bootstrap; edits run in the order in which they were added. [`listener`], [`http_manager`] and
    /// [`cluster`] find the usual places.
    pub fn edit(mut self, edit: impl Fn(&mut Value) + Send + 'static) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// The bootstrap of an Envoy whose files live in `directory`.
    pub(crate) fn bootstrap(&self, directory: &Path) -> Value {
        let mut clusters = vec![self.worker_cluster()];
        match self.routing {
            Routing::Warmroute { .. } => clusters.push(poll_cluster()),
            Routing::ExtProc(picker) => clusters.push(comparison::picker_cluster(picker.address)),
            Routing::NoOp | Routing::Plain(_) => {}
        }
        clusters.extend(self.clusters.iter().cloned());
        let mut bootstrap = json!({
            // Envoy wants a name wherever it is to discover anything.
            "node": { "id": "gateway", "cluster": "gateway" },
            "admin": { "address": socket_address("127.0.0.1", 0) },
            // Histograms show only what has been flushed; the default of 5 s is long in a test.
            "stats_flush_interval": "0.250s",
            "static_resources": { "listeners": [self.listener(directory)], "clusters": clusters },
        });
        for edit in &self.edits {
            edit(&mut bootstrap);
        }
        bootstrap
    }

    fn listener(&self, directory: &Path) -> Value {
        let mut listener = json!({
            "name": "gateway",
            "address": socket_address("127.0.0.1", 0),
            "filter_chains": [{ "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": self.http_connection_manager(directory),
            }] }],
        });
        if let Some(bytes) = self.connection_buffer_bytes_max {
            listener["per_connection_buffer_limit_bytes"] = bytes.into();
        }
        listener
    }

    fn http_connection_manager(&self, directory: &Path) -> Value {
        json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "gateway",
            "codec_type": "AUTO",
            "http_protocol_options": { "enable_trailers": true },
            // No client may name its worker: the header is gone before any filter sees the request.
            "early_header_mutation_extensions": [{
                "name": "envoy.http.early_header_mutation.header_mutation",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                    "mutations": [{ "remove": DESTINATION_HEADER }],
                },
            }],
            "http_filters": self.http_filters(directory),
            "route_config": {
                "name": "routes",
                "virtual_hosts": [{
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{ "name": "llm", "match": { "prefix": "/" }, "route": self.route() }],
                }],
            },
        })
    }

    fn http_filters(&self, directory: &Path) -> Value {
        let mut filters = self.filters_before.clone();
        match self.routing {
            Routing::Warmroute { .. } => filters.extend([discovered_plugin(directory), header_to_metadata()]),
            Routing::ExtProc(picker) => filters.extend([comparison::ext_proc_filter(picker), header_to_metadata()]),
            Routing::NoOp => filters.push(comparison::no_op_filter(&noop_path())),
            Routing::Plain(_) => {}
        }
        filters.extend(self.filters_after.iter().cloned());
        filters.push(json!({
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
        }));
        filters.into()
    }

    fn route(&self) -> Value {
        // Generations outlast Envoy's default route timeout of 15 s.
        let mut route = json!({ "cluster": WORKER_CLUSTER, "timeout": "0s" });
        if self.retries_max > 0 {
            route["retry_policy"] = json!({
                "retry_on": "connect-failure,refused-stream,reset,reset-before-request,retriable-status-codes",
                "retriable_status_codes": [503],
                "num_retries": self.retries_max,
            });
            if let Some(timeout_ms) = self.per_try_timeout_ms {
                route["retry_policy"]["per_try_timeout"] = seconds(timeout_ms).into();
            }
        }
        route
    }

    fn worker_cluster(&self) -> Value {
        let policy = match self.routing {
            Routing::Plain(PlainPolicy::RoundRobin) | Routing::NoOp => round_robin(),
            Routing::Plain(PlainPolicy::LeastRequest) => load_balancing("least_request", "LeastRequest", json!({})),
            Routing::Warmroute { .. } | Routing::ExtProc(_) => load_balancing(
                "override_host",
                "OverrideHost",
                json!({
                    "override_host_sources": [{ "metadata": { "key": "envoy.lb", "path": [{ "key": DESTINATION_HEADER }] } }],
                    "fallback_policy": round_robin(),
                }),
            ),
        };
        let endpoints: Vec<Value> = self
            .workers
            .iter()
            .map(|worker| json!({ "endpoint": { "address": socket_address(&worker.ip().to_string(), worker.port()) } }))
            .collect();
        json!({
            "name": WORKER_CLUSTER,
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_balancing_policy": policy,
            "load_assignment": { "cluster_name": WORKER_CLUSTER, "endpoints": [{ "lb_endpoints": endpoints }] },
            // Envoy's defaults (1024 requests, 3 retries at a time) would be what a burst measures.
            "circuit_breakers": { "thresholds": [{
                "max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000, "max_retries": 10_000,
            }] },
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http_protocol_options": { "enable_trailers": true } },
                },
            },
        })
    }
}

/// The listener, for [`EnvoyConfig::edit`].
pub fn listener(bootstrap: &mut Value) -> &mut Value {
    &mut bootstrap["static_resources"]["listeners"][0]
}

/// The HTTP connection manager of the listener, for [`EnvoyConfig::edit`].
pub fn http_manager(bootstrap: &mut Value) -> &mut Value {
    &mut listener(bootstrap)["filter_chains"][0]["filters"][0]["typed_config"]
}

/// The cluster of that name, for [`EnvoyConfig::edit`].
pub fn cluster<'a>(bootstrap: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    bootstrap["static_resources"]["clusters"].as_array_mut()?.iter_mut().find(|cluster| cluster["name"] == name)
}

/// What the watched file holds: the plugin's code and configuration. `version` must differ from push to push.
pub(crate) fn discovery_response(plugin: &Value, form: PluginForm, wasm: &Path, version: u64) -> Value {
    let configuration = match form {
        PluginForm::Struct => json!({ "@type": "type.googleapis.com/google.protobuf.Struct", "value": plugin }),
        PluginForm::Text => {
            json!({ "@type": "type.googleapis.com/google.protobuf.StringValue", "value": plugin.to_string() })
        }
    };
    json!({
        "version_info": version.to_string(),
        "resources": [{
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": PLUGIN,
            "typed_config": { "@type": WASM_TYPE, "config": {
                "name": PLUGIN,
                "root_id": PLUGIN,
                // Without it Envoy would never call the body callback of a request that waits for its body.
                "allow_on_headers_stop_iteration": true,
                "failure_policy": "FAIL_RELOAD",
                "vm_config": {
                    "vm_id": PLUGIN,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": { "local": { "filename": wasm } },
                },
                "configuration": configuration,
            } },
        }],
    })
}

/// The plugin's filter, whose code and configuration are watched.
fn discovered_plugin(directory: &Path) -> Value {
    json!({
        "name": PLUGIN,
        "config_discovery": {
            "config_source": {
                "path_config_source": {
                    "path": directory.join(ECDS_FILE),
                    "watched_directory": { "path": directory.join(ECDS_DIRECTORY) },
                },
                "resource_api_version": "V3",
            },
            "type_urls": [WASM_TYPE],
        },
    })
}

fn header_to_metadata() -> Value {
    json!({
        "name": "envoy.filters.http.header_to_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{
                "header": DESTINATION_HEADER,
                "on_header_present": {
                    "metadata_namespace": "envoy.lb", "key": DESTINATION_HEADER, "type": "STRING",
                },
                "remove": true,
            }],
        },
    })
}

fn poll_cluster() -> Value {
    json!({
        "name": POLL_CLUSTER,
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "1s",
        "original_dst_lb_config": { "use_http_header": true },
    })
}

fn round_robin() -> Value {
    load_balancing("round_robin", "RoundRobin", json!({}))
}

fn load_balancing(name: &str, message: &str, mut config: Value) -> Value {
    config["@type"] =
        format!("type.googleapis.com/envoy.extensions.load_balancing_policies.{name}.v3.{message}").into();
    json!({ "policies": [{ "typed_extension_config": {
        "name": format!("envoy.load_balancing_policies.{name}"), "typed_config": config,
    } }] })
}

fn socket_address(host: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": host, "port_value": port } })
}

/// A protobuf duration in JSON.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}s", ms / 1000, ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn filter_names(bootstrap: &mut Value) -> Vec<String> {
        let filters = http_manager(bootstrap)["http_filters"].as_array().expect("a list");
        filters.iter().map(|filter| filter["name"].as_str().expect("a name").to_owned()).collect()
    }

    #[test]
    fn the_plugin_decides_before_the_header_becomes_metadata_before_the_router() {
        let config = EnvoyConfig::warmroute(json!({}))
            .filter_before(json!({ "name": "before" }))
            .filter_after(json!({ "name": "after" }));
        let names = filter_names(&mut config.bootstrap(Path::new("/run")));
        let router = "envoy.filters.http.router";
        assert_eq!(names, ["before", PLUGIN, "envoy.filters.http.header_to_metadata", "after", router]);
    }

    #[test]
    fn plain_has_nothing_of_the_plugin() {
        let bootstrap = EnvoyConfig::plain(PlainPolicy::LeastRequest).bootstrap(Path::new("/run")).to_string();
        assert!(!bootstrap.contains(PLUGIN) && !bootstrap.contains("override_host"), "{bootstrap}");
        assert!(bootstrap.contains("LeastRequest"), "{bootstrap}");
    }

    #[test]
    fn options_reach_their_place() {
        let config = EnvoyConfig::warmroute(json!({}))
            .workers(["127.0.0.1:81".parse().expect("an address"), "[::1]:82".parse().expect("an address")])
            .connection_buffer_bytes_max(4096)
            .per_try_timeout_ms(1250)
            .retries_max(3)
            .cluster(json!({ "name": "more" }))
            .edit(|bootstrap| listener(bootstrap)["name"] = "edited".into());
        let mut bootstrap = config.bootstrap(Path::new("/run"));
        assert_eq!(listener(&mut bootstrap)["name"], "edited");
        assert_eq!(listener(&mut bootstrap)["per_connection_buffer_limit_bytes"], 4096);
        let route = http_manager(&mut bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0]["route"].clone();
        assert_eq!(route["retry_policy"]["num_retries"], 3);
        assert_eq!(route["retry_policy"]["per_try_timeout"], "1.250s");
        assert!(cluster(&mut bootstrap, "more").is_some());
        let workers = cluster(&mut bootstrap, WORKER_CLUSTER).expect("the cluster")["load_assignment"].to_string();
        assert!(workers.contains(r#""address":"::1","port_value":82"#), "{workers}");
    }

    #[test]
    fn without_retries_there_is_no_retry_policy() {
        let mut bootstrap = EnvoyConfig::plain(PlainPolicy::RoundRobin).retries_max(0).bootstrap(Path::new("/run"));
        assert!(!http_manager(&mut bootstrap).to_string().contains("retry_policy"));
    }

    #[test]
    fn the_watched_file_carries_the_plugins_own_config() {
        let plugin = json!({ "policy": { "name": "random" } });
        let response = |form| discovery_response(&plugin, form, Path::new("/p.wasm"), 7);
        assert_eq!(response(PluginForm::Struct)["version_info"], "7");
        let config = |form| response(form)["resources"][0]["typed_config"]["config"].clone();
        assert_eq!(config(PluginForm::Struct)["configuration"]["value"], plugin);
        assert_eq!(config(PluginForm::Text)["configuration"]["value"], plugin.to_string());
        let config = config(PluginForm::default());
        assert_eq!(config["vm_config"]["code"]["local"]["filename"], "/p.wasm");
        assert_eq!(config["allow_on_headers_stop_iteration"], true);
    }
}
