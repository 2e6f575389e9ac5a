//! Our own header.

use super::{Hint, Meaning};

/// Workers by address or by name, parted by commas, in the order in which they are to be tried.
pub(super) const HINTS: &[Hint] = &[Hint::consumed("x-warmroute-target-worker", Meaning::Workers)];
