//! What holds for every dialect, over the pages of `tests/testdata`.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::prometheus::PAGE_BYTES_MAX;
use super::*;
use crate::worker::LoadReport;

/// Pages by the dialect that they are in.
const PAGES: &[(&str, &str)] = &[
    ("vllm", include_str!("../../tests/testdata/vllm-0.32.0-metrics.txt")),
    ("vllm", include_str!("../../tests/testdata/dynamo-1.6.1-worker-metrics.txt")),
    ("sglang", include_str!("../../tests/testdata/sglang-0.5.23-metrics.txt")),
    ("sglang", include_str!("../../tests/testdata/sglang-0.5.23-dp2-tp4-metrics.txt")),
    ("trtllm", include_str!("../../tests/testdata/trtllm-1.3-metrics.txt")),
    ("triton-trtllm", include_str!("../../tests/testdata/triton-trtllm-0.20-metrics.txt")),
    ("llamacpp", include_str!("../../tests/testdata/llamacpp-b11434-metrics.txt")),
    ("tgi", include_str!("../../tests/testdata/tgi-3.3-metrics.txt")),
    ("lmdeploy", include_str!("../../tests/testdata/lmdeploy-0.18.0-metrics.txt")),
    ("dynamo", include_str!("../../tests/testdata/dynamo-1.6.1-frontend-metrics.txt")),
];

fn reader(engine: Engine) -> PageReader {
    PageReader::new(engine, &[])
}

fn dialect(name: &str) -> &'static Dialect {
    DIALECTS.iter().find(|dialect| dialect.name == name).unwrap()
}

/// Where the numbers of the report differ. Not of the fields that several gauges make together.
fn fields(report: &LoadReport) -> [Option<f64>; 6] {
    let LoadReport { waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s, .. } = *report;
    [waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s]
}

#[test]
fn every_dialect_has_a_page_and_a_name_of_its_own() {
    for (number, dialect) in DIALECTS.iter().enumerate() {
        assert!(PAGES.iter().any(|(name, _)| *name == dialect.name), "{}", dialect.name);
        assert!(DIALECTS[..number].iter().all(|before| before.name != dialect.name), "{}", dialect.name);
        assert!(!["auto", "none"].contains(&dialect.name), "means something else in the configuration");
    }
}

#[test]
fn a_page_is_recognised_as_its_own_dialect_and_is_no_report_in_the_others() {
    for (name, page) in PAGES {
        let own = reader(Engine::Known(dialect(name))).read(page.as_bytes(), None).unwrap();
        assert!(own.running.is_some(), "{name}");
        assert_eq!(reader(Engine::Auto).read(page.as_bytes(), None), Ok(own), "{name}");
        for other in DIALECTS.iter().filter(|other| other.name != *name) {
            // A worker of Dynamo's speaks two languages.
            let is_both = other.name == "dynamo" && page.contains("dynamo_component_inflight_requests");
            let read = reader(Engine::Known(other)).read(page.as_bytes(), None);
            assert_eq!(read.is_ok(), is_both, "{name} as {}", other.name);
        }
    }
}

#[test]
fn the_dialect_that_tells_more_of_the_load_counts_whatever_the_order() {
    for (name, page) in PAGES {
        // Another engine's page with one gauge only, before and behind.
        for other in DIALECTS.iter().filter(|other| other.name != *name && !page.contains(other.gauges[0].metric)) {
            let gauge = other.gauges[0];
            let labels = gauge.only.map_or_else(String::new, |(label, value)| format!("{{{label}=\"{value}\"}}"));
            let line = format!("{}{labels} 77\n", gauge.metric);
            let own = reader(Engine::Auto).read(page.as_bytes(), None);
            for both in [format!("{page}{line}"), format!("{line}{page}")] {
                assert_eq!(reader(Engine::Auto).read(both.as_bytes(), None), own, "{name} and {}", other.name);
            }
        }
    }
}

#[test]
fn a_renamed_metric_voids_only_its_fields() {
    for (name, page) in PAGES {
        let (own, auto) = (dialect(name), reader(Engine::Auto));
        let whole = fields(&auto.read(page.as_bytes(), None).unwrap());
        for gauge in own.gauges.iter().filter(|gauge| page.contains(gauge.metric)) {
            let metric = gauge.metric;
            let renamed: String = page
                .lines()
                .map(|line| match line.strip_prefix(metric) {
                    Some(rest) if rest.starts_with(['{', ' ']) => format!("renamed_{metric}{rest}\n"),
                    _ => format!("{line}\n"),
                })
                .collect();
            let Ok(report) = auto.read(renamed.as_bytes(), None) else {
                assert_eq!(
                    whole[..3].iter().flatten().count(),
                    1,
                    "{name} without {metric}, which is not all of its load"
                );
                continue;
            };
            for (number, (got, want)) in fields(&report).into_iter().zip(whole).enumerate() {
                let of_metric = own.gauges.iter().filter(|gauge| gauge.metric == metric);
                let is_touched = of_metric.clone().any(|gauge| place(gauge.field) == Some(number));
                // A field that the metric only adds to, or that has another gauge, may lose some of it or nothing.
                assert!(is_touched || got == want, "{name} without {metric}: field {number} is {got:?}, not {want:?}");
            }
        }
    }
}

/// Where `fields` has it.
fn place(field: Field) -> Option<usize> {
    match field {
        Field::Waiting => Some(0),
        Field::Running => Some(1),
        Field::KvUsage | Field::KvUsedBlocks => Some(2),
        Field::BlockTokens => Some(3),
        Field::KvBlocks => Some(4),
        Field::StartedAt => Some(5),
        Field::AdapterPlacesTaken | Field::AdapterPlaces => None,
    }
}

