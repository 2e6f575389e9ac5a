//! `/metrics` with vLLM's names, labels and number format (compared with a page captured from vLLM 0.32).

use std::fmt::Write;

use crate::adapters::AdapterSeries;
use crate::config::SimConfig;
use crate::engine::EngineState;
use crate::faults::MetricsFault;

/// The page. `start_time_s`: start of the simulated process in seconds since the epoch.
pub(crate) fn render(config: &SimConfig, state: &EngineState, start_time_s: f64, fault: MetricsFault) -> String {
    let mut page = Page { out: String::with_capacity(4096), model: escape_label(&config.model), start_time_s };
    page.plain("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", start_time_s);
    if fault == MetricsFault::Missing {
        return page.out;
    }
    let gauge = |value: f64| if fault == MetricsFault::Nan { f64::NAN } else { value };
    let counters = &state.counters;
    page.gauge(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        gauge(state.running as f64),
    );
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", gauge(state.waiting as f64));
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", gauge(state.kv_usage));
    for (name, help, value) in [
        (
            "vllm:prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            counters.cache_query_tokens,
        ),
        (
            "vllm:prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            counters.cache_hit_tokens,
        ),
        // This engine never preempts.
        ("vllm:num_preemptions", "Cumulative number of preemption from the engine.", 0),
        ("vllm:prompt_tokens", "Number of prefill tokens processed.", counters.prompt_tokens),
        ("vllm:generation_tokens", "Number of generation tokens processed.", counters.generation_tokens),
    ] {
        page.counter(name, help, &[("", value)]);
    }
    let finished = [
        ("finished_reason=\"stop\",", 0),
        ("finished_reason=\"length\",", counters.finished),
        ("finished_reason=\"abort\",", counters.aborted),
        ("finished_reason=\"error\",", 0),
    ];
    page.counter("vllm:request_success", "Count of successfully processed requests.", &finished);
    page.cache_config(config);
    page.adapters(config, &state.adapters);
    page.fill(config.metrics_filler_bytes);
    page.out
}

/// A page that no parser should accept: not the exposition format, and not UTF-8.
pub(crate) fn garbage() -> Vec<u8> {
    b"<html>\xff\xfe vllm:num_requests_running{engine=\"0\" }} one\nvllm:num_requests_waiting\n\0\0{{{".to_vec()
}

