//! The plugin's own decisions as an endpoint picker: a gRPC service that Envoy's `ext_proc` filter asks.
//!
//! For the benchmark only. It is what the plugin would be if it were a process beside Envoy, as the endpoint pickers of
//! the Gateway API Inference Extension are: the same core makes the same decisions, so what differs is the hop. It is
//! made to be as cheap as such a process can be: native code, one thread, no channel and no task between a message and
//! its answer, and only the messages that a decision needs.
//!
//! Envoy sends the request's headers and, in one message, its whole body (`BUFFERED`). `FULL_DUPLEX_STREAMED`, which
//! newer pickers use, takes one round trip instead of two, but all of the body goes there and back again; buffered it
//! crosses once, which is cheaper for prompts. The answer's headers follow. Its body is sent only where `usage` is to be
//! read, as the plugin does and most pickers do: a message and a reply for each piece of a stream are most of the cost
//! then, so the benchmark shows both. Without it the picker learns nothing of the caches and takes the answer's headers
//! for its first byte; that errs in favour of the picker's cost.
//!
//! | file | what |
//! |---|---|
//! | `wire` | the messages |
//! | `service` | the gRPC service |
//! | `stream` | one HTTP stream: read once, decide, settle |
//! | `picker` | the core at work: router, pages, scrapes |
//! | `server` | listens, serves, scrapes |

mod picker;
mod server;
mod service;
mod stream;
pub mod wire;

pub use picker::Counts;
pub use server::{Server, Standing, start};

#[cfg(test)]
mod tests;
