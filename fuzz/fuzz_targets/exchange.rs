//! Throws bytes at `exchange`: see `tools/fuzz-targets/src/exchange.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::exchange(input));
