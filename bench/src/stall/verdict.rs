//! Whether a scenario has kept the promise, as far as clients on a shared machine can tell.
//!
//! | the heavy client took | kept when |
//! |---|---|
//! | less than half a second | nobody waited longer than 1.5 ms |
//! | longer | 99.9 % waited at most 1 ms, or 1.3 times what they waited in the control phase, and nobody longer than 3 ms more than in the control phase |
//!
//! When the control phase alone had waits of more than 3 ms, the machine is busy with something
//! else, and what is not kept is not called broken.

use super::measure::Measurement;

/// Work that takes less than this is short, in milliseconds.
const SHORT_MS: f64 = 500.0;
/// The longest wait beside short work, in milliseconds.
const SHORT_WORST_MS: f64 = 1.5;
/// What 99.9 % may wait beside long work, in milliseconds.
const LONG_P999_MS: f64 = 1.0;
/// The same, in times of the control phase: beside long work, a processor less is free.
const LONG_P999_OF_CONTROL: f64 = 1.3;
/// The longest wait beside long work, above that of the control phase, in milliseconds.
const LONG_WORST_ABOVE_CONTROL_MS: f64 = 3.0;
/// A longer wait in the control phase is the machine's doing, in milliseconds.
const NOISY_MS: f64 = 3.0;

/// What is said of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Nobody waited too long.
    Kept,
    /// Somebody waited too long.
    Broken,
    /// Somebody waited too long, but the machine was busy with something else.
    Noisy,
    /// The scenario could not be finished.
    Failed,
}

impl Verdict {
    /// Its word in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::Broken => "broken",
            Verdict::Noisy => "noisy",
            Verdict::Failed => "failed",
        }
    }
}

/// Judges the medians of a scenario.
pub(super) fn judge(found: &Measurement) -> Verdict {
    let Measurement { heavy, control, .. } = found;
    let kept = if found.took_ms < SHORT_MS {
        heavy.worst_ms <= SHORT_WORST_MS
    } else {
        heavy.p999_ms <= LONG_P999_MS.max(control.p999_ms * LONG_P999_OF_CONTROL)
            && heavy.worst_ms <= control.worst_ms + LONG_WORST_ABOVE_CONTROL_MS
    };
    match (kept, is_noisy(found)) {
        (true, _) => Verdict::Kept,
        (false, false) => Verdict::Broken,
        (false, true) => Verdict::Noisy,
    }
}

/// Whether the machine was too busy for a judgement.
pub(super) fn is_noisy(found: &Measurement) -> bool {
    found.control.worst_ms > NOISY_MS
}

#[cfg(test)]
mod tests {
    use super::super::measure::Phase;
    use super::*;

    #[test]
    fn verdicts() {
        for (took_ms, worst_ms, p999_ms, control_ms, expected) in [
            (10.0, 1.4, 1.4, 0.3, Verdict::Kept),
            (10.0, 1.6, 0.2, 0.3, Verdict::Broken),
            (10.0, 1.6, 0.2, 3.5, Verdict::Noisy),
            (900.0, 3.2, 0.9, 0.3, Verdict::Kept),
            (900.0, 3.4, 0.9, 0.3, Verdict::Broken),
            (900.0, 3.2, 1.1, 0.3, Verdict::Broken),
            (900.0, 3.2, 2.5, 2.0, Verdict::Kept),
        ] {
            let control = Phase { worst_ms: control_ms, p999_ms: control_ms, ..Phase::default() };
            let heavy = Phase { worst_ms, p999_ms, ..Phase::default() };
            let found = Measurement { control, heavy, took_ms, ..Measurement::default() };
            assert_eq!(judge(&found), expected, "{took_ms} {worst_ms} {p999_ms} {control_ms}");
        }
    }
}
