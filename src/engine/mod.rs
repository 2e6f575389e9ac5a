//! What the engines call the numbers that say how loaded a worker is.
//!
//! An engine is a [`Dialect`]: a table of names, one file an engine. A new engine is a new file and two lines here.

pub mod prometheus;
pub mod vllm;

use std::fmt;

use crate::worker::{AdapterHash, AdapterList, Adapters, LoadReport};
use prometheus::Sample;

/// Every engine whose metrics can be read.
pub static DIALECTS: &[&Dialect] = &[&vllm::VLLM];

/// How one engine tells its load.
#[derive(Debug)]
pub struct Dialect {
    /// The engine's name in the configuration.
    pub name: &'static str,
    /// What is read. Of several gauges for one field, the first that gives a number counts.
    pub gauges: &'static [Gauge],
    /// Where the LoRA adapters stand; `None` if the engine does not tell them.
    pub adapters: Option<AdapterLabels>,
}

/// Where one field of the report stands in the page.
#[derive(Debug)]
pub struct Gauge {
    /// The field.
    pub field: Field,
    /// The metric's whole name.
    pub metric: &'static str,
    /// Where in the sample the number stands.
    pub reading: Reading,
    /// What several series make together.
    pub fold: Fold,
}

/// The labels of one metric that tell the LoRA adapters, each list separated by commas.
///
/// The metric's value is the time of the telling. Each mix of adapters is a series of its own that stays in the page,
/// so only the newest is true.
#[derive(Debug)]
pub struct AdapterLabels {
    /// The metric's whole name.
    pub metric: &'static str,
    /// The label with the most adapters of one batch.
    pub max: &'static str,
    /// The label with the adapters in the running batch.
    pub running: &'static str,
    /// The label with the adapters in the queue.
    pub waiting: &'static str,
}

/// A field of [`LoadReport`]; unit and meaning are told there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Requests in the queue.
    Waiting,
    /// Requests in the running batch.
    Running,
    /// Share of the KV cache in use.
    KvUsage,
    /// Tokens in a block.
    BlockTokens,
    /// Blocks in all.
    KvBlocks,
    /// Start of the process.
    StartedAt,
}

/// Where in a sample the number stands.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// It is the sample's value.
    Value,
    /// It is the text of this label: metrics of the "info" kind have the value 1 and tell all in labels.
    Label(&'static str),
}

/// What several series of one metric make together.
#[derive(Clone, Copy, Debug)]
pub enum Fold {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// Why a page is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The page has no metric of queue, batch or KV-cache usage.
    ///
    /// An error page with status 200 is such a page, and so are the metrics of some other process on that port.
    NothingKnown,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingKnown => f.write_str("page has no load, must have a known metric of queue, batch or KV cache"),
        }
    }
}

impl std::error::Error for PageError {}

/// Reads the load out of a worker's metrics page.
///
/// A field is `None` if its metric is absent or if any series of it is out of range or no number: what is left of a sum
/// or a maximum would make the worker look better than it is known to be.
///
/// # Errors
/// [`PageError::NothingKnown`] if the page has no metric of the load; the caller should count the scrape as failed. A page
/// that has them without a usable number is a report of a living worker whose load is unknown.
pub fn read_report(page: &[u8], dialect: &Dialect) -> Result<LoadReport, PageError> {
    let mut tallies = vec![Tally::Absent; dialect.gauges.len()];
    let mut newest_adapters = None;
    let tells_adapters = |name: &[u8]| dialect.adapters.as_ref().is_some_and(|labels| labels.metric.as_bytes() == name);
    let is_wanted =
        |name: &[u8]| tells_adapters(name) || dialect.gauges.iter().any(|gauge| gauge.metric.as_bytes() == name);
    for sample in prometheus::samples(page, is_wanted) {
        if tells_adapters(sample.name) {
            newest_adapters = newer(newest_adapters, sample);
        }
        for (gauge, tally) in dialect.gauges.iter().zip(&mut tallies) {
            if gauge.metric.as_bytes() == sample.name {
                tally.add(gauge.read(&sample), gauge.fold);
            }
        }
    }

    let field = |field: Field| {
        let gauges = dialect.gauges.iter().zip(&tallies).filter(|(gauge, _)| gauge.field == field);
        gauges.filter_map(|(_, tally)| tally.number()).find_map(|number| field.in_range(number))
    };
    let report = LoadReport {
        waiting: field(Field::Waiting),
        running: field(Field::Running),
        kv_usage: field(Field::KvUsage),
        block_tokens: field(Field::BlockTokens),
        kv_blocks: field(Field::KvBlocks),
        started_at_s: field(Field::StartedAt),
        adapters: match (&dialect.adapters, newest_adapters) {
            (Some(labels), Some(sample)) => labels.read(&sample),
            _ => Adapters::UNTOLD,
        },
        models: AdapterList::EMPTY,
    };
    let names_load = dialect.gauges.iter().zip(&tallies).any(|(gauge, tally)| {
        matches!(gauge.field, Field::Waiting | Field::Running | Field::KvUsage) && !matches!(tally, Tally::Absent)
    });
    names_load.then_some(report).ok_or(PageError::NothingKnown)
}

