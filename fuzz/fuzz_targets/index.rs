//! Throws bytes at `index`: see `tools/fuzz-targets/src/index.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::index(input));
