//! When a worker is taken out of use for what becomes of its requests, and for how long.

use super::reader::Section;

/// When a worker is ejected, and for how long. What scrapes and Envoy say of it counts apart: see
/// [`super::PollConfig::failures_max`] and [`crate::worker::Standing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// So many failed requests in a row eject a worker.
    pub consecutive_failures: u32,
    /// Failed requests among its last ones, percent, that eject a worker.
    pub failure_percent: u32,
    /// How long the first time; twice as long each time after that.
    pub ejection_ms: u32,
    /// How long at the most.
    pub ejection_ms_max: u32,
    /// Where more than this share of a pool is out of use, percent, one mark against a worker is not enough.
    pub ejected_percent_max: u32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            consecutive_failures: 3,
            failure_percent: 60,
            ejection_ms: 1_000,
            ejection_ms_max: 30_000,
            ejected_percent_max: 75,
        }
    }
}

pub(super) fn read_health(section: &mut Section<'_>) -> HealthConfig {
    let default = HealthConfig::default();
    let health = HealthConfig {
        consecutive_failures: section.u32(
            "consecutiveFailures",
            default.consecutive_failures,
            1..=100,
            "so many requests in a row that a worker failed (5xx but 501 and 505, reset, connection refused) eject it. 4xx, time-outs, clients that leave and answers of Envoy itself never count, but for one case: where another worker serves the request in the end, those that were tried before it have failed it, whatever they answered. A route that retries 429, or that has a per_try_timeout, so makes a full worker look like one that fails",
        ),
        failure_percent: section.u32(
            "failurePercent",
            default.failure_percent,
            1..=100,
            "a worker that failed more than this share of about its last 20 requests is ejected too; 100: never for that",
        ),
        ejection_ms: section.u32(
            "ejectionMs",
            default.ejection_ms,
            10..=3_600_000,
            "how long an ejected worker gets no request; then one request shows whether it works again. Doubles each time that it does not",
        ),
        ejection_ms_max: section.u32(
            "ejectionMaxMs",
            default.ejection_ms_max,
            10..=3_600_000,
            "how long that becomes at the most",
        ),
        ejected_percent_max: section.u32(
            "ejectedMaxPercent",
            default.ejected_percent_max,
            0..=100,
            "where more than this share of a pool's workers is out of use, workers that only fail their requests, or only their scrapes and checks, are used all the same: rather the requests or the checks are what is broken. Workers that fail both stay out while any other is left",
        ),
    };
    if section.is_clean() && health.ejection_ms > health.ejection_ms_max {
        section.refuse("ejectionMs", "at most health.ejectionMaxMs");
    }
    health
}
