//! Tests of rows, tables and the page; and of real peers, if asked for.

use serde_json::json;
use warmroute_harness::client::Client;
use warmroute_harness::peers::{Peer, PeerKind};
use warmroute_report::statistics::Distribution;
use worker_sim::{SimConfig, Timing, WorkerSim};

use super::*;
use crate::run::WorkerOutcome;

fn outcome(ttft_ms: f64, computed: [u64; 2]) -> Outcome {
    let worker = |number: u16, computed: u64| WorkerOutcome {
        address: ([127, 0, 0, 1], number).into(),
        requests: u64::from(number),
        prompt_tokens: 100,
        cached_tokens: 100 - computed,
        queue_max: 0,
    };
    Outcome {
        requests: 4,
        errors: 1,
        ttft_ms: Distribution::new(vec![ttft_ms, ttft_ms, 4.0 * ttft_ms]),
        latency_ms: Distribution::new(vec![10.0 * ttft_ms]),
        workers: vec![worker(1, computed[0]), worker(3, computed[1])],
        late_ms_max: 0.5,
        ..Outcome::default()
    }
}

/// A row for each path and both workloads; the later a path is in the list, the longer it takes.
fn rows(seeds: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (seed, workload) in (1..=seeds).flat_map(|seed| WORKLOADS.map(|workload| (seed, workload))) {
        rows.extend(PATHS.iter().zip(1_u32..).map(|(route, number)| {
            Row::new(workload, route, seed, &outcome(f64::from(number) * seed as f64, [50, 50]))
        }));
    }
    row::compare(&mut rows);
    rows
}

#[test]
fn a_row_has_the_promised_shape() {
    let mut rows = vec![
        Row::new("chat", &PATHS[0], 7, &outcome(20.0, [50, 50])),
        Row::new("chat", &PATHS[3], 7, &outcome(10.0, [75, 25])),
    ];
    row::compare(&mut rows);
    let want = json!({
        "workload": "chat",
        "path": "warmroute",
        "policy": "hybrid",
        "session_header": "x-session-id",
        "engines_render": false,
        "seed": 7,
        "requests": 4,
        "errors": 1,
        "ttft_mean_ms": 20.0,
        "ttft_p50_ms": 10.0,
        "ttft_p90_ms": 40.0,
        "ttft_p99_ms": 40.0,
        "latency_mean_ms": 100.0,
        "token_hit_rate": 0.5,
        "requests_max_by_mean": 1.5,
        "computed_max_by_mean": 1.5,
        "late_max_ms": 0.5,
        "ttft_mean_by_round_robin": 0.5,
        "latency_mean_by_round_robin": 0.5,
    });
    assert_eq!(serde_json::to_value(&rows[1]).unwrap(), want);
    assert_eq!(serde_json::to_value(&rows[0]).unwrap()["ttft_mean_by_round_robin"], json!(1.0));
    assert_eq!(serde_json::from_value::<Row>(want).unwrap(), rows[1], "what is written can be read again");
}

#[test]
fn a_row_is_compared_with_the_same_workload_and_seed_only() {
    let row = |workload, seed, path: usize, ttft_ms| Row::new(workload, &PATHS[path], seed, &outcome(ttft_ms, [1, 1]));
    let mut rows = vec![
        row("chat", 1, 0, 10.0),
        row("agents", 1, 0, 40.0),
        row("chat", 1, 2, 5.0),
        row("agents", 1, 2, 10.0),
        row("chat", 2, 2, 5.0),
    ];
    row::compare(&mut rows);
    let ratios: Vec<Option<f64>> = rows.iter().map(|row| row.ttft_mean_by_round_robin).collect();
    assert_eq!(ratios, [Some(1.0), Some(1.0), Some(0.5), Some(0.25), None]);
}

#[test]
fn the_first_path_is_the_baseline_and_every_path_has_a_name_of_its_own() {
    assert_eq!((PATHS[0].path, PATHS[0].policy), paths::BASELINE);
    let names: std::collections::HashSet<String> = PATHS.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), PATHS.len());
    assert!(names.contains("vllm-router consistent_hash + x-session-id"));
    let without_peers: Vec<&Route> = PATHS.iter().filter(|route| !route.is_with_peers).collect();
    assert!(without_peers.iter().all(|route| route.path == "envoy" || route.path == "warmroute"));
}

