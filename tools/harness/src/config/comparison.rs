//! What the plugin's cost is compared with: a filter that does nothing, and an endpoint picker behind `ext_proc`.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::{EnvoyConfig, Routing, socket_address};

/// The filter that does nothing, as it is named in Envoy's config.
pub const NO_OP: &str = "warmroute_no_op";
/// The cluster that leads to the endpoint picker.
pub const PICKER_CLUSTER: &str = "endpoint_picker";
/// The filter that asks the endpoint picker.
pub(super) const EXT_PROC: &str = "envoy.filters.http.ext_proc";

/// How the endpoint picker is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtProc {
    pub(crate) address: SocketAddr,
    /// Whether it also gets the answers' bodies, to read `usage`.
    pub(crate) reads_usage: bool,
}

impl EnvoyConfig {
    /// Without the plugin, in order, and with a wasm filter that waits for the body and does nothing: what WebAssembly
    /// itself costs. `make noop-wasm` builds it.
    pub fn no_op() -> Self {
        Self::new(Routing::NoOp)
    }

    /// Without the plugin, and with the `ext_proc` filter, which asks the endpoint picker at `picker`. Where that cannot
    /// be asked, requests fail. Its decisions are followed as the plugin's are.
    pub fn ext_proc(picker: SocketAddr) -> Self {
        Self::new(Routing::ExtProc(ExtProc { address: picker, reads_usage: false }))
    }

    /// Lets the endpoint picker have the answers' bodies too, piece by piece. Only with [`EnvoyConfig::ext_proc`].
    pub fn picker_reads_usage(mut self) -> Self {
        if let Routing::ExtProc(picker) = &mut self.routing {
            picker.reads_usage = true;
        }
        self
    }
}

/// A wasm filter with the VM and the flags of the plugin, so that only what the code does is different.
pub(super) fn no_op_filter(wasm: &Path) -> Value {
    json!({
        "name": NO_OP,
        "typed_config": { "@type": super::WASM_TYPE, "config": {
            "name": NO_OP,
            "root_id": NO_OP,
            // Without it Envoy would never call the body callback of a request that waits for its body.
            "allow_on_headers_stop_iteration": true,
            "failure_policy": "FAIL_RELOAD",
            "vm_config": {
                "vm_id": NO_OP,
                "runtime": "envoy.wasm.runtime.v8",
                "code": { "local": { "filename": wasm } },
            },
        } },
    })
}

/// The filter that sends the picker the request's headers, its whole body, and the answer's headers.
pub(super) fn ext_proc_filter(picker: ExtProc) -> Value {
    json!({
        "name": EXT_PROC,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": { "envoy_grpc": { "cluster_name": PICKER_CLUSTER } },
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "BUFFERED",
                "request_trailer_mode": "SKIP",
                "response_header_mode": "SEND",
                "response_body_mode": if picker.reads_usage { "STREAMED" } else { "NONE" },
                "response_trailer_mode": "SKIP",
            },
            // Far above what a picker takes, so that a busy machine measures slow and not wrong.
            "message_timeout": "10s",
            "failure_mode_allow": false,
        },
    })
}

pub(super) fn picker_cluster(address: SocketAddr) -> Value {
    let endpoint = json!({ "endpoint": { "address": socket_address(&address.ip().to_string(), address.port()) } });
    json!({
        "name": PICKER_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": { "cluster_name": PICKER_CLUSTER, "endpoints": [{ "lb_endpoints": [endpoint] }] },
        "circuit_breakers": { "thresholds": [{
            "max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000,
        }] },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::filter_names;
    use super::super::{WORKER_CLUSTER, cluster, http_manager};
    use super::*;

    const ROUTER: &str = "envoy.filters.http.router";

    #[test]
    fn the_filter_that_does_nothing_runs_before_the_router_over_plain_round_robin() {
        let config = EnvoyConfig::no_op().filter_before(json!({ "name": "before" }));
        let mut bootstrap = config.bootstrap(Path::new("/run"));
        assert_eq!(filter_names(&mut bootstrap), ["before", NO_OP, ROUTER]);
        let filter = http_manager(&mut bootstrap)["http_filters"][1]["typed_config"]["config"].clone();
        let file = filter["vm_config"]["code"]["local"]["filename"].as_str().expect("a file");
        assert!(file.ends_with("target/noop.wasm"), "{file}");
        assert_eq!(filter["allow_on_headers_stop_iteration"], true);
        let workers = cluster(&mut bootstrap, WORKER_CLUSTER).expect("the cluster").to_string();
        assert!(workers.contains("RoundRobin") && !workers.contains("OverrideHost"), "{workers}");
    }

    #[test]
    fn the_picker_is_asked_before_the_header_becomes_metadata_and_its_answer_is_followed() {
        let picker = "127.0.0.1:9002".parse().expect("an address");
        let bootstrap = |config: EnvoyConfig| config.bootstrap(Path::new("/run"));
        let mut asked = bootstrap(EnvoyConfig::ext_proc(picker));
        assert_eq!(filter_names(&mut asked), [EXT_PROC, "envoy.filters.http.header_to_metadata", ROUTER]);
        let mode = |bootstrap: &mut Value| {
            http_manager(bootstrap)["http_filters"][0]["typed_config"]["processing_mode"]["response_body_mode"].clone()
        };
        assert_eq!(mode(&mut asked), "NONE");
        assert_eq!(mode(&mut bootstrap(EnvoyConfig::ext_proc(picker).picker_reads_usage())), "STREAMED");
        let of_picker = cluster(&mut asked, PICKER_CLUSTER).expect("the picker's cluster").to_string();
        assert!(of_picker.contains("9002") && of_picker.contains("http2_protocol_options"), "{of_picker}");
        let workers = cluster(&mut asked, WORKER_CLUSTER).expect("the cluster").to_string();
        assert!(workers.contains("OverrideHost"), "{workers}");
    }
}
