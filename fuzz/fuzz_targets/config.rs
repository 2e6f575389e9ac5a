//! Throws bytes at `config`: see `tools/fuzz-targets/src/config.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::config(input));
