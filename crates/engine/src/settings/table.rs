//! The table of parameters. Only what exists has a row: a parameter that would be accepted and then
//! ignored has none.

use std::fmt::Write;

use super::parse::{self, Parsed};
use crate::errors;

/// What may wait for a client that does not read, before it is disconnected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Disconnected at once beyond this; 0 is no limit.
    pub hard_bytes: u64,
    /// Disconnected if it stays beyond this for `soft_seconds`; 0 is no limit.
    pub soft_bytes: u64,
    /// See `soft_bytes`.
    pub soft_seconds: u64,
}

/// The classes of clients that `client-output-buffer-limit` names, with their defaults.
const CLASSES: [(&str, OutputLimit); 3] = [
    ("normal", OutputLimit { hard_bytes: 0, soft_bytes: 0, soft_seconds: 0 }),
    ("slave", OutputLimit { hard_bytes: 256 * MIB, soft_bytes: 64 * MIB, soft_seconds: 60 }),
    ("pubsub", OutputLimit { hard_bytes: 32 * MIB, soft_bytes: 8 * MIB, soft_seconds: 60 }),
];

/// The class of clients that send commands.
pub(super) const NORMAL: usize = 0;

const MIB: u64 = 1 << 20;

/// Databases that can be addressed: their index is a byte.
const DATABASES_MAX: u64 = 256;

/// Longest soft limit, as Redis stores it.
const SOFT_SECONDS_MAX: u64 = i32::MAX as u64;

/// Most changes that a save point may ask for, as Redis stores it.
const SAVE_CHANGES_MAX: u64 = i32::MAX as u64;

/// The value of every parameter.
#[derive(Clone, Debug)]
pub(super) struct Values {
    bind: String,
    port: u16,
    dir: String,
    /// Save points: seconds and changes.
    save: Vec<(u64, u64)>,
    databases: u64,
    pub(super) bulk_bytes_max: u64,
    /// By position in [`CLASSES`].
    pub(super) output_limits: [OutputLimit; CLASSES.len()],
}

impl Default for Values {
    fn default() -> Values {
        Values {
            bind: "127.0.0.1".into(),
            port: 6379,
            dir: ".".into(),
            save: Vec::new(),
            databases: 16,
            bulk_bytes_max: 512 * MIB,
            output_limits: CLASSES.map(|(_, limit)| limit),
        }
    }
}

/// When a parameter may be changed.
pub(super) enum Change {
    /// By CONFIG SET.
    Mutable,
    /// Only when the server starts.
    Immutable,
    /// Only when the server starts, because whoever may change it owns the machine's files.
    Protected,
}

/// A parameter.
pub(super) struct Row {
    /// In lower case.
    pub(super) name: &'static str,
    pub(super) change: Change,
    /// The value as CONFIG GET shows it.
    pub(super) get: fn(&Values) -> String,
    /// Takes a value, or says why not.
    pub(super) set: fn(&mut Values, &[u8]) -> Parsed<()>,
}

/// All parameters. One object: rows are compared by their addresses.
pub(super) static ROWS: &[Row] = &[
    Row {
        name: "bind",
        change: Change::Immutable,
        get: |values| values.bind.clone(),
        set: |values, text| {
            values.bind = parse::text(text);
            Ok(())
        },
    },
    Row {
        name: "port",
        change: Change::Immutable,
        get: |values| values.port.to_string(),
        set: |values, text| {
            // Within the limits, so it fits.
            values.port = parse::integer_within(text, 0, u16::MAX.into())? as u16;
            Ok(())
        },
    },
    Row {
        name: "dir",
        change: Change::Protected,
        get: |values| values.dir.clone(),
        set: |values, text| {
            values.dir = parse::text(text);
            Ok(())
        },
    },
    Row {
        name: "save",
        change: Change::Mutable,
        get: |values| {
            let points: Vec<String> = values
                .save
                .iter()
                .map(|(seconds, changes)| format!("{seconds} {changes}"))
                .collect();
            points.join(" ")
        },
        set: |values, text| {
            values.save = save_points(text)?;
            Ok(())
        },
    },
    Row {
        name: "databases",
        change: Change::Immutable,
        get: |values| values.databases.to_string(),
        set: |values, text| {
            values.databases = parse::integer_within(text, 1, DATABASES_MAX)?;
            Ok(())
        },
    },
    Row {
        name: "proto-max-bulk-len",
        change: Change::Mutable,
        get: |values| values.bulk_bytes_max.to_string(),
        set: |values, text| {
            values.bulk_bytes_max = parse::size_within(text, MIB, i64::MAX as u64)?;
            Ok(())
        },
    },
    Row {
        name: "client-output-buffer-limit",
        change: Change::Mutable,
        get: |values| output_limits_text(&values.output_limits),
        set: |values, text| set_output_limits(&mut values.output_limits, text),
    },
    Row {
        name: "appendonly",
        change: Change::Immutable,
        get: |_| "no".into(),
        set: |_, text| {
            let wanted = parse::yes_or_no(text)?;
            if wanted { Err(errors::SETTING_NOT_IMPLEMENTED.into()) } else { Ok(()) }
        },
    },
    Row {
        name: "maxmemory",
        change: Change::Immutable,
        get: |_| "0".into(),
        set: |_, text| match parse::size_within(text, 0, u64::MAX)? {
            0 => Ok(()),
            _ => Err(errors::SETTING_NOT_IMPLEMENTED.into()),
        },
    },
];

fn save_points(text: &[u8]) -> Parsed<Vec<(u64, u64)>> {
    let words = parse::words(text);
    let (pairs, rest) = words.as_chunks::<2>();
    let point = |[seconds, changes]: &[&[u8]; 2]| {
        let seconds = parse::count(seconds).filter(|&seconds| seconds >= 1)?;
        let changes = parse::count(changes).filter(|&changes| changes <= SAVE_CHANGES_MAX)?;
        Some((seconds, changes))
    };
    let points: Option<Vec<_>> = pairs.iter().map(point).collect();
    points.filter(|_| rest.is_empty()).ok_or_else(|| errors::SETTING_SAVE.into())
}

fn set_output_limits(limits: &mut [OutputLimit; CLASSES.len()], text: &[u8]) -> Parsed<()> {
    let words = parse::words(text);
    let (groups, rest) = words.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(errors::SETTING_LIMIT_WORDS.into());
    }
    for [class, hard, soft, seconds] in groups {
        let class = class_of(class).ok_or(errors::SETTING_LIMIT_CLASS)?;
        let limit = || {
            let soft_seconds = parse::count(seconds).filter(|&count| count <= SOFT_SECONDS_MAX)?;
            Some(OutputLimit {
                hard_bytes: parse::size(hard)?,
                soft_bytes: parse::size(soft)?,
                soft_seconds,
            })
        };
        limits[class] = limit().ok_or(errors::SETTING_LIMIT_VALUE)?;
    }
    Ok(())
}

fn class_of(name: &[u8]) -> Option<usize> {
    let name = if name.eq_ignore_ascii_case(b"replica") { b"slave" } else { name };
    CLASSES.iter().position(|(class, _)| name.eq_ignore_ascii_case(class.as_bytes()))
}

fn output_limits_text(limits: &[OutputLimit; CLASSES.len()]) -> String {
    let mut text = String::new();
    for ((class, _), limit) in CLASSES.iter().zip(limits) {
        let separator = if text.is_empty() { "" } else { " " };
        let OutputLimit { hard_bytes, soft_bytes, soft_seconds } = limit;
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{class} {hard_bytes} {soft_bytes} {soft_seconds}");
    }
    text
}
