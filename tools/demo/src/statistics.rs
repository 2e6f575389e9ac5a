//! Means and percentiles.

/// A set of measured values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Distribution {
    /// In ascending order.
    values: Vec<f64>,
}

impl Distribution {
    /// Of `values` in any order.
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// The arithmetic mean; 0 of nothing.
    pub(crate) fn mean(&self) -> f64 {
        if self.values.is_empty() { 0.0 } else { self.values.iter().sum::<f64>() / self.values.len() as f64 }
    }

    /// The least value that at least `percent` of all values do not exceed (nearest rank); 0 of nothing.
    ///
    /// `percent` is 0 to 100; 0 gives the least value.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.values.len() as f64).ceil() as usize;
        self.values.get(rank.saturating_sub(1)).or(self.values.last()).copied().unwrap_or(0.0)
    }
}

/// `part / whole`; 0 if there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
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
    fn means_and_shares_of_nothing_are_zero() {
        assert!(Distribution::default().mean().abs() < 1e-9 && share(0, 0).abs() < 1e-9);
        assert!((Distribution::new(vec![1.0, 2.0, 6.0]).mean() - 3.0).abs() < 1e-9);
        assert!((share(1, 4) - 0.25).abs() < 1e-9);
    }
}
