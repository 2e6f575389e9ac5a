//! The cost benchmark: what the plugin costs beside doing nothing, and beside the routers that people would use instead.
//!
//! One thread holds the load and the workers, both as cheap as can be; every router is a process of its own, whose CPU
//! clock is read around each burst. Bursts of all routers take turns, and ratios are taken within a turn, since a shared
//! machine is never twice as fast as before.

mod answer;
pub mod cost;
mod environment;
mod field;
pub mod growth;
mod http1;
mod load;
mod load_thread;
mod lockstep;
pub mod page;
mod path;
pub mod picker;
mod process;
mod prompt;
pub mod row;
mod statistics;
mod table;
mod worker;
