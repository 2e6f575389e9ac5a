//! The metrics of TensorRT-LLM's own server, `trtllm-serve`.
//!
//! Source: `MetricsCollector` in `tensorrt_llm/metrics/collector.py` of NVIDIA/TensorRT-LLM at commit 050f80def8df, 2026,
//! and where its server puts the page, in `tensorrt_llm/serve/openai_server.py`. The page in `tests/testdata` is written
//! after them: the engine does not start without a GPU.

use super::{Dialect, Field, Gauge};

/// What `trtllm-serve` says under `/prometheus/metrics` (its `/metrics` is JSON), if it was started with
/// `return_perf_metrics` and `enable_iter_perf_stats`.
///
/// The numbers are written when a request completes, and are as old as that.
pub static TRTLLM: Dialect = Dialect {
    name: "trtllm",
    doc: "TensorRT-LLM's server (from its source, 050f80d): queue, batch, KV usage, blocks, as of the last completed request. Set `metrics.path` to `/prometheus/metrics`",
    prefix: "trtllm_",
    gauges: &[
        Gauge::new(Field::Waiting, "trtllm_num_requests_waiting"),
        Gauge::new(Field::Running, "trtllm_num_requests_running"),
        // A share, 0 to 1: blocks in use by blocks in all.
        Gauge::new(Field::KvUsage, "trtllm_kv_cache_utilization"),
        Gauge::new(Field::BlockTokens, "trtllm_kv_cache_tokens_per_block"),
        Gauge::new(Field::KvBlocks, "trtllm_kv_cache_max_blocks"),
    ],
    // With attention data parallelism all ranks write one series.
    rank_label: "",
    // The multiprocess mode of the Python client library: a gauge has a series for each process of the server, under `pid`.
    shows_copies: true,
    // "undefined" in some versions, which is no model's name.
    model_label: "",
    adapters: None,
};

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::engine::{Engine, PageReader};
    use crate::worker::LoadReport;

    const PAGE: &str = include_str!("../../tests/testdata/trtllm-1.3-metrics.txt");

    #[test]
    fn the_page_reads_as_the_engine_was() {
        let want = LoadReport {
            waiting: Some(2.0),
            running: Some(3.0),
            kv_usage: Some(0.25),
            block_tokens: Some(32.0),
            kv_blocks: Some(6_240.0),
            ..LoadReport::UNKNOWN
        };
        assert_eq!(PageReader::new(Engine::Auto, &[]).read(PAGE.as_bytes(), None), Ok(want));
        let twice = format!("{PAGE}{}", PAGE.replace("pid=\"4242\"", "pid=\"4243\""));
        assert_eq!(
            PageReader::new(Engine::Auto, &[]).read(twice.as_bytes(), None),
            Ok(want),
            "two processes, one engine"
        );
    }
}
