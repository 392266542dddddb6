//! libFuzzer's program for the target `table`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("table", input));
