//! Throws bytes at `metrics`: see `tools/fuzz-targets/src/metrics.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::metrics(input));
