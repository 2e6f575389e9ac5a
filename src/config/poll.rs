//! How workers are scraped.

use super::NAME_BYTES_MAX;
use super::reader::Section;

/// How workers are scraped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollConfig {
    /// The `ORIGINAL_DST` cluster that scrapes go through; empty = no scrapes.
    pub cluster: String,
    /// The path of the engines' metrics page.
    pub path: String,
    /// Between two scrapes of one worker.
    pub interval_ms: u32,
    /// How long a scrape may take.
    pub timeout_ms: u32,
    /// A report this old is not used.
    pub report_age_ms_max: u64,
    /// So many failed scrapes in a row make a worker unavailable.
    pub failures_max: u32,
}

impl Default for PollConfig {
    /// The documented defaults, with scrapes off.
    fn default() -> Self {
        Self {
            cluster: String::new(),
            path: "/metrics".to_owned(),
            interval_ms: 500,
            timeout_ms: 1_000,
            report_age_ms_max: 5_000,
            failures_max: 2,
        }
    }
}

pub(super) fn read_poll(section: &mut Section<'_>) -> PollConfig {
    let default = PollConfig::default();
    let poll = PollConfig {
        cluster: section.string(
            "cluster",
            &default.cluster,
            0..=NAME_BYTES_MAX,
            "the `ORIGINAL_DST` cluster with `use_http_header` that scrapes go through; empty: no scrapes, only the gateway's own in-flight counts",
        ),
        path: section.string("path", &default.path, 1..=NAME_BYTES_MAX, "the path of the engines' metrics page"),
        interval_ms: section.u32("intervalMs", default.interval_ms, 50..=60_000, "time between two scrapes of one worker; in a pool of many workers longer, so that there are 200 scrapes a second at the most, but no longer than a third of `reportMaxAgeMs`"),
        timeout_ms: section.u32("timeoutMs", default.timeout_ms, 10..=60_000, "how long a scrape may take before it has failed"),
        report_age_ms_max: section.u64(
            "reportMaxAgeMs",
            default.report_age_ms_max,
            100..=600_000,
            "a report this old is not used: the worker's load is then unknown",
        ),
        failures_max: section.u32(
            "unhealthyAfter",
            default.failures_max,
            1..=100,
            "so many failed scrapes in a row make a worker unavailable; one that succeeds makes it available",
        ),
    };
    if section.is_clean() && u64::from(poll.interval_ms) * 2 > poll.report_age_ms_max {
        // Scrapes keep their interval only about: at less than two of them reports would be too old now and then.
        section.refuse("intervalMs", "at most half of poll.reportMaxAgeMs");
    }
    if section.is_clean() && u64::from(poll.timeout_ms) > poll.report_age_ms_max {
        section.refuse("timeoutMs", "at most poll.reportMaxAgeMs");
    }
    poll
}
