//! How a cost grows: lines and power laws through measured points, and which of them to tell.

use std::fmt;

use crate::number::significant;

/// `y = fixed + rate * x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// The cost at `x` = 0, in units of `y`.
    pub fixed: f64,
    /// What each unit of `x` adds.
    pub rate: f64,
    /// Share of the points' scatter that it explains, up to 1; in the weighting of [`affine`].
    pub r_squared: f64,
}

/// `y = factor * x^exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// The cost at `x` = 1, in units of `y`.
    pub factor: f64,
    /// 1 is proportional, 0 is constant.
    pub exponent: f64,
    /// Share of the logarithms' scatter that it explains, up to 1.
    pub r_squared: f64,
}

impl Affine {
    /// The cost at `x`.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.rate.mul_add(x, self.fixed)
    }
}

impl Power {
    /// The cost at `x`.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.factor * x.powf(self.exponent)
    }
}

/// Below this share of the highest value, errors count as absolute: measured zeros are not exact.
const RELATIVE_FROM: f64 = 0.02;
/// A cost whose points stay this close to their mean does not grow, as far as a noisy machine can tell.
const FLAT_SPREAD: f64 = 0.05;
/// A fit that explains less of the points' scatter than this is none: they scatter and do not grow.
const EXPLAINED_MIN: f64 = 0.5;
/// A power law has to be that much closer to the points than a line, as the line says more: what is fixed, what is not.
const POWER_ADVANTAGE: f64 = 0.5;
/// A line that is off by less is good enough.
const LINE_ERROR: f64 = 0.01;

/// The line closest to the points by relative errors: `x` spans decades, and the first of them count as much as the last.
///
/// `None` of points with fewer than two different `x`, or with numbers that are not finite.
#[must_use]
pub fn affine(points: &[(f64, f64)]) -> Option<Affine> {
    let largest = points.iter().map(|(_, y)| y.abs()).fold(0.0, f64::max);
    let weight = |y: f64| if largest > 0.0 { (y.abs() / largest).max(RELATIVE_FROM).powi(-2) } else { 1.0 };
    let weighted: Vec<Weighted> = points.iter().map(|&(x, y)| Weighted { x, y, weight: weight(y) }).collect();
    let (fixed, rate, r_squared) = line(&weighted)?;
    Some(Affine { fixed, rate, r_squared })
}

/// The power law closest to the points, least squares on logarithms.
///
/// Points with an `x` or a `y` that is not above 0 have no logarithm and are left out. `None` if fewer than two different
/// `x` are left.
#[must_use]
pub fn power(points: &[(f64, f64)]) -> Option<Power> {
    let positive = points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let logarithms: Vec<Weighted> = positive.map(|(x, y)| Weighted { x: x.ln(), y: y.ln(), weight: 1.0 }).collect();
    let (intercept, exponent, r_squared) = line(&logarithms)?;
    Some(Power { factor: intercept.exp(), exponent, r_squared })
}

struct Weighted {
    x: f64,
    y: f64,
    weight: f64,
}

/// Weighted least squares: intercept, slope and R².
fn line(points: &[Weighted]) -> Option<(f64, f64, f64)> {
    if points.iter().any(|point| !point.x.is_finite() || !point.y.is_finite()) {
        return None;
    }
    let sum = |of: &dyn Fn(&Weighted) -> f64| points.iter().map(|point| point.weight * of(point)).sum::<f64>();
    let total = sum(&|_| 1.0);
    let (mean_x, mean_y) = (sum(&|point| point.x) / total, sum(&|point| point.y) / total);
    let scatter_x = sum(&|point| (point.x - mean_x).powi(2));
    // Also of no points at all, when the means are not numbers.
    let lowest = points.iter().map(|point| point.x).fold(f64::INFINITY, f64::min);
    if points.iter().all(|point| point.x <= lowest) {
        return None;
    }
    let slope = sum(&|point| (point.x - mean_x) * (point.y - mean_y)) / scatter_x;
    let intercept = slope.mul_add(-mean_x, mean_y);
    let scatter_y = sum(&|point| (point.y - mean_y).powi(2));
    let unexplained = sum(&|point| (point.y - slope.mul_add(point.x, intercept)).powi(2));
    // Points without scatter are explained by any line through them.
    let r_squared = if scatter_y > 0.0 { 1.0 - unexplained / scatter_y } else { 1.0 };
    Some((intercept, slope, r_squared))
}

