//! The reader, on a table of its own so that the laws hold for tables, not for one engine.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::super::Gauge;
use super::*;
use crate::rng::Rng;

/// The folds and fallbacks of every dialect, in a table of its own so that the laws hold for tables, not for vLLM.
static TABLE: Dialect = Dialect {
    name: "table",
    doc: "",
    prefix: "table_",
    gauges: &[
        Gauge::new(Field::Waiting, "w"),
        Gauge::new(Field::KvUsage, "u"),
        Gauge::new(Field::KvUsage, "u_old"),
        Gauge::new(Field::BlockTokens, "i").in_label("size"),
        Gauge::new(Field::KvBlocks, "i").in_label("blocks"),
        Gauge::new(Field::StartedAt, "s"),
    ],
    rank_label: "e",
    shows_copies: false,
    model_label: "",
    adapters: Some(AdapterLabels { metric: "l", max: "max", running: "run", waiting: "wait" }),
};

fn read_report(page: &[u8], dialect: &'static Dialect) -> Result<LoadReport, PageError> {
    PageReader::new(Engine::Known(dialect), &[]).read(page, None)
}

#[test]
fn series_fold_and_one_unreadable_series_voids_its_field() {
    const EMPTY: LoadReport = LoadReport::UNKNOWN;
    const ZERO: LoadReport = LoadReport { waiting: Some(0.0), ..EMPTY };
    const CASES: &[(&str, &str, LoadReport)] = &[
        ("sum", "w{e=\"0\"} 2\nw{e=\"1\"} 3\n", LoadReport { waiting: Some(5.0), ..EMPTY }),
        ("a duplicate counts twice", "w 2\nw 2\n", LoadReport { waiting: Some(4.0), ..EMPTY }),
        ("max", "u{e=\"0\"} 0.2\nu{e=\"1\"} 0.7\nu{e=\"2\"} 0.1\n", LoadReport { kv_usage: Some(0.7), ..EMPTY }),
        ("fallback", "u_old 0.3\n", LoadReport { kv_usage: Some(0.3), ..EMPTY }),
        ("no fallback needed", "u_old 0.3\nu 0.2\n", LoadReport { kv_usage: Some(0.2), ..EMPTY }),
        ("overshoot", "u 1.0005\n", LoadReport { kv_usage: Some(1.0), ..EMPTY }),
        ("a percentage is no share", "u 42\nw 0\n", ZERO),
        ("negative", "w 0\nu -0.1\n", ZERO),
        ("one of two is NaN", "w 1\nw NaN\nu 0.5\n", LoadReport { kv_usage: Some(0.5), ..EMPTY }),
        ("a living worker of unknown load", "w NaN\n", EMPTY),
        ("too many", "w 2000000000\nu 0.5\n", LoadReport { kv_usage: Some(0.5), ..EMPTY }),
        ("too many together", "w 9e8\nw 9e8\nu 0.5\n", LoadReport { kv_usage: Some(0.5), ..EMPTY }),
        ("no whole name", "w_by_reason 7\nw 0\nxw 7\n", ZERO),
        ("milliseconds", "s 1.7e12\nw 0\n", ZERO),
        ("newest start", "s 1.5e9\ns 1.6e9\nw 0\n", LoadReport { started_at_s: Some(1.6e9), ..ZERO }),
        (
            "labels",
            "i{size=\"32\",blocks=\"10\"} 1\ni{blocks=\"20\",size=\"16\"} 1\nw 0\n",
            LoadReport { block_tokens: Some(16.0), kv_blocks: Some(30.0), ..ZERO },
        ),
        (
            "label not set yet",
            "i{size=\"32\",blocks=\"None\"} 1\nw 0\n",
            LoadReport { block_tokens: Some(32.0), ..ZERO },
        ),
        ("label absent", "i{size=\"32\"} 1\nw 0\n", LoadReport { block_tokens: Some(32.0), ..ZERO }),
    ];
    for (name, page, report) in CASES {
        assert_eq!(read_report(page.as_bytes(), &TABLE), Ok(*report), "{name}");
    }
}

