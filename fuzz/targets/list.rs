//! libFuzzer's program for the target `list`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("list", input));
