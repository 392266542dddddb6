//! The project's benches, `cargo xtask bench NAME`: what the server promises and what it costs, in
//! numbers, on any machine and beside redis-server.
//!
//! The modules are listed in the order in which to read them.

mod statistics;
mod choice;
mod process;
mod client;
mod server;
mod output;
mod stall;
mod speed;
mod memory;
mod machine;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures the server. Without a terminal there is no progress bar, only the table.
#[derive(Parser)]
#[command(name = "bench", bin_name = "cargo xtask bench")]
struct CommandLine {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// How long others wait while one client does something big.
    Stall(stall::Options),
    /// Requests per second and processor time per command, beside redis-server.
    Speed(speed::Options),
    /// Bytes per element, beside redis-server.
    Memory(memory::Options),
    /// What the machine itself does to a thread that only computes.
    Machine(machine::Options),
    /// The clients that measure in `stall`, in a process of their own.
    #[command(hide = true)]
    Probe(stall::probe::Options),
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().bench {
        Bench::Stall(options) => stall::run(&options),
        Bench::Speed(options) => speed::run(&options),
        Bench::Memory(options) => memory::run(&options),
        Bench::Machine(options) => machine::run(&options),
        Bench::Probe(options) => stall::probe::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("bench: {text}");
            ExitCode::FAILURE
        }
    }
}
