//! The callbacks that the host calls (proxy-wasm ABI 0.2.1).
#![allow(unsafe_code, reason = "the host finds callbacks by their unmangled names")]

const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

unsafe extern "C" {
    fn __wasm_call_ctors();
}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    // SAFETY: the linker defines it; the host calls `_initialize` once and before anything else.
    unsafe { __wasm_call_ctors() };
}

/// Memory for the host to fill. None is ever asked for, as nothing is read; the ABI wants the function all the same.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(_bytes: usize) -> *mut u8 {
    std::ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(_context_id: u32, _root_id: u32) {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_root_id: u32, _configuration_bytes: usize) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(_root_id: u32, _configuration_bytes: usize) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(_context_id: u32, _headers: usize, is_end: u32) -> u32 {
    if is_end == 0 { PAUSE } else { CONTINUE }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(_context_id: u32, _body_bytes: usize, is_end: u32) -> u32 {
    if is_end == 0 { PAUSE } else { CONTINUE }
}

/// Trailers end a body for which no call said "end".
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(_context_id: u32, _trailers: usize) -> u32 {
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(_context_id: u32) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(_context_id: u32) {}
