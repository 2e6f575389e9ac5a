//! warmroute: an Envoy filter plugin that routes LLM inference requests by prompt prefix and worker load.
//!
//! This crate is the plugin. All of it but `host` is a plain library that never reads a clock, draws a random number,
//! touches the network or logs: time, seeds and the store of pages come in as arguments, decisions come out. So the
//! same code runs in the gateway and in tests, and every decision can be repeated. `host` exists only in the WebAssembly
//! build; it turns the host's callbacks into calls of the library.
//!
//! ```text
//! body --request--> prompt --prefix--> hashes --router--> query --schedule--> decision --exchange--> in flight
//!                     index: who holds the prompt; pool: reports, in-flight --> candidates --^        |
//!                        ^------------- router: record the prompt, learn from `usage` <--response-----+
//! ```
//!
//! ARCHITECTURE.md follows one request through the files.
//!
//! ```
//! use warmroute::config::Config;
//!
//! let error = Config::from_bytes(br#"{"policy": "fastest"}"#).unwrap_err();
//! assert!(error.to_string().starts_with(r#"policy.name is "fastest", known: hybrid"#), "{error}");
//! ```

pub mod config;
pub mod direct;
pub mod discovery;
pub mod engine;
pub mod exchange;
pub mod index;
pub mod model;
pub mod pool;
pub mod prefix;
pub mod request;
pub mod response;
pub mod rng;
pub mod router;
pub mod schedule;
pub mod shared;
pub mod stage;
pub mod stats;
pub mod time;
pub mod trust;
pub mod worker;

#[cfg(target_os = "wasi")]
mod host;
