//! The plugin's configuration, checked: after [`Config::from_bytes`] nothing is checked again.
//!
//! What may be written is declared once, in this file and beside each policy; parsing, error texts and the reference
//! page (docs/configuration.md) all come from those declarations.

mod discovery;
pub mod error;
mod health;
mod models;
mod poll;
mod pool;
pub mod reader;
mod request;
mod trust;
mod wire;

pub use discovery::DiscoveryConfig;
pub use error::ConfigError;
pub use health::HealthConfig;
pub use poll::PollConfig;
pub use pool::{MetricsConfig, PoolConfig, WorkerConfig};
pub use reader::{KeyDoc, Section};
pub use request::RequestConfig;
pub use trust::{DirectMode, FailureMode, Secret, TrustConfig};

use crate::direct::HintSet;
use crate::model::ModelAlias;
use crate::schedule::{POLICIES, Policy};
use discovery::read_discovery;
use health::read_health;
use models::read_models;
use poll::read_poll;
use pool::read_pool;
use request::read_request;
use trust::{read_direct_mode, read_failure_mode, read_trust};

/// All that the operator decides.
#[derive(Debug)]
pub struct Config {
    /// The policies: the one for all routes first, then those that a route's metadata may name. At least one.
    pub policies: Vec<NamedPolicy>,
    /// The policy of requests that are read by no format: the number of one that no route can name. `None`: they pass.
    pub other_policy: Option<usize>,
    /// The pools, at least one, each with another cluster.
    pub pools: Vec<PoolConfig>,
    /// How workers are found where no list names them.
    pub discovery: DiscoveryConfig,
    /// How workers are scraped.
    pub poll: PollConfig,
    /// When a worker is taken out of use.
    pub health: HealthConfig,
    /// Who may say where a request goes.
    pub trust: TrustConfig,
    /// What becomes of what they say.
    pub direct_mode: DirectMode,
    /// What becomes of a request for which nothing can be decided.
    pub failure_mode: FailureMode,
    /// What of a request is read.
    pub request: RequestConfig,
    /// Names of models that are replaced in the body.
    pub models: Vec<ModelAlias>,
    /// The request header that tells the route which model the body asks for; empty = none.
    pub model_header: String,
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
    let pools = section.list(
        "pools",
        0..=POOLS_MAX,
        "the pools, one for each Envoy cluster of workers. Where several filters share a `vm_id` and a pool, let the pool, `poll` and `discovery` be the same in all: the one that was configured last scrapes and discovers for all of them; none only where all that is to be done is to read models",
        read_pool,
    );
    refuse_repeated(section, "pools", pools.iter().map(|pool| pool.cluster.as_str()), "pools with different clusters");
    let pool_models = || pools.iter().flat_map(|pool| &pool.models);
    refuse_repeated(section, "pools", pool_models().map(String::as_str), "pools with different models");
    let models = read_models(section);
    let model_header = read_own_header(
        section,
        "modelHeader",
        "a request header that is set to the body's `model`, after aliases, before the route is chosen anew, as in `x-gateway-model-name`; a client's own is removed; empty: none. Where a client's own chose its route and the model is in no pool's `models`, its pool is not known: it is routed by Envoy's fallback policy, answered 503 `unknown_pool` with `failureMode: closed` or if it is trusted and names its worker strictly, and counted nowhere. So remove that header before routes are chosen, as the samples do (`early_header_mutation_extensions`). Only a model within `request.scanBytesMax` is told, and engines may read another one there (a key written twice, or in another case): it is for routing, not for permission",
    );
    if section.is_clean() && model_header.is_empty() {
        if pools.is_empty() {
            section.refuse("pools", &format!("a list of 1 to {POOLS_MAX} objects, or modelHeader a header"));
        }
        if pool_models().next().is_some() {
            section.refuse("modelHeader", "the header by which routes know the models of pools");
        }
    }
    let session = section.section(
        "session",
        "how a client names its session; nothing is read where nothing is named",
        read_session,
    );
    if section.is_clean() && session.is_empty() && policies.iter().any(|policy| policy.name == SESSION_POLICY) {
        section.refuse("session", "an object that says where sessions are named, as the policy `session` is used");
    }
    let request = section.section("request", "what of a request is read", read_request);
    let other_policy = request.routes_others.then(|| {
        let policy = (FALLBACK_POLICY.build)(section);
        policies.push(NamedPolicy { route_name: String::new(), name: FALLBACK_POLICY.name, policy });
        policies.len() - 1
    });
    let discovery = section.section("discovery", "how workers are found where no list names them", read_discovery);
    if section.is_clean() && !discovery.is_on() && pools.iter().any(|pool| pool.workers.is_empty()) {
        section.refuse("discovery", "an object with the cluster of Envoy's admin endpoint, as a pool has no workers");
    }
    let trust = section.secret_section("trust", "who may say where a request goes; by default nobody", read_trust);
    let own_headers = [&model_header, &session.header, &trust.secret_header];
    let is_named_twice = |(place, name): (usize, &&String)| {
        !name.is_empty() && own_headers.iter().skip(place + 1).any(|other| other == name)
    };
    if section.is_clean() && own_headers.iter().enumerate().any(is_named_twice) {
        section.refuse("trust", "an object whose secretHeader, modelHeader and session.header are different headers");
    }
    Config {
        policies,
        other_policy,
        models,
        model_header,
        session,
        index: section.section("index", "what is remembered of the workers' KV caches", read_index),
        gateways: section.u32(
            "gateways",
            1,
            1..=1_000,
            "gateways that send requests to these workers, this one included: counts until scrapes show how much of the load is others'",
        ),
        pools,
        discovery,
        poll: section.section("poll", "how workers are asked for their load", read_poll),
        health: section.section("health", "when a worker is taken out of use for its failures", read_health),
        trust,
        direct_mode: read_direct_mode(section),
        failure_mode: read_failure_mode(section),
        request,
        response_headers: section.bool(
            "responseHeaders",
            false,
            "answers carry `x-warmroute-worker`, `-picks`, `-policy`, `-reason` and `-rung`: for debugging, it names workers to clients",
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
    let header = read_header_name(section, "header", "a request header, as in `x-session-id`");
    if section.is_clean() && has_meaning(&header, &header) {
        section.refuse("header", OWN_HEADER);
    }
    let mut name = |key, doc| section.string(key, "", 0..=NAME_BYTES_MAX, doc);
    SessionConfig {
        header,
        cookie: name("cookie", "a cookie, where the header is absent"),
        body_key: name("bodyKey", "a string at the top of the body, as in `user`, where both are absent"),
    }
}

/// The name of a request header; empty if none is written.
fn read_header_name(section: &mut Section<'_>, key: &'static str, doc: &'static str) -> String {
    let name = section.string(key, "", 0..=NAME_BYTES_MAX, doc);
    if section.is_clean() && !name.bytes().all(is_header_byte) {
        section.refuse(key, "a header's name in lower case");
    }
    name
}

/// As [`read_header_name`], for one that is written or removed: those that frame a request or choose its worker are not for
/// that.
fn read_own_header(section: &mut Section<'_>, key: &'static str, doc: &'static str) -> String {
    const TAKEN: &[&str] = &["content-length", "transfer-encoding", "host"];
    let name = read_header_name(section, key, doc);
    if section.is_clean() && (TAKEN.contains(&name.as_str()) || has_meaning(&name, "")) {
        section.refuse(key, OWN_HEADER);
    }
    name
}

/// Whether a header means something here already; `session_header` as in [`HintSet::place`].
fn has_meaning(name: &str, session_header: &str) -> bool {
    ["cookie", "content-encoding"].contains(&name) || HintSet::place(name.as_bytes(), session_header).is_some()
}

const OWN_HEADER: &str = "a header of its own";

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

/// For requests that no format reads; and in `read_policy` for the type's sake.
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
        assert_eq!(config.pools[0].addresses().collect::<Vec<_>>(), ["10.0.0.1:8000"]);
        assert_eq!(config.request.base_paths, [""]);
        assert!(!config.response_headers);
        assert_eq!(error(""), "pools is missing, must be a list of 1 to 64 objects, or modelHeader a header");
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
            Case {
                config: with(r#""modelHeader": "X-Model""#),
                want: r#"modelHeader is "X-Model", must be a header's name in lower case"#,
            },
            Case {
                config: with(r#""models": [{"name": "a", "targets": [{"name": "b", "weight": 0}]}]"#),
                want: r#"must be a list with a weight above 0"#,
            },
            Case {
                config: MINIMAL.replace(r#""workers""#, r#""models": ["large"], "workers""#),
                want: "modelHeader is missing, must be the header by which routes know the models of pools",
            },
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
