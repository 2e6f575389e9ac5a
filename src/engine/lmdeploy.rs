//! LMDeploy's metrics.
//!
//! Source: `PrometheusStatLogger` of LMDeploy 0.18.0 (`lmdeploy/metrics/loggers.py` in the package), which also wrote the
//! page `tests/testdata/lmdeploy-0.18.0-metrics.txt`.

use super::{Dialect, Field, Gauge};

/// What LMDeploy's server says, if it was started with `--enable-metrics`.
pub static LMDEPLOY: Dialect = Dialect {
    name: "lmdeploy",
    doc: "LMDeploy (0.18.0, written by its own code): queue, batch, KV usage, start, models",
    prefix: "lmdeploy:",
    gauges: &[
        Gauge::new(Field::Waiting, "lmdeploy:num_requests_waiting"),
        // Requests that the server has not given to its engine yet.
        Gauge::new(Field::Waiting, "lmdeploy:num_api_requests_waiting").adding(),
        Gauge::new(Field::Running, "lmdeploy:num_requests_running"),
        // "perc" notwithstanding a share, 0 to 1.
        Gauge::new(Field::KvUsage, "lmdeploy:gpu_cache_usage_perc"),
        // Of the Python client library.
        Gauge::new(Field::StartedAt, "process_start_time_seconds"),
    ],
    // The engine's data-parallel rank.
    rank_label: "engine",
    shows_copies: false,
    model_label: "model_name",
    adapters: None,
};

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::engine::{Engine, PageReader};
    use crate::worker::{AdapterHash, LoadReport};

    const PAGE: &str = include_str!("../../tests/testdata/lmdeploy-0.18.0-metrics.txt");

    #[test]
    fn the_page_reads_as_the_engine_was() {
        let want = LoadReport {
            // Two in the engine's queue, and two of its server's.
            waiting: Some(4.0),
            running: Some(3.0),
            kv_usage: Some(0.25),
            started_at_s: Some(1_795_992_095.47),
            models: [AdapterHash::of(b"internlm3-8b")].into_iter().collect(),
            ..LoadReport::UNKNOWN
        };
        assert_eq!(PageReader::new(Engine::Auto, &[]).read(PAGE.as_bytes(), None), Ok(want));
    }
}