struct Page {
    out: String,
    model: String,
    start_time_s: f64,
}

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, more_labels: &str, value: f64) {
        let _ =
            writeln!(self.out, "{name}{{engine=\"0\",{more_labels}model_name=\"{}\"}} {}", self.model, number(value));
    }

    fn plain(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.out, "{name} {}", number(value));
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.sample(name, "", value);
    }

    /// The counter and, as Python's client writes beside it, the gauge of its creation time.
    fn counter(&mut self, name: &str, help: &str, series: &[(&str, u64)]) {
        let (total, created) = (format!("{name}_total"), format!("{name}_created"));
        self.head(&total, help, "counter");
        series.iter().for_each(|(labels, value)| self.sample(&total, labels, *value as f64));
        self.head(&created, help, "gauge");
        series.iter().for_each(|(labels, _)| self.sample(&created, labels, self.start_time_s));
    }

    fn cache_config(&mut self, config: &SimConfig) {
        self.head("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
        let (size, blocks) = (config.block_size_tokens, config.kv_blocks);
        let _ = writeln!(
            self.out,
            "vllm:cache_config_info{{block_size=\"{size}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",\
             engine=\"0\",gpu_memory_utilization=\"0.92\",kv_cache_size_tokens=\"{}\",num_cpu_blocks=\"None\",\
             num_gpu_blocks=\"{blocks}\",num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"xxh3\",\
             sliding_window=\"None\"}} 1.0",
            size * blocks
        );
    }

    /// A series for each mix of adapters that ever was; the newest, by its value, is the one that counts.
    fn adapters(&mut self, config: &SimConfig, series: &[AdapterSeries]) {
        if series.is_empty() {
            return;
        }
        self.head("vllm:lora_requests_info", "Running stats on lora requests.", "gauge");
        for AdapterSeries { running, waiting, told_at_s } in series {
            let _ = writeln!(
                self.out,
                "vllm:lora_requests_info{{max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"}} {}",
                config.max_loras,
                escape_label(running),
                escape_label(waiting),
                number(*told_at_s)
            );
        }
    }

    /// Pads the page with buckets like those that make up most of a real one.
    fn fill(&mut self, want_bytes: usize) {
        let name = "vllm:request_params_max_tokens";
        if self.out.len() < want_bytes {
            self.head(name, "Histogram of the max_tokens request parameter.", "histogram");
        }
        for bound in 1.. {
            if self.out.len() >= want_bytes {
                break;
            }
            self.sample("vllm:request_params_max_tokens_bucket", &format!("le=\"{bound}.0\","), 0.0);
        }
    }
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number as Python's prometheus_client writes it (`floatToGoString`): a decimal point always, and an exponent from
/// a million up, with its odd leading zero. A scraper has to read `1.795955e+09` for a start time.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    let plain = format!("{value:?}");
    let Some(dot) = plain.find('.').filter(|&dot| value > 0.0 && dot > 6 && !plain.contains('e')) else {
        return plain;
    };
    let (first, rest) = plain.split_at(1);
    let digits = rest.replacen('.', "", 1);
    let mantissa = format!("{first}.{digits}");
    format!("{}e+0{}", mantissa.trim_end_matches(['0', '.']), dot - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Counters;

    fn page(fault: MetricsFault, filler: usize) -> String {
        let counters = Counters { prompt_tokens: 1605, finished: 5, ..Counters::default() };
        let adapters =
            vec![AdapterSeries { running: "sql,chat".to_owned(), waiting: String::new(), told_at_s: 1_795_955_113.5 }];
        let state = EngineState { running: 2, waiting: 3, queue_max: 0, kv_usage: 0.25, counters, adapters };
        let config = SimConfig {
            model: "a\"b".to_owned(),
            metrics_filler_bytes: filler,
            kv_blocks: 64,
            max_loras: 2,
            ..SimConfig::default()
        };
        render(&config, &state, 1_795_955_044.35, fault)
    }

    #[test]
    fn numbers_look_like_pythons() {
        for (value, want) in [
            (0.0, "0.0"),
            (1605.0, "1605.0"),
            (0.25, "0.25"),
            (123_456.0, "123456.0"),
            (1e6, "1e+06"),
            (1_795_955_044.35, "1.79595504435e+09"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), want);
        }
    }

    #[test]
    fn the_page_has_vllms_series() {
        let page = page(MetricsFault::Ok, 0);
        for line in [
            "# TYPE vllm:num_requests_running gauge",
            "vllm:num_requests_running{engine=\"0\",model_name=\"a\\\"b\"} 2.0",
            "vllm:num_requests_waiting{engine=\"0\",model_name=\"a\\\"b\"} 3.0",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\\\"b\"} 0.25",
            "# TYPE vllm:prompt_tokens_total counter",
            "vllm:prompt_tokens_total{engine=\"0\",model_name=\"a\\\"b\"} 1605.0",
            "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"a\\\"b\"} 5.0",
            "process_start_time_seconds 1.79595504435e+09",
            "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"sql,chat\",waiting_lora_adapters=\"\"} 1.7959551135e+09",
        ] {
            assert!(page.lines().any(|have| have == line), "no line {line} in\n{page}");
        }
        assert!(page.contains("vllm:cache_config_info{block_size=\"16\",") && page.contains("num_gpu_blocks=\"64\","));
    }

    #[test]
    fn faults_and_filler_change_the_page() {
        assert!(
            page(MetricsFault::Nan, 0).contains("vllm:num_requests_waiting{engine=\"0\",model_name=\"a\\\"b\"} NaN")
        );
        assert!(!page(MetricsFault::Missing, 0).contains("vllm:"));
        assert!((58_000..58_200).contains(&page(MetricsFault::Ok, 58_000).len()));
        assert!(String::from_utf8(garbage()).is_err());
    }
}
