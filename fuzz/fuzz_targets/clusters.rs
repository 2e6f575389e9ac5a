//! Throws bytes at `clusters`: see `tools/fuzz-targets/src/clusters.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::clusters(input));
