//! libFuzzer's program for the target `packed`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("packed", input));
