//! Filled in next.

use crate::command::Command;

pub(super) const COMMANDS: &[Command] = &[];
