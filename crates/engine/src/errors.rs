//! The one file of texts that a client sees when something is refused.

use std::borrow::Cow;

/// An error reply: the code word and the text, without the leading `-`. Bytes, because texts repeat
/// what the client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(Cow<'static, [u8]>);

impl CommandError {
    /// The reply's bytes, on one line.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a command handler returns on refusal.
pub type Result<T> = std::result::Result<T, CommandError>;

const fn text(text: &'static str) -> CommandError {
    CommandError(Cow::Borrowed(text.as_bytes()))
}

/// A text of parts, some of which the client sent. As in Redis, line ends at the end are left out
/// and others become spaces, so that the reply stays one line.
fn joined<const N: usize>(parts: [&[u8]; N]) -> CommandError {
    let mut text = parts.concat();
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    text.truncate(text.iter().rposition(|byte| !is_line_end(byte)).map_or(0, |last| last + 1));
    text.iter_mut().filter(|byte| is_line_end(byte)).for_each(|byte| *byte = b' ');
    CommandError(text.into())
}

pub const WRONG_TYPE: CommandError =
    text("WRONGTYPE Operation against a key holding the wrong kind of value");
pub const SYNTAX: CommandError = text("ERR syntax error");
pub const NOT_AN_INTEGER: CommandError = text("ERR value is not an integer or out of range");
pub const NOT_32_BITS: CommandError =
    text("ERR value is out of range, value must between -2147483648 and 2147483647");
pub const OVERFLOW: CommandError = text("ERR increment or decrement would overflow");
pub const NO_SUCH_KEY: CommandError = text("ERR no such key");
pub const INDEX_OUT_OF_RANGE: CommandError = text("ERR index out of range");
pub const RANK_ZERO: CommandError = text(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
     negative to start from the end of the list",
);
pub const NEGATIVE_COUNT: CommandError = text("ERR COUNT can't be negative");
pub const NEGATIVE_MAXLEN: CommandError = text("ERR MAXLEN can't be negative");
pub const DECREMENT_OVERFLOW: CommandError = text("ERR decrement would overflow");
pub const OUT_OF_RANGE: CommandError = text("ERR value is out of range");
pub const MUST_BE_POSITIVE: CommandError = text("ERR value is out of range, must be positive");
pub const OFFSET_OUT_OF_RANGE: CommandError = text("ERR offset is out of range");
pub const STRING_TOO_LONG: CommandError =
    text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub const KEY_TOO_LONG: CommandError = text("ERR a key exceeds 65536 bytes");
pub const MEMBER_TOO_LONG: CommandError = text("ERR a member of a collection exceeds 262144 bytes");
pub const INVALID_CURSOR: CommandError = text("ERR invalid cursor");
pub const DATABASE_OUT_OF_RANGE: CommandError = text("ERR DB index is out of range");
pub const INVALID_DATABASE: CommandError = text("ERR invalid DB index");
pub const INVALID_FIRST_DATABASE: CommandError = text("ERR invalid first DB index");
pub const INVALID_SECOND_DATABASE: CommandError = text("ERR invalid second DB index");
pub const NESTED_MULTI: CommandError = text("ERR MULTI calls can not be nested");
pub const EXEC_WITHOUT_MULTI: CommandError = text("ERR EXEC without MULTI");
pub const DISCARD_WITHOUT_MULTI: CommandError = text("ERR DISCARD without MULTI");
pub const WATCH_INSIDE_MULTI: CommandError = text("ERR WATCH inside MULTI is not allowed");
pub const EXEC_ABORTED: CommandError =
    text("EXECABORT Transaction discarded because of previous errors.");
pub const UNSUPPORTED_PROTOCOL: CommandError = text("NOPROTO unsupported protocol version");
pub const PROTOCOL_NOT_AN_INTEGER: CommandError =
    text("ERR Protocol version is not an integer or out of range");
pub const CLIENT_NAME_SPACES: CommandError =
    text("ERR Client names cannot contain spaces, newlines or special characters.");
pub const NO_SUCH_CLIENT: CommandError = text("ERR No such client");
pub const CLIENT_ID_POSITIVE: CommandError = text("ERR client-id should be greater than 0");
pub const EXPIRE_NX_CONFLICT: CommandError =
    text("ERR NX and XX, GT or LT options at the same time are not compatible");
pub const EXPIRE_GT_LT_CONFLICT: CommandError =
    text("ERR GT and LT options at the same time are not compatible");
pub const NOT_A_TIMEOUT: CommandError = text("ERR timeout is not an integer or out of range");
pub const NEGATIVE_TIMEOUT: CommandError = text("ERR timeout is negative");
pub const NOT_A_FLOAT: CommandError = text("ERR value is not a valid float");
pub const NO_AUTH_PASSWORD: CommandError = text(
    "ERR AUTH <password> called without any password configured for the default user. \
     Are you sure your configuration is correct?",
);

pub const WRONG_PASSWORD: CommandError =
    text("WRONGPASS invalid username-password pair or user is disabled.");
pub const TIMEOUT_OUT_OF_RANGE: CommandError = text("ERR timeout is out of range");
pub const PAUSE_MODE: CommandError = text("ERR CLIENT PAUSE mode must be WRITE or ALL");
pub const MAXAGE_NOT_AN_INTEGER: CommandError =
    text("ERR maxage is not an integer or out of range");
pub const MAXAGE_POSITIVE: CommandError = text("ERR maxage should be greater than 0");

// Reasons why CONFIG SET refuses a value, the end of the text of [`setting`].
pub const SETTING_IMMUTABLE: &str = "can't set immutable config";
pub const SETTING_PROTECTED: &str = "can't set protected config";
pub const SETTING_TWICE: &str = "duplicate parameter";
pub const SETTING_NOT_A_SIZE: &str = "argument must be a memory value";
pub const SETTING_NOT_AN_INTEGER: &str = "argument couldn't be parsed into an integer";
pub const SETTING_NOT_YES_OR_NO: &str = "argument must be 'yes' or 'no'";
pub const SETTING_NOT_IMPLEMENTED: &str = "not implemented";
pub const SETTING_SAVE: &str = "Invalid save parameters";
pub const SETTING_LIMIT_WORDS: &str = "Wrong number of arguments in buffer limit configuration.";
pub const SETTING_LIMIT_CLASS: &str =
    "Invalid client class specified in buffer limit configuration.";
pub const SETTING_LIMIT_VALUE: &str =
    "Error in hard, soft or soft_seconds setting in buffer limit configuration.";

/// A number is outside of its limits: a reason for [`setting`].
pub fn setting_range(min: u64, max: u64) -> String {
    format!("argument must be between {min} and {max} inclusive")
}

/// A parameter cannot be set to the value.
pub fn setting(name: &[u8], reason: &str) -> CommandError {
    let begin = b"ERR CONFIG SET failed (possibly related to argument '";
    joined([begin, shown(name), b"') - ", reason.as_bytes()])
}

/// There is no such parameter.
pub fn unknown_setting(name: &[u8]) -> CommandError {
    let begin = b"ERR Unknown option or number of arguments for CONFIG SET - '";
    joined([begin, shown(name), b"'"])
}

/// An option of HELLO that does not exist, or without its value.
pub fn hello_option(option: &[u8]) -> CommandError {
    joined([b"ERR Syntax error in HELLO option '", shown(option), b"'"])
}

/// CLIENT KILL TYPE of a type that does not exist.
pub fn unknown_client_type(name: &[u8]) -> CommandError {
    joined([b"ERR Unknown client type '", shown(name), b"'"])
}

/// CLIENT KILL USER of a user who does not exist.
pub fn no_such_user(name: &[u8]) -> CommandError {
    joined([b"ERR No such user '", shown(name), b"'"])
}

/// More or longer arguments than anybody needs for a command that does not work in steps.
pub fn too_many_arguments(name: &str) -> CommandError {
    joined([b"ERR too many or too long arguments for '", name.as_bytes(), b"' command"])
}

/// The subcommand does not exist with this number of arguments.
pub fn subcommand_syntax(name: &[u8], container: &str) -> CommandError {
    let container = container.to_uppercase();
    let begin = b"ERR unknown subcommand or wrong number of arguments for '";
    joined([begin, shown(name), b"'. Try ", container.as_bytes(), b" HELP."])
}

/// The command does not exist; as in Redis, the beginning of its arguments is shown.
pub fn unknown_command<'a>(
    name: &[u8],
    arguments: impl IntoIterator<Item = &'a [u8]>,
) -> CommandError {
    let mut beginning = Vec::new();
    for argument in arguments {
        let left = SHOWN_BYTES_MAX.saturating_sub(beginning.len());
        if left == 0 {
            break;
        }
        let argument = shown(argument);
        beginning.push(b'\'');
        beginning.extend_from_slice(&argument[..argument.len().min(left)]);
        beginning.extend_from_slice(b"' ");
    }
    let begin = b"ERR unknown command '";
    joined([begin, shown(name), b"', with args beginning with: ", &beginning])
}

