//! Each engine's page of metrics, by which requests go to the worker that is idle.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use warmroute::engine::{DIALECTS, Field};
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, WORKER_CLUSTER};
use warmroute_harness::envoy::Envoy;
use worker_sim::WorkerSim;

use crate::world::{CHAT, World, chat, instant, worker_of};

/// A page of each engine with requests in it.
const PAGES: &[(&str, &str)] = &[
    ("sglang", include_str!("../testdata/sglang-0.5.23-metrics.txt")),
    ("sglang", include_str!("../testdata/sglang-0.5.23-dp2-tp4-metrics.txt")),
    ("trtllm", include_str!("../testdata/trtllm-1.3-metrics.txt")),
    ("triton-trtllm", include_str!("../testdata/triton-trtllm-0.20-metrics.txt")),
    ("llamacpp", include_str!("../testdata/llamacpp-b11434-metrics.txt")),
    ("tgi", include_str!("../testdata/tgi-3.3-metrics.txt")),
    ("lmdeploy", include_str!("../testdata/lmdeploy-0.18.0-metrics.txt")),
    ("dynamo", include_str!("../testdata/dynamo-1.6.1-frontend-metrics.txt")),
    ("vllm", include_str!("../testdata/dynamo-1.6.1-worker-metrics.txt")),
];

/// Serves one page under one path, beside a worker.
struct MetricsServer {
    address: SocketAddr,
    page: Arc<Mutex<String>>,
}

