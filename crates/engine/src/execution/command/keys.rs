//! Which arguments of a command are keys.

use resp::Args;

use crate::keyspace::locks::Access;

/// The key arguments of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// It has none.
    None,
    /// One, the first argument.
    First(Access),
    /// The first two arguments.
    FirstTwo(Access),
    /// Every `step`-th argument from the first on.
    All {
        /// 1, or 2 for pairs of key and value.
        step: usize,
        /// What is done to them.
        access: Access,
    },
    /// The first argument is written, the others are read.
    DestinationAndSources,
}

impl Keys {
    /// How many of these arguments are keys.
    #[inline]
    pub fn count(self, args: Args<'_>) -> usize {
        match self {
            Keys::None => 0,
            Keys::First(_) => 1,
            Keys::FirstTwo(_) => 2,
            Keys::All { step, .. } => (args.len() - 1).div_ceil(step),
            Keys::DestinationAndSources => args.len() - 1,
        }
    }

    /// Whether the argument at this position is a key.
    pub fn has(self, position: usize) -> bool {
        match self {
            Keys::None => false,
            Keys::First(_) => position == 1,
            Keys::FirstTwo(_) => position == 1 || position == 2,
            Keys::All { step, .. } => position >= 1 && (position - 1).is_multiple_of(step),
            Keys::DestinationAndSources => position >= 1,
        }
    }

    /// The position and the access of the `index`-th key.
    #[inline]
    pub fn get(self, index: usize) -> (usize, Access) {
        match self {
            Keys::None | Keys::DestinationAndSources if index > 0 => (index + 1, Access::Shared),
            Keys::None | Keys::DestinationAndSources => (1, Access::Exclusive),
            Keys::First(access) => (1, access),
            Keys::FirstTwo(access) => (index + 1, access),
            Keys::All { step, access } => (1 + index * step, access),
        }
    }
}
