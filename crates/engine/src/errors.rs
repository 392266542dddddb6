//! The one file of texts that a client sees when something is refused.

use std::borrow::Cow;

/// An error reply: the code word and the text, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(pub Cow<'static, str>);

/// What a command handler returns on refusal.
pub type Result<T> = std::result::Result<T, CommandError>;

const fn text(text: &'static str) -> CommandError {
    CommandError(Cow::Borrowed(text))
}

pub const WRONG_TYPE: CommandError =
    text("WRONGTYPE Operation against a key holding the wrong kind of value");
pub const SYNTAX: CommandError = text("ERR syntax error");
pub const NOT_AN_INTEGER: CommandError = text("ERR value is not an integer or out of range");
pub const OVERFLOW: CommandError = text("ERR increment or decrement would overflow");
pub const OUT_OF_RANGE: CommandError = text("ERR value is out of range");
pub const MUST_BE_POSITIVE: CommandError = text("ERR value is out of range, must be positive");
pub const OFFSET_OUT_OF_RANGE: CommandError = text("ERR offset is out of range");
pub const STRING_TOO_LONG: CommandError =
    text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
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
    let name = shown(name, 128);
    let text = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
    CommandError(text.into())
}

/// There is no such parameter.
pub fn unknown_setting(name: &[u8]) -> CommandError {
    let name = shown(name, 128);
    let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
    CommandError(text.into())
}

/// An option of HELLO that does not exist, or without its value.
pub fn hello_option(option: &[u8]) -> CommandError {
    let option = shown(option, 128);
    CommandError(format!("ERR Syntax error in HELLO option '{option}'").into())
}

/// CLIENT KILL TYPE of a type that does not exist.
pub fn unknown_client_type(name: &[u8]) -> CommandError {
    CommandError(format!("ERR Unknown client type '{}'", shown(name, 128)).into())
}

/// CLIENT KILL USER of a user who does not exist.
pub fn no_such_user(name: &[u8]) -> CommandError {
    CommandError(format!("ERR No such user '{}'", shown(name, 128)).into())
}

/// More or longer arguments than anybody needs for a command that does not work in steps.
pub fn too_many_arguments(name: &str) -> CommandError {
    CommandError(format!("ERR too many or too long arguments for '{name}' command").into())
}

/// The subcommand does not exist with this number of arguments.
pub fn subcommand_syntax(name: &[u8], container: &str) -> CommandError {
    let (name, upper) = (shown(name, 128), container.to_uppercase());
    let text = format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {upper} HELP."
    );
    CommandError(text.into())
}

/// The command does not exist; as in Redis, the beginning of its arguments is shown.
pub fn unknown_command(name: &[u8], arguments: &str) -> CommandError {
    let name = shown(name, 128);
    CommandError(
        format!("ERR unknown command '{name}', with args beginning with: {arguments}").into(),
    )
}

/// The container command has no such subcommand.
pub fn unknown_subcommand(name: &[u8], container: &str) -> CommandError {
    let (name, upper) = (shown(name, 128), container.to_uppercase());
    CommandError(format!("ERR unknown subcommand '{name}'. Try {upper} HELP.").into())
}

/// Too few or too many arguments.
pub fn wrong_arity(name: &str) -> CommandError {
    CommandError(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// An expiry that is zero, negative, or too large to be kept in milliseconds.
pub fn invalid_expire(name: &str) -> CommandError {
    CommandError(format!("ERR invalid expire time in '{name}' command").into())
}

/// Options of EXPIRE that exclude each other or are none.
pub fn unsupported_option(name: &[u8]) -> CommandError {
    CommandError(format!("ERR Unsupported option {}", shown(name, 128)).into())
}

/// Any other text.
pub fn other(text: String) -> CommandError {
    CommandError(text.into())
}

/// Peer data in an error text: bounded, one line, never invalid as a reply.
pub fn shown(bytes: &[u8], length_max: usize) -> String {
    let bytes = &bytes[..bytes.len().min(length_max)];
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}