impl Gauge {
    fn read(&self, sample: &Sample<'_>) -> Option<f64> {
        let number = match self.reading {
            Reading::Value => sample.value,
            Reading::Label(name) => sample.label(name).and_then(prometheus::number),
        };
        number.and_then(|number| self.field.in_range(number))
    }
}

/// The one of the two with the larger value; of equal ones the first. One without a value tells no time and loses.
fn newer<'p>(so_far: Option<Sample<'p>>, next: Sample<'p>) -> Option<Sample<'p>> {
    let Some(time) = next.value else { return so_far };
    so_far.filter(|so_far| so_far.value.is_some_and(|newest| newest >= time)).or(Some(next))
}

impl AdapterLabels {
    fn read(&self, sample: &Sample<'_>) -> Adapters {
        let max = sample.label(self.max).and_then(|max| str::from_utf8(max).ok()?.parse().ok());
        let list = |label: &str| -> AdapterList {
            // An escaped name hashes as it is written and thus never matches: names with quotes are not worth the code.
            let names = sample.label(label).unwrap_or_default().split(|&byte| byte == b',');
            names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()).map(AdapterHash::of).collect()
        };
        // A server without LoRA may say 0 places, which is none of our business, rather than that all are taken.
        let max = max.filter(|&max| max > 0);
        Adapters { max, running: list(self.running), waiting: list(self.waiting) }
    }
}

impl Field {
    /// The number if it can be true of this field; the ranges are what no real engine comes near.
    fn in_range(self, number: f64) -> Option<f64> {
        let (min, max) = match self {
            Self::Waiting | Self::Running => (0.0, 1e9),
            // A share that was summed or divided in floating point may overshoot a little; more is another unit.
            Self::KvUsage => return (0.0..=1.001).contains(&number).then_some(number.min(1.0)),
            Self::BlockTokens => (1.0, 1e6),
            Self::KvBlocks => (1.0, 1e9),
            // Milliseconds since the epoch would be beyond.
            Self::StartedAt => (1.0, 1e11),
        };
        (min..=max).contains(&number).then_some(number)
    }
}

/// What the series of one gauge have made so far.
#[derive(Clone, Copy)]
enum Tally {
    Absent,
    Number(f64),
    Unreadable,
}

impl Tally {
    fn add(&mut self, number: Option<f64>, fold: Fold) {
        *self = match (*self, number) {
            (Self::Unreadable, _) | (_, None) => Self::Unreadable,
            (Self::Absent, Some(number)) => Self::Number(number),
            (Self::Number(so_far), Some(number)) => Self::Number(match fold {
                Fold::Sum => so_far + number,
                Fold::Max => so_far.max(number),
                Fold::Min => so_far.min(number),
            }),
        };
    }

    const fn number(self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    /// The folds and fallbacks of every dialect, in a table of its own so that the laws hold for tables, not for vLLM.
    static TABLE: Dialect = Dialect {
        name: "table",
        gauges: &[
            Gauge { field: Field::Waiting, metric: "w", reading: Reading::Value, fold: Fold::Sum },
            Gauge { field: Field::KvUsage, metric: "u", reading: Reading::Value, fold: Fold::Max },
            Gauge { field: Field::KvUsage, metric: "u_old", reading: Reading::Value, fold: Fold::Max },
            Gauge { field: Field::BlockTokens, metric: "i", reading: Reading::Label("size"), fold: Fold::Min },
            Gauge { field: Field::KvBlocks, metric: "i", reading: Reading::Label("blocks"), fold: Fold::Sum },
            Gauge { field: Field::StartedAt, metric: "s", reading: Reading::Value, fold: Fold::Max },
        ],
        adapters: Some(AdapterLabels { metric: "l", max: "max", running: "run", waiting: "wait" }),
    };

    #[test]
    fn series_fold_and_one_unreadable_series_voids_its_field() {
        const EMPTY: LoadReport = LoadReport {
            waiting: None,
            running: None,
            kv_usage: None,
            block_tokens: None,
            kv_blocks: None,
            started_at_s: None,
            adapters: Adapters::UNTOLD,
            models: AdapterList::EMPTY,
        };
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
}