#[test]
fn a_table_has_a_line_for_each_path_the_best_first_with_the_spread_of_the_seeds() {
    let table = tables::of_workload(&rows(2), "chat");
    assert_eq!(table.rows().len(), PATHS.len());
    let second: Vec<&str> = table.rows()[1].iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(second[..3], ["envoy least_request", "2.00 (2.00-2.00)", "6"], "{second:?}");
}

#[test]
fn the_page_names_every_path_its_seeds_and_the_best_other_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = page::write(folder.path(), &rows(3), "2025-01-31").unwrap();
    let page = fs::read_to_string(path).unwrap();
    let svg = fs::read_to_string(folder.path().join("routing-quality-http/ttft-hit-rate.svg")).unwrap();
    for route in &PATHS {
        assert!(page.matches(&format!("| {route} |")).count() == 2 && svg.contains(&route.to_string()), "{route}");
    }
    assert!(page.contains("Measured 2025-01-31, seeds 1, 2, 3"), "{page}");
    // Envoy's round robin is first in the list of paths, warmroute's hybrid third.
    assert!(page.contains("0.33 times on agents (envoy round_robin)"), "{page}");
    assert!(
        page::write(folder.path(), &rows(1)[..2], "2025-01-31").is_err(),
        "without warmroute there is nothing to say"
    );
}

/// Needs tools/setup/peers.sh and so PyPI: run with `WARMROUTE_PEERS=1 cargo test -p warmroute-demo peers`.
#[tokio::test]
async fn peers_serve_all_workers_with_prefixes_kept_together_and_leave_nothing_behind() -> Result<()> {
    if std::env::var_os("WARMROUTE_PEERS").is_none() {
        return Ok(());
    }
    let timing = Timing { time_scale: 0.0, ..Timing::default() };
    for kind in [PeerKind::SglangRouter, PeerKind::VllmRouter] {
        let sim = SimConfig { timing, enable_scale_out: true, ..SimConfig::default() };
        let workers = [WorkerSim::start(sim.clone())?, WorkerSim::start(sim)?];
        let addresses = workers.each_ref().map(WorkerSim::addr);
        let peer = Peer::start(kind, "cache_aware", &addresses).await?;
        let client = Client::http1(peer.address());
        for _turn in 0..3 {
            let message = json!({ "role": "user", "content": "a prompt of several blocks ".repeat(100) });
            let request = json!({ "model": "sim", "max_tokens": 1, "messages": [message] });
            assert_eq!(client.post_json("/v1/chat/completions", &request).await?.status, 200);
        }
        let served = workers.each_ref().map(|worker| worker.stats().requests);
        assert!(served.contains(&3), "{}: {served:?}", kind.name());
        let decisions = peer.decisions().await?.join("\n");
        assert!(!decisions.contains("missing_tokens"), "it had to do without tokens:\n{decisions}");
        assert!(kind == PeerKind::SglangRouter || decisions.contains("\"prefix_hit\"} 2"), "{decisions}");

        let process = peer.process_id();
        let threads = fs::read_dir(format!("/proc/{process}/task"))?.count();
        assert!(threads > 1, "{}: the process that was started is not the one that serves", kind.name());
        let address = peer.address();
        drop(peer);
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "{} is still there", kind.name());
        assert!(std::net::TcpStream::connect(address).is_err(), "{} still listens", kind.name());
    }
    // A policy that it does not have: the error says what the router said.
    let workers = [WorkerSim::start(SimConfig::default())?];
    let refused = Peer::start(PeerKind::VllmRouter, "guess", &[workers[0].addr()]).await;
    let error = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(error.contains("invalid choice: 'guess'"), "{error}");
    Ok(())
}

#[test]
fn a_summary_that_is_not_there_says_what_to_do() {
    let error = read(Path::new("/nowhere/summary.json")).unwrap_err();
    assert!(format!("{error:#}").contains("--keep"));
}
