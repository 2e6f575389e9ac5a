//! The metrics of llama.cpp's server.
//!
//! Source: `server_task_result_metrics::to_metrics` in `tools/server/server-task.cpp` of build b11434, after which the page
//! in `tests/testdata` is written; for the older gauge of the cache the same function at the beginning of 2025, in
//! `examples/server`.

use super::{Dialect, Field, Gauge};

/// What `llama-server` says, if it was started with `--metrics`.
pub static LLAMACPP: Dialect = Dialect {
    name: "llamacpp",
    doc: "llama.cpp's server (from its source, b11434): queue, batch; KV usage in older versions",
    prefix: "llamacpp:",
    gauges: &[
        // Requests that found no free slot.
        Gauge::new(Field::Waiting, "llamacpp:requests_deferred"),
        Gauge::new(Field::Running, "llamacpp:requests_processing"),
        // Of older versions, a share, 0 to 1. Newer ones tell nothing of the cache.
        Gauge::new(Field::KvUsage, "llamacpp:kv_cache_usage_ratio"),
    ],
    rank_label: "",
    shows_copies: false,
    model_label: "",
    adapters: None,
};

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::engine::{Engine, PageReader};
    use crate::worker::LoadReport;

    const PAGE: &str = include_str!("../../tests/testdata/llamacpp-b11434-metrics.txt");

    #[test]
    fn the_page_reads_as_the_engine_was() {
        let want = LoadReport { waiting: Some(2.0), running: Some(2.0), ..LoadReport::UNKNOWN };
        let read = |page: &str| PageReader::new(Engine::Auto, &[]).read(page.as_bytes(), None);
        assert_eq!(read(PAGE), Ok(want));
        let older = format!("{PAGE}llamacpp:kv_cache_usage_ratio 0.5\n");
        assert_eq!(read(&older), Ok(LoadReport { kv_usage: Some(0.5), ..want }));
    }
}
