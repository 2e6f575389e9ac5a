//! Throws bytes at `request`: see `tools/fuzz-targets/src/request.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::request(input));
