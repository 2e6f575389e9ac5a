//! A pool's part of the configuration: its cluster, its workers, and how they tell their load.

use super::reader::{Section, parse_address};
use super::{NAME_BYTES_MAX, refuse_repeated};
use crate::engine::{DIALECTS, Engine, Field, Series};
use crate::worker::WORKERS_MAX;

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The Envoy cluster whose requests it serves.
    pub cluster: String,
    /// Its workers, with different addresses; none: they are those of the cluster, as Envoy tells.
    pub workers: Vec<WorkerConfig>,
    /// Addresses of workers that get no new requests.
    pub draining: Vec<String>,
    /// The models whose requests are routed to its cluster by the header that tells the model.
    pub models: Vec<String>,
    /// What they run.
    pub engine: Engine,
    /// What differs from the engine's own metrics.
    pub metrics: MetricsConfig,
}

impl PoolConfig {
    /// The workers' addresses, in order.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = &str> {
        self.workers.iter().map(|worker| worker.address.as_str())
    }
}

/// One worker of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Where it takes requests.
    pub address: String,
    /// Where its metrics are, if not there.
    pub metrics_address: Option<String>,
    /// Which of the data-parallel ranks in its metrics it is; `None`: all.
    pub data_parallel_rank: Option<u32>,
    /// By which trusted hops may name it; empty: by its address only.
    pub name: String,
}

/// What differs in a pool from its engine's own metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsConfig {
    /// The path of the metrics page; `None`: the one of all pools.
    pub path: Option<String>,
    /// Their port, where it is not the worker's and the workers are discovered.
    pub port: Option<u16>,
    /// Series that tell a field instead of the engine's own.
    pub renamed: Vec<(Field, Series)>,
}

pub(super) fn read_pool(section: &mut Section<'_>, _index: usize) -> PoolConfig {
    let cluster =
        section.required_string("cluster", 1..=NAME_BYTES_MAX, "the name of the Envoy cluster that the pool is");
    let workers = section.list(
        "workers",
        0..=WORKERS_MAX,
        "the workers; the cluster has the same endpoints. None: whatever endpoints the cluster has, by `discovery`",
        read_worker,
    );
    refuse_repeated(
        section,
        "workers",
        workers.iter().map(|worker| worker.address.as_str()),
        "workers with different addresses",
    );
    // Names are compared without their case.
    let names: Vec<String> = workers.iter().map(|worker| worker.name.to_ascii_lowercase()).collect();
    let names = names.iter().map(String::as_str).filter(|name| !name.is_empty());
    refuse_repeated(section, "workers", names, "workers with different names");
    let draining = read_draining(section);
    let models = section.strings(
        "models",
        &[],
        0..=POOL_MODELS_MAX,
        1..=NAME_BYTES_MAX,
        "with `modelHeader`: the models, after aliases, that the routes lead to this cluster. Envoy does not tell a filter where a route that was chosen anew leads; other models are taken to stay where they were routed without the header. A request for one of these models is taken to be this pool's on whatever route, and its policy is `policy`: `routePolicies` count only where the header chose no route",
    );
    let engine = read_engine(section);
    let metrics = section.section(
        "metrics",
        "where the workers' metrics are called otherwise than the engine calls them: a metric's whole name, or one of its series as in `name{label=\"value\"}`, which then counts instead of the engine's own",
        read_metrics,
    );
    if section.is_clean() && metrics.port.is_some() && !workers.is_empty() {
        section.refuse("metrics", "without port where workers are listed: they have metricsAddress");
    }
    if section.is_clean() && engine == Engine::Silent && metrics != MetricsConfig::default() {
        section.refuse("metrics", "absent where engine is none: its workers are never asked");
    }
    PoolConfig { cluster, workers, draining, models, engine, metrics }
}