/// What to say about how a cost grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Growth {
    /// It does not, further than the points scatter: their mean, and the farthest from it as a share of it.
    Flat {
        /// Mean cost, in units of `y`.
        mean: f64,
        /// Distance of the farthest point from `mean`, as a share of it.
        spread: f64,
    },
    /// A fixed cost and one for each unit of `x`.
    Affine(Affine),
    /// By a power of `x`.
    Power(Power),
}

/// Chooses what to say: constant if the points hardly differ or no fit explains how they do, else a line, unless a power
/// law is clearly closer to the points or the line would begin clearly below zero.
///
/// `None` of points with fewer than two different `x`, or with numbers that are not finite.
#[must_use]
pub fn growth(points: &[(f64, f64)]) -> Option<Growth> {
    let affine = affine(points)?;
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / points.len() as f64;
    let farthest = points.iter().map(|(_, y)| (y - mean).abs()).fold(0.0, f64::max);
    // Where some points have no logarithm, the power law would be one of other points.
    let has_logarithms = points.iter().all(|(x, y)| *x > 0.0 && *y > 0.0);
    let power = if has_logarithms { power(points) } else { None };
    let explained = power.map_or(affine.r_squared, |power| power.r_squared.max(affine.r_squared));
    if farthest <= FLAT_SPREAD * mean.abs() || explained < EXPLAINED_MIN {
        let spread = if mean == 0.0 { 0.0 } else { farthest / mean.abs() };
        return Some(Growth::Flat { mean, spread });
    }
    Some(match power {
        Some(power) => {
            let (by_line, by_power) = (error(points, |x| affine.at(x)), error(points, |x| power.at(x)));
            let is_closer = by_line > LINE_ERROR && by_power < POWER_ADVANTAGE * by_line;
            let lowest = points.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
            let begins_below_zero = affine.fixed < -FLAT_SPREAD * lowest;
            if begins_below_zero || is_closer { Growth::Power(power) } else { Growth::Affine(affine) }
        }
        None => Growth::Affine(affine),
    })
}

/// The root of the mean squared relative error.
fn error(points: &[(f64, f64)], fitted: impl Fn(f64) -> f64) -> f64 {
    let squares = points.iter().map(|(x, y)| ((fitted(*x) - y) / y).powi(2));
    (squares.sum::<f64>() / points.len() as f64).sqrt()
}

impl Growth {
    /// The cost at `x`.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        match self {
            Self::Flat { mean, .. } => *mean,
            Self::Affine(affine) => affine.at(x),
            Self::Power(power) => power.at(x),
        }
    }

    /// Share of the scatter that it explains, up to 1; `None` of what is flat, which has none to explain.
    #[must_use]
    pub const fn r_squared(&self) -> Option<f64> {
        match self {
            Self::Flat { .. } => None,
            Self::Affine(affine) => Some(affine.r_squared),
            Self::Power(power) => Some(power.r_squared),
        }
    }

    /// In words: "1.9 us + 0.11 us per KB", "grows as KB^0.97", "stays at 1.9 us", "stays at 1.9 us ± 20 %";
    /// `per` is one unit of `x`.
    #[must_use]
    pub const fn words<'a>(&'a self, unit: &'a str, per: &'a str) -> Words<'a> {
        Words { growth: self, unit, per }
    }
}

