//! The binary: picks what to run.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::settings::Settings;
use server::{CountingAllocator, Options, ShardBy};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A Redis-compatible in-memory data server on which no client's command delays another client.
#[derive(Parser)]
#[command(name = "evenkeel", version, about)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Tool>,
}

#[derive(Subcommand)]
enum Tool {
    /// Run the data server (also what happens without any arguments).
    Server(ServerArguments),
}

#[derive(Args, Default)]
struct ServerArguments {
    /// TCP port to listen at.
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Address to listen at; may be given several times.
    #[arg(long, num_args = 1.., default_value = "127.0.0.1")]
    bind: Vec<IpAddr>,
    /// Working directory.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// When to save snapshots, as in redis.conf; there are none yet, so only "" is kept.
    #[arg(long, default_value = "")]
    save: String,
    /// Threads that execute commands; one per processor if not given.
    #[arg(long)]
    workers: Option<usize>,
    /// Number of databases.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    databases: u8,
    /// How keys choose their shard.
    #[arg(long, value_enum, default_value_t = ShardChoice::Hash)]
    shard_by: ShardChoice,
    /// Write all changes, in order, as commands to this file.
    #[arg(long)]
    effect_stream: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum ShardChoice {
    /// By a keyed hash of the whole key.
    #[default]
    Hash,
    /// By the cluster slot: keys with the same hash tag are together.
    Slot,
}

fn main() -> ExitCode {
    let arguments = match CommandLine::parse().command {
        Some(Tool::Server(arguments)) => arguments,
        None => match CommandLine::parse_from(["evenkeel", "server"]).command {
            Some(Tool::Server(arguments)) => arguments,
            None => ServerArguments::default(),
        },
    };
    let started = options(arguments)
        .and_then(|options| server::run(options, log).map_err(|error| error.to_string()));
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error);
            ExitCode::FAILURE
        }
    }
}

/// What the arguments mean, or why they mean nothing.
fn options(arguments: ServerArguments) -> Result<Options, String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Options {
        settings: settings(&arguments)?,
        port: arguments.port,
        bind: arguments.bind,
        dir: arguments.dir,
        workers: arguments.workers.unwrap_or(processors).max(1),
        databases: arguments.databases.into(),
        shard_by: match arguments.shard_by {
            ShardChoice::Hash => ShardBy::Hash,
            ShardChoice::Slot => ShardBy::Slot,
        },
        effect_stream: arguments.effect_stream,
    })
}

/// What CONFIG GET shows of the arguments.
fn settings(arguments: &ServerArguments) -> Result<Settings, String> {
    let bind: Vec<String> = arguments.bind.iter().map(IpAddr::to_string).collect();
    let dir = std::path::absolute(&arguments.dir).unwrap_or_else(|_| arguments.dir.clone());
    let pairs = [
        ("port", arguments.port.to_string()),
        ("bind", bind.join(" ")),
        ("dir", dir.display().to_string()),
        ("databases", arguments.databases.to_string()),
        ("save", arguments.save.clone()),
    ];
    Settings::new(pairs).map_err(|error| String::from_utf8_lossy(error.bytes()).into_owned())
}

#[expect(clippy::print_stdout, reason = "the log of the foreground process")]
fn log(line: &str) {
    println!("evenkeel[{}] {line}", std::process::id());
}