/// The container command has no such subcommand.
pub fn unknown_subcommand(name: &[u8], container: &str) -> CommandError {
    let container = container.to_uppercase();
    let begin = b"ERR unknown subcommand '";
    joined([begin, shown(name), b"'. Try ", container.as_bytes(), b" HELP."])
}

/// Too few or too many arguments.
pub fn wrong_arity(name: &str) -> CommandError {
    joined([b"ERR wrong number of arguments for '", name.as_bytes(), b"' command"])
}

/// EXEC has too many words: the transaction is over all the same.
pub fn exec_aborted_by_arity() -> CommandError {
    let wrong = wrong_arity("exec");
    let reason = wrong.bytes().strip_prefix(b"ERR ").unwrap_or_default();
    joined([b"EXECABORT Transaction discarded because of: ", reason])
}

/// An expiry that is zero, negative, or too large to be kept in milliseconds.
pub fn invalid_expire(name: &str) -> CommandError {
    joined([b"ERR invalid expire time in '", name.as_bytes(), b"' command"])
}

/// Options of EXPIRE that exclude each other or are none.
pub fn unsupported_option(name: &[u8]) -> CommandError {
    joined([b"ERR Unsupported option ", shown(name)])
}

/// Bytes of a word of the client that a text repeats.
const SHOWN_BYTES_MAX: usize = 128;