#[test]
fn the_newest_series_tells_the_adapters() {
    let adapters = |max: u16, running: &[&str], waiting: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|name| AdapterHash::of(name.as_bytes())).collect();
        Adapters { max: Some(max).filter(|&max| max > 0), running: list(running), waiting: list(waiting) }
    };
    let many: Vec<String> = (0..17).map(|number| format!("a{number}")).collect();
    let cases: &[(&str, String, Adapters)] = &[
        ("one", "l{max=\"4\",run=\"a,b\",wait=\"c\"} 1.7e9".into(), adapters(4, &["a", "b"], &["c"])),
        ("newest last", "l{max=\"4\",run=\"a\"} 1\nl{max=\"4\",run=\"b\"} 2".into(), adapters(4, &["b"], &[])),
        ("newest first", "l{max=\"4\",run=\"b\"} 2\nl{max=\"4\",run=\"a\"} 1".into(), adapters(4, &["b"], &[])),
        ("nothing runs now", "l{max=\"4\",run=\"a\"} 1\nl{max=\"4\",run=\"\"} 2".into(), adapters(4, &[], &[])),
        ("no time", "l{max=\"4\",run=\"a\"} 1\nl{max=\"4\",run=\"b\"} NaN".into(), adapters(4, &["a"], &[])),
        ("blanks", "l{max=\"4\",run=\" a, b ,\"} 1".into(), adapters(4, &["a", "b"], &[])),
        ("no LoRA", "l{max=\"0\",run=\"\",wait=\"\"} 1".into(), Adapters::UNTOLD),
        ("places unreadable", "l{max=\"-1\",run=\"a\"} 1".into(), adapters(0, &["a"], &[])),
        ("cut", format!("l{{max=\"32\",run=\"{}\"}} 1", many.join(",")), {
            let names: Vec<&str> = many.iter().map(String::as_str).collect();
            adapters(32, &names, &[])
        }),
        ("no such metric", "lx{max=\"4\",run=\"a\"} 1".into(), Adapters::UNTOLD),
    ];
    for (name, lines, want) in cases {
        let report = read_report(format!("w 0\n{lines}\n").as_bytes(), &TABLE).unwrap();
        assert_eq!(report.adapters, *want, "{name}");
    }
    assert_eq!(read_report(b"l{max=\"4\",run=\"a\"} 1\n", &TABLE), Err(PageError::NothingKnown));
}

#[test]
fn a_page_without_load_is_no_report() {
    const PAGES: &[&str] = &[
        "",
        "<!doctype html>\n<html><body>\nwaiting is not here\n</body></html>\n",
        "{\"error\":\"not found\"}\n",
        "# HELP w 1\n# TYPE w gauge\n",
        "w 1",
        "s 1.7e9\n",
        "i{size=\"32\",blocks=\"10\"} 1\n",
        "w{e=\"0} 1\n",
    ];
    for page in PAGES {
        assert_eq!(read_report(page.as_bytes(), &TABLE), Err(PageError::NothingKnown), "{page}");
    }
    assert_eq!(read_report(&[0xff; 3_000_000], &TABLE), Err(PageError::NothingKnown));
}

#[test]
fn reads_what_a_naive_reader_reads() {
    for seed in 0..2_000 {
        let page = random_page(&mut Rng::new(seed));
        assert_eq!(read_report(page.as_bytes(), &TABLE), naive_report(&page), "seed {seed}:\n{page}");
    }
}

