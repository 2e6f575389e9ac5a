//! How workers are found where no list names them.

use super::NAME_BYTES_MAX;
use super::reader::Section;

/// How Envoy is asked for the endpoints of its clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// The cluster that leads to Envoy's own admin endpoint; empty = Envoy is not asked.
    pub cluster: String,
    /// The path of the page.
    pub path: String,
    /// Between two questions.
    pub interval_ms: u32,
    /// How long an answer may take.
    pub timeout_ms: u32,
}

impl DiscoveryConfig {
    /// Whether Envoy is asked at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        !self.cluster.is_empty()
    }
}

impl Default for DiscoveryConfig {
    /// The documented defaults, with discovery off.
    fn default() -> Self {
        Self { cluster: String::new(), path: CLUSTERS_PATH.to_owned(), interval_ms: 1_000, timeout_ms: 1_000 }
    }
}

pub(super) fn read_discovery(section: &mut Section<'_>) -> DiscoveryConfig {
    let default = DiscoveryConfig::default();
    DiscoveryConfig {
        cluster: section.string(
            "cluster",
            &default.cluster,
            0..=NAME_BYTES_MAX,
            "the cluster that leads to Envoy's own admin endpoint, on loopback only: pools without `workers` take them from there, and all pools what Envoy says of their health; empty: Envoy is not asked",
        ),
        path: section.string("path", &default.path, 1..=NAME_BYTES_MAX, "the path of Envoy's page of clusters, as JSON"),
        interval_ms: section.u32(
            "intervalMs",
            default.interval_ms,
            50..=60_000,
            "time between two questions: so long after Envoy the plugin learns of a change",
        ),
        timeout_ms: section.u32(
            "timeoutMs",
            default.timeout_ms,
            10..=60_000,
            "how long an answer may take. While none comes, what was known goes on to count",
        ),
    }
}

/// Source: Envoy's documentation, "Administration interface".
const CLUSTERS_PATH: &str = "/clusters?format=json";
