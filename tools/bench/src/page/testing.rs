//! Made-up results.

use super::input::{Point, Results, StageRow};
use super::select::{BASE, Cell, LARGE_BODY_BYTES, OURS, RIVAL};
use crate::environment::Environment;
use crate::row::Row;

/// A row whose other numbers follow from these.
pub(super) fn row(cell: Cell, name: &str, cpu_us: f64, base_us: f64) -> Row {
    let (path, policy) = name.split_once('/').unwrap_or((name, ""));
    let Cell { stream_chunks, workers, body_bytes, connections } = cell;
    let p50_ms = cpu_us * 1.5e-3;
    Row {
        path: path.to_owned(),
        policy: policy.to_owned(),
        body_bytes,
        connections,
        workers,
        stream_chunks,
        rounds: 5,
        requests_per_s: 1e6 / cpu_us.max(10.0),
        cpu_us_per_request: cpu_us,
        p50_ms,
        p90_ms: 2.0 * p50_ms,
        p99_ms: 8.0 * p50_ms,
        rss_mb: if name == BASE { 50.0 } else { 80.0 },
        cpu_ratio_to_envoy: cpu_us / base_us,
        rps_ratio_to_envoy: base_us / cpu_us.max(10.0),
        cpu_noise: 0.04,
    }
}

/// All cells of a run in which all marks are met: ours takes 1.4 times plain Envoy's CPU, the other router 3 times.
pub(super) fn full_run() -> Vec<Row> {
    let bodies = [1 << 10, 4 << 10, 64 << 10, LARGE_BODY_BYTES, 1 << 20];
    let mut cells: Vec<Cell> = [1, 16, 64]
        .into_iter()
        .flat_map(|connections| bodies.map(|body_bytes| Cell { body_bytes, connections, ..Cell::MAIN }))
        .collect();
    cells.extend([64, 512].map(|workers| Cell { workers, ..Cell::MAIN }));
    cells.push(Cell { connections: 4, stream_chunks: 10_000, ..Cell::MAIN });
    let mut rows = Vec::new();
    for cell in cells {
        let base_us = 80.0 + 3.0 * (cell.body_bytes / 1024) as f64 + 2.5 * f64::from(cell.stream_chunks);
        for (name, factor) in [(BASE, 1.0), (OURS, 1.4), (RIVAL, 3.0)] {
            rows.push(row(cell, name, factor * base_us, base_us));
        }
        if cell == Cell::MAIN {
            rows.push(row(cell, "direct", 0.0, base_us));
            rows.push(row(cell, "envoy-noop", 1.2 * base_us, base_us));
            rows.push(row(cell, "warmroute/least-load", 1.3 * base_us, base_us));
        }
    }
    rows
}

/// Everything: rows, curves, stages and a machine.
pub(super) fn full_results() -> Results {
    let mut points = Vec::new();
    for (axis, values) in [
        ("body_bytes", &[1024.0, 4096.0, 65_536.0, 225_280.0, 1_048_576.0][..]),
        ("workers", &[1.0, 4.0, 64.0, 512.0]),
        ("index_pages", &[64.0, 1024.0, 16_384.0]),
    ] {
        for &x in values {
            let base_us = if axis == "body_bytes" { 80.0 + x / 1024.0 } else { 80.0 };
            let added_us = match axis {
                "body_bytes" => 12.0 + 0.1 * x / 1024.0,
                "workers" => 12.0 + 0.05 * x,
                _ => 12.0,
            };
            for (path, cpu_us) in [(BASE, base_us), (OURS, base_us + added_us), (RIVAL, 3.0 * base_us)] {
                points.push(Point {
                    axis: axis.to_owned(),
                    x,
                    path: path.to_owned(),
                    cpu_us_per_request: cpu_us,
                    p50_ms: Some(cpu_us * 1e-3),
                    ..Point::default()
                });
            }
        }
    }
    let stage = |kind: &str, name: &str, us_per_request, host_us_per_request| StageRow {
        kind: kind.to_owned(),
        name: name.to_owned(),
        policy: "hybrid".to_owned(),
        body_bytes: 4096,
        workers: 8,
        us_per_request,
        host_us_per_request,
        host_calls_per_request: 2.0,
    };
    Results {
        rows: full_run(),
        machine: Environment {
            date: "2026-01-02T03:04:05Z".to_owned(),
            command_line: ["cost", "--full", "--peers"].map(str::to_owned).to_vec(),
            cores: 2,
            processor: "Some processor".to_owned(),
            kernel: "Linux 6.1.0".to_owned(),
            envoy: "abc/1.40.0/Clean/RELEASE/BoringSSL".to_owned(),
            plugin_bytes: 700_000,
            load_average_before: "0.50".to_owned(),
            load_average_after: "2.10".to_owned(),
            cpu_noise_max: 0.0,
        },
        points,
        stages: vec![
            stage("stage", "read_body", 1.5, 1.4),
            stage("stage", "parse", 3.0, 0.0),
            stage("stage", "score", 0.5, 0.0),
            stage("root", "tick", 0.2, 0.1),
            stage("host_call", "get_buffer", 1.4, 1.4),
        ],
    }
}

/// Changes one row.
pub(super) fn change(rows: &mut [Row], cell: Cell, name: &str, change: impl FnOnce(&mut Row)) {
    change(rows.iter_mut().find(|row| Cell::of(row) == cell && row.name() == name).unwrap());
}
