//! What commands with subcommands share: limits, arity, help, and the answer that waits for all
//! workers.

use resp::Args;

use crate::control::Barrier;
use crate::errors::{self, Result};
use crate::execution::command::{Arity, Call};
use crate::execution::task::{Step, Task, TaskContext};
use crate::sync::Arc;

/// Words of a command about the server or the connection. They are read in one piece, so there must
/// be an end; nobody needs as many.
const WORDS_MAX: usize = 256;

/// Bytes of all these words.
const BYTES_MAX: usize = 8 * 1024;

/// Refuses commands that are too long to be read in one piece.
pub(super) fn check_size(args: Args<'_>, name: &str) -> Result<()> {
    if args.len() > WORDS_MAX || args.total_bytes() > BYTES_MAX {
        return Err(errors::too_many_arguments(name));
    }
    Ok(())
}

/// Refuses a subcommand with too few or too many words.
pub(super) fn check_arity(args: Args<'_>, arity: Arity, name: &str) -> Result<()> {
    if arity.accepts(args.len()) { Ok(()) } else { Err(errors::wrong_arity(name)) }
}

/// Answers HELP with the lines about the other subcommands.
pub(super) fn help(call: &mut Call<'_>, container: &str, lines: &[&str]) {
    let mut reply = call.reply();
    let mut writer = reply.writer();
    writer.array(lines.len() as u64 + 3);
    let usage = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    writer.simple(&format!("{container} {usage}"));
    lines.iter().for_each(|line| writer.simple(line));
    writer.simple("HELP");
    writer.simple("    Shows this text.");
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

/// Answers when every worker has passed a command boundary: no command is then still running that
/// began before this one's change.
pub(super) struct Acknowledged {
    answer: Answer,
    /// Whether the connection closes after the answer.
    closes: bool,
    barrier: Option<Arc<Barrier>>,
}

impl Acknowledged {
    /// The change has been made.
    pub(super) fn then(answer: Answer) -> Acknowledged {
        Acknowledged { answer, closes: false, barrier: None }
    }

    /// The connection closes after the answer if `closes`.
    pub(super) fn closing_if(self, closes: bool) -> Acknowledged {
        Acknowledged { closes, ..self }
    }
}

impl Task for Acknowledged {
    fn step(&mut self, cx: &mut TaskContext<'_>) -> Result<Step> {
        let address = cx.session.address;
        let mailboxes = &cx.worker.engine.mailboxes;
        let barrier = self.barrier.get_or_insert_with(|| mailboxes.barrier(address));
        if !barrier.is_passed() {
            return Ok(Step::Waiting);
        }
        self.answer.write(cx.session);
        cx.session.closing |= self.closes;
        Ok(Step::Done)
    }
}
