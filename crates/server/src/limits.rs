//! `client-output-buffer-limit`: a client that does not read what it asked for is disconnected.
//!
//! The hard limit disconnects at once, the soft one after a time beyond it. What counts are the
//! bytes that wait for the socket and those that only the client's unsent replies keep alive.

use std::collections::VecDeque;

use engine::settings::OutputLimit;

/// A connection that went beyond the soft limit, and when that will have lasted too long.
struct Beyond {
    due_ms: i64,
    at: usize,
    session: u64,
}

/// The connections of one worker that are beyond the soft limit, or have been.
#[derive(Default)]
pub(crate) struct SoftLimits {
    beyond: VecDeque<Beyond>,
}

/// What a limit asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the limits.
    Within,
    /// Beyond the soft limit.
    Soft,
    /// Beyond the hard limit.
    Hard,
}

/// Whether there is a limit at all: the normal case is none.
#[inline]
pub(crate) fn is_set(limit: &OutputLimit) -> bool {
    limit.hard_bytes | limit.soft_bytes != 0
}

/// Compares bytes that wait with a limit.
pub(crate) fn judge(pending_bytes: u64, limit: &OutputLimit) -> Verdict {
    let exceeds = |limit: u64| limit != 0 && pending_bytes > limit;
    if exceeds(limit.hard_bytes) {
        Verdict::Hard
    } else if exceeds(limit.soft_bytes) {
        Verdict::Soft
    } else {
        Verdict::Within
    }
}

impl SoftLimits {
    /// A connection has just gone beyond the soft limit.
    pub(crate) fn add(&mut self, at: usize, session: u64, due_ms: i64) {
        self.beyond.push_back(Beyond { due_ms, at, session });
    }

    /// The next connection whose time is over: its place and session. It may have come back within
    /// the limit since, and its place may be another connection's.
    pub(crate) fn due(&mut self, now_ms: i64) -> Option<(usize, u64)> {
        let first = self.beyond.front()?;
        if first.due_ms > now_ms {
            return None;
        }
        self.beyond.pop_front().map(|one| (one.at, one.session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_limit() {
        let limit =
            |hard_bytes, soft_bytes| OutputLimit { hard_bytes, soft_bytes, soft_seconds: 1 };
        assert!(!is_set(&limit(0, 0)) && is_set(&limit(0, 1)) && is_set(&limit(1, 0)));
        assert_eq!(judge(u64::MAX, &limit(0, 0)), Verdict::Within);
        assert_eq!(judge(10, &limit(10, 10)), Verdict::Within);
        assert_eq!(judge(11, &limit(20, 10)), Verdict::Soft);
        assert_eq!(judge(21, &limit(20, 10)), Verdict::Hard);
    }

    #[test]
    fn connections_fall_due_in_their_order() {
        let mut soft = SoftLimits::default();
        soft.add(1, 11, 100);
        soft.add(2, 12, 200);
        assert_eq!(soft.due(99), None);
        assert_eq!(soft.due(150), Some((1, 11)));
        assert_eq!(soft.due(150), None);
        assert_eq!(soft.due(200), Some((2, 12)));
    }
}
