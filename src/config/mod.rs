//! The plugin's configuration, checked: after [`Config::from_bytes`] nothing is checked again.
//!
//! What may be written is declared once, in this file and beside each policy; parsing, error texts and the reference
//! page (docs/configuration.md) all come from those declarations.

pub mod error;
pub mod reader;
mod wire;

pub use error::ConfigError;
pub use reader::{KeyDoc, Section};

use crate::schedule::{POLICIES, Policy};
use crate::worker::WORKERS_MAX;

/// All that the operator decides.
#[derive(Debug)]
pub struct Config {
    /// The policies: the one for all routes first, then those that a route's metadata may name. At least one.
    pub policies: Vec<NamedPolicy>,
    /// The pools, at least one, each with another cluster.
    pub pools: Vec<PoolConfig>,
    /// How workers are scraped.
    pub poll: PollConfig,
    /// What of a request is read.
    pub request: RequestConfig,
    /// Where a client names its session.
    pub session: SessionConfig,
    /// The index of the workers' caches.
    pub index: IndexConfig,
    /// Gateways that share the workers, this one included.
    pub gateways: u32,
    /// Whether answers carry the decision in `x-warmroute-*` headers.
    pub response_headers: bool,
}

/// A policy, and the name by which a route chooses it.
#[derive(Debug)]
pub struct NamedPolicy {
    /// What the route's metadata says; empty for the policy of all other routes.
    pub route_name: String,
    /// The policy's own name.
    pub name: &'static str,
    /// The policy.
    pub policy: Box<dyn Policy>,
}

/// Where a client names its session; empty = nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionConfig {
    /// A request header.
    pub header: String,
    /// A cookie.
    pub cookie: String,
    /// A string at the top of the body.
    pub body_key: String,
}

impl SessionConfig {
    /// Whether there is no place where a session is named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.header.is_empty() && self.cookie.is_empty() && self.body_key.is_empty()
    }
}

/// The index of the workers' caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Pages of 4 KB for each pool.
    pub pages: u32,
    /// Tokens that a worker's KV cache holds, where its metrics do not tell.
    pub kv_tokens_assumed: u32,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The Envoy cluster whose requests it serves.
    pub cluster: String,
    /// Its workers' addresses, all different.
    pub workers: Vec<String>,
}

/// How workers are scraped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollConfig {
    /// The `ORIGINAL_DST` cluster that scrapes go through; empty = no scrapes.
    pub cluster: String,
    /// The path of the engines' metrics page.
    pub path: String,
    /// Between two scrapes of one worker.
    pub interval_ms: u32,
    /// How long a scrape may take.
    pub timeout_ms: u32,
    /// A report this old is not used.
    pub report_age_ms_max: u64,
    /// So many failed scrapes in a row make a worker unavailable.
    pub failures_max: u32,
}

/// What of a request is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestConfig {
    /// What comes before `/chat/completions` and `/completions` in the paths that are routed.
    pub path_prefixes: Vec<String>,
    /// At this many bytes of body the decision is made, and the rest streams through.
    pub scan_bytes_max: usize,
}

impl Config {
    /// Checks what the host hands over: JSON text, or a `google.protobuf.Struct` in its binary form.
    ///
    /// # Errors
    /// Everything that is wrong: JSON path, value, and what is allowed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ConfigError> {
        reader::read_bytes(bytes, read_config)
    }

    /// Every key with its type, default and range: the rows of the reference page.
    #[must_use]
    pub fn describe() -> Vec<KeyDoc> {
        reader::describe(read_config)
    }
}

impl Default for PollConfig {
    /// The documented defaults, with scrapes off.
    fn default() -> Self {
        Self {
            cluster: String::new(),
            path: "/metrics".to_owned(),
            interval_ms: 500,
            timeout_ms: 1_000,
            report_age_ms_max: 5_000,
            failures_max: 2,
        }
    }
}

fn read_config(section: &mut Section<'_>) -> Config {
    let mut policies = vec![read_policy_at(section, String::new())];
    policies.extend(section.list(
        "routePolicies",
        0..=ROUTE_POLICIES_MAX,
        "other policies for single routes, by the name in the route's `metadata.filter_metadata.warmroute.policy`",
        |section, _| {
            let route_name =
                section.required_string("name", 1..=NAME_BYTES_MAX, "what the route's metadata says to choose it");
            read_policy_at(section, route_name)
        },
    ));
    let route_names = policies.iter().skip(1).map(|policy| policy.route_name.as_str());
    refuse_repeated(section, "routePolicies", route_names, "policies with different names");
    let pools = section.list("pools", 1..=POOLS_MAX, "the pools; one for each Envoy cluster of workers", read_pool);
    refuse_repeated(section, "pools", pools.iter().map(|pool| pool.cluster.as_str()), "pools with different clusters");
    let session = section.section(
        "session",
        "how a client names its session; nothing is read where nothing is named",
        read_session,
    );
    if section.is_clean() && session.is_empty() && policies.iter().any(|policy| policy.name == SESSION_POLICY) {
        section.refuse("session", "an object that says where sessions are named, as the policy `session` is used");
    }
    Config {
        policies,
        session,
        index: section.section("index", "what is remembered of the workers' KV caches", read_index),
        gateways: section.u32(
            "gateways",
            1,
            1..=1_000,
            "gateways that send requests to these workers, this one included: counts until scrapes show how much of the load is others'",
        ),
        pools,
        poll: section.section("poll", "how workers are asked for their load", read_poll),
        request: section.section("request", "what of a request is read", read_request),
        response_headers: section.bool(
            "responseHeaders",
            false,
            "answers carry `x-warmroute-worker`, `-picks`, `-policy` and `-reason`: for debugging, it names workers to clients",
        ),
    }
}

