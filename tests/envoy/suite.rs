//! The built plugin in a real Envoy, against simulated workers.

mod bench;
mod bodies;
mod comparison;
mod digests;
mod encodings;
mod failing;
mod failure;
mod format_samples;
mod held;
mod hit_rate;
mod hostile;
mod mutations;
mod operations;
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
