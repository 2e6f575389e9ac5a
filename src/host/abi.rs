//! The functions that the host gives us (proxy-wasm ABI 0.2.1), wrapped so that none can panic.
//!
//! The Rust SDK for proxy-wasm is not used. Its header getters panic on values that are not UTF-8, its calls on a status
//! they do not list, its dispatcher on a context or call that it does not know, and a panic cuts every stream of the
//! worker thread; all of that can be reached from outside. It also exports every callback, so that the host enters the
//! VM where there is nothing to do. Here a failed call is a `None` or `false`, an unknown context is ignored, and only
//! the callbacks that are used exist (`exports`).
//!
//! Source: proxy-wasm/spec, abi-versions/v0.2.1; Envoy 1.40 implements it in proxy-wasm/proxy-wasm-cpp-host.
#![allow(unsafe_code, reason = "the host's functions take and give raw pointers")]

use crate::shared::store::Version;
use crate::stage::{self, HostCall};
use crate::time::Timestamp;

/// Which buffer of the host is read.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    CallResponseBody = 4,
    PluginConfiguration = 7,
}

/// Which map of headers is read or written.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum HeaderMap {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

/// What a stat of the host can do.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum MetricKind {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

/// Whether the host goes on with the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Action {
    Continue = 0,
    Pause = 1,
}

const STATUS_OK: u32 = 0;

mod imports {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_log(level: u32, message: *const u8, message_bytes: usize) -> u32;
        pub(super) fn proxy_get_current_time_nanoseconds(time_ns: *mut u64) -> u32;
        pub(super) fn proxy_set_tick_period_milliseconds(period_ms: u32) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer: u32,
            start: usize,
            bytes_max: usize,
            data: *mut *mut u8,
            data_bytes: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_buffer_bytes(
            buffer: u32,
            start: usize,
            bytes: usize,
            data: *const u8,
            data_bytes: usize,
        ) -> u32;
        pub(super) fn proxy_get_header_map_value(
            map: u32,
            name: *const u8,
            name_bytes: usize,
            data: *mut *mut u8,
            data_bytes: *mut usize,
        ) -> u32;
        pub(super) fn proxy_replace_header_map_value(
            map: u32,
            name: *const u8,
            name_bytes: usize,
            value: *const u8,
            value_bytes: usize,
        ) -> u32;
        pub(super) fn proxy_remove_header_map_value(map: u32, name: *const u8, name_bytes: usize) -> u32;
        pub(super) fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, data_bytes: *mut usize) -> u32;
        pub(super) fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_bytes: usize,
            body: *const u8,
            body_bytes: usize,
            headers: *const u8,
            headers_bytes: usize,
            grpc_status: i32,
        ) -> u32;
        pub(super) fn proxy_get_property(
            path: *const u8,
            path_bytes: usize,
            data: *mut *mut u8,
            data_bytes: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_shared_data(
            key: *const u8,
            key_bytes: usize,
            data: *mut *mut u8,
            data_bytes: *mut usize,
            cas: *mut u32,
        ) -> u32;
        pub(super) fn proxy_set_shared_data(
            key: *const u8,
            key_bytes: usize,
            value: *const u8,
            value_bytes: usize,
            cas: u32,
        ) -> u32;
        pub(super) fn proxy_http_call(
            cluster: *const u8,
            cluster_bytes: usize,
            headers: *const u8,
            headers_bytes: usize,
            body: *const u8,
            body_bytes: usize,
            trailers: *const u8,
            trailers_bytes: usize,
            timeout_ms: u32,
            token: *mut u32,
        ) -> u32;
        pub(super) fn proxy_call_foreign_function(
            name: *const u8,
            name_bytes: usize,
            argument: *const u8,
            argument_bytes: usize,
            data: *mut *mut u8,
            data_bytes: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_effective_context(context_id: u32) -> u32;
        pub(super) fn proxy_define_metric(kind: u32, name: *const u8, name_bytes: usize, metric_id: *mut u32) -> u32;
        pub(super) fn proxy_increment_metric(metric_id: u32, offset: i64) -> u32;
        pub(super) fn proxy_record_metric(metric_id: u32, value: u64) -> u32;
    }
}

