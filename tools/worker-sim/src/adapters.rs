//! The LoRA adapters in an engine's memory, after vLLM: as many as a batch takes, the least recently used goes first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Places for adapters, and what the metrics tell of them.
///
/// Source: `LRUCacheLoRAModelManager` in `vllm/lora/model_manager.py` for the places, `PrometheusStatLogger.record` in
/// `vllm/v1/metrics/loggers.py` for the series.
#[derive(Debug)]
pub(crate) struct AdapterPlaces {
    /// 0: the engine takes no adapters, and every name is its model's.
    places: usize,
    /// Last used first.
    loaded: Vec<Arc<str>>,
    /// By the adapters that run and those that wait: when it was so last, seconds since the epoch. None before the first
    /// step, as in vLLM.
    series: BTreeMap<(String, String), f64>,
}

impl AdapterPlaces {
    pub(crate) fn new(places: usize) -> Self {
        Self { places, loaded: Vec::new(), series: BTreeMap::new() }
    }

    /// A request of the batch uses `adapter`. Returns whether it had to be loaded.
    pub(crate) fn put_to_use(&mut self, adapter: &Arc<str>) -> bool {
        let place = self.loaded.iter().position(|loaded| loaded == adapter);
        let (adapter, is_new) = match place {
            Some(place) => (self.loaded.remove(place), false),
            None => (Arc::clone(adapter), true),
        };
        self.loaded.insert(0, adapter);
        self.loaded.truncate(self.places.max(1));
        is_new
    }

    /// Whether a batch that uses the adapters `in_use` may take a request for `adapter`.
    pub(crate) fn may_join(&self, adapter: Option<&Arc<str>>, in_use: &BTreeSet<Arc<str>>) -> bool {
        adapter.is_none_or(|adapter| in_use.len() < self.places || in_use.contains(adapter))
    }

    /// Tells the metrics which adapters run and wait now: a series for each mix, whose value is the time. An engine without
    /// adapters tells nothing.
    pub(crate) fn tell(&mut self, running: &BTreeSet<Arc<str>>, waiting: &BTreeSet<Arc<str>>, now_s: f64) {
        if self.places > 0 {
            self.series.insert((joined(running), joined(waiting)), now_s);
        }
    }

    /// The adapters that ran and waited, and when it was so last.
    pub(crate) fn series(&self) -> Vec<AdapterSeries> {
        let series = self.series.iter();
        series
            .map(|((running, waiting), told_at_s)| AdapterSeries {
                running: running.clone(),
                waiting: waiting.clone(),
                told_at_s: *told_at_s,
            })
            .collect()
    }
}

/// One series of `vllm:lora_requests_info`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdapterSeries {
    /// Names, separated by commas.
    pub(crate) running: String,
    pub(crate) waiting: String,
    /// Seconds since the epoch.
    pub(crate) told_at_s: f64,
}

fn joined(names: &BTreeSet<Arc<str>>) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &str) -> BTreeSet<Arc<str>> {
        names.split_terminator(',').map(Arc::from).collect()
    }

    #[test]
    fn the_least_recently_used_makes_place() {
        let mut places = AdapterPlaces::new(2);
        let loads: Vec<bool> =
            ["a", "b", "a", "c", "a", "b"].into_iter().map(|name| places.put_to_use(&Arc::from(name))).collect();
        assert_eq!(loads, [true, true, false, true, false, true]);
    }

    #[test]
    fn a_batch_takes_no_more_adapters_than_there_are_places() {
        let places = AdapterPlaces::new(2);
        for (in_use, adapter, may_join) in [
            ("", Some("a"), true),
            ("a", Some("b"), true),
            ("a,b", Some("b"), true),
            ("a,b", Some("c"), false),
            ("a,b", None, true),
        ] {
            let adapter = adapter.map(Arc::from);
            assert_eq!(places.may_join(adapter.as_ref(), &set(in_use)), may_join, "{adapter:?} to {in_use}");
        }
    }

    #[test]
    fn each_mix_is_a_series_that_stays() {
        let mut places = AdapterPlaces::new(2);
        assert!(places.series().is_empty(), "before the first step nothing is told");
        for (running, waiting, now_s) in [("b,a", "c", 1.0), ("", "", 2.0), ("b,a", "c", 3.0)] {
            places.tell(&set(running), &set(waiting), now_s);
        }
        let series = |running: &str, waiting: &str, told_at_s| AdapterSeries {
            running: running.to_owned(),
            waiting: waiting.to_owned(),
            told_at_s,
        };
        assert_eq!(places.series(), [series("", "", 2.0), series("a,b", "c", 3.0)]);
        let mut without = AdapterPlaces::new(0);
        without.tell(&set(""), &set(""), 1.0);
        assert!(without.series().is_empty());
    }
}