impl MetricsServer {
    async fn start(path: &'static str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let page = Arc::new(Mutex::new(String::new()));
        let served = Arc::clone(&page);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = Arc::clone(&served);
                let answer = service_fn(move |request: Request<_>| {
                    let page = served.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let mut response = Response::new(Full::new(Bytes::from(page)));
                    if request.uri().path() != path {
                        *response.status_mut() = StatusCode::NOT_FOUND;
                    }
                    async move { Ok::<_, Infallible>(response) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Ok(Self { address, page })
    }

    fn set(&self, page: &str) {
        page.clone_into(&mut self.page.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Workers, of which `rows` says the rest beside their addresses, behind one Envoy that chooses by load alone.
async fn start<const WORKERS: usize>(rows: [Value; WORKERS], pool: &Value) -> Result<World> {
    let workers: Vec<WorkerSim> = rows.iter().map(|_| WorkerSim::start(instant())).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> = workers.iter().map(WorkerSim::addr).collect();
    let mut pool = pool.clone();
    pool["cluster"] = json!(WORKER_CLUSTER);
    pool["workers"] = Value::from(rows.to_vec());
    for (number, address) in addresses.iter().enumerate() {
        pool["workers"][number]["address"] = json!(address);
    }
    let poll = json!({ "cluster": POLL_CLUSTER, "intervalMs": 100 });
    let plugin = json!({ "policy": "least-load", "pools": [pool], "poll": poll });
    let envoy = Envoy::start(EnvoyConfig::warmroute(plugin.clone()).workers(addresses).concurrency(2)).await?;
    Ok(World { workers, envoy, plugin })
}

/// The page of an engine that has nothing to do.
fn idle(engine: &str, page: &str) -> Result<String> {
    let dialect = DIALECTS.iter().find(|dialect| dialect.name == engine).context("an engine")?;
    let requests = dialect.gauges.iter().filter(|gauge| [Field::Waiting, Field::Running].contains(&gauge.field));
    let metrics: Vec<&str> = requests.map(|gauge| gauge.metric).collect();
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((series, _)) if metrics.iter().any(|metric| line.starts_with(metric)) => format!("{series} 0\n"),
        _ => format!("{line}\n"),
    };
    Ok(page.lines().map(line).collect())
}

/// Sends requests that know no worker; all must go to `wanted`.
async fn all_go_to(world: &World, wanted: usize, what: &str) -> Result<()> {
    let wanted = world.workers[wanted].addr().to_string();
    for number in 0..6 {
        let body = chat(&format!("{what} {number} {}", "is like no other. ".repeat(20)), &["hello"]);
        let worker = worker_of(&world.client().post_json(CHAT, &body).await?)?;
        ensure!(worker == wanted, "{what}: request {number} went to {worker}, not to {wanted}");
    }
    Ok(())
}

#[tokio::test]
async fn requests_go_to_the_idle_worker_whatever_engine_it_is() -> Result<()> {
    let pages = [MetricsServer::start("/metrics").await?, MetricsServer::start("/metrics").await?];
    let rows = [json!({ "metricsAddress": pages[0].address }), json!({ "metricsAddress": pages[1].address })];
    let world = start(rows, &json!({ "engine": "auto" })).await?;
    for (engine, page) in PAGES {
        let idle = idle(engine, page)?;
        for (busy_worker, idle_worker) in [(0, 1), (1, 0)] {
            pages[busy_worker].set(page);
            pages[idle_worker].set(&idle);
            world.wait_scrapes(3).await?;
            all_go_to(&world, idle_worker, engine).await?;
        }
    }
    world.end().await
}

#[tokio::test]
async fn two_ranks_of_one_page_are_two_workers() -> Result<()> {
    let page = MetricsServer::start("/prometheus/metrics").await?;
    let row = |rank| json!({ "metricsAddress": page.address, "dataParallelRank": rank });
    // Under a path and a name of their own as well.
    let pool = json!({ "metrics": { "path": "/prometheus/metrics", "running": "acme:running" } });
    let world = start([row(0), row(1)], &pool).await?;
    for (busy_rank, idle_rank) in [(0, 1), (1, 0)] {
        page.set(&format!(
            "vllm:num_requests_running{{engine=\"{idle_rank}\"}} 99\n\
             acme:running{{engine=\"{busy_rank}\"}} 7\nacme:running{{engine=\"{idle_rank}\"}} 0\n"
        ));
        world.wait_scrapes(3).await?;
        all_go_to(&world, idle_rank, "rank").await?;
    }
    world.end().await
}

/// Some engines show their load only after their first request: without one they must not look dead for good.
#[tokio::test]
async fn workers_that_show_no_load_yet_get_requests_beside_one_that_does() -> Result<()> {
    const FRESH: &str = "# TYPE dynamo_frontend_model_workers gauge\ndynamo_frontend_model_workers{model=\"m\"} 1\n";
    const SHOWN: &str = "dynamo_frontend_inflight_requests{model=\"m\"} 0\n";
    let mut pages = Vec::new();
    for _ in 0..3 {
        pages.push(MetricsServer::start("/metrics").await?);
    }
    let row = |number: usize| json!({ "metricsAddress": pages[number].address });
    pages.iter().for_each(|page| page.set(FRESH));
    pages[0].set(SHOWN);
    let world = start([row(0), row(1), row(2)], &json!({ "engine": "auto" })).await?;
    // More than the failed scrapes after which a worker is left out.
    world.wait_scrapes(6).await?;
    for number in 0..30 {
        let body = chat(&format!("{number} {}", "is like no other. ".repeat(20)), &["hello"]);
        worker_of(&world.client().post_json(CHAT, &body).await?)?;
    }
    let served = world.served();
    ensure!(served.iter().all(|requests| *requests > 0), "{served:?}");
    world.end().await
}

#[tokio::test]
async fn workers_of_a_silent_engine_are_not_asked() -> Result<()> {
    let world = start([json!({}), json!({})], &json!({ "engine": "none" })).await?;
    for number in 0..20 {
        worker_of(&world.client().post_json(CHAT, &chat(&format!("prompt {number}"), &["hello"])).await?)?;
    }
    world.wait_gauge("available_workers", 2).await?;
    world.wait_gauge("inflight_requests", 0).await?;
    assert_eq!(world.count("polls_sent_total").await?, 0);
    assert_eq!(world.served().iter().sum::<u64>(), 20);
    world.end().await
}
