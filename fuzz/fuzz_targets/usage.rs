//! Throws bytes at `usage`: see `tools/fuzz-targets/src/usage.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::usage(input));
