//! SGLang's metrics.
//!
//! Source: `SchedulerMetricsCollector` of SGLang 0.5.23 (`sglang/srt/observability/metrics_collector.py` in the package),
//! which also wrote the two pages `tests/testdata/sglang-0.5.23-*`; the older `sglang:cache_config_info` is what
//! llm-d-router reads of SGLang before 0.5.11 (`extractor/metrics/factories.go`).

use super::{Dialect, Field, Gauge};

/// What SGLang says, if it was started with `--enable-metrics`.
///
/// With data parallelism each rank has series of its own, under `dp_rank`. With `--enable-metrics-for-all-schedulers`, and
/// with pipeline stages, a rank shows one number once for each of its processes, under `tp_rank`, `pp_rank` and
/// `moe_ep_rank`: those are copies.
pub static SGLANG: Dialect = Dialect {
    name: "sglang",
    doc: "SGLang (0.5.23, written by its own code): queue, batch, KV usage, blocks, adapters by number, models",
    prefix: "sglang:",
    gauges: &[
        of_all_priorities(Field::Waiting, "sglang:num_queue_reqs"),
        of_all_priorities(Field::Running, "sglang:num_running_reqs"),
        // Requests that wait elsewhere before they are in the queue or the batch: for the automaton of their grammar, and
        // with prefill and decode apart for their KV cache to be sent for, given room or received.
        Gauge::new(Field::Waiting, "sglang:num_grammar_queue_reqs").adding(),
        of_all_priorities(Field::Waiting, "sglang:num_prefill_bootstrap_queue_reqs").adding(),
        of_all_priorities(Field::Waiting, "sglang:num_decode_prealloc_queue_reqs").adding(),
        of_all_priorities(Field::Waiting, "sglang:num_decode_transfer_queue_reqs").adding(),
        // A share, 0 to 1, of the fullest of the pools for full attention, sliding windows and Mamba. Cached prefixes that
        // may be evicted do not count.
        Gauge::new(Field::KvUsage, "sglang:token_usage"),
        Gauge::new(Field::BlockTokens, "sglang:page_size"),
        Gauge::new(Field::BlockTokens, "sglang:cache_config_info").in_label("page_size"),
        // Each rank has a cache of its own.
        Gauge::new(Field::KvBlocks, "sglang:num_pages"),
        Gauge::new(Field::KvBlocks, "sglang:cache_config_info").in_label("num_pages"),
        // Only with LoRA. Different adapters of the running batch, without their names.
        Gauge::new(Field::AdapterPlacesTaken, "sglang:lora_pool_slots_used"),
        Gauge::new(Field::AdapterPlaces, "sglang:lora_pool_slots_total"),
        // The start of the process is in no page: SGLang uses the multiprocess mode of the Python client library.
    ],
    rank_label: "dp_rank",
    shows_copies: true,
    model_label: "model_name",
    adapters: None,
};

/// With priorities a metric has a series for each of them, and their sum under the empty one.
const fn of_all_priorities(field: Field, metric: &'static str) -> Gauge {
    Gauge::new(field, metric).only("priority", "")
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::engine::{Engine, PageReader};
    use crate::worker::{AdapterFit, AdapterHash, AdapterList, Adapters, LoadReport};

    const PAGE: &str = include_str!("../../tests/testdata/sglang-0.5.23-metrics.txt");

    /// Two data-parallel ranks of two processes each, with two priorities and LoRA.
    const RANKS_PAGE: &str = include_str!("../../tests/testdata/sglang-0.5.23-dp2-tp4-metrics.txt");

    fn read(page: &str, rank: Option<u32>) -> LoadReport {
        PageReader::new(Engine::Auto, &[]).read(page.as_bytes(), rank).unwrap()
    }

    fn busy() -> LoadReport {
        LoadReport {
            waiting: Some(2.0),
            running: Some(3.0),
            kv_usage: Some(0.25),
            block_tokens: Some(16.0),
            kv_blocks: Some(2_048.0),
            models: [AdapterHash::of(b"tiny")].into_iter().collect(),
            ..LoadReport::UNKNOWN
        }
    }

    #[test]
    fn the_page_reads_as_the_engine_was() {
        assert_eq!(read(PAGE, None), busy());
    }

    #[test]
    fn ranks_add_up_and_their_processes_and_priorities_do_not() {
        let lora = |used, report: LoadReport| {
            let adapters = Adapters { max: Some(8), running: AdapterList::from_parts(used, []), ..Adapters::UNTOLD };
            LoadReport { adapters, models: report.models.cut(), ..report }
        };
        let whole = LoadReport { running: Some(8.0), kv_usage: Some(0.75), kv_blocks: Some(4_096.0), ..busy() };
        assert_eq!(read(RANKS_PAGE, None), lora(6, whole));
        assert_eq!(read(RANKS_PAGE, Some(0)), lora(3, busy()));
        let second = LoadReport { waiting: Some(0.0), running: Some(5.0), kv_usage: Some(0.75), ..busy() };
        assert_eq!(read(RANKS_PAGE, Some(1)), lora(6, second));
    }

    #[test]
    fn adapters_fit_while_a_place_is_free() {
        let fit = |page: &str| read(page, None).adapters.fit(AdapterHash::of(b"sql"));
        assert_eq!(fit(RANKS_PAGE), AdapterFit::Room);
        let full = RANKS_PAGE.replace("tp_rank=\"3\"} 6.0", "tp_rank=\"3\"} 8.0");
        assert_eq!(fit(&full), AdapterFit::Unknown, "any adapter may be in one of the places");
        assert!(read(&full, None).adapters.is_told(), "else others' places would be taken for its own");
    }

    #[test]
    fn requests_that_wait_for_their_cache_or_grammar_wait() {
        let mut page = PAGE.to_owned();
        for (metric, number) in [
            ("num_grammar_queue_reqs", 1),
            ("num_prefill_bootstrap_queue_reqs", 10),
            ("num_decode_prealloc_queue_reqs", 100),
            ("num_decode_transfer_queue_reqs", 1_000),
        ] {
            let labels = "{engine_type=\"unified\",model_name=\"tiny\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} ";
            let before = format!("sglang:{metric}{labels}0.0");
            assert!(page.contains(&before), "{metric}");
            page = page.replace(&before, &format!("sglang:{metric}{labels}{number}"));
        }
        assert_eq!(read(&page, None).waiting, Some(1_113.0));
    }

    #[test]
    fn older_versions_tell_the_cache_in_labels() {
        let page = "sglang:token_usage 0.5\nsglang:cache_config_info{page_size=\"64\",num_pages=\"11147\"} 1.0\n";
        let report = read(page, None);
        assert_eq!((report.block_tokens, report.kv_blocks), (Some(64.0), Some(11_147.0)));
    }
}
