//! Starts and stops a real Envoy with the plugin in it, for tests, the demo and benchmarks.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use serde_json::json;
//! use warmroute_harness::{client::Client, config::EnvoyConfig, envoy::Envoy};
//!
//! let config = EnvoyConfig::warmroute(json!({ "policy": { "name": "prefix-hash" } })).worker("127.0.0.1:8000".parse()?);
//! let envoy = Envoy::start(config).await?;
//! let reply = Client::http1(envoy.address()).post_json("/v1/completions", &json!({ "prompt": "hi" })).await?;
//! assert_eq!(reply.status, 200);
//! # Ok(())
//! # }
//! ```
//!
//! Everything listens on loopback, on ports that the system picks, in a temporary directory of its own: any number of
//! Envoys can run side by side. Dropping [`envoy::Envoy`] ends the process and removes the directory.

pub mod artefacts;
pub mod client;
pub mod config;
pub mod envoy;
pub mod peers;
