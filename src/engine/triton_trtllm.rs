//! The metrics of NVIDIA Triton with the TensorRT-LLM backend.
//!
//! Source: `custom_metrics_reporter.cc` in `triton_backend/inflight_batcher_llm` of NVIDIA/TensorRT-LLM at commit
//! 0d5352f5fc5f, and the sample in the README of triton-inference-server/tensorrtllm_backend. The page in `tests/testdata`
//! is written after them: the engine does not start without a GPU.

use super::{Dialect, Field, Gauge};

/// What Triton says of its TensorRT-LLM models, on a port of its own (8002).
pub static TRITON_TRTLLM: Dialect = Dialect {
    name: "triton-trtllm",
    doc: "Triton with TensorRT-LLM (from its source, 0d5352f): queue, batch, KV usage, blocks. Its metrics are on a port of their own: set `metricsAddress`",
    prefix: "nv_trt_llm_",
    gauges: &[
        request(Field::Waiting, "waiting"),
        request(Field::Running, "scheduled"),
        // A share, 0 to 1. Before there was one (Triton 23.11) the blocks in use told it.
        block(Field::KvUsage, "fraction"),
        block(Field::KvUsedBlocks, "used"),
        block(Field::BlockTokens, "tokens_per"),
        block(Field::KvBlocks, "max"),
    ],
    rank_label: "",
    shows_copies: false,
    // The label `model` names a folder of Triton's, mostly `tensorrt_llm`, and not what requests call the model.
    model_label: "",
    adapters: None,
};

const fn request(field: Field, kind: &'static str) -> Gauge {
    Gauge::new(field, "nv_trt_llm_request_metrics").only("request_type", kind)
}

const fn block(field: Field, kind: &'static str) -> Gauge {
    Gauge::new(field, "nv_trt_llm_kv_cache_block_metrics").only("kv_cache_block_type", kind)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::engine::{Engine, PageReader};
    use crate::worker::LoadReport;

    const PAGE: &str = include_str!("../../tests/testdata/triton-trtllm-0.20-metrics.txt");

    #[test]
    fn the_page_reads_as_the_engine_was() {
        let want = LoadReport {
            waiting: Some(2.0),
            running: Some(3.0),
            kv_usage: Some(0.25),
            block_tokens: Some(64.0),
            kv_blocks: Some(6_240.0),
            ..LoadReport::UNKNOWN
        };
        let read = |page: &str| PageReader::new(Engine::Auto, &[]).read(page.as_bytes(), None);
        assert_eq!(read(PAGE), Ok(want));
        let older: String =
            PAGE.lines().filter(|line| !line.contains("fraction")).map(|line| line.to_owned() + "\n").collect();
        assert_eq!(read(&older), Ok(want), "the used blocks tell the share");
    }
}
