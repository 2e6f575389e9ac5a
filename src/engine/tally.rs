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
    /// Which sum, which rank, and the largest number so far.
    largest: Vec<(usize, u32, f64)>,
}

impl Copies {
    /// What `number` adds to the sum `sum`, which its rank may have added a copy to before. `None` if there are more ranks
    /// than are kept.
    pub(super) fn surplus(&mut self, sum: usize, rank: u32, number: f64) -> Option<f64> {
        if let Some((_, _, largest)) = self.largest.iter_mut().find(|known| (known.0, known.1) == (sum, rank)) {
            let surplus = (number - *largest).max(0.0);
            *largest += surplus;
            return Some(surplus);
        }
        let has_room = self.largest.len() < COPIES_MAX;
        has_room.then(|| {
            self.largest.push((sum, rank, number));
            number
        })
    }
}

/// Numbers of single ranks that are kept: some ten gauges of 64 ranks.
const COPIES_MAX: usize = 640;