fn read_policy_at(section: &mut Section<'_>, route_name: String) -> NamedPolicy {
    let (name, policy) = section.text_or_section(
        "policy",
        "name",
        "how a worker is chosen; a policy's own keys stand beside its name",
        read_policy,
    );
    NamedPolicy { route_name, name, policy }
}

fn read_session(section: &mut Section<'_>) -> SessionConfig {
    const NONE: &str = "";
    let mut name = |key, doc| section.string(key, NONE, 0..=NAME_BYTES_MAX, doc);
    let session = SessionConfig {
        header: name("header", "a request header, as in `x-session-id`"),
        cookie: name("cookie", "a cookie, where the header is absent"),
        body_key: name("bodyKey", "a string at the top of the body, as in `user`, where both are absent"),
    };
    if section.is_clean() && !session.header.bytes().all(is_header_byte) {
        section.refuse("header", "a header's name in lower case");
    }
    session
}

/// What stands in the name of a header as the host hands it over.
const fn is_header_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.')
}

fn read_index(section: &mut Section<'_>) -> IndexConfig {
    IndexConfig {
        pages: section.u32(
            "pages",
            1_024,
            1..=65_536,
            "pages of 4 KB for each pool, in memory that all worker threads share. A page remembers 31 stretches of up to 16 blocks; another number of pages forgets all",
        ),
        kv_tokens_assumed: section.u32(
            "assumedKvTokens",
            400_000,
            1_000..=1_000_000_000,
            "tokens that a worker's KV cache holds, where its metrics do not tell; answers correct it",
        ),
    }
}

fn read_policy(section: &mut Section<'_>) -> (&'static str, Box<dyn Policy>) {
    let names: Vec<&'static str> = POLICIES.iter().map(|registration| registration.name).collect();
    let name = section.one_of("name", &names, DEFAULT_POLICY, "the policy");
    if section.is_describing() {
        for registration in POLICIES {
            (registration.build)(section);
        }
    }
    // `one_of` gives one of the names or the default, which a test holds to be one of them.
    let chosen = POLICIES.iter().find(|registration| registration.name == name).unwrap_or(&FALLBACK_POLICY);
    (chosen.name, (chosen.build)(section))
}

fn read_pool(section: &mut Section<'_>, _index: usize) -> PoolConfig {
    let cluster =
        section.required_string("cluster", 1..=NAME_BYTES_MAX, "the name of the Envoy cluster that the pool is");
    let workers =
        section.list("workers", 1..=WORKERS_MAX, "the workers; the cluster has the same endpoints", |section, _| {
            section.address("address", "where the worker listens, as the cluster's endpoint has it; no host names")
        });
    refuse_repeated(section, "workers", workers.iter().map(String::as_str), "workers with different addresses");
    PoolConfig { cluster, workers }
}

fn read_poll(section: &mut Section<'_>) -> PollConfig {
    let default = PollConfig::default();
    let poll = PollConfig {
        cluster: section.string(
            "cluster",
            &default.cluster,
            0..=NAME_BYTES_MAX,
            "the `ORIGINAL_DST` cluster with `use_http_header` that scrapes go through; empty: no scrapes, only the gateway's own in-flight counts",
        ),
        path: section.string("path", &default.path, 1..=NAME_BYTES_MAX, "the path of the engines' metrics page"),
        interval_ms: section.u32("intervalMs", default.interval_ms, 50..=60_000, "time between two scrapes of one worker; in a pool of many workers longer, so that there are 200 scrapes a second at the most, but no longer than a third of `reportMaxAgeMs`"),
        timeout_ms: section.u32("timeoutMs", default.timeout_ms, 10..=60_000, "how long a scrape may take before it has failed"),
        report_age_ms_max: section.u64(
            "reportMaxAgeMs",
            default.report_age_ms_max,
            100..=600_000,
            "a report this old is not used: the worker's load is then unknown",
        ),
        failures_max: section.u32(
            "unhealthyAfter",
            default.failures_max,
            1..=100,
            "so many failed scrapes in a row make a worker unavailable; one that succeeds makes it available",
        ),
    };
    if section.is_clean() && u64::from(poll.interval_ms) * 2 > poll.report_age_ms_max {
        // Scrapes keep their interval only about: at less than two of them reports would be too old now and then.
        section.refuse("intervalMs", "at most half of poll.reportMaxAgeMs");
    }
    if section.is_clean() && u64::from(poll.timeout_ms) > poll.report_age_ms_max {
        section.refuse("timeoutMs", "at most poll.reportMaxAgeMs");
    }
    poll
}

