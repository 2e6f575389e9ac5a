//! The judge of routing policies: workloads, simulated engines, the plugin's own core and its peers, under one clock.
//!
//! ```text
//! workload  ->  requests, by arrival        one file for each trace or generator
//! policy    ->  a worker for each request   `own`: the plugin's core; `peer`: others' published formulas; `oracle`
//! engine    ->  first byte, end, cached     `serial` and `batching` models of an engine
//! simulation -> outcomes -> summary, table, plots
//! ```
//!
//! Everything is deterministic by its seed. Nothing here measures a real engine: seconds are the models' and only their
//! order and ratios say something.

pub mod contestant;
pub mod engine;
pub mod execute;
pub mod metrics;
pub mod oracle;
pub mod own;
pub mod peer;
pub mod plan;
pub mod policy;
pub mod report;
pub mod request;
pub mod simulation;
pub mod workload;