/// A word of the client as a text shows it: its beginning, and like every text of C it ends at the
/// first zero byte.
fn shown(word: &[u8]) -> &[u8] {
    let word = &word[..word.len().min(SHOWN_BYTES_MAX)];
    word.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(name: &[u8], arguments: &[&[u8]]) -> String {
        unknown_command(name, arguments.iter().copied()).bytes().escape_ascii().to_string()
    }

    #[test]
    fn words_of_the_client_are_shown_as_redis_shows_them() {
        let text = |name: &str, rest: &str| {
            format!("ERR unknown command \\'{name}\\', with args beginning with: {rest}")
        };
        // They end at a zero byte; other bytes are kept as they are, not made valid UTF-8.
        assert_eq!(unknown(b"no", &[b"a\0b", b"\xff"]), text("no", "\\'a\\' \\'\\xff\\' "));
        assert_eq!(unknown(b"no\r\nsu", &[b"\r\n"]), text("no  su", "\\'  \\' "));
        // The quotes and the space between two words count.
        let (long, short) = ([b'a'; 100], [b'b'; 100]);
        let expected = format!("\\'{}\\' \\'{}\\' ", "a".repeat(100), "b".repeat(25));
        assert_eq!(unknown(&long, &[&long, &short, b"c"]), text(&"a".repeat(100), &expected));
        assert_eq!(unsupported_option(b"a\nb\r\n").bytes(), b"ERR Unsupported option a b");
    }
}