fn read_worker(section: &mut Section<'_>, _index: usize) -> WorkerConfig {
    let address =
        section.address("address", "where the worker listens, as the cluster's endpoint has it; no host names");
    let written = section.string(
        "metricsAddress",
        "",
        0..=ADDRESS_BYTES_MAX,
        "where its metrics are, if not at `address`: IP:port or [IPv6]:port. Several workers may have the same",
    );
    let metrics_address = parse_address(&written);
    if metrics_address.is_none() && !written.is_empty() {
        section.refuse("metricsAddress", "IP:port or [IPv6]:port");
    }
    let data_parallel_rank = section.optional_u32(
        "dataParallelRank",
        0..=65_535,
        "only series of this data-parallel rank count (label `engine` in vLLM and LMDeploy, `dp_rank` in SGLang and Dynamo), and those that tell no rank; if absent, all ranks of the page together are the worker",
    );
    let name = section.string(
        "name",
        "",
        0..=NAME_BYTES_MAX,
        "by which trusted hops may name it beside its address, in any case: a pod's name, NVIDIA Dynamo's instance id",
    );
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    if !is_name(&name) || parse_address(&name).is_some() {
        section.refuse("name", "printable characters without spaces and commas, and no address");
    }
    WorkerConfig { address, metrics_address, data_parallel_rank, name }
}

fn read_draining(section: &mut Section<'_>) -> Vec<String> {
    let written = section.strings(
        "draining",
        &[],
        0..=WORKERS_MAX,
        1..=ADDRESS_BYTES_MAX,
        "addresses of workers that get no new requests: what they have they finish. They may be in `workers` or not",
    );
    let addresses: Option<Vec<String>> = written.iter().map(|text| parse_address(text)).collect();
    addresses.unwrap_or_else(|| {
        section.refuse("draining", "a list of IP:port or [IPv6]:port");
        Vec::new()
    })
}

fn read_engine(section: &mut Section<'_>) -> Engine {
    let names: Vec<&'static str> =
        [AUTO].into_iter().chain(DIALECTS.iter().map(|dialect| dialect.name)).chain([NONE]).collect();
    let name = section.one_of(
        "engine",
        &names,
        AUTO,
        "what the workers run, which says how their metrics are called. auto: whichever a page shows. none: nothing is scraped, only the gateway's own in-flight counts tell the load. Where NVIDIA Dynamo's frontend is behind, say dynamo: then bodies are read whatever the policy, and what strangers say of their worker in `nvext` is removed; with auto and a policy that needs no body it is only counted that it may be there (`warmroute_hints_unread_total`)",
    );
    match DIALECTS.iter().find(|dialect| dialect.name == name) {
        Some(dialect) => Engine::Known(dialect),
        None if name == NONE => Engine::Silent,
        None => Engine::Auto,
    }
}

fn read_metrics(section: &mut Section<'_>) -> MetricsConfig {
    let path = section.string(
        "path",
        "",
        0..=NAME_BYTES_MAX,
        "the path of the metrics page; empty: `poll.path`. TensorRT-LLM's server has it at `/prometheus/metrics`",
    );
    let port = section.optional_u32(
        "port",
        1..=65_535,
        "the port of the metrics of workers that are discovered; if absent, the one that takes requests",
    );
    let mut renamed = Vec::new();
    for (key, field, doc) in RENAMED {
        let text = section.string(key, "", 0..=NAME_BYTES_MAX, doc);
        match Series::parse(&text) {
            Some(series) => renamed.push((*field, series)),
            None if text.is_empty() => {}
            None => section.refuse(key, "a metric's whole name, as in name or name{label=\"value\"}"),
        }
    }
    MetricsConfig {
        path: Some(path).filter(|path| !path.is_empty()),
        port: port.and_then(|port| u16::try_from(port).ok()),
        renamed,
    }
}

/// What can be called otherwise.
const RENAMED: &[(&str, Field, &str)] = &[
    ("waiting", Field::Waiting, "requests in the queue"),
    ("running", Field::Running, "requests in the running batch"),
    ("kvUsage", Field::KvUsage, "share of the KV cache in use, 0 to 1"),
    ("blockTokens", Field::BlockTokens, "tokens in a block of the KV cache"),
    ("kvBlocks", Field::KvBlocks, "blocks of the KV cache in all"),
];

const AUTO: &str = "auto";
const NONE: &str = "none";

/// The longest that an address can be, `[IPv6%scope]:port`.
const ADDRESS_BYTES_MAX: usize = 64;

