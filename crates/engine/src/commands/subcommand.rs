//! What commands with subcommands share: help, and the answer that waits for all workers.

use crate::control::{Awaited, Barrier};
use crate::errors::Result;
use crate::execution::command::{Arity, Call, Flow, Outcome, Plain, Subcommand};
use crate::execution::task::{Step, Task, TaskContext};
use crate::sync::Arc;

/// A subcommand.
pub(super) const fn part(name: &'static str, arity: Arity, run: Plain) -> Subcommand {
    Subcommand { name, arity, run }
}

/// The subcommand HELP, which every container has.
pub(super) const fn help_part(run: Plain) -> Subcommand {
    part("help", Arity::Exactly(2), run)
}

/// Answers HELP with the lines about the other subcommands.
pub(super) fn help(call: &mut Call<'_>, container: &str, lines: &[&str]) -> Outcome {
    let mut reply = call.reply();
    let mut writer = reply.writer();
    writer.array(lines.len() as u64 + 3);
    let usage = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    writer.simple(&format!("{container} {usage}"));
    lines.iter().for_each(|line| writer.simple(line));
    writer.simple("HELP");
    writer.simple("    Shows this text.");
    Ok(Flow::Done)
}

/// What a command answers that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// `+OK`.
    Ok,
    /// A number.
    Count(i64),
}

impl Answer {
    pub(super) fn write(self, session: &mut crate::execution::session::Session) {
        let mut reply = session.reply();
        match self {
            Answer::Ok => reply.writer().simple("OK"),
            Answer::Count(count) => reply.writer().int(count),
        }
    }
}

/// Answers when every worker has passed a barrier. In a transaction it answers at once: its commands
/// run one after another, and the writes that would be waited for include the transaction itself.
pub(super) struct Acknowledged {
    answer: Answer,
    /// Whether the connection closes after the answer.
    closes: bool,
    awaited: Awaited,
    barrier: Option<Arc<Barrier>>,
}

impl Acknowledged {
    /// The change has been made; the answer is given when what is awaited is finished.
    pub(super) fn when(awaited: Awaited, answer: Answer) -> Acknowledged {
        Acknowledged { answer, closes: false, awaited, barrier: None }
    }

    /// The connection closes after the answer if `closes`.
    pub(super) fn closing_if(self, closes: bool) -> Acknowledged {
        Acknowledged { closes, ..self }
    }
}

impl Task for Acknowledged {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let address = cx.session.address;
        let (mailboxes, awaited) = (&cx.worker.engine.mailboxes, self.awaited);
        if cx.worker.ledger.transaction.is_none() {
            let barrier = self.barrier.get_or_insert_with(|| mailboxes.barrier(address, awaited));
            if !barrier.is_passed() {
                return Ok(Step::Waiting);
            }
        }
        self.answer.write(cx.session);
        cx.session.closing |= self.closes;
        Ok(Step::Done)
    }
}