/// Memory for the host to fill; see [`take`]. Null when there is none left.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(bytes: usize) -> *mut u8 {
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(bytes).is_err() {
        return std::ptr::null_mut();
    }
    std::mem::ManuallyDrop::new(memory).as_mut_ptr()
}

/// Takes over memory that the host had [`proxy_on_memory_allocate`] allocate and has filled.
fn take(data: *mut u8, data_bytes: usize) -> Vec<u8> {
    if data.is_null() || data_bytes == 0 {
        return Vec::new();
    }
    // SAFETY: a non-null pointer comes from `proxy_on_memory_allocate(data_bytes)`: a `Vec<u8>` with exactly that
    // capacity, all of which the host has written. The host keeps no copy of the pointer.
    unsafe { Vec::from_raw_parts(data, data_bytes, data_bytes) }
}

/// Writes a line to the host's log, at its level numbers: 0 trace, 1 debug, 2 info, 3 warn, 4 error.
pub(super) fn log(level: u32, message: &str) {
    // SAFETY: the pointer and the length are of one live slice; the host only reads.
    let _ = unsafe { imports::proxy_log(level, message.as_ptr(), message.len()) };
}

/// The host's wall clock; the epoch if it has none.
pub(super) fn now() -> Timestamp {
    let call = stage::call(HostCall::Time);
    let time_ns = clock_ns();
    call.end(size_of::<u64>());
    Timestamp::from_ns(time_ns)
}

/// As [`now`], in nanoseconds since the epoch, and not counted as a call.
pub(super) fn clock_ns() -> u64 {
    let mut time_ns = 0;
    // SAFETY: the host writes one u64 to a valid place.
    let _ = unsafe { imports::proxy_get_current_time_nanoseconds(&raw mut time_ns) };
    time_ns
}

/// Asks for [`proxy_on_tick`] about every `period_ms`.
pub(super) fn set_tick_period(period_ms: u32) {
    // SAFETY: no pointers.
    let _ = unsafe { imports::proxy_set_tick_period_milliseconds(period_ms) };
}

/// Up to `bytes_max` bytes from the start of a buffer; `None` if it does not exist now.
pub(super) fn buffer(buffer: Buffer, bytes_max: usize) -> Option<Vec<u8>> {
    let (mut data, mut data_bytes) = (std::ptr::null_mut(), 0);
    let call = stage::call(HostCall::GetBuffer);
    // SAFETY: the host writes a pointer and a length to valid places.
    let status =
        unsafe { imports::proxy_get_buffer_bytes(buffer as u32, 0, bytes_max, &raw mut data, &raw mut data_bytes) };
    call.end(data_bytes);
    (status == STATUS_OK).then(|| take(data, data_bytes))
}

/// Puts `bytes` in the place of all that is buffered.
///
/// The ABI's start and length could name a part, but Envoy only prepends, appends, or replaces all (`Buffer::copyFrom` in
/// its `extensions/common/wasm/context.cc`).
pub(super) fn replace_buffer(buffer: Buffer, bytes: &[u8]) -> bool {
    let call = stage::call(HostCall::Other);
    // SAFETY: the pointer and the length are of one live slice; the host only reads.
    let status =
        unsafe { imports::proxy_set_buffer_bytes(buffer as u32, 0, WHOLE_BUFFER, bytes.as_ptr(), bytes.len()) };
    call.end(bytes.len());
    status == STATUS_OK
}

/// Longer than any buffer.
const WHOLE_BUFFER: usize = 0x7fff_ffff;