#[test]
fn a_page_cut_anywhere_is_survived_and_tells_nothing_wrong_of_one_engine() {
    for (name, page) in PAGES {
        let auto = reader(Engine::Auto);
        let whole = fields(&auto.read(page.as_bytes(), None).unwrap());
        let step = page.len() / 400 + 1;
        for end in (0..page.len()).step_by(step) {
            let cut = fields(&auto.read(&page.as_bytes()[..end], None).unwrap_or_default());
            for (number, (got, want)) in cut.into_iter().zip(whole).enumerate() {
                // What is summed may lack series: it is then less, and only in pages of several ranks or adding gauges.
                let is_less = got.zip(want).is_some_and(|(got, want)| got <= want);
                assert!(got.is_none() || got == want || is_less, "{name} cut at {end}: field {number} is {got:?}");
            }
        }
    }
}

#[test]
fn a_number_that_is_none_is_never_a_load() {
    for (name, page) in PAGES {
        for number in ["NaN", "+Inf", "-1", "x"] {
            let broken: String = page
                .lines()
                .map(|line| match line.rsplit_once(' ') {
                    Some((series, _)) if !line.starts_with('#') => format!("{series} {number}\n"),
                    _ => format!("{line}\n"),
                })
                .collect();
            let report = reader(Engine::Auto).read(broken.as_bytes(), None).unwrap();
            assert_eq!((report.waiting, report.running, report.kv_usage), (None, None, None), "{name} {number}");
        }
    }
}

#[test]
fn the_pages_of_other_processes_are_no_reports() {
    const PAGES: &[&str] = &[
        "",
        "<!doctype html>\n<html><body>not found</body></html>\n",
        "process_start_time_seconds 1.7e9\nprocess_cpu_seconds_total 12\n",
        "envoy_server_uptime{} 12\n",
        "nv_inference_pending_request_count{model=\"m\"} 0\n",
        "# vllm:num_requests_waiting 1\n",
    ];
    for page in PAGES {
        assert_eq!(reader(Engine::Auto).read(page.as_bytes(), None), Err(PageError::NothingKnown), "{page}");
    }
    assert_eq!(reader(Engine::Silent).read(b"vllm:num_requests_waiting 1\n", None), Err(PageError::NothingKnown));
}

#[test]
fn every_gauge_of_the_load_has_its_engines_prefix_and_no_other_engines() {
    for dialect in DIALECTS {
        for gauge in dialect.gauges.iter().filter(|gauge| Field::LOAD.contains(&gauge.field)) {
            let owners = DIALECTS.iter().filter(|other| gauge.metric.starts_with(other.prefix));
            assert_eq!(owners.map(|owner| owner.name).collect::<Vec<_>>(), [dialect.name], "{}", gauge.metric);
        }
    }
}

#[test]
fn a_page_that_shows_only_its_engine_is_a_living_worker_of_unknown_load() {
    const PAGES: &[(&str, &str)] = &[
        ("trtllm", "# TYPE trtllm_request_success_total counter\n"),
        ("trtllm", "trtllm_max_batch_size_static{pid=\"1\"} 256.0\n"),
        ("dynamo", "dynamo_frontend_model_workers{model=\"m\"} 1\n"),
        ("tgi", "# HELP tgi_request_count Requests.\n# TYPE tgi_request_count counter\n"),
        ("vllm", "# HELP vllm:num_requests_waiting 1\n"),
        ("vllm", "vllm:num_requests_swapped 1\n"),
        ("triton-trtllm", "nv_trt_llm_request_metrics{request_type=\"max\"} 512\n"),
        ("sglang", "sglang:num_queue_reqs{priority=\"1\"} 3\n"),
    ];
    for (name, page) in PAGES {
        let read = |engine| reader(engine).read(page.as_bytes(), Some(1));
        assert_eq!(read(Engine::Auto), Ok(LoadReport::UNKNOWN), "{page}");
        for dialect in DIALECTS {
            let want = if dialect.name == *name { Ok(LoadReport::UNKNOWN) } else { Err(PageError::NothingKnown) };
            assert_eq!(read(Engine::Known(dialect)), want, "{page} as {}", dialect.name);
        }
    }
    // Before its first request there is no series of the load; what else is told holds.
    let fresh = "vllm:cache_config_info{engine=\"0\",block_size=\"16\"} 1\n";
    let told = LoadReport { block_tokens: Some(16.0), ..LoadReport::UNKNOWN };
    assert_eq!(reader(Engine::Auto).read(fresh.as_bytes(), Some(0)), Ok(told));
    assert_eq!(reader(Engine::Auto).read(fresh.as_bytes(), Some(1)), Err(PageError::NothingKnown), "another rank's");
}

#[test]
fn lines_beyond_the_bound_are_not_read() {
    let (name, page) = PAGES[0];
    let mut long = "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"tiny\"} 5.0\n"
        .repeat(PAGE_BYTES_MAX / 80);
    long.truncate(PAGE_BYTES_MAX - 1);
    long.push('\n');
    let before = format!("{page}{long}");
    assert!(reader(Engine::Auto).read(before.as_bytes(), None).is_ok(), "{name}");
    let behind = format!("{long}{page}");
    assert_eq!(reader(Engine::Auto).read(behind.as_bytes(), None), Ok(LoadReport::UNKNOWN));
}
