//! The stages of a request, one by one and on fixed inputs, for benchmarks and instruction counts.
//!
//! | what | where it runs | by |
//! |---|---|---|
//! | times in the plugin's VM, host calls included | Envoy | `make micro` (`src/main.rs`) |
//! | times of the same stages natively | this process | `cargo bench --package warmroute-micro` |
//! | instructions of the same stages, held to a baseline | valgrind | `make instructions` (`src/bin/instructions.rs`) |

pub mod baseline;
pub mod callgrind;
pub mod inputs;
pub mod stages;

pub use inputs::Gateway;
pub use stages::{NativeStage, all};