/// Has the host choose the request's route anew, by the headers as they are now; `false` if it cannot.
///
/// Source: Envoy's foreign function `clear_route_cache` (`extensions/common/wasm/foreign.cc`). Since Envoy 1.33 a change
/// of headers alone does not do it.
pub(super) fn clear_route_cache() -> bool {
    const NAME: &str = "clear_route_cache";
    let (mut data, mut data_bytes) = (std::ptr::null_mut(), 0);
    let call = stage::call(HostCall::Other);
    // SAFETY: `NAME` is one live slice; the host writes a pointer and a length to valid places.
    let status = unsafe {
        imports::proxy_call_foreign_function(
            NAME.as_ptr(),
            NAME.len(),
            std::ptr::null(),
            0,
            &raw mut data,
            &raw mut data_bytes,
        )
    };
    call.end(data_bytes);
    drop(take(data, data_bytes));
    status == STATUS_OK
}

/// The first value of a header, any bytes; `None` if there is none.
pub(super) fn header(map: HeaderMap, name: &str) -> Option<Vec<u8>> {
    let (mut data, mut data_bytes) = (std::ptr::null_mut(), 0);
    let call = stage::call(HostCall::GetHeader);
    // SAFETY: `name` is one live slice; the host writes a pointer and a length to valid places.
    let status = unsafe {
        imports::proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), &raw mut data, &raw mut data_bytes)
    };
    call.end(data_bytes);
    (status == STATUS_OK && !data.is_null()).then(|| take(data, data_bytes))
}

/// Whether there is a header, if only with an empty value.
pub(super) fn has_header(map: HeaderMap, name: &str) -> bool {
    let (mut data, mut data_bytes) = (std::ptr::null_mut(), 0);
    let call = stage::call(HostCall::GetHeader);
    // SAFETY: `name` is one live slice; the host writes a pointer and a length to valid places.
    let status = unsafe {
        imports::proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), &raw mut data, &raw mut data_bytes)
    };
    call.end(data_bytes);
    drop(take(data, data_bytes));
    status == STATUS_OK
}

/// Sets a header to one value, whatever it had.
pub(super) fn set_header(map: HeaderMap, name: &str, value: &str) -> bool {
    let call = stage::call(HostCall::ChangeHeader);
    // SAFETY: both are live slices; the host only reads.
    let status = unsafe {
        imports::proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    };
    call.end(value.len());
    status == STATUS_OK
}

/// All headers, each value apart: the number of pairs, all lengths, then names and values, each ended by a zero byte. No
/// bytes if there are none.
pub(super) fn header_pairs(map: HeaderMap) -> Vec<u8> {
    let (mut data, mut data_bytes) = (std::ptr::null_mut(), 0);
    let call = stage::call(HostCall::GetHeader);
    // SAFETY: the host writes a pointer and a length to valid places.
    let status = unsafe { imports::proxy_get_header_map_pairs(map as u32, &raw mut data, &raw mut data_bytes) };
    call.end(data_bytes);
    if status == STATUS_OK { take(data, data_bytes) } else { Vec::new() }
}

/// Answers the request in the host's own name, at most once for each stream; `details` is what access logs tell.
pub(super) fn reply(status: u32, details: &str, headers: &[(&str, &str)], body: &str) -> bool {
    const NO_GRPC_STATUS: i32 = -1;
    let headers = serialize_headers(headers);
    let call = stage::call(HostCall::Other);
    // SAFETY: all are live slices; the host only reads.
    let result = unsafe {
        imports::proxy_send_local_response(
            status,
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    };
    call.end(body.len());
    result == STATUS_OK
}

/// Removes all values of a header.
pub(super) fn remove_header(map: HeaderMap, name: &str) {
    let call = stage::call(HostCall::ChangeHeader);
    // SAFETY: `name` is one live slice; the host only reads.
    let _ = unsafe { imports::proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) };
    call.end(0);
}

/// A property of the host by its path, segments parted by a zero byte; `None` if it is absent now, or empty.
pub(super) fn property(path: &str) -> Option<Vec<u8>> {
    property_if_empty_too(path).filter(|value| !value.is_empty())
}

/// As [`property`], and an empty one is not absent.
pub(super) fn property_if_empty_too(path: &str) -> Option<Vec<u8>> {
    let (mut data, mut data_bytes) = (std::ptr::null_mut(), 0);
    let call = stage::call(HostCall::GetProperty);
    // SAFETY: `path` is one live slice; the host writes a pointer and a length to valid places.
    let status = unsafe { imports::proxy_get_property(path.as_ptr(), path.len(), &raw mut data, &raw mut data_bytes) };
    call.end(data_bytes);
    (status == STATUS_OK).then(|| take(data, data_bytes))
}

