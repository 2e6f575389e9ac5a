//! The metrics of Hugging Face's Text Generation Inference.
//!
//! Source: its reference of metrics (huggingface.co/docs/text-generation-inference/reference/metrics, version 3.3), where
//! `backends/v3` and `backends/v2` of the router set them, and the page that Datadog's integration tests with
//! (DataDog/integrations-core, `hugging_face_tgi/tests/fixtures/payload.txt`). The page in `tests/testdata` is written after
//! them: the engine does not start without a GPU.

use super::{Dialect, Field, Gauge};

/// What TGI says: nothing of its KV cache, and nothing of its model.
pub static TGI: Dialect = Dialect {
    name: "tgi",
    doc: "TGI (3.3, from its reference): queue, batch",
    prefix: "tgi_",
    gauges: &[Gauge::new(Field::Waiting, "tgi_queue_size"), Gauge::new(Field::Running, "tgi_batch_current_size")],
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

    const PAGE: &str = include_str!("../../tests/testdata/tgi-3.3-metrics.txt");

    #[test]
    fn the_page_reads_as_the_engine_was() {
        let want = LoadReport { waiting: Some(2.0), running: Some(3.0), ..LoadReport::UNKNOWN };
        assert_eq!(PageReader::new(Engine::Auto, &[]).read(PAGE.as_bytes(), None), Ok(want));
    }
}
