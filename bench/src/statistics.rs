//! Medians and quantiles.

/// The middle value, or the mean of the two in the middle; 0 of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => 0.0,
    }
}

/// The smallest of sorted values that a share (0 to 1) of them does not exceed; 0 of nothing.
pub(crate) fn quantile(sorted: &[u64], share: f64) -> u64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).or(sorted.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0]), 3.0);
        assert_eq!(median([3.0, 1.0]), 2.0);
        assert_eq!(median([9.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn quantiles() {
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!(quantile(&values, 0.999), 999);
        assert_eq!(quantile(&values, 1.0), 1000);
        assert_eq!(quantile(&values, 0.0), 1);
        assert_eq!(quantile(&[7], 0.5), 7);
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
