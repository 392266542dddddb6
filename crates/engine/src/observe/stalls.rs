//! The promise in numbers: histograms of holds and turns, and the longest of them by name.

use super::Counter;

/// Buckets of a histogram: four per doubling, from 0 to about 2^32.
const BUCKETS: usize = 128;

/// Holds that are remembered by name.
const LONGEST_KEPT: usize = 16;

/// A hold is remembered by name from this time on, in microseconds.
pub const NOTABLE_HOLD_US: u64 = 50;

/// A histogram with a resolution of a quarter of each power of two.
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    max: Counter,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| Counter::default()), max: Counter::default() }
    }
}

impl Histogram {
    /// Counts one value. Only the owning worker calls this.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[bucket(value)].add(1);
        if value > self.max.get() {
            self.max.reset();
            self.max.add(value);
        }
    }

    /// The largest value counted.
    pub fn max(&self) -> u64 {
        self.max.get()
    }

    /// Back to nothing.
    pub fn reset(&self) {
        self.buckets.iter().for_each(Counter::reset);
        self.max.reset();
    }
}

fn bucket(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let quarter = (value >> (exponent - 2)) & 3;
    ((exponent as usize - 1) * 4 + quarter as usize).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (exponent, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    ((5 + quarter) << (exponent - 2)) - 1
}

/// Histograms of several workers, added up.
#[derive(Default)]
pub struct Summary {
    counts: Vec<u64>,
    /// The largest value.
    pub max: u64,
}

impl Summary {
    /// Adds one worker's histogram.
    pub fn add(&mut self, histogram: &Histogram) {
        self.counts.resize(BUCKETS, 0);
        for (sum, one) in self.counts.iter_mut().zip(&histogram.buckets) {
            *sum += one.get();
        }
        self.max = self.max.max(histogram.max());
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of values in buckets that lie wholly above `limit`.
    pub fn above(&self, limit: u64) -> u64 {
        let first = bucket(limit) + 1;
        self.counts.iter().skip(first).sum()
    }

    /// The value below which `share` (0 to 1) of all values lie, rounded up to a bucket's bound.
    pub fn quantile(&self, share: f64) -> u64 {
        let target = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= target && seen > 0 {
                return upper_bound(at).min(self.max);
            }
        }
        self.max
    }
}

/// One long hold.
#[derive(Clone, Debug)]
pub struct LongHold {
    /// What ran.
    pub command: &'static str,
    /// Wall time, nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the thread in it, nanoseconds: much less than the wall time means that the
    /// machine gave the processor to somebody else.
    pub cpu_ns: u64,
    /// Units of work counted.
    pub units: u64,
    /// Unix time, milliseconds.
    pub at_ms: i64,
}

/// The longest holds of one worker.
#[derive(Default)]
pub struct Longest {
    /// By CPU time, longest first.
    pub holds: Vec<LongHold>,
    /// Holds above [`NOTABLE_HOLD_US`] of wall time, and of CPU time.
    pub over_wall: u64,
    /// See `over_wall`.
    pub over_cpu: u64,
}

impl Longest {
    /// Remembers a hold that was notable.
    pub fn note(&mut self, hold: LongHold) {
        self.over_wall += 1;
        self.over_cpu += u64::from(hold.cpu_ns >= NOTABLE_HOLD_US * 1000);
        let at = self.holds.partition_point(|other| other.cpu_ns >= hold.cpu_ns);
        self.holds.insert(at, hold);
        self.holds.truncate(LONGEST_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_monotonic_and_bounded_by_their_names() {
        let mut last = 0;
        for value in (0..1 << 20).chain((20..40).map(|shift| 1 << shift)) {
            let at = bucket(value);
            assert!(at >= last && at < BUCKETS);
            assert!(at == BUCKETS - 1 || value <= upper_bound(at), "{value} in {at}");
            assert!(at == 0 || at == BUCKETS - 1 || value > upper_bound(at - 1), "{value} in {at}");
            last = at;
        }
    }

    #[test]
    fn quantiles_come_from_the_counts() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.record(value));
        let mut summary = Summary::default();
        summary.add(&histogram);
        assert_eq!((summary.count(), summary.max), (1000, 1000));
        assert!((500..=640).contains(&summary.quantile(0.5)));
        assert_eq!(summary.quantile(1.0), 1000);
    }
}
