//! Medians and spreads of a handful of rounds.

/// The value at a share of the sorted ones, between neighbours in proportion; 0 of none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (at - at.floor())
}

/// The middle one, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    warmroute_report::statistics::median(values.to_vec()).unwrap_or(0.0)
}

/// The median of the ratios in each round; 0 without a base. Not the ratio of the medians: what disturbs a round disturbs both.
pub(crate) fn median_ratio(values: &[f64], base: &[f64]) -> f64 {
    let ratios: Vec<f64> =
        values.iter().zip(base).filter(|(_, base)| **base > 0.0).map(|(value, base)| value / base).collect();
    median(&ratios)
}

/// What the middle half spans, as a share of the median; 0 where that is 0.
pub(crate) fn noise(values: &[f64]) -> f64 {
    match median(values) {
        0.0 => 0.0,
        median => (quantile(values, 0.75) - quantile(values, 0.25)) / median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_noise() {
        for (values, want_median, want_noise) in [
            (&[][..], 0.0, 0.0),
            (&[3.0], 3.0, 0.0),
            (&[4.0, 2.0], 3.0, 1.0 / 3.0),
            (&[100.0, 1.0, 3.0, 2.0, 4.0], 3.0, 2.0 / 3.0),
            (&[0.0, 0.0], 0.0, 0.0),
        ] {
            assert_eq!(median(values), want_median, "{values:?}");
            assert!((noise(values) - want_noise).abs() < 1e-12, "{values:?}");
        }
    }

    #[test]
    fn ratios_are_taken_within_the_round() {
        // Twice as much in every round, though the machine was ten times slower in the second.
        assert_eq!(median_ratio(&[2.0, 20.0, 4.0], &[1.0, 10.0, 2.0]), 2.0);
        assert_eq!(median_ratio(&[6.0, 1.0, 8.0], &[2.0, 1.0, 2.0]), 3.0);
        assert_eq!(median_ratio(&[2.0], &[0.0]), 0.0);
        assert_eq!(median_ratio(&[2.0], &[]), 0.0);
    }
}