/// Models of one pool, at the most: they are looked through for each request.
const POOL_MODELS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::config::Config;

    fn read(worker: &str, rest: &str) -> Result<PoolConfig, String> {
        let text =
            format!(r#"{{"pools": [{{"cluster": "a", "workers": [{{"address": "10.0.0.1:80"{worker}}}]{rest}}}]}}"#);
        let config = Config::from_bytes(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(config.pools[0].clone())
    }

    #[test]
    fn nothing_but_cluster_and_addresses_is_needed() {
        let pool = read("", "").unwrap();
        assert_eq!(pool.addresses().collect::<Vec<_>>(), ["10.0.0.1:80"]);
        assert_eq!((pool.engine, &pool.metrics), (Engine::Auto, &MetricsConfig::default()));
        assert_eq!((pool.workers[0].metrics_address.as_ref(), pool.workers[0].data_parallel_rank), (None, None));
    }

    #[test]
    fn every_engine_can_be_chosen_by_its_name() {
        for dialect in DIALECTS {
            let pool = read("", &format!(r#", "engine": "{}""#, dialect.name)).unwrap();
            assert_eq!(pool.engine, Engine::Known(dialect));
        }
        assert_eq!(read("", r#", "engine": "none""#).unwrap().engine, Engine::Silent);
        assert_eq!(read("", r#", "engine": "auto""#).unwrap().engine, Engine::Auto);
    }

    #[test]
    fn a_workers_metrics_may_be_elsewhere_and_those_of_one_rank() {
        let pool = read(r#", "metricsAddress": "[0::1]:9000", "dataParallelRank": 3.0"#, "").unwrap();
        assert_eq!(pool.workers[0].metrics_address.as_deref(), Some("[::1]:9000"));
        assert_eq!(pool.workers[0].data_parallel_rank, Some(3));
    }

    #[test]
    fn a_worker_has_a_name_that_no_other_has_whatever_its_case() {
        let named = |first: &str, second: &str| {
            let text = format!(
                r#"{{"pools": [{{"cluster": "a", "workers": [
                    {{"address": "10.0.0.1:80", "name": "{first}"}}, {{"address": "10.0.0.2:80", "name": "{second}"}}]}}]}}"#
            );
            Config::from_bytes(text.as_bytes()).map(|_| ()).map_err(|error| error.to_string())
        };
        for (first, second) in [("vllm-0", "vllm-1"), ("", ""), ("7", "70"), ("a:b", "[1]")] {
            assert_eq!(named(first, second), Ok(()), "{first} {second}");
        }
        assert!(named("vllm-0", "VLLM-0").unwrap_err().contains("workers with different names"));
        for name in ["a b", "a,b", "ü", "10.0.0.9:80", "[::1]:9", " "] {
            assert!(named(name, "").unwrap_err().contains("workers[0].name is"), "{name}");
        }
    }

    #[test]
    fn metrics_may_be_called_otherwise() {
        let text = r#", "metrics": {"path": "/m", "waiting": "acme_queue", "kvUsage": "acme_kv{kind=\"used\"}"}"#;
        let metrics = read("", text).unwrap().metrics;
        assert_eq!(metrics.path.as_deref(), Some("/m"));
        let series = |text| Series::parse(text).unwrap();
        let want = [(Field::Waiting, series("acme_queue")), (Field::KvUsage, series(r#"acme_kv{kind="used"}"#))];
        assert_eq!(metrics.renamed, want);
    }

    #[test]
    fn what_is_wrong_is_told_with_path_value_and_what_is_allowed() {
        let cases = [
            ("", r#", "engine": "vlm""#, r#"pools[0].engine is "vlm", known: auto, vllm, sglang, "#),
            (r#", "metricsAddress": "a:80""#, "", r#"pools[0].workers[0].metricsAddress is "a:80", must be IP:port"#),
            (r#", "metricsAddress": "1.2.3.4:0""#, "", "pools[0].workers[0].metricsAddress is "),
            (r#", "dataParallelRank": -1"#, "", "pools[0].workers[0].dataParallelRank is -1, must be 0 to 65535"),
            (
                r#", "dataParallelRank": null"#,
                "",
                "pools[0].workers[0].dataParallelRank is null, must be a whole number",
            ),
            ("", r#", "metrics": {"waiting": "a b"}"#, r#"pools[0].metrics.waiting is "a b", must be a metric's"#),
            ("", r#", "metrics": {"waitng": "a"}"#, "pools[0].metrics.waitng is not a key here"),
            ("", r#", "engine": "none", "metrics": {"waiting": "a"}"#, "pools[0].metrics is "),
        ];
        for (worker, rest, want) in cases {
            let error = read(worker, rest).unwrap_err();
            assert!(error.contains(want), "{error:?} should contain {want:?}");
        }
    }
}
