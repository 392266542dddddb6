//! libFuzzer's program for the target `resp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("resp", input));
