//! How many clients a worker serves at the same time, and whether it pays to let them wait a moment.
//!
//! When a worker sleeps until the next request, the client that sends it pays for the wake-up, and
//! the worker for going to sleep: more than the request itself costs. With many clients at a time
//! that happens again and again, between two requests that come within microseconds. A nap that
//! ends by the clock collects them instead: nobody pays for waking the worker, and the kernel hands
//! them out together. What was measured is in `docs/decisions/0009-small-commands.md`.

use std::time::Duration;

/// How long a nap is.
pub(crate) const NAP: Duration = Duration::from_micros(50);

/// Clients that must have been served within a millisecond. Fewer would all wait for the nap's end.
const CLIENTS_MIN: usize = 24;

/// Turns of clients since the worker had nothing to do, so that naps end when the load does.
const SERVED_MIN: usize = 4;

/// Bytes of such a turn, on average: a pipeline collects requests by itself.
const BYTES_MAX: usize = 256;

/// What a worker knows of its clients' activity.
#[derive(Default)]
pub(crate) struct Activity {
    /// The millisecond that is being counted.
    now_ms: i64,
    /// Clients that were served in it.
    clients: usize,
    /// The same for the millisecond before.
    clients_before: usize,
    /// Clients' turns since the worker had nothing to do.
    served: usize,
    /// Bytes that they sent in these turns.
    bytes: usize,
}

impl Activity {
    /// A client is served that sent so many bytes and was last served at `seen_ms`, which is brought
    /// up to date.
    #[inline]
    pub(crate) fn note(&mut self, bytes: usize, seen_ms: &mut i64, now_ms: i64) {
        self.served += 1;
        self.bytes += bytes;
        if self.now_ms != now_ms {
            self.clients_before = if self.now_ms == now_ms - 1 { self.clients } else { 0 };
            (self.now_ms, self.clients) = (now_ms, 0);
        }
        if *seen_ms != now_ms {
            *seen_ms = now_ms;
            self.clients += 1;
        }
    }

    /// The worker has nothing to do. Returns whether it should take a nap.
    pub(crate) fn idle(&mut self) -> bool {
        let (served, bytes) = (self.served, self.bytes);
        (self.served, self.bytes) = (0, 0);
        served >= SERVED_MIN
            && bytes <= served * BYTES_MAX
            && self.clients.max(self.clients_before) >= CLIENTS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves clients one after the other in one millisecond.
    fn serve(activity: &mut Activity, seen: &mut [i64], bytes: usize, now_ms: i64) {
        seen.iter_mut().for_each(|seen_ms| activity.note(bytes, seen_ms, now_ms));
    }

    #[test]
    fn many_clients_bring_naps_until_they_are_gone() {
        let (mut activity, mut seen) = (Activity::default(), [0; CLIENTS_MIN]);
        serve(&mut activity, &mut seen, 50, 5);
        assert!(activity.idle());
        assert!(!activity.idle(), "nobody came during the nap");
        serve(&mut activity, &mut seen[..SERVED_MIN], 50, 6);
        assert!(activity.idle(), "there were many a millisecond ago");
        serve(&mut activity, &mut seen[..SERVED_MIN], 50, 8);
        assert!(!activity.idle(), "that is too long ago");
    }

    #[test]
    fn pipelines_bring_none() {
        let (mut activity, mut seen) = (Activity::default(), [0; CLIENTS_MIN]);
        serve(&mut activity, &mut seen, BYTES_MAX + 1, 5);
        assert!(!activity.idle());
        serve(&mut activity, &mut seen, BYTES_MAX, 5);
        assert!(activity.idle());
    }

    #[test]
    fn few_clients_bring_none_however_busy() {
        let (mut activity, mut seen) = (Activity::default(), [0; CLIENTS_MIN - 1]);
        for now_ms in 0..10 {
            (0..5).for_each(|_| serve(&mut activity, &mut seen, 50, now_ms));
            assert!(!activity.idle());
        }
    }
}
