//! The proxy-wasm side: turns the host's callbacks into core calls, and what the core answers into host calls.
//!
//! | file | what |
//! |---|---|
//! | `exports` | the callbacks that the host calls |
//! | `vm` | all contexts of one VM, by id |
//! | `root` | a root context: takes a configuration or refuses it |
//! | `plugin` | a configuration at work: decisions, and this VM's in-flight slot |
//! | `tick` | what it does on its ticks: fleet page, lease, scrapes, gauges |
//! | `stream` | one HTTP stream: read once, decide, settle |
//! | `abi` | the host's functions, wrapped so that none can panic |
//! | `rehearsal` | a request that crashes its VM, in builds for tests |
//! | `shared_data` | pages in shared data: read, change, write back |
//! | `stage_stats` | times of the stages as counters, where they are measured |
//! | `stats` | names and numbers of what is counted |

mod abi;
mod exports;
mod logger;
mod plugin;
#[cfg(feature = "rehearsal")]
mod rehearsal;
mod root;
mod shared_data;
#[cfg(feature = "stage-times")]
mod stage_stats;
mod stats;
mod stream;
mod tick;
mod vm;
