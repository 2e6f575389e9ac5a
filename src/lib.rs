//! warmroute: an Envoy filter plugin that routes LLM inference requests by prompt prefix and worker load.

pub mod config;
pub mod engine;
pub mod exchange;
pub mod pool;
pub mod prefix;
pub mod request;
pub mod rng;
pub mod router;
pub mod schedule;
pub mod shared;
pub mod stats;
pub mod time;
pub mod worker;

#[cfg(target_os = "wasi")]
mod host;
