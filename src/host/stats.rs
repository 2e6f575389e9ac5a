//! The stats of [`crate::stats`] as numbers of the host.

use super::abi::{self, MetricKind};
use crate::pool::PoolStatus;
use crate::stats::{POOL_GAUGES, PoolGauge, STATS, Stat, StatDoc, StatKind, pool_gauge_name};

/// The host's numbers for our stats, defined once for a plugin: each definition takes a new number in the VM.
#[derive(Debug)]
pub(super) struct Stats {
    metrics: Vec<Option<u32>>,
    /// By pool.
    gauges: Vec<Vec<Option<u32>>>,
}

impl Stats {
    pub(super) fn define<'c>(clusters: impl Iterator<Item = &'c str>) -> Self {
        let gauges_of = |cluster| {
            let define = |gauge: &StatDoc| abi::define_metric(MetricKind::Gauge, &pool_gauge_name(cluster, gauge));
            POOL_GAUGES.iter().map(define).collect()
        };
        Self {
            metrics: STATS.iter().map(|stat| abi::define_metric(kind_of(stat), stat.name)).collect(),
            gauges: clusters.map(gauges_of).collect(),
        }
    }

    pub(super) fn count(&self, stat: Stat) {
        self.add(stat, 1);
    }

    pub(super) fn add(&self, counter: Stat, by: u32) {
        let metric_id = self.metrics.get(counter.index()).copied().flatten();
        if let Some(metric_id) = metric_id.filter(|_| by > 0) {
            abi::increment_metric(metric_id, by.into());
        }
    }

    pub(super) fn record(&self, histogram: Stat, value: u64) {
        if let Some(metric_id) = self.metrics.get(histogram.index()).copied().flatten() {
            abi::record_metric(metric_id, value);
        }
    }

    pub(super) fn set_status(&self, pool: usize, status: &PoolStatus) {
        let set = |gauge: PoolGauge, value: u64| {
            let gauges = self.gauges.get(pool);
            if let Some(metric_id) = gauges.and_then(|gauges| gauges.get(gauge.index()).copied().flatten()) {
                abi::record_metric(metric_id, value);
            }
        };
        set(PoolGauge::InflightRequests, status.requests.into());
        set(PoolGauge::Workers, status.workers.into());
        set(PoolGauge::DrainingWorkers, status.draining_workers.into());
        set(PoolGauge::EjectedWorkers, status.ejected_workers.into());
        set(PoolGauge::AvailableWorkers, status.available_workers.into());
        set(PoolGauge::KnownWorkers, status.known_workers.into());
        set(PoolGauge::ReportAgeMsMax, status.report_age_ms_max);
    }
}

const fn kind_of(stat: &StatDoc) -> MetricKind {
    match stat.kind {
        StatKind::Counter => MetricKind::Counter,
        StatKind::Gauge => MetricKind::Gauge,
        StatKind::Histogram => MetricKind::Histogram,
    }
}
