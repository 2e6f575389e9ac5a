//! The headers of the Gateway API Inference Extension and of llm-d.
//!
//! Sources: kubernetes-sigs/gateway-api-inference-extension, proposal 004 (endpoint picker protocol), and there
//! `pkg/epp/metadata/consts.go`; llm-d/llm-d-router, `pkg/common/routing/common.go` and its test (2026), which has the
//! names with `x-llm-d-` beside the older ones.

use super::{Hint, Meaning};

/// Where the cluster's `override_host` policy finds the workers to try, in order. Of a trusted hop it is a wish; what is sent
/// on is what was decided.
pub const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";

/// The metadata in which the gateway itself says which workers may be chosen: of one request, set by another filter.
pub const SUBSET_METADATA: &str =
    "metadata\0filter_metadata\0envoy.lb.subset_hint\0x-gateway-destination-endpoint-subset";

pub(super) const HINTS: &[Hint] = &[
    Hint::consumed(DESTINATION_HEADER, Meaning::Endpoints),
    Hint::consumed("x-gateway-destination-endpoint-subset", Meaning::Subset),
    // What a gateway tells of an answer; in a request nobody's to say.
    Hint::consumed("x-gateway-destination-endpoint-served", Meaning::Other),
    // Whom the sidecar beside a worker talks to: a stranger's word here is a request that the sidecar sends for him.
    Hint::passed("x-prefiller-host-port", Meaning::Other),
    Hint::passed("x-llm-d-prefiller-host-port", Meaning::Other),
    Hint::passed("x-encoder-hosts-ports", Meaning::Other),
    Hint::passed("x-llm-d-encoder-hosts-ports", Meaning::Other),
    Hint::passed("x-kv-cache-source-host-port", Meaning::Other),
    Hint::passed("x-llm-d-kv-cache-source-host-port", Meaning::Other),
    Hint::passed("x-data-parallel-host-port", Meaning::Other),
];
