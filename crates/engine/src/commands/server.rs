//! The server: CONFIG and DEBUG.

use super::digest::DigestTask;
use super::subcommand::{self, Acknowledged, Answer, help_part, part};
use crate::control::Awaited;
use crate::errors;
use crate::execution::command::container::check_size;
use crate::execution::command::{
    Arity, Call, Command, Container, Cost, Flags, Flow, Keys, Locks, Outcome, Row, Run,
};
use crate::observe::WorkerStats;
use crate::observe::stalls::Longest;
use crate::parse;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        row: Row {
            name: "config",
            arity: Arity::AtLeast(2),
            flags: Flags::ADMIN,
            group: "server",
            keys: Keys::None,
            cost: Cost::Small(100),
            locks: Locks::None,
            since: "2.0.0",
            complexity: "O(N) with N parameters",
            summary: "Shows and changes parameters.",
        },
        run: Run::Container(Container {
            alone: None,
            subcommands: &[
                part("get", Arity::AtLeast(3), get),
                part("set", Arity::AtLeast(4), set),
                part("resetstat", Arity::Exactly(2), reset_statistics),
                help_part(|call| subcommand::help(call, "CONFIG", CONFIG_HELP)),
            ],
        }),
    },
    Command {
        row: Row {
            name: "debug",
            arity: Arity::AtLeast(2),
            flags: Flags::ADMIN,
            group: "server",
            keys: Keys::None,
            cost: Cost::Stepped,
            locks: Locks::None,
            since: "1.0.0",
            complexity: "O(N) for DIGEST, with N bytes of data",
            summary: "Helps to test the server.",
        },
        run: Run::Plain(debug),
    },
];

const CONFIG_HELP: &[&str] = &[
    "GET <pattern> [<pattern> ...]",
    "    Shows the parameters that match a pattern.",
    "SET <parameter> <value> [<parameter> <value> ...]",
    "    Changes parameters, all or none.",
    "RESETSTAT",
    "    Sets the counters of INFO to zero.",
];

fn get(call: &mut Call<'_>) -> Outcome {
    let found = call.worker.engine.settings.matching(call.args.iter().skip(2));
    let mut reply = call.reply();
    let mut writer = reply.writer();
    writer.map(found.len() as u64);
    for (name, value) in found {
        writer.bulk(&name);
        writer.bulk(value.as_bytes());
    }
    Ok(Flow::Done)
}

fn set(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    if !args.len().is_multiple_of(2) {
        return Err(errors::SYNTAX);
    }
    let pairs = (2..args.len()).step_by(2).map(|index| (args.get(index), args.get(index + 1)));
    call.worker.engine.settings.set(pairs)?;
    call.task = Some(Box::new(Acknowledged::when(Awaited::Nothing, Answer::Ok)));
    Ok(Flow::Done)
}

fn reset_statistics(call: &mut Call<'_>) -> Outcome {
    call.worker.engine.stats.workers.iter().for_each(|worker| reset(worker));
    call.reply().writer().simple("OK");
    Ok(Flow::Done)
}

/// Back to nothing, but for the connections that are open.
fn reset(stats: &WorkerStats) {
    let WorkerStats {
        commands,
        executed,
        errors,
        accepted,
        connections: _,
        bytes_in,
        bytes_out,
        expired,
        hits,
        misses,
        parked,
        restarts,
        holds,
        hold_units,
        turns,
        turns_cpu,
        longest,
    } = stats;
    for counter in
        [executed, errors, accepted, bytes_in, bytes_out, expired, hits, misses, parked, restarts]
    {
        counter.reset();
    }
    for command in commands {
        for counter in [&command.calls, &command.ticks, &command.rejected, &command.failed] {
            counter.reset();
        }
    }
    for histogram in [holds, hold_units, turns, turns_cpu] {
        histogram.reset();
    }
    *longest.lock() = Longest::default();
}

const DEBUG_HELP: &[&str] =
    &["DIGEST", "    A checksum of all databases: equal for equal data, whatever the server."];

fn debug(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    check_size(args, "debug")?;
    let name = args.get(1);
    if parse::is(name, "digest") && args.len() == 2 {
        call.task = Some(Box::new(DigestTask::default()));
    } else if parse::is(name, "help") && args.len() == 2 {
        return subcommand::help(call, "DEBUG", DEBUG_HELP);
    } else {
        return Err(errors::subcommand_syntax(name, "debug"));
    }
    Ok(Flow::Done)
}
