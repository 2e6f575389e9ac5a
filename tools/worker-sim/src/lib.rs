//! A simulated vLLM-like engine behind an OpenAI API: prefix cache, continuous batching, step timing, metrics, faults.
//!
//! Everything that a router can see of a real engine is here: `cached_tokens`, queueing, time to first token, load in
//! `/metrics`, slow starts, hangs and restarts. No model is run. The model and its limits are in README.md.

mod adapters;
mod body;
mod cache;
mod config;
mod engine;
mod faults;
mod formats;
mod metrics;
mod openai;
mod prompt;
mod responses;
mod routes;
mod scheduler;
mod server;
mod stats;

pub use config::{SimConfig, Timing};
pub use faults::{Faults, MetricsFault};
pub use server::WorkerSim;
pub use stats::{RequestRecord, StatsSnapshot};