/// A [`Growth`] with the names of its units.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    growth: &'a Growth,
    unit: &'a str,
    per: &'a str,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { growth, unit, per } = self;
        match growth {
            Growth::Flat { mean, spread } => {
                write!(f, "stays at {} {unit}", significant(*mean, 2))?;
                if *spread > FLAT_SPREAD { write!(f, " ± {:.0} %", 100.0 * spread) } else { Ok(()) }
            }
            Growth::Affine(Affine { fixed, rate, .. }) => {
                let (sign, rate) = if *rate < 0.0 { ("-", -rate) } else { ("+", *rate) };
                write!(f, "{} {unit} {sign} {} {unit} per {per}", significant(*fixed, 2), significant(rate, 2))
            }
            Growth::Power(Power { exponent, .. }) => write!(f, "grows as {per}^{exponent:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECADES: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 220.0, 512.0, 1024.0];

    fn points(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        DECADES.iter().map(|x| (*x, of(*x))).collect()
    }

    /// Up to `share` more or less, in an order that favours neither end.
    fn noisy(points: &[(f64, f64)], share: f64) -> Vec<(f64, f64)> {
        let signs = [0.9, -1.0, 0.2, 1.0, -0.7, -0.4, 0.3];
        points.iter().zip(signs).map(|(&(x, y), sign)| (x, y * (1.0 + share * sign))).collect()
    }

    fn is_near(got: f64, want: f64, tolerance: f64) -> bool {
        (got - want).abs() <= tolerance * want.abs()
    }

    #[test]
    fn exact_points_give_their_constants_back() {
        let line = affine(&points(|x| 1.9 + 0.11 * x)).unwrap();
        assert!(is_near(line.fixed, 1.9, 1e-9) && is_near(line.rate, 0.11, 1e-9), "{line:?}");
        assert!(is_near(line.r_squared, 1.0, 1e-9) && is_near(line.at(10.0), 3.0, 1e-9), "{line:?}");
        let law = power(&points(|x| 0.4 * x.powf(0.97))).unwrap();
        assert!(is_near(law.factor, 0.4, 1e-9) && is_near(law.exponent, 0.97, 1e-9), "{law:?}");
        assert!(is_near(law.r_squared, 1.0, 1e-9) && is_near(law.at(1.0), 0.4, 1e-9), "{law:?}");
    }

    #[test]
    fn noise_moves_both_ends_of_a_line_by_little_and_shows_in_r_squared() {
        let line = affine(&noisy(&points(|x| 1.9 + 0.11 * x), 0.1)).unwrap();
        // Without relative weights the noise of the last point, 11 us, would swamp what is fixed.
        assert!(is_near(line.fixed, 1.9, 0.1) && is_near(line.rate, 0.11, 0.1), "{line:?}");
        assert!((0.9..0.9999).contains(&line.r_squared), "{line:?}");
        let law = power(&noisy(&points(|x| 0.4 * x.powf(0.5)), 0.1)).unwrap();
        assert!(is_near(law.exponent, 0.5, 0.05) && (0.98..0.9999).contains(&law.r_squared), "{law:?}");
    }

    #[test]
    fn what_is_said_fits_the_points() {
        struct Case {
            name: &'static str,
            points: Vec<(f64, f64)>,
            words: &'static str,
        }
        let cases = [
            Case { name: "a line", points: points(|x| 1.9 + 0.11 * x), words: "1.9 us + 0.11 us per KB" },
            Case { name: "a line down", points: points(|x| 1500.0 - x), words: "1500 us - 1.0 us per KB" },
            Case { name: "proportional", points: points(|x| 0.11 * x), words: "0 us + 0.11 us per KB" },
            Case { name: "a root", points: points(|x| 3.0 * x.sqrt()), words: "grows as KB^0.50" },
            Case { name: "a square", points: noisy(&points(|x| x * x), 0.02), words: "grows as KB^2.00" },
            Case { name: "constant", points: noisy(&points(|_| 1.9), 0.03), words: "stays at 1.9 us" },
            Case { name: "scatter", points: noisy(&points(|_| 1.9), 0.2), words: "stays at 1.9 us ± 21 %" },
            Case { name: "from nothing", points: vec![(0.0, 2.0), (1.0, 3.0)], words: "2.0 us + 1.0 us per KB" },
            Case { name: "nothing", points: points(|_| 0.0), words: "stays at 0 us" },
        ];
        for case in cases {
            let growth = growth(&case.points).unwrap();
            // What is fixed in a proportional cost is what binary fractions leave of it.
            let growth = match growth {
                Growth::Affine(affine) if affine.fixed.abs() < 1e-9 => Growth::Affine(Affine { fixed: 0.0, ..affine }),
                other => other,
            };
            assert_eq!(growth.words("us", "KB").to_string(), case.words, "{}: {growth:?}", case.name);
        }
    }

    #[test]
    fn points_that_say_nothing_are_fitted_by_nothing() {
        for points in [&[][..], &[(4.0, 1.0)], &[(4.0, 1.0), (4.0, 2.0)], &[(1.0, f64::NAN), (2.0, 1.0)]] {
            assert_eq!((affine(points), growth(points)), (None, None), "{points:?}");
        }
        for points in [&[][..], &[(4.0, 1.0)], &[(0.0, 1.0), (4.0, 2.0)], &[(1.0, 0.0), (2.0, 1.0)]] {
            assert_eq!(power(points), None, "{points:?}");
        }
    }

    #[test]
    fn a_measured_zero_does_not_pin_the_line() {
        let line = affine(&[(1.0, 0.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)]).unwrap();
        assert!(line.fixed.is_finite() && line.rate > 0.9, "{line:?}");
    }
}