/// Lines of which most are fine, over all names of the table and some that only look alike.
fn random_page(rng: &mut Rng) -> String {
    const NAMES: &[&str] = &["w", "w", "u", "u_old", "i", "s", "w_total", "x", "# w", ""];
    const LABELS: &[&str] = &["", "{}", "{e=\"0\"}", "{size=\"16\",blocks=\"7\"}", "{xsize=\"1\",size=\"32\"}"];
    const VALUES: &[&str] = &["0", "0.5", "1.0", "3", "1.7e+09", "NaN", "-1", "+Inf", "?", ""];
    const ENDS: &[&str] = &["\n", "\n", "\r\n", " 1395066363000\n", " # {a=\"b\"} 1\n"];
    let pick = |rng: &mut Rng, list: &[&'static str]| list[rng.below(list.len() as u32) as usize];
    let mut page = String::new();
    for _ in 0..rng.below(12) {
        page += pick(rng, NAMES);
        page += pick(rng, LABELS);
        page += " ";
        page += pick(rng, VALUES);
        page += pick(rng, ENDS);
    }
    page
}

/// Good for what `random_page` makes: no quotes, braces or blanks within label values.
fn naive_report(page: &str) -> Result<LoadReport, PageError> {
    let numbers = |metric: &str, label: Option<&str>| -> Vec<f64> {
        let mut numbers = vec![];
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.split_once(' ') else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let Some(value) = value.split_whitespace().next().filter(|_| name == metric) else { continue };
            let text = label.map_or(Some(value), |label| {
                let labels = labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
                labels.filter(|(key, _)| *key == label).map(|(_, value)| value.trim_matches('"')).next()
            });
            numbers.push(text.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN));
        }
        numbers
    };
    // NaN is in no range.
    let all = |numbers: &[f64], min: f64, max: f64| {
        (!numbers.is_empty() && numbers.iter().all(|number| (min..=max).contains(number))).then_some(())
    };
    let max = |numbers: &[f64]| numbers.iter().copied().fold(0.0, f64::max);
    let (w, u, u_old, s) = (numbers("w", None), numbers("u", None), numbers("u_old", None), numbers("s", None));
    let (size, blocks) = (numbers("i", Some("size")), numbers("i", Some("blocks")));
    let report = LoadReport {
        waiting: all(&w, 0.0, 1e9).map(|()| w.iter().sum()).filter(|&sum| sum <= 1e9),
        running: None,
        kv_usage: all(&u, 0.0, 1.0).map(|()| max(&u)).or_else(|| all(&u_old, 0.0, 1.0).map(|()| max(&u_old))),
        block_tokens: all(&size, 1.0, 1e6).map(|()| size.iter().copied().fold(f64::MAX, f64::min)),
        kv_blocks: all(&blocks, 1.0, 1e9).map(|()| blocks.iter().sum()),
        started_at_s: all(&s, 1.0, 1e11).map(|()| max(&s)),
        adapters: Adapters::UNTOLD,
        models: AdapterList::EMPTY,
    };
    let names_load = ![&w, &u, &u_old].iter().all(|numbers| numbers.is_empty());
    names_load.then_some(report).ok_or(PageError::NothingKnown)
}

fn renamed(names: &[(Field, &str)]) -> Vec<(Field, Series)> {
    names.iter().map(|(field, text)| (*field, Series::parse(text).unwrap())).collect()
}

#[test]
fn a_series_of_the_configuration_counts_instead_of_the_engines_own() {
    struct Case {
        name: &'static str,
        renamed: &'static [(Field, &'static str)],
        page: &'static str,
        want: (Option<f64>, Option<f64>, Option<f64>),
    }
    const CASES: &[Case] = &[
        Case {
            name: "beside the engine's own",
            renamed: &[(Field::Waiting, "queue")],
            page: "vllm:num_requests_waiting 1\nvllm:num_requests_running 2\nqueue 7\n",
            want: (Some(7.0), Some(2.0), None),
        },
        Case {
            name: "of nobody that is known",
            renamed: &[(Field::Waiting, "queue"), (Field::KvUsage, "cache")],
            page: "queue 7\nqueue{rank=\"1\"} 1\ncache{rank=\"0\"} 0.25\ncache{rank=\"1\"} 0.5\n",
            want: (Some(8.0), None, Some(0.5)),
        },
        Case {
            name: "absent: the engine's own is known to be wrong",
            renamed: &[(Field::Waiting, "queue")],
            page: "vllm:num_requests_waiting 1\nvllm:num_requests_running 2\n",
            want: (None, Some(2.0), None),
        },
        Case {
            name: "one of the series",
            renamed: &[(Field::Running, "requests{state=\"running\"}"), (Field::Waiting, "requests{state=\"new\"}")],
            page: "requests{state=\"running\"} 3\nrequests{state=\"new\"} 4\nrequests{state=\"gone\"} 99\n",
            want: (Some(4.0), Some(3.0), None),
        },
        Case {
            name: "series without the label",
            renamed: &[(Field::Running, "requests{state=\"\"}")],
            page: "requests{state=\"running\"} 3\nrequests{x=\"y\"} 4\nrequests 5\n",
            want: (None, Some(9.0), None),
        },
        Case {
            name: "another field of the engine's",
            renamed: &[(Field::Running, "vllm:num_requests_waiting")],
            page: "vllm:num_requests_waiting 1\nvllm:num_requests_running 2\n",
            want: (Some(1.0), Some(1.0), None),
        },
        Case {
            name: "out of range",
            renamed: &[(Field::KvUsage, "cache")],
            page: "cache 42\n",
            want: (None, None, None),
        },
    ];
    for case in CASES {
        let report = PageReader::new(Engine::Auto, &renamed(case.renamed)).read(case.page.as_bytes(), None).unwrap();
        assert_eq!((report.waiting, report.running, report.kv_usage), case.want, "{}", case.name);
    }
    let reader = PageReader::new(Engine::Auto, &renamed(&[(Field::BlockTokens, "size")]));
    assert_eq!(reader.read(b"size 16\n", None), Err(PageError::NothingKnown), "no load");
}

