//! A proxy-wasm filter that does nothing: it waits for the whole request body and lets it go.
//!
//! It is what the plugin is compared with in the cost benchmark: the VM, a context for each stream, the pause and the
//! buffered body, without reading anything or deciding. ABI 0.2.1 and no SDK, as the plugin itself, and like it only the
//! callbacks that have something to do; so no callback of the response is paid for.

#[cfg(target_os = "wasi")]
mod exports;
