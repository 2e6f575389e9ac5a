//! The callbacks that the host calls (proxy-wasm ABI 0.2.1): only those that have something to do, for each costs an entry
//! into the VM. A stream's end is told twice, when it is logged and when it is deleted: the second is enough.
//!
//! An unknown context, or one that is at work already, is answered with "go on".
#![allow(unsafe_code, reason = "the host finds callbacks by their unmangled names")]

use super::abi::Action;
use super::vm;
use crate::stage::{self, Stage};

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

unsafe extern "C" {
    fn __wasm_call_ctors();
}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    // SAFETY: the linker defines it; the host calls `_initialize` once and before anything else.
    unsafe { __wasm_call_ctors() };
    vm::initialize();
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context_id: u32, root_id: u32) {
    let _callback = stage::callback(Stage::ContextCreate);
    vm::with(|vm| vm.on_context_create(context_id, root_id));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_root_id: u32, _configuration_bytes: usize) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(root_id: u32, configuration_bytes: usize) -> u32 {
    vm::with(|vm| vm.on_configure(root_id, configuration_bytes)).map_or(0, u32::from)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(root_id: u32) {
    #[cfg(feature = "stage-times")]
    super::stage_stats::flush();
    let _callback = stage::callback(Stage::Tick);
    vm::with(|vm| vm.on_tick(root_id));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(
    root_id: u32,
    token: u32,
    _headers: usize,
    body_bytes: usize,
    _trailers: usize,
) {
    let _callback = stage::callback(Stage::CallResponse);
    vm::with(|vm| vm.on_call_response(root_id, token, body_bytes));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(context_id: u32, _headers: usize, is_end: u32) -> u32 {
    #[cfg(feature = "rehearsal")]
    super::rehearsal::crash_if_asked();
    let _callback = stage::callback(Stage::RequestHeaders);
    action(vm::with(|vm| vm.on_request_headers(context_id, is_end != 0)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(context_id: u32, body_bytes: usize, is_end: u32) -> u32 {
    let _callback = stage::callback(Stage::RequestBody);
    action(vm::with(|vm| vm.on_request_body(context_id, body_bytes, is_end != 0)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(context_id: u32, _trailers: usize) -> u32 {
    let _callback = stage::callback(Stage::RequestBody);
    action(vm::with(|vm| vm.on_request_trailers(context_id)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(context_id: u32, _headers: usize, _is_end: u32) -> u32 {
    let _callback = stage::callback(Stage::ResponseHeaders);
    action(vm::with(|vm| vm.on_response_headers(context_id)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_body(context_id: u32, body_bytes: usize, is_end: u32) -> u32 {
    let _callback = stage::callback(Stage::ResponseBody);
    action(vm::with(|vm| vm.on_response_body(context_id, body_bytes, is_end != 0)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(context_id: u32) {
    let _callback = stage::callback(Stage::Delete);
    vm::with(|vm| vm.on_delete(context_id));
}

fn action(action: Option<Action>) -> u32 {
    action.unwrap_or(Action::Continue) as u32
}