#[test]
fn a_series_of_the_configuration_tells_ranks_by_any_engines_label() {
    let reader = PageReader::new(Engine::Auto, &renamed(&[(Field::Waiting, "queue")]));
    let waiting = |page: &str| reader.read(page.as_bytes(), Some(1)).unwrap().waiting;
    assert_eq!(waiting("queue{engine=\"0\"} 1\nqueue{engine=\"1\"} 2\n"), Some(2.0));
    assert_eq!(waiting("queue{dp_rank=\"0\"} 1\nqueue{dp_rank=\"1\"} 2\n"), Some(2.0));
    assert_eq!(waiting("queue{shard=\"0\"} 1\nqueue{shard=\"1\"} 2\n"), Some(3.0), "tells no ranks");
}

#[test]
fn the_reader_looks_only_for_the_engine_that_it_was_made_for() {
    let page = b"vllm:num_requests_waiting 1\ntgi_queue_size 2\ntgi_batch_current_size 3\n";
    let waiting = |engine| PageReader::new(engine, &[]).read(page, None).map(|report| report.waiting);
    assert_eq!(waiting(Engine::Known(&crate::engine::vllm::VLLM)), Ok(Some(1.0)));
    assert_eq!(waiting(Engine::Known(&crate::engine::tgi::TGI)), Ok(Some(2.0)));
    assert_eq!(waiting(Engine::Known(&crate::engine::sglang::SGLANG)), Err(PageError::NothingKnown));
    assert_eq!(waiting(Engine::Auto), Ok(Some(2.0)), "it tells more");
    assert_eq!(waiting(Engine::Silent), Err(PageError::NothingKnown));
}

#[test]
fn copies_of_one_number_count_once_a_rank_and_ranks_beyond_the_bound_void_it() {
    let reader = PageReader::new(Engine::Known(&crate::engine::sglang::SGLANG), &[]);
    let waiting = |page: &str| reader.read(page.as_bytes(), None).unwrap().waiting;
    let line = |rank: usize, process: usize, number: usize| {
        format!("sglang:num_queue_reqs{{dp_rank=\"{rank}\",tp_rank=\"{process}\"}} {number}\n")
    };
    let lines = |of: &[(usize, usize, usize)]| -> String { of.iter().map(|of| line(of.0, of.1, of.2)).collect() };
    assert_eq!(waiting(&lines(&[(0, 0, 3), (0, 1, 3), (1, 2, 5), (1, 3, 5)])), Some(8.0));
    // Written a moment apart, they may differ.
    assert_eq!(waiting(&lines(&[(0, 0, 3), (1, 2, 5), (0, 1, 4), (1, 3, 1)])), Some(9.0));
    let many: Vec<_> = (0..2_000).map(|rank| (rank, 0, 1)).collect();
    assert_eq!(waiting(&lines(&many[..600])), Some(600.0));
    assert_eq!(waiting(&lines(&many)), None);
}

/// Most lines of a long page are of histograms. They cost the search for their end and a look into a table.
#[test]
fn of_a_page_of_500_kb_only_the_lines_of_gauges_are_read_beyond_their_names() {
    const PAGE: &str = include_str!("../../../tests/testdata/vllm-0.32.0-metrics.txt");
    let mut page = PAGE.to_owned();
    for engine in (1..).take_while(|engine| engine * PAGE.len() < 500_000) {
        page += &PAGE.replace("engine=\"0\"", &format!("engine=\"{engine}\""));
    }
    let reader = PageReader::new(Engine::Auto, &[]);
    let (lines, compared) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let samples = prometheus::samples(page.as_bytes(), |name| {
        lines.set(lines.get() + 1);
        compared.set(compared.get() + usize::from(reader.names.compares(name)));
        reader.names.near(name)
    });
    let read = samples.count();
    let (lines, compared): (usize, usize) = (lines.get(), compared.get());
    assert!(lines > 4_000, "{lines} lines");
    assert!(read < lines / 50, "{read} of {lines} lines were read");
    assert!(compared < lines / 4, "{compared} of {lines} names were compared");
}
