//! A worker as Envoy tells of it in its cluster.

use xxhash_rust::xxh3::xxh3_64;

use super::Standing;

/// One endpoint of an Envoy cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `IP:port` or `[IPv6]:port`, in the one form that compares.
    pub address: String,
    /// The name that Envoy has for it; empty if it has none.
    pub hostname: String,
    /// Its priority level: 0 is used first.
    pub priority: u8,
    /// How it stands, never [`Standing::Untold`] or [`Standing::Gone`].
    pub standing: Standing,
}

impl Endpoint {
    /// Hash of a host name in lower case, never 0; `None` for an empty name.
    #[must_use]
    pub fn name_hash(hostname: &str) -> Option<u64> {
        (!hostname.is_empty()).then(|| xxh3_64(hostname.to_ascii_lowercase().as_bytes()).max(1))
    }

    /// The smaller of two entries of one address is the better one: it counts.
    pub(crate) const fn rank(&self) -> (u8, u8) {
        // The variants stand in this order: healthy, degraded, unhealthy, draining.
        (self.standing.code(), self.priority)
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn names_differ_in_more_than_case() {
        assert_eq!(Endpoint::name_hash("vLLM-0"), Endpoint::name_hash("vllm-0"));
        assert_ne!(Endpoint::name_hash("vllm-0"), Endpoint::name_hash("vllm-1"));
        assert_eq!(Endpoint::name_hash(""), None);
    }

    #[test]
    fn the_healthier_entry_of_an_address_comes_first_and_then_the_higher_priority() {
        let rank = |standing, priority| {
            Endpoint { address: String::new(), hostname: String::new(), priority, standing }.rank()
        };
        let ranks = [
            rank(Standing::Healthy, 0),
            rank(Standing::Healthy, 1),
            rank(Standing::Degraded, 0),
            rank(Standing::Unhealthy, 0),
            rank(Standing::Draining, 0),
        ];
        assert!(ranks.is_sorted_by(|left, right| left < right), "{ranks:?}");
    }
}
