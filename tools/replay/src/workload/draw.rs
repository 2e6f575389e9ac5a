//! Random numbers of the shapes that workloads need.

use warmroute::rng::Rng;

/// Draws from a seed.
pub struct Draw(Rng);

impl Draw {
    /// A source whose whole sequence follows from `seed` and the generator's `name`: two workloads of one seed differ.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        let mixed = name.bytes().fold(seed, |state, byte| warmroute::rng::mix(state ^ u64::from(byte)));
        Self(Rng::new(mixed))
    }

    /// Uniform in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        // The upper 53 bits are as many as fit.
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number from `low` to `high`, both included.
    pub fn count(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.below(high - low + 1)
    }

    /// Exponential: gaps of a Poisson process with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Equal chances for equal ratios between two positive numbers.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    /// Log-normal by its median and the standard deviation of its logarithm.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        // Box and Muller's transform; the second normal number is not used.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        median * (sigma * radius * (std::f64::consts::TAU * self.unit()).cos()).exp()
    }

    /// One of `0..count`, the n-th with a chance in proportion to `1 / n` (Zipf's law).
    pub fn zipf(&mut self, count: usize) -> usize {
        let total: f64 = (1..=count).map(|rank| 1.0 / rank as f64).sum();
        let mut left = self.unit() * total;
        for rank in 1..count {
            left -= 1.0 / rank as f64;
            if left < 0.0 {
                return rank - 1;
            }
        }
        count - 1
    }

    /// A number that nothing else has, for the text of a part that occurs once.
    pub fn content(&mut self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_has_its_mean() {
        struct Case {
            name: &'static str,
            draw: fn(&mut Draw) -> f64,
            mean: f64,
        }
        const CASES: &[Case] = &[
            Case { name: "unit", draw: Draw::unit, mean: 0.5 },
            Case { name: "count", draw: |draw| f64::from(draw.count(3, 12)), mean: 7.5 },
            Case { name: "exponential", draw: |draw| draw.exponential(20.0), mean: 20.0 },
            Case { name: "log-uniform", draw: |draw| draw.log_uniform(1.0, std::f64::consts::E), mean: 1.718 },
            Case { name: "log-normal", draw: |draw| draw.log_normal(100.0, 0.5), mean: 113.3 },
            // Chances of 6/11, 3/11 and 2/11.
            Case { name: "zipf", draw: |draw| draw.zipf(3) as f64, mean: 7.0 / 11.0 },
        ];
        for case in CASES {
            let mut draw = Draw::new(1, case.name);
            let mean = (0..40_000).map(|_| (case.draw)(&mut draw)).sum::<f64>() / 40_000.0;
            assert!((mean / case.mean - 1.0).abs() < 0.02, "{}: {mean}", case.name);
        }
    }
}
