//! The server's parameters: one row each in [`table`], read by CONFIG GET and the server, written
//! by CONFIG SET and the command line.
//!
//! Invariants: a change of several parameters happens as a whole or not at all; what the request
//! path reads is mirrored in atomics, so no command ever waits for CONFIG.

mod parse;
mod table;

use crate::errors::{self, Result};
use crate::glob;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use table::{Change, ROWS, Row, Values};

pub use table::OutputLimit;

/// The values of all parameters.
pub struct Settings {
    values: Mutex<Values>,
    mirror: Mirror,
}

/// The values that are read while commands run.
#[derive(Default)]
struct Mirror {
    bulk_bytes_max: AtomicU64,
    hard_bytes: AtomicU64,
    soft_bytes: AtomicU64,
    soft_seconds: AtomicU64,
}

impl Mirror {
    fn set(&self, values: &Values) {
        let normal = values.output_limits[table::NORMAL];
        self.bulk_bytes_max.store(values.bulk_bytes_max, Ordering::Relaxed);
        self.hard_bytes.store(normal.hard_bytes, Ordering::Relaxed);
        self.soft_bytes.store(normal.soft_bytes, Ordering::Relaxed);
        self.soft_seconds.store(normal.soft_seconds, Ordering::Relaxed);
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::from(Values::default())
    }
}

impl From<Values> for Settings {
    fn from(values: Values) -> Settings {
        let mirror = Mirror::default();
        mirror.set(&values);
        Settings { values: Mutex::new(values), mirror }
    }
}

impl Settings {
    /// The defaults, changed by what the command line says: pairs of a parameter's name and its
    /// value as CONFIG SET would take it. Here those may be set too that CONFIG SET refuses.
    ///
    /// # Errors
    /// There is no such parameter, or the value is not one of its values.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Settings> {
        let mut values = Values::default();
        for (name, value) in pairs {
            let name = name.as_ref();
            let row =
                find(name.as_bytes()).ok_or_else(|| errors::unknown_setting(name.as_bytes()))?;
            (row.set)(&mut values, value.as_ref().as_bytes())
                .map_err(|reason| errors::setting(row.name.as_bytes(), &reason))?;
        }
        Ok(Settings::from(values))
    }

    /// `proto-max-bulk-len`: bytes of the longest argument.
    #[inline]
    pub fn bulk_bytes_max(&self) -> u64 {
        self.mirror.bulk_bytes_max.load(Ordering::Relaxed)
    }

    /// `client-output-buffer-limit normal`: what may wait for a client that does not read.
    #[inline]
    pub fn output_limit(&self) -> OutputLimit {
        OutputLimit {
            hard_bytes: self.mirror.hard_bytes.load(Ordering::Relaxed),
            soft_bytes: self.mirror.soft_bytes.load(Ordering::Relaxed),
            soft_seconds: self.mirror.soft_seconds.load(Ordering::Relaxed),
        }
    }

    /// Name and value of the parameters that match any of `patterns`, each once. As in Redis, one
    /// that is asked for by its whole name is named as the client wrote it.
    pub fn matching<'a>(&self, patterns: impl Iterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, String)> {
        let values = self.values.lock().clone();
        let mut found: Vec<(Vec<u8>, &Row)> = Vec::new();
        for pattern in patterns {
            if !pattern.iter().any(|byte| b"[*?".contains(byte)) {
                let row = find(pattern).filter(|row| !contains(&found, row));
                found.extend(row.map(|row| (pattern.to_vec(), row)));
                continue;
            }
            let pattern = pattern.to_ascii_lowercase();
            for row in ROWS {
                if !contains(&found, row) && glob::matches(&pattern, row.name.as_bytes()) {
                    found.push((row.name.into(), row));
                }
            }
        }
        found.into_iter().map(|(name, row)| (name, (row.get)(&values))).collect()
    }

    /// Changes parameters: all of these pairs of name and value, or none.
    ///
    /// # Errors
    /// One is unknown, not to be changed while the server runs, named twice, or its value is not
    /// one of its values.
    pub fn set<'a>(&self, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<()> {
        let mut changes: Vec<(&Row, &[u8])> = Vec::new();
        for (name, value) in pairs {
            let row = find(name).ok_or_else(|| errors::unknown_setting(name))?;
            check(row, &changes).map_err(|reason| errors::setting(name, reason))?;
            changes.push((row, value));
        }
        let mut values = self.values.lock();
        let mut changed = values.clone();
        for (row, value) in changes {
            (row.set)(&mut changed, value)
                .map_err(|reason| errors::setting(row.name.as_bytes(), &reason))?;
        }
        self.mirror.set(&changed);
        *values = changed;
        Ok(())
    }
}

fn find(name: &[u8]) -> Option<&'static Row> {
    ROWS.iter().find(|row| name.eq_ignore_ascii_case(row.name.as_bytes()))
}

fn contains(found: &[(Vec<u8>, &Row)], row: &Row) -> bool {
    found.iter().any(|(_, other)| std::ptr::eq(*other, row))
}

fn check(row: &Row, before: &[(&Row, &[u8])]) -> std::result::Result<(), &'static str> {
    match row.change {
        Change::Immutable => Err(errors::SETTING_IMMUTABLE),
        Change::Protected => Err(errors::SETTING_PROTECTED),
        Change::Mutable if before.iter().any(|(other, _)| std::ptr::eq(*other, row)) => {
            Err(errors::SETTING_TWICE)
        }
        Change::Mutable => Ok(()),
    }
}

#[cfg(test)]
mod tests;
