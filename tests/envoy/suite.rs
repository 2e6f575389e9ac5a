//! The built plugin in a real Envoy, against simulated workers.

mod bodies;
mod failure;
mod hostile;
mod operations;
mod routing;
mod samples;
mod smoke;
mod takeover;
mod world;
