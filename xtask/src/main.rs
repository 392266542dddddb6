//! The project's own commands, `cargo xtask NAME`: everything that checks the project, so that
//! continuous integration and people run the same thing.

mod bench;
mod fuzz;
mod nightly;
mod report;
mod setup;
mod shuttle;
mod step;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use report::Report;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test [PART...]     everything that must pass before a change lands; PARTs run only those:
                     setup format lint tidy unit shuttle fuzz build black-box bench
  nightly [PART...]  what takes longer; PARTs run only those:
                     deny address-sanitizer rounds libfuzzer differential large
  tidy               only the rules about the project's text
  bench NAME         measures, with options: stall speed memory; `bench NAME --help` tells them

The log of each part is in target/xtask/.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, parts) = match arguments.split_first() {
        Some((command, parts)) => (command.as_str(), parts),
        None => ("help", [].as_slice()),
    };
    let mut report = Report::default();
    let known = match command {
        "test" => test::run(&mut report, parts),
        "nightly" => nightly::run(&mut report, parts),
        "bench" => return bench::run(parts),
        "tidy" => {
            test::tidy(&mut report);
            Ok(())
        }
        _ => Err(HELP.to_owned()),
    };
    match known {
        Ok(()) => report.finish(),
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}
