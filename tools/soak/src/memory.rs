//! Whether Envoy's memory stayed flat.

use serde::Serialize;

use crate::watch::Sample;

/// What memory may grow by after the warm-up whatever is done, MB. Measured: some 35 MB in the first four minutes (the
/// allocator keeps what some ten binaries' VMs had), and none in the four minutes after that, with as many binaries.
const GROWTH_MB_MAX: f64 = 60.0;
/// What each new binary may add to that, MB: far below the 25 MB that one takes, so that none may stay.
const GROWTH_PER_BINARY_MB_MAX: f64 = 0.25;

/// The course of Envoy's memory, MB of 10^6 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// At the first look.
    pub first_mb: f64,
    /// After the warm-up, which is the first stretch.
    pub warm_mb: f64,
    /// At the last look.
    pub last_mb: f64,
    /// The most of all looks.
    pub max_mb: f64,
    /// The most by which `last_mb` may be above `warm_mb`.
    pub growth_mb_max: f64,
}

impl Memory {
    /// From all looks, of which those after `warm_s` count; so many binaries came after that.
    pub(crate) fn new(samples: &[Sample], warm_s: f64, binaries: u64) -> Self {
        let at = |sample: Option<&Sample>| sample.map_or(0.0, |sample| sample.resident_mb);
        Self {
            first_mb: at(samples.first()),
            warm_mb: at(samples.iter().find(|sample| sample.at_s >= warm_s)),
            last_mb: at(samples.last()),
            max_mb: samples.iter().map(|sample| sample.resident_mb).fold(0.0, f64::max),
            growth_mb_max: GROWTH_MB_MAX + GROWTH_PER_BINARY_MB_MAX * binaries as f64,
        }
    }

    /// After the warm-up.
    pub(crate) fn growth_mb(&self) -> f64 {
        self.last_mb - self.warm_mb
    }

    pub(crate) fn is_flat(&self) -> bool {
        self.growth_mb() <= self.growth_mb_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_from_the_warm_up_to_the_end_and_binaries_excuse_some() {
        let course = |mb: [f64; 4]| -> Vec<Sample> {
            let sample = |(at_s, resident_mb)| Sample { at_s: f64::from(at_s), resident_mb, inflight: 0 };
            (0..).zip(mb).map(sample).collect()
        };
        for (mb, binaries, is_flat) in [
            ([10.0, 100.0, 300.0, 100.0], 0, true),
            ([10.0, 100.0, 200.0, 161.0], 0, false),
            ([10.0, 100.0, 200.0, 161.0], 4, true),
        ] {
            let memory = Memory::new(&course(mb), 1.0, binaries);
            assert_eq!(memory.is_flat(), is_flat, "{mb:?}, {binaries} binaries");
            assert!((memory.max_mb - mb[2]).abs() < 1e-9 && (memory.warm_mb - 100.0).abs() < 1e-9);
        }
    }
}
