//! The cost benchmark runs from end to end, on the least that it can measure.

use anyhow::Result;
use warmroute_bench::cost::{Flags, measure};
use warmroute_bench::row::Row;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cost_run_gives_a_row_for_each_path_with_its_ratio_to_plain_envoy() -> Result<()> {
    let output = tempfile::tempdir()?;
    let flags = Flags {
        only: vec!["warmroute/hybrid".into()],
        body_bytes: Some(4096),
        connections: Some(2),
        workers: Some(2),
        rounds: Some(1),
        burst_ms: Some(200),
        output: Some(output.path().to_owned()),
        ..Flags::default()
    };
    // An answer that is no success would be an error.
    let rows = measure(&flags).await?;
    let names: Vec<String> = rows.iter().map(Row::name).collect();
    assert_eq!(names, ["envoy/round-robin", "warmroute/hybrid"]);
    for row in &rows {
        let shape = (row.body_bytes, row.connections, row.workers, row.stream_chunks, row.rounds);
        assert_eq!(shape, (4096, 2, 2, 0, 1), "{row:?}");
        let measured = [row.requests_per_s, row.cpu_us_per_request, row.p50_ms, row.rss_mb];
        assert!(measured.iter().all(|value| value.is_finite() && *value > 0.0), "{row:?}");
        assert!(row.p50_ms <= row.p90_ms && row.p90_ms <= row.p99_ms, "{row:?}");
        let ratios = [row.cpu_ratio_to_envoy, row.rps_ratio_to_envoy];
        assert!(ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0), "{row:?}");
    }
    let base = [rows[0].cpu_ratio_to_envoy, rows[0].rps_ratio_to_envoy];
    assert_eq!(base, [1.0, 1.0], "Envoy is what it is compared with");
    let written: Vec<Row> = serde_json::from_slice(&std::fs::read(output.path().join("summary.json"))?)?;
    // Not whole rows: what is written in decimals comes back with another last bit.
    assert_eq!(written.iter().map(Row::name).collect::<Vec<_>>(), names);
    assert!(output.path().join("environment.json").is_file());
    Ok(())
}
