//! What the system says of a process, and the clock that all processes share.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a clock that is the same in every process of the machine.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resident memory of a process in bytes.
///
/// # Errors
/// If there is no such process on this machine.
pub(crate) fn resident_bytes(process: u32) -> Result<u64, String> {
    let path = format!("/proc/{process}/statm");
    let text = fs::read_to_string(&path).map_err(|error| gone(&path, &error))?;
    let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    let pages = pages.ok_or_else(|| format!("{path} does not tell the resident memory: {text}"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Processor time that a process has used, all threads together, in seconds. Its resolution is
/// one tick, 10 ms as a rule.
///
/// # Errors
/// If there is no such process on this machine.
pub(crate) fn processor_seconds(process: u32) -> Result<f64, String> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).map_err(|error| gone(&path, &error))?;
    let ticks = ticks(&text).ok_or_else(|| format!("{path} does not tell the ticks: {text}"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Ticks in user and system mode. The name of the program, in parentheses, may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn gone(path: &str, error: &std::io::Error) -> String {
    format!("{path}: {error}: the server must run on this machine, and must not have ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let own = std::process::id();
        assert!(resident_bytes(own).is_ok_and(|bytes| bytes > 100_000));
        assert!(processor_seconds(own).is_ok());
        assert!(now_ns() <= now_ns());
        assert!(resident_bytes(u32::MAX).is_err_and(|text| text.contains("must not have ended")));
    }

    #[test]
    fn ticks_stand_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 13 14";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a"), None);
    }
}
