//! Commands that consist of subcommands: CLIENT KILL, CONFIG GET.
//!
//! A subcommand that does not exist, or has too few or too many words, is refused as a command would
//! be: also when it is only queued, and EXEC then refuses the whole transaction.

use resp::Args;

use super::{Arity, Plain};
use crate::errors::{self, Result};

/// Words of a command about the server or the connection. They are read in one piece, so there must
/// be an end; nobody needs as many.
const WORDS_MAX: usize = 256;

/// Bytes of all these words.
const BYTES_MAX: usize = 8 * 1024;

/// Refuses commands that are too long to be read in one piece.
///
/// # Errors
/// There are more than 256 words, or more than 8 KiB of them.
pub fn check_size(args: Args<'_>, name: &str) -> Result<()> {
    if args.len() > WORDS_MAX || args.total_bytes() > BYTES_MAX {
        return Err(errors::too_many_arguments(name));
    }
    Ok(())
}

/// What a container command consists of.
#[derive(Clone, Copy)]
pub struct Container {
    /// What it does without a subcommand, if its arity lets it come without one.
    pub alone: Option<Plain>,
    /// The others.
    pub subcommands: &'static [Subcommand],
}

/// A part of a container command.
#[derive(Clone, Copy)]
pub struct Subcommand {
    /// In lower case.
    pub name: &'static str,
    /// Number of words, the container's name included.
    pub arity: Arity,
    /// What it does.
    pub run: Plain,
}

impl Container {
    /// The handler that these words mean; `name` is the container's.
    ///
    /// # Errors
    /// There is no such subcommand, or not with this number of words, or the words are too many.
    pub fn find(&self, name: &str, args: Args<'_>) -> Result<Plain> {
        check_size(args, name)?;
        if args.len() == 1 {
            return self.alone.ok_or_else(|| errors::wrong_arity(name));
        }
        let word = args.get(1);
        let is_named = |part: &&Subcommand| word.eq_ignore_ascii_case(part.name.as_bytes());
        match self.subcommands.iter().find(is_named) {
            None => Err(errors::unknown_subcommand(word, name)),
            Some(part) if part.arity.accepts(args.len()) => Ok(part.run),
            Some(part) => Err(errors::wrong_arity(&format!("{name}|{}", part.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::command::{Call, Flow, Outcome};

    const CONTAINER: Container = Container {
        alone: None,
        subcommands: &[Subcommand { name: "get", arity: Arity::AtLeast(3), run: nothing }],
    };

    fn nothing(_: &mut Call<'_>) -> Outcome {
        Ok(Flow::Done)
    }

    fn refusal(words: &[&[u8]]) -> String {
        match CONTAINER.find("config", Args::from_slices(words)) {
            Ok(_) => "found".into(),
            Err(error) => String::from_utf8_lossy(error.bytes()).into_owned(),
        }
    }

    #[test]
    fn subcommands_are_refused_like_commands() {
        assert_eq!(refusal(&[b"CONFIG", b"Get", b"a"]), "found");
        assert_eq!(refusal(&[b"x"]), "ERR wrong number of arguments for 'config' command");
        assert_eq!(
            refusal(&[b"x", b"GET"]),
            "ERR wrong number of arguments for 'config|get' command"
        );
        assert_eq!(refusal(&[b"x", b"no"]), "ERR unknown subcommand 'no'. Try CONFIG HELP.");
        let long = [b'a'; BYTES_MAX];
        assert_eq!(
            refusal(&[b"x", b"get", &long]),
            "ERR too many or too long arguments for 'config' command"
        );
    }
}
