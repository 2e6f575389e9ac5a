//! vLLM's metrics.
//!
//! Source: a page captured from vLLM 0.32.0 (`tests/testdata/vllm-0.32.0-metrics.txt`), and for what one page cannot tell
//! (older names, several engines, several API servers) `PrometheusStatLogger` in `vllm/v1/metrics/loggers.py` of
//! vllm-project/vllm at commit 005a810bc40f, after 0.9.

use super::{AdapterLabels, Dialect, Field, Gauge};

/// What vLLM's V1 engine says.
///
/// One server may run several engines (data parallelism) and label each series with `engine` and `model_name`; a worker
/// is the whole server, for that is what a request is sent to.
pub static VLLM: Dialect = Dialect {
    name: "vllm",
    doc: "vLLM (0.32.0, captured): queue, batch, KV usage, blocks, start, adapters by name, models",
    prefix: "vllm:",
    gauges: &[
        Gauge::new(Field::Waiting, "vllm:num_requests_waiting"),
        // Of the engine before V1: requests that had to make room and wait in the CPU's memory.
        Gauge::new(Field::Waiting, "vllm:num_requests_swapped").adding(),
        Gauge::new(Field::Running, "vllm:num_requests_running"),
        // "perc" notwithstanding a share, 0 to 1.
        Gauge::new(Field::KvUsage, "vllm:kv_cache_usage_perc"),
        // The older name: "Deprecated in 0.9 - Renamed as vllm:kv_cache_usage_perc" (loggers.py). For some releases a
        // page has both.
        Gauge::new(Field::KvUsage, "vllm:gpu_cache_usage_perc"),
        Gauge::new(Field::BlockTokens, "vllm:cache_config_info").in_label("block_size"),
        // Each engine has a cache of its own: one series an engine.
        Gauge::new(Field::KvBlocks, "vllm:cache_config_info").in_label("num_gpu_blocks"),
        // Of the Python client library, not of vLLM. The library leaves it out in its multiprocess mode, which vLLM uses
        // with several API server processes.
        Gauge::new(Field::StartedAt, "process_start_time_seconds"),
    ],
    rank_label: "engine",
    // With several API server processes the gauges still have one series an engine, the one written last.
    shows_copies: false,
    // Of several names that a model is served by, the first.
    model_label: "model_name",
    // Only where the server was started with `--enable-lora`. It has no label for the engine: with several engines it
    // is what one of them said last, of which vLLM itself warns.
    adapters: Some(AdapterLabels {
        metric: "vllm:lora_requests_info",
        max: "max_lora",
        running: "running_lora_adapters",
        waiting: "waiting_lora_adapters",
    }),
};

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::engine::{Engine, PageError, PageReader};
    use crate::worker::{AdapterFit, AdapterHash, AdapterList, Adapters, LoadReport};

    const PAGE: &str = include_str!("../../tests/testdata/vllm-0.32.0-metrics.txt");

    const IDLE: LoadReport = LoadReport {
        waiting: Some(0.0),
        running: Some(0.0),
        kv_usage: Some(0.0),
        block_tokens: Some(32.0),
        kv_blocks: Some(32_768.0),
        started_at_s: Some(1_795_955_044.35),
        // The captured server runs without LoRA.
        adapters: Adapters::UNTOLD,
        models: AdapterList::EMPTY,
    };

    fn idle() -> LoadReport {
        LoadReport { models: [AdapterHash::of(b"tiny")].into_iter().collect(), ..IDLE }
    }

    fn read_report(page: &[u8], rank: Option<u32>) -> Result<LoadReport, PageError> {
        PageReader::new(Engine::Auto, &[]).read(page, rank)
    }

    #[test]
    fn the_captured_page_reads_as_the_engine_was() {
        assert_eq!(read_report(PAGE.as_bytes(), None), Ok(idle()));
    }

    #[test]
    fn two_engines_of_one_server_are_one_worker() {
        // The second engine has the same series under another label, as with `--data-parallel-size 2`; both are busy.
        let second: String = PAGE
            .lines()
            .filter(|line| line.contains("engine=\"0\""))
            .fold(String::new(), |page, line| page + &line.replace("engine=\"0\"", "engine=\"1\"") + "\n");
        let busy = |page: &str, waiting: &str, usage: &str| {
            let series = "{engine=\"N\",model_name=\"tiny\"} ";
            let engine = if page.contains("engine=\"1\"") { "1" } else { "0" };
            let series = series.replace('N', engine);
            page.replace(&format!("waiting{series}0.0\n"), &format!("waiting{series}{waiting}\n"))
                .replace(&format!("kv_cache_usage_perc{series}0.0\n"), &format!("kv_cache_usage_perc{series}{usage}\n"))
        };
        let page = busy(PAGE, "3.0", "0.25") + &busy(&second, "4.0", "0.75");
        let want = LoadReport { waiting: Some(7.0), kv_usage: Some(0.75), kv_blocks: Some(65_536.0), ..idle() };
        assert_eq!(read_report(page.as_bytes(), None), Ok(want));
    }

    /// Two engines and two models, as `PrometheusStatLogger` labels them; not captured.
    const SHARED_PAGE: &str = "\
vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 1.0
vllm:num_requests_waiting{engine=\"1\",model_name=\"a\"} 2.0
vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 3.0
vllm:num_requests_running{engine=\"1\",model_name=\"b\"} 4.0
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\"} 0.25
vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"a\"} 0.5
vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1.0
vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"100\"} 1.0
process_start_time_seconds 1.7e+09
";

    #[test]
    fn one_of_several_engines_can_be_a_worker() {
        type Told = (Option<f64>, Option<f64>, Option<f64>, Option<f64>, Option<f64>);
        let told = |rank| -> Result<Told, PageError> {
            let report = read_report(SHARED_PAGE.as_bytes(), rank)?;
            Ok((report.waiting, report.running, report.kv_usage, report.kv_blocks, report.started_at_s))
        };
        let started = Some(1.7e9);
        assert_eq!(told(None), Ok((Some(3.0), Some(7.0), Some(0.5), Some(200.0), started)));
        assert_eq!(told(Some(0)), Ok((Some(1.0), Some(3.0), Some(0.25), Some(100.0), started)));
        assert_eq!(told(Some(1)), Ok((Some(2.0), Some(4.0), Some(0.5), Some(100.0), started)));
        assert_eq!(told(Some(2)), Err(PageError::NothingKnown), "another's load is not taken for it");
    }

    #[test]
    fn each_base_model_is_named_once() {
        let models = |rank| read_report(SHARED_PAGE.as_bytes(), rank).unwrap().models;
        let list = |names: &[&[u8]]| -> AdapterList { names.iter().map(|name| AdapterHash::of(name)).collect() };
        assert_eq!(models(None), list(&[b"a", b"b"]));
        assert_eq!(models(Some(1)), list(&[b"a", b"b"]));
        let many: String =
            (0..20).map(|number| format!("vllm:num_requests_waiting{{model_name=\"m{number}\"}} 0\n")).collect();
        let models = read_report(many.as_bytes(), None).unwrap().models;
        assert!(models.contains(AdapterHash::of(b"m15")) && models.count() > 16, "more than are listed");
    }

    #[test]
    fn requests_that_an_older_engine_swapped_out_wait() {
        let page = "vllm:num_requests_waiting 2\nvllm:num_requests_swapped 3\nvllm:num_requests_running 1\n";
        assert_eq!(read_report(page.as_bytes(), None).map(|report| report.waiting), Ok(Some(5.0)));
    }

    #[test]
    fn the_older_name_of_kv_usage_counts_only_without_the_newer_one() {
        let older = "vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.5\n";
        let report = |page: &str| read_report(page.as_bytes(), None).map(|report| report.kv_usage);
        assert_eq!(report(older), Ok(Some(0.5)));
        assert_eq!(report(&format!("{older}vllm:kv_cache_usage_perc{{model_name=\"m\"}} 0.125\n")), Ok(Some(0.125)));
    }

    /// What a server with `--enable-lora --max-loras 2` adds to the page, by `PrometheusStatLogger`; not captured.
    const LORA_LINES: &str = "\
# HELP vllm:lora_requests_info Running stats on lora requests.
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 1.7959551044577369e+09
vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"sql,chat\",waiting_lora_adapters=\"law\"} \
1.7959551138802105e+09
vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"sql\",waiting_lora_adapters=\"sql\"} 1.795955109131877e+09
";

    #[test]
    fn a_page_of_a_lora_server_tells_its_adapters() {
        let list = |names: &[&[u8]]| -> AdapterList { names.iter().map(|name| AdapterHash::of(name)).collect() };
        let adapters = Adapters { max: Some(2), running: list(&[b"sql", b"chat"]), waiting: list(&[b"law"]) };
        let report = read_report(format!("{PAGE}{LORA_LINES}").as_bytes(), None);
        assert_eq!(report, Ok(LoadReport { adapters, ..idle() }));
        let fit = |name: &[u8]| adapters.fit(AdapterHash::of(name));
        assert_eq!((fit(b"chat"), fit(b"law")), (AdapterFit::Running, AdapterFit::Waiting));
        // A request for the base model names no adapter, and neither does one for an adapter that nobody uses.
        assert_eq!(fit(b"tiny"), AdapterFit::Full);
    }

    #[test]
    fn a_page_cut_anywhere_is_survived() {
        for end in (0..PAGE.len()).step_by(101) {
            let report = read_report(&PAGE.as_bytes()[..end], None).unwrap_or_default();
            for (read, whole) in [(report.waiting, IDLE.waiting), (report.kv_blocks, IDLE.kv_blocks)] {
                assert!(read.is_none() || read == whole, "cut at {end}");
            }
        }
    }
}
