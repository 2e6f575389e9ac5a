//! Throws bytes at `pages`: see `tools/fuzz-targets/src/pages.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmroute_fuzz_targets::pages(input));
