//! What must hold for any bytes that a stranger can send: one function for each parser and state machine.
//!
//! Each takes bytes and panics where a law is broken. cargo-fuzz calls them from `fuzz/` (`make fuzz`), and the tests of
//! this crate call them with the committed corpus, with every input that once broke a law and with the samples in
//! `tests/testdata`: so the normal tests need neither libFuzzer nor a nightly compiler.

mod bodies;
mod choices;
mod clusters;
mod config;
pub mod corpus;
mod document;
mod exchange;
mod index;
mod metrics;
mod pages;
mod request;
pub mod seeds;
mod usage;

pub use clusters::clusters;
pub use config::config;
pub use exchange::exchange;
pub use index::index;
pub use metrics::metrics;
pub use pages::pages;
pub use request::request;
pub use usage::usage;

/// One of the functions that bytes are thrown at.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: the binary in `fuzz/`, the folders of its corpus and its crashes.
    pub name: &'static str,
    /// Panics if a law does not hold for these bytes.
    pub check: fn(&[u8]),
}

/// All of them, in order of their names.
pub const TARGETS: &[Target] = &[
    Target { name: "clusters", check: clusters },
    Target { name: "config", check: config },
    Target { name: "exchange", check: exchange },
    Target { name: "index", check: index },
    Target { name: "metrics", check: metrics },
    Target { name: "pages", check: pages },
    Target { name: "request", check: request },
    Target { name: "usage", check: usage },
];
