//! What the series of one gauge have made so far.

use super::field::Fold;

/// What the series of one gauge have made so far.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tally {
    /// There was none.
    Absent,
    /// Their sum, or whatever is asked for.
    Number(f64),
    /// One of them was no number or out of range: what is left of a sum or a maximum would make the worker look better
    /// than it is known to be.
    Unreadable,
}

impl Tally {
    pub(super) fn add(&mut self, number: Option<f64>, fold: Fold) {
        *self = match (*self, number) {
            (Self::Unreadable, _) | (_, None) => Self::Unreadable,
            (Self::Absent, Some(number)) => Self::Number(number),
            (Self::Number(so_far), Some(number)) => Self::Number(match fold {
                Fold::Sum => so_far + number,
                Fold::Max => so_far.max(number),
                Fold::Min => so_far.min(number),
            }),
        };
    }

    pub(super) const fn number(self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Absent | Self::Unreadable => None,
        }
    }

    pub(super) const fn is_present(self) -> bool {
        !matches!(self, Self::Absent)
    }
}

/// The largest of each rank's copies of one number, for sums over the ranks.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Which sum and which rank, in order, and the largest number so far. In order, so that a line costs no look at each:
    /// a page may have a million lines.
    largest: Vec<((usize, u32), f64)>,
}

impl Copies {
    /// What `number` adds to the sum `sum`, which its rank may have added a copy to before. `None` if there are more ranks
    /// than are kept.
    pub(super) fn surplus(&mut self, sum: usize, rank: u32, number: f64) -> Option<f64> {
        match self.largest.binary_search_by_key(&(sum, rank), |(of, _)| *of) {
            Ok(place) => {
                let (_, largest) = self.largest.get_mut(place)?;
                let surplus = (number - *largest).max(0.0);
                *largest += surplus;
                Some(surplus)
            }
            Err(place) if self.largest.len() < COPIES_MAX => {
                self.largest.insert(place, ((sum, rank), number));
                Some(number)
            }
            Err(_) => None,
        }
    }
}

/// Numbers of single ranks that are kept: some ten gauges of 64 ranks.
const COPIES_MAX: usize = 640;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn copies_are_kept_in_order_up_to_the_bound_and_the_largest_of_each_counts() {
        let mut copies = Copies::default();
        for line in 0..58_000_u32 {
            // Scattered, and never twice the same.
            let rank = line.wrapping_mul(0x9e37_79b1);
            assert_eq!(copies.surplus(1, rank, 1.0).is_some(), line < COPIES_MAX as u32, "{line}");
        }
        assert_eq!(copies.largest.len(), COPIES_MAX);
        assert!(copies.largest.is_sorted_by_key(|(of, _)| *of), "else each line costs a look at each");
        assert_eq!([3.0, 2.0, 5.0].map(|number| copies.surplus(1, 0, number)), [Some(2.0), Some(0.0), Some(2.0)]);
        assert_eq!(copies.surplus(2, 0, 1.0), None, "another sum");
    }
}
