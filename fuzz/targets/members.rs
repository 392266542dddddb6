//! libFuzzer's program for the target `members`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("members", input));
