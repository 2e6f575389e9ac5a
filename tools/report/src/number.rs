//! Numbers as text.

/// A number without needless digits: 0.1, 2, 1500000.
#[must_use]
pub fn trimmed(value: f64) -> String {
    // Multiples of powers of ten, as ticks are, need this rounding only against what binary fractions add.
    format!("{}", (value * 1e6).round() / 1e6)
}

/// A number with about so many digits that say something, and all of those before the point: 0.043, 1.9, 275.
///
/// Zeros at the end are kept, as they say how exact the number is.
#[must_use]
pub fn significant(value: f64, digits: u32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let decimals = |value: f64| (i64::from(digits) - 1 - value.abs().log10().floor() as i64).clamp(0, 9);
    // Rounding may add a digit: 9.96 with two is 10 and not 10.0.
    let first = decimals(value);
    let rounded = format!("{value:.*}", first as usize).parse().unwrap_or(value);
    let decimals = if rounded == 0.0 { first } else { decimals(rounded).min(first) };
    format!("{value:.*}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_say_nothing_are_left_out() {
        for (value, want) in [(0.1 + 0.2, "0.3"), (2.0, "2"), (1.5e6, "1500000"), (-0.25, "-0.25")] {
            assert_eq!(trimmed(value), want);
        }
        for (value, digits, want) in [
            (0.04321, 2, "0.043"),
            (1.94, 2, "1.9"),
            (9.96, 2, "10"),
            (0.996, 2, "1.0"),
            (274.6, 2, "275"),
            (-1.25, 3, "-1.25"),
            (0.0, 2, "0"),
        ] {
            assert_eq!(significant(value, digits), want);
        }
    }
}
