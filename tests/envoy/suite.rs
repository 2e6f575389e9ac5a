//! The built plugin in a real Envoy, against simulated workers.

mod adapters;
mod bench;
mod bodies;
mod comparison;
mod engines;
mod failing;
mod failure;
mod held;
mod hit_rate;
mod hostile;
mod models;
mod operations;
mod previous_response;
mod requests;
mod routes;
mod routing;
mod samples;
mod sessions;
mod siblings;
mod smoke;
mod takeover;
mod usage;
mod warm;
mod world;
