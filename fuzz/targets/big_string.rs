//! libFuzzer's program for the target `big_string`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("big_string", input));
