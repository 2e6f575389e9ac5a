//! Means, percentiles and shares.

/// A set of measured values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// In ascending order.
    values: Vec<f64>,
}

impl Distribution {
    /// Of `values` in any order.
    #[must_use]
    pub fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// The arithmetic mean; 0 of nothing.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.values.is_empty() { 0.0 } else { self.values.iter().sum::<f64>() / self.values.len() as f64 }
    }

    /// The least value that at least `percent` of all values do not exceed (nearest rank); 0 of nothing.
    ///
    /// `percent` is 0 to 100; 0 gives the least value.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.values.len() as f64).ceil() as usize;
        self.values.get(rank.saturating_sub(1)).or(self.values.last()).copied().unwrap_or(0.0)
    }
}

/// The value in the middle, the mean of both if there are two; `None` of nothing.
///
/// Of few values, as rounds of a benchmark are, the nearest rank would always take the lower of the two.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// The geometric mean of positive numbers; `None` of none.
#[must_use]
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

/// `part / whole`; 0 if there is no whole.
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        struct Case {
            values: &'static [f64],
            percent: f64,
            want: f64,
        }
        const CASES: &[Case] = &[
            Case { values: &[], percent: 50.0, want: 0.0 },
            Case { values: &[7.0], percent: 99.0, want: 7.0 },
            Case { values: &[3.0, 1.0, 2.0, 4.0], percent: 0.0, want: 1.0 },
            Case { values: &[3.0, 1.0, 2.0, 4.0], percent: 50.0, want: 2.0 },
            Case { values: &[3.0, 1.0, 2.0, 4.0], percent: 51.0, want: 3.0 },
            Case { values: &[3.0, 1.0, 2.0, 4.0], percent: 100.0, want: 4.0 },
        ];
        for case in CASES {
            let got = Distribution::new(case.values.to_vec()).percentile(case.percent);
            assert!((got - case.want).abs() < 1e-9, "p{} of {:?} is {got}", case.percent, case.values);
        }
    }

    #[test]
    fn the_median_is_between_both_halves() {
        for (values, want) in
            [(&[][..], None), (&[5.0], Some(5.0)), (&[9.0, 1.0, 2.0], Some(2.0)), (&[4.0, 1.0, 9.0, 2.0], Some(3.0))]
        {
            assert_eq!(median(values.to_vec()), want, "{values:?}");
        }
    }

    #[test]
    fn means_and_shares_of_nothing_are_zero() {
        assert!(Distribution::default().mean().abs() < 1e-9 && share(0, 0).abs() < 1e-9);
        assert!((Distribution::new(vec![1.0, 2.0, 6.0]).mean() - 3.0).abs() < 1e-9);
        assert!((share(1, 4) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn the_geometric_mean_is_the_exponent_of_the_mean_logarithm() {
        assert!((geometric_mean([1.0, 4.0].into_iter()).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(std::iter::empty()), None);
    }
}
