//! Transcripts: what a client types and what the server must answer, as text files.
//!
//! ```text
//! # a comment
//! == the name of a case; each begins with FLUSHALL on a new connection
//! > SET k "a b\x00"
//! +OK
//! sleep 0.1
//! > GET k
//! "a b\x00"
//! | $-1
//! ```
//!
//! A line after `> ` is sent; the line below is the expected reply in the notation of
//! [`crate::reply`], and lines after `| ` are further acceptable ones, where versions of the
//! reference differ. A command without a reply line is sent but not judged.
//!
//! A server that does not have a command yet says so, and the rest of that case waits: it is
//! counted and the command named, so that nothing waits unseen.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::client::show;
use crate::server::Server;

/// One case of a transcript file.
#[derive(Debug, PartialEq)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// One step of a case.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// A command and every acceptable reply; none means that it is not judged.
    Command(Vec<Vec<u8>>, Vec<String>),
    /// A pause.
    Sleep(Duration),
}

/// What a run of cases found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Replies that were as expected.
    pub passed: usize,
    /// One text per reply that was not.
    pub failures: Vec<String>,
    /// Steps that wait for each command that the server does not have.
    pub waiting: BTreeMap<String, usize>,
}

/// Reads a transcript file; an error tells the line.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        parse_line(line.trim_end(), &mut cases)
            .map_err(|problem| format!("line {}: {problem}: {line}", index + 1))?;
    }
    Ok(cases)
}

fn parse_line(line: &str, cases: &mut Vec<Case>) -> Result<(), String> {
    if line.is_empty() || line == "#" || line.starts_with("# ") {
        return Ok(());
    }
    if let Some(name) = line.strip_prefix("== ") {
        cases.push(Case { name: name.to_owned(), steps: Vec::new() });
        return Ok(());
    }
    let case = cases.last_mut().ok_or("a step before the first case, which begins with `== `")?;
    if let Some(command) = line.strip_prefix("> ") {
        case.steps.push(Step::Command(words(command)?, Vec::new()));
    } else if let Some(seconds) = line.strip_prefix("sleep ") {
        let seconds: f64 = seconds.parse().map_err(|_| "not a number of seconds")?;
        case.steps.push(Step::Sleep(Duration::from_secs_f64(seconds)));
    } else {
        let Some(Step::Command(_, replies)) = case.steps.last_mut() else {
            return Err("a reply without a command above it".to_owned());
        };
        let reply = match line.strip_prefix("| ") {
            Some(_) if replies.is_empty() => return Err("an alternative to no reply".to_owned()),
            Some(alternative) => alternative,
            None if !replies.is_empty() => {
                return Err("a second reply; an alternative begins with `| `".to_owned());
            }
            None => line,
        };
        replies.push(reply.to_owned());
    }
    Ok(())
}

/// The words of a command line; quoted words know the escapes of [`crate::reply::quote`].
pub fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (word, after) = quoted_word(quoted)?;
            words.push(word);
            rest = after.trim_start();
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            words.push(word.as_bytes().to_vec());
            rest = after.trim_start();
        }
    }
    Ok(words)
}

/// The bytes up to the closing quote, and what follows it.
fn quoted_word(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut word = Vec::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((word, &text[at + 1..])),
            '\\' => match characters.next().map(|(_, escape)| escape) {
                Some('n') => word.push(b'\n'),
                Some('r') => word.push(b'\r'),
                Some('t') => word.push(b'\t'),
                Some('x') => {
                    let digits = text.get(at + 2..at + 4).ok_or("two digits follow \\x")?;
                    let byte = u8::from_str_radix(digits, 16);
                    word.push(byte.map_err(|_| "two hexadecimal digits follow \\x")?);
                    characters.nth(1);
                }
                Some(other @ ('"' | '\\')) => word.push(other as u8),
                _ => return Err("an unknown escape".to_owned()),
            },
            other => word.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Err("a quote that never closes".to_owned())
}

/// Runs the cases of one file.
pub fn run(server: &Server, file: &str, cases: &[Case], outcome: &mut Outcome) {
    for case in cases {
        run_case(server, file, case, outcome);
    }
}

fn run_case(server: &Server, file: &str, case: &Case, outcome: &mut Outcome) {
    let mut client = server.connect();
    client.line("FLUSHALL");
    for (index, step) in case.steps.iter().enumerate() {
        let (command, expected) = match step {
            Step::Sleep(duration) => {
                thread::sleep(*duration);
                continue;
            }
            Step::Command(command, expected) => (command, expected),
        };
        let reply = client.call(command);
        let text = reply.to_string();
        if expected.is_empty() {
            continue;
        }
        if expected.iter().any(|one| one == text.trim_end()) {
            outcome.passed += 1;
        } else if reply.is_unknown_command() {
            let name = String::from_utf8_lossy(&command[0]).into_owned();
            *outcome.waiting.entry(name).or_default() += case.steps.len() - index;
            return;
        } else {
            let wanted = expected.join("\n  or ");
            let command = show(command);
            outcome.failures.push(format!(
                "{file}: {}\n   > {command}\n  got {text}\n want {wanted}",
                case.name
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cases_replies_and_alternatives() {
        let text = "# head\n\n== one\n> SET k \"a \\x00\\\"\"\n+OK\n| -ERR x\nsleep 0.5\n> PING\n";
        let steps = vec![
            Step::Command(
                vec![b"SET".to_vec(), b"k".to_vec(), b"a \x00\"".to_vec()],
                vec!["+OK".to_owned(), "-ERR x".to_owned()],
            ),
            Step::Sleep(Duration::from_millis(500)),
            Step::Command(vec![b"PING".to_vec()], Vec::new()),
        ];
        assert_eq!(parse(text), Ok(vec![Case { name: "one".to_owned(), steps }]));
    }

    #[test]
    fn tells_the_line_of_a_mistake() {
        let mistake = parse("== one\n> PING\n+PONG\n+PONG\n").expect_err("two replies");
        assert!(mistake.starts_with("line 4: a second reply"), "{mistake}");
        assert!(parse("> PING\n").is_err());
        assert!(parse("== x\n> PING \"a\n").is_err());
    }
}
