//! Numbers to places on an axis, and where its ticks are.

/// An axis from the lowest to the highest value that it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The value at the low end.
    pub low: f64,
    /// The value at the high end.
    pub high: f64,
    /// Whether equal distances are equal ratios.
    pub is_log: bool,
    /// Values with a tick.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// A logarithmic axis around positive values, a little wider than they need, with ticks at 1, 2 and 5 of each power
    /// of ten, or at the powers alone where these would be too many.
    #[must_use]
    pub fn log(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (low, high) = bounds(values.filter(|value| *value > 0.0), (0.1, 10.0));
        let (low, high) = (low / 1.15, high * 1.15);
        let candidates = |steps: &'static [f64]| {
            let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
            let ticks = exponents.flat_map(move |exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)));
            ticks.filter(|tick| (low..=high).contains(tick)).collect::<Vec<f64>>()
        };
        let mut ticks = candidates(&[1.0, 2.0, 5.0]);
        if ticks.len() > 8 {
            ticks = candidates(&[1.0]);
        }
        Self { low, high, is_log: true, ticks }
    }

    /// A linear axis from 0, or below it if values are, to a little more than the highest value.
    #[must_use]
    pub fn linear(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (low, high) = bounds(values.chain([0.0]), (0.0, 1.0));
        let high = if high > low { high + 0.08 * (high - low) } else { low + 1.0 };
        let power = 10_f64.powf(((high - low) / 6.0).log10().floor());
        let step = [1.0, 2.0, 5.0].map(|step| step * power).into_iter().find(|step| (high - low) / step <= 6.0);
        let step = step.unwrap_or(10.0 * power);
        let low = (low / step).floor() * step;
        let ticks = (0..=8).map(|tick| low + f64::from(tick) * step).filter(|tick| *tick <= high).collect();
        Self { low, high, is_log: false, ticks }
    }

    /// A logarithmic axis if positive values span more than a factor of eight, otherwise a linear one from 0.
    #[must_use]
    pub fn fitting(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (low, high) = bounds(values.clone(), (0.0, 0.0));
        if low > 0.0 && high > 8.0 * low { Self::log(values) } else { Self::linear(values) }
    }

    /// A linear axis of shares around values from 0 to 1.
    #[must_use]
    pub fn share(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (low, high) = bounds(values, (0.0, 1.0));
        let margin = ((high - low) * 0.08).max(0.01);
        let (low, high) = ((low - margin).max(0.0), (high + margin).min(1.0));
        let step = [0.01, 0.02, 0.05, 0.1, 0.2].into_iter().find(|step| (high - low) / step <= 6.0).unwrap_or(0.2);
        let ticks = (0..=100).map(|tick| f64::from(tick) * step).filter(|tick| (low..=high).contains(tick)).collect();
        Self { low, high, is_log: false, ticks }
    }

    /// A linear axis with a tick at each value; one logarithmic by two if the values double.
    #[must_use]
    pub fn steps(mut values: Vec<f64>, is_log: bool) -> Self {
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = bounds(values.iter().copied(), (0.0, 1.0));
        Self { low, high, is_log, ticks: values }
    }

    /// The same axis without ticks that are nearer to the last one than this share of its length: their texts would
    /// overlap.
    #[must_use]
    pub fn with_room(mut self, distance: f64) -> Self {
        let mut kept: Vec<f64> = Vec::new();
        for tick in &self.ticks {
            if kept.last().is_none_or(|last| self.place(*tick) - self.place(*last) >= distance) {
                kept.push(*tick);
            }
        }
        self.ticks = kept;
        self
    }

    /// The place of a value, 0 at the low end and 1 at the high one; the middle if the axis has no length.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let (value, low, high) = match self.is_log {
            true => (value.max(self.low).ln(), self.low.ln(), self.high.ln()),
            false => (value, self.low, self.high),
        };
        if high > low { (value - low) / (high - low) } else { 0.5 }
    }
}

/// The lowest and the highest value, or `otherwise` of none.
fn bounds(values: impl Iterator<Item = f64> + Clone, otherwise: (f64, f64)) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low <= high { (low, high) } else { otherwise }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_are_equal_distances_on_a_logarithmic_axis() {
        let scale = Scale::log([0.1, 10.0].into_iter());
        let distance = |from, to| scale.place(to) - scale.place(from);
        assert!((distance(0.2, 0.4) - distance(4.0, 8.0)).abs() < 1e-12);
        assert!(scale.place(0.1) > 0.0 && scale.place(10.0) < 1.0);
        assert_eq!(scale.ticks.len(), 7, "{:?}", scale.ticks);
    }

    #[test]
    fn axes_without_values_or_length_still_place() {
        assert!(Scale::log(std::iter::empty()).place(1.0).is_finite());
        assert_eq!(Scale::steps(vec![0.8], false).place(0.8), 0.5);
        assert!(Scale::linear(std::iter::empty()).place(1.0).is_finite());
        assert!(Scale::share([0.5].into_iter()).place(0.5).is_finite());
    }
    #[test]
    fn a_linear_axis_begins_at_zero_and_has_round_ticks() {
        struct Case {
            values: &'static [f64],
            ticks: &'static [f64],
        }
        const CASES: &[Case] = &[
            Case { values: &[], ticks: &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0] },
            Case { values: &[3.0, 55.0], ticks: &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0] },
            Case { values: &[0.9, 1.0], ticks: &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0] },
            Case { values: &[-0.5, 2.0], ticks: &[-0.5, 0.0, 0.5, 1.0, 1.5, 2.0] },
            Case { values: &[0.0, 9000.0], ticks: &[0.0, 2000.0, 4000.0, 6000.0, 8000.0] },
        ];
        for case in CASES {
            let scale = Scale::linear(case.values.iter().copied());
            let is_near = |(got, want): (&f64, &f64)| (got - want).abs() < 1e-9;
            let is_right = scale.ticks.len() == case.ticks.len() && scale.ticks.iter().zip(case.ticks).all(is_near);
            assert!(is_right, "{:?}: {scale:?}", case.values);
            assert!(case.values.iter().all(|value| (0.0..=1.0).contains(&scale.place(*value))), "{scale:?}");
        }
    }

    #[test]
    fn an_axis_is_logarithmic_if_values_are_far_apart() {
        for (values, is_log) in [(&[][..], false), (&[1.0, 8.0], false), (&[1.0, 8.1], true), (&[0.0, 100.0], false)] {
            assert_eq!(Scale::fitting(values.iter().copied()).is_log, is_log, "{values:?}");
        }
    }

    #[test]
    fn ticks_keep_their_distance() {
        let doubling = || Scale::steps((0..=10).map(|power| f64::from(1 << power)).collect(), true);
        assert_eq!(doubling().with_room(0.15).ticks, [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);
        assert_eq!(doubling().with_room(0.05), doubling());
    }
}
