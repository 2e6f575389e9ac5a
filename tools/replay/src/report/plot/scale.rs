//! Numbers to places on an axis, and where its ticks are.

/// An axis from the lowest to the highest value that it shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    pub low: f64,
    pub high: f64,
    pub is_log: bool,
    /// Values with a tick.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// A logarithmic axis around positive values, a little wider than they need, with ticks at 1, 2 and 5 of each power
    /// of ten, or at the powers alone where these would be too many.
    pub(super) fn log(values: impl Iterator<Item = f64> + Clone) -> Self {
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

    /// A linear axis of shares around values from 0 to 1.
    pub(super) fn share(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (low, high) = bounds(values, (0.0, 1.0));
        let margin = ((high - low) * 0.08).max(0.01);
        let (low, high) = ((low - margin).max(0.0), (high + margin).min(1.0));
        let step = [0.01, 0.02, 0.05, 0.1, 0.2].into_iter().find(|step| (high - low) / step <= 6.0).unwrap_or(0.2);
        let ticks = (0..=100).map(|tick| f64::from(tick) * step).filter(|tick| (low..=high).contains(tick)).collect();
        Self { low, high, is_log: false, ticks }
    }

    /// A linear axis with a tick at each value; one logarithmic by two if the values double.
    pub(super) fn steps(mut values: Vec<f64>, is_log: bool) -> Self {
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = bounds(values.iter().copied(), (0.0, 1.0));
        Self { low, high, is_log, ticks: values }
    }

    /// The place of a value, 0 at the low end and 1 at the high one; the middle if the axis has no length.
    pub(super) fn place(&self, value: f64) -> f64 {
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
        assert!(Scale::share([0.5].into_iter()).place(0.5).is_finite());
    }
}
