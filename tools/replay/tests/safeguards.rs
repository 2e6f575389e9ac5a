//! The safeguards of the plugin's own core with its default policy, on simulated engines: what must not happen, however
//! the requests, the reports and the workers behave.
//!
//! Each bound says where it is from, and each test holds a peer or a changed setting against it that does worse: a bound
//! that everything keeps shows nothing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "safeguards/bench.rs"]
mod bench;
#[path = "safeguards/incidents.rs"]
mod incidents;
#[path = "safeguards/knowledge.rs"]
mod knowledge;
#[path = "safeguards/spread.rs"]
mod spread;
