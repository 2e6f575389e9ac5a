//! What the tools share that show measurements: tables, plots, statistics, and how a cost grows.
//!
//! Nothing here knows what was measured. Titles are sentences that the caller makes from its numbers.

pub mod fit;
pub mod number;
pub mod plot;
pub mod statistics;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
