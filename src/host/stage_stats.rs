//! The times of the stages as counters of the host: only with the feature `stage-times`.

use std::cell::OnceCell;

use super::abi::{self, MetricKind};
use crate::stage::{self, HostCall, Stage};

/// The counters' numbers: for each stage time, count, calls' time and calls' count; for each kind of call time, count
/// and bytes; last, time and count of the clock's readings that only measure the clock.
struct StageStats {
    counters: Vec<Option<u32>>,
}

thread_local! {
    static STATS: OnceCell<StageStats> = const { OnceCell::new() };
}

/// Adds what was measured since the last call to the counters. The first call defines them and hands in the clock: what
/// came before it was counted and took no time.
pub(super) fn flush() {
    STATS.with(|stats| {
        stats.get_or_init(StageStats::define).flush();
    });
}

impl StageStats {
    fn define() -> Self {
        stage::set_clock(abi::clock_ns);
        let stages = Stage::ALL.iter().flat_map(|stage| {
            ["ns_total", "calls_total", "host_ns_total", "host_calls_total"]
                .map(|what| format!("warmroute_stage_{}_{what}", stage.name()))
        });
        let calls = HostCall::ALL.iter().flat_map(|kind| {
            ["ns_total", "calls_total", "bytes_total"].map(|what| format!("warmroute_host_call_{}_{what}", kind.name()))
        });
        let clock = ["warmroute_stage_clock_ns_total", "warmroute_stage_clock_calls_total"].map(str::to_owned);
        let names = stages.chain(calls).chain(clock);
        Self { counters: names.map(|name| abi::define_metric(MetricKind::Counter, &name)).collect() }
    }

    fn flush(&self) {
        let times = stage::take();
        let stages = times.stages.iter().flat_map(|time| [time.ns, time.count, time.call_ns, time.call_count]);
        let calls = times.calls.iter().flat_map(|time| [time.ns, time.count, time.bytes]);
        let began_ns = abi::clock_ns();
        let clock_ns = (0..CLOCK_READINGS).fold(0, |_, _| abi::clock_ns()).saturating_sub(began_ns);
        for (counter, value) in self.counters.iter().zip(stages.chain(calls).chain([clock_ns, CLOCK_READINGS])) {
            if let Some(metric_id) = counter.filter(|_| value > 0) {
                abi::increment_metric(metric_id, i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
    }
}

/// So often the clock is read in a row at each flush, to know what a reading costs.
const CLOCK_READINGS: u64 = 500;
