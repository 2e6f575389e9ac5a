//! The built plugin in a real Envoy, against simulated workers.

mod smoke;