/// A value of shared data and its version; `None` for a missing or an empty one.
pub(super) fn shared_data(key: &str) -> (Option<Vec<u8>>, Version) {
    let (mut data, mut data_bytes, mut cas) = (std::ptr::null_mut(), 0, 0);
    let call = stage::call(HostCall::GetSharedData);
    // SAFETY: `key` is one live slice; the host writes a pointer, a length and a number to valid places.
    let status = unsafe {
        imports::proxy_get_shared_data(key.as_ptr(), key.len(), &raw mut data, &raw mut data_bytes, &raw mut cas)
    };
    call.end(data_bytes);
    if status != STATUS_OK {
        return (None, Version::default());
    }
    (Some(take(data, data_bytes)).filter(|value| !value.is_empty()), cas)
}

/// Writes a value of shared data if it still has this version; `false` if another VM was faster.
///
/// A version of 0, that of a missing value, always succeeds: of two VMs that create a page at once the second one wins,
/// which the next write or the next look at the page mends.
pub(super) fn set_shared_data(key: &str, value: &[u8], version: Version) -> bool {
    let call = stage::call(HostCall::SetSharedData);
    // SAFETY: both are live slices; the host only reads.
    let status =
        unsafe { imports::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), version) };
    call.end(value.len());
    status == STATUS_OK
}

/// Sends an HTTP request without a body through a cluster; its number, or `None` if the host refuses.
pub(super) fn http_call(cluster: &str, headers: &[(&str, &str)], timeout_ms: u32) -> Option<u32> {
    let headers = serialize_headers(headers);
    let no_trailers = serialize_headers(&[]);
    let mut token = 0;
    let call = stage::call(HostCall::Other);
    // SAFETY: all are live slices; the host reads them and writes one number to a valid place.
    let status = unsafe {
        imports::proxy_http_call(
            cluster.as_ptr(),
            cluster.len(),
            headers.as_ptr(),
            headers.len(),
            std::ptr::null(),
            0,
            no_trailers.as_ptr(),
            no_trailers.len(),
            timeout_ms,
            &raw mut token,
        )
    };
    call.end(headers.len());
    (status == STATUS_OK).then_some(token)
}

/// The ABI's form of a header map: the number of pairs, all lengths, then names and values, each ended by a zero byte.
fn serialize_headers(headers: &[(&str, &str)]) -> Vec<u8> {
    let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = u32::try_from(headers.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    for (name, value) in headers {
        bytes.extend_from_slice(&length(name));
        bytes.extend_from_slice(&length(value));
    }
    for (name, value) in headers {
        for text in [name, value] {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
    }
    bytes
}

/// Makes the host act for another context of this VM; `false` if that is gone.
pub(super) fn set_effective_context(context_id: u32) -> bool {
    // SAFETY: no pointers.
    unsafe { imports::proxy_set_effective_context(context_id) == STATUS_OK }
}

/// Defines a stat; its number in this VM.
pub(super) fn define_metric(kind: MetricKind, name: &str) -> Option<u32> {
    let mut metric_id = 0;
    // SAFETY: `name` is one live slice; the host writes one number to a valid place.
    let status = unsafe { imports::proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut metric_id) };
    (status == STATUS_OK).then_some(metric_id)
}

/// Adds to a counter.
pub(super) fn increment_metric(metric_id: u32, offset: i64) {
    let call = stage::call(HostCall::Metric);
    // SAFETY: no pointers.
    let _ = unsafe { imports::proxy_increment_metric(metric_id, offset) };
    call.end(0);
}

/// Sets a gauge, or records into a histogram.
pub(super) fn record_metric(metric_id: u32, value: u64) {
    let call = stage::call(HostCall::Metric);
    // SAFETY: no pointers.
    let _ = unsafe { imports::proxy_record_metric(metric_id, value) };
    call.end(0);
}