fn read_request(section: &mut Section<'_>) -> RequestConfig {
    RequestConfig {
        path_prefixes: section.strings(
            "pathPrefixes",
            &["/v1"],
            1..=16,
            0..=NAME_BYTES_MAX,
            "what comes before `/chat/completions` and `/completions` in the paths that are routed",
        ),
        scan_bytes_max: usize::try_from(section.u64(
            "scanBytesMax",
            262_144,
            1_024..=16_777_216,
            "at this many bytes of body the worker is chosen and the rest streams through. The route's `request_body_buffer_limit` must be at least this plus the listener's `per_connection_buffer_limit_bytes`. A model that stands beyond these bytes is not seen: such a conversation moves once, when it grows past them",
        ))
        .unwrap_or(usize::MAX),
    }
}

/// Refuses the list at `key` if two of `names` are equal. Sorted, so that a thousand workers cost no million steps.
fn refuse_repeated<'n>(section: &mut Section<'_>, key: &'static str, names: impl Iterator<Item = &'n str>, want: &str) {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    if section.is_clean() && !names.is_sorted_by(|left, right| left < right) {
        section.refuse(key, want);
    }
}

const DEFAULT_POLICY: &str = "hybrid";

/// The policy that is of no use without sessions.
const SESSION_POLICY: &str = "session";

/// Policies of single routes, at the most.
const ROUTE_POLICIES_MAX: usize = 16;

/// Only for the type's sake: see `read_policy`.
const FALLBACK_POLICY: crate::schedule::PolicyRegistration = crate::schedule::policy::LEAST_LOAD;

/// Pools of one plugin, at the most: each costs pages in shared data and a lease.
const POOLS_MAX: usize = 64;

/// Longest cluster name, path or path prefix.
const NAME_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    const MINIMAL: &str = r#"{"pools": [{"cluster": "llm", "workers": [{"address": "10.0.0.1:8000"}]}]}"#;

    fn error(text: &str) -> String {
        Config::from_bytes(text.as_bytes()).expect_err("is refused").to_string()
    }

    fn with(key: &str) -> String {
        format!(r#"{{{key}, {}"#, MINIMAL.trim_start_matches('{'))
    }

    #[test]
    fn only_the_pools_have_no_default() {
        let config = Config::from_bytes(MINIMAL.as_bytes()).unwrap();
        assert_eq!(config.policies[0].name, DEFAULT_POLICY);
        assert_eq!(config.poll, PollConfig::default());
        assert_eq!(config.pools[0].workers, ["10.0.0.1:8000"]);
        assert_eq!(config.request.path_prefixes, ["/v1"]);
        assert!(!config.response_headers);
        assert_eq!(error(""), "pools is missing, must be a list of 1 to 64 objects");
    }

    #[test]
    fn every_policy_can_be_chosen_by_its_name_alone() {
        for registration in POLICIES {
            let session = r#""session": {"header": "x-session-id"}"#;
            let text = with(&format!(r#"{session}, "policy": "{}""#, registration.name));
            assert_eq!(Config::from_bytes(text.as_bytes()).unwrap().policies[0].name, registration.name);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_path_value_and_what_is_allowed() {
        struct Case {
            config: String,
            want: &'static str,
        }
        let cases = [
            Case { config: with(r#""poll": {"intervalMs": 0}"#), want: "poll.intervalMs is 0, must be 50 to 60000" },
            Case { config: with(r#""policy": "prefix-hsh""#), want: r#"policy.name is "prefix-hsh", known: hybrid, "# },
            Case {
                config: with(r#""policy": {"name": "random", "loadFactor": 2}"#),
                want: "policy.loadFactor is not a key here",
            },
            Case {
                config: with(r#""policy": {"name": "prefix-hash", "loadFactor": 0.5}"#),
                want: "policy.loadFactor is 0.5, must be 1 to 100",
            },
            Case {
                config: with(r#""poll": {"intervalMs": 9000}"#),
                want: "poll.intervalMs is 9000, must be at most half of poll.reportMaxAgeMs",
            },
            Case {
                config:
                    r#"{"pools": [{"cluster": "a", "workers": [{"address": "1.2.3.4:5"}, {"address": "1.2.3.4:5"}]}]}"#
                        .to_owned(),
                want: "pools[0].workers is [",
            },
            Case {
                config: r#"{"pools": [{"cluster": "a", "workers": [{"address": "vllm-0:8000"}]}]}"#.to_owned(),
                want: r#"pools[0].workers[0].address is "vllm-0:8000", must be IP:port or [IPv6]:port"#,
            },
        ];
        for case in cases {
            let got = error(&case.config);
            assert!(got.contains(case.want), "{got:?} should contain {:?}", case.want);
        }
    }

    #[test]
    fn every_key_is_described() {
        let paths: Vec<String> = Config::describe().into_iter().map(|key| key.path).collect();
        for path in
            ["policy.name", "policy.loadFactor", "pools[].workers[].address", "poll.intervalMs", "responseHeaders"]
        {
            assert!(paths.iter().any(|known| known == path), "{path} is not in {paths:?}");
        }
    }
}
