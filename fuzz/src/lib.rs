//! Fuzz targets: each takes arbitrary bytes, reads them as operations on one part of the project
//! and on a simple model of it, and panics where they differ.
//!
//! `cargo xtask test` runs each on a fixed number of random inputs, `cargo xtask nightly` for long
//! with libFuzzer. By hand, with an input that failed: `cargo fuzz run --features libfuzzer NAME
//! FILE`. A target is a row here and a file in `targets/`; a test notices when one is missing.

#![cfg(fuzzing)]

/// A target: its name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("resp", resp::drive),
    ("packed", structures::packed::drive),
    ("list", structures::list::drive),
    ("table", structures::table::drive),
    ("members", structures::members::drive),
    ("big_string", structures::big_string::drive),
];

/// Runs one target on one input. Panics when no target has this name.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.0 == name);
    let (_, drive) = target.unwrap_or_else(|| panic!("no fuzz target is called {name}"));
    drive(input);
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use super::*;

    /// Inputs per target.
    const INPUTS: u64 = 3_000;
    /// A target may stop before all inputs when it took this long.
    const TIME_MAX: Duration = Duration::from_secs(10);
    /// Bytes of the longest input, and of most.
    const INPUT_BYTES_MAX: [u64; 2] = [10_000, 600];

    /// SplitMix64: the input follows from its number alone.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Random bytes; half of the inputs use few different ones, so that operations repeat.
    fn input(number: u64) -> Vec<u8> {
        let mut state = number;
        let length = random(&mut state) % INPUT_BYTES_MAX[usize::from(number % 8 != 0)];
        let mask = if number % 2 == 0 { 0xff } else { 0x3f };
        (0..length).map(|_| random(&mut state) as u8 & mask).collect()
    }

    #[test]
    fn every_target_survives_random_inputs() {
        let rounds = std::env::var("EVENKEEL_TEST_ROUNDS").ok();
        let rounds: u64 = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
        for (name, drive) in TARGETS {
            let start = Instant::now();
            let mut count = 0;
            while count < INPUTS * rounds && start.elapsed() < TIME_MAX * rounds as u32 {
                let input = input(count);
                let result = catch_unwind(AssertUnwindSafe(|| drive(&input)));
                assert!(result.is_ok(), "target {name} failed on input {count}: {input:?}");
                count += 1;
            }
            eprintln!("{name}: {count} inputs in {:?}", start.elapsed());
        }
    }

    #[test]
    fn every_target_has_its_libfuzzer_program() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/targets");
        let mut programs: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder of targets exists")
            .map(|entry| entry.expect("it can be listed").file_name().into_string())
            .map(|name| name.expect("names are text").trim_end_matches(".rs").to_owned())
            .collect();
        programs.sort();
        let mut names: Vec<&str> = TARGETS.iter().map(|target| target.0).collect();
        names.sort();
        assert_eq!(programs, names);
    }
}
