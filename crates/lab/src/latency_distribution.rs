//! A distribution of latencies: quantiles and a histogram.

use serde::Serialize;
use units::SimSpan;

/// Quantiles and a histogram of many latencies, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatencyDistribution {
    pub(crate) count: usize,
    pub(crate) min_ns: f64,
    pub(crate) median_ns: f64,
    pub(crate) mean_ns: f64,
    pub(crate) p90_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) max_ns: f64,
    pub(crate) histogram: Vec<HistogramBin>,
}

/// The number of latencies in an interval. The upper bound is excluded, except in the last bin.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct HistogramBin {
    pub(crate) from_ns: f64,
    pub(crate) to_ns: f64,
    pub(crate) count: usize,
}

/// Bins of a histogram.
const BINS: usize = 48;
/// From this ratio of the longest to the shortest latency on, bins have equal ratios instead of equal widths.
const LOGARITHMIC_RATIO: f64 = 20.0;

impl LatencyDistribution {
    /// The distribution of these latencies; none if there are none.
    pub(crate) fn of(spans: impl IntoIterator<Item = SimSpan>) -> Option<Self> {
        let mut sorted: Vec<SimSpan> = spans.into_iter().collect();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let total: u128 = sorted.iter().map(|span| u128::from(span.as_picos())).sum();
        // The nearest-rank definition: the smallest value that at least this share of all values does not exceed.
        let quantile = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted[rank.clamp(1, sorted.len()) - 1].as_nanos_f64()
        };
        Some(Self {
            count: sorted.len(),
            min_ns: min.as_nanos_f64(),
            median_ns: quantile(0.5),
            mean_ns: total as f64 / sorted.len() as f64 / 1e3,
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            max_ns: max.as_nanos_f64(),
            histogram: histogram(&sorted, min.as_nanos_f64(), max.as_nanos_f64()),
        })
    }

    /// The histogram with adjacent bins merged so that at most `max_bins` are left.
    pub(crate) fn merged_bins(&self, max_bins: usize) -> Vec<HistogramBin> {
        let group_size = self.histogram.len().div_ceil(max_bins).max(1);
        let merge = |bins: &[HistogramBin]| HistogramBin {
            from_ns: bins[0].from_ns,
            to_ns: bins[bins.len() - 1].to_ns,
            count: bins.iter().map(|bin| bin.count).sum(),
        };
        self.histogram.chunks(group_size).map(merge).collect()
    }
}

/// Bins of equal width or, for a wide range, of equal ratio.
fn histogram(sorted: &[SimSpan], min: f64, max: f64) -> Vec<HistogramBin> {
    if max <= min {
        return vec![HistogramBin { from_ns: min, to_ns: max, count: sorted.len() }];
    }
    let is_logarithmic = min > 0.0 && max / min > LOGARITHMIC_RATIO;
    let edge = |number: usize| {
        let share = number as f64 / BINS as f64;
        if is_logarithmic { min * (max / min).powf(share) } else { min + (max - min) * share }
    };
    let mut bins = Vec::with_capacity(BINS);
    let mut before = 0;
    for number in 1..=BINS {
        let upper = edge(number);
        let below =
            if number == BINS { sorted.len() } else { sorted.partition_point(|span| span.as_nanos_f64() < upper) };
        bins.push(HistogramBin { from_ns: edge(number - 1), to_ns: upper, count: below - before });
        before = below;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let distribution = LatencyDistribution::of((1..=100).map(SimSpan::from_nanos)).expect("a hundred values");
        assert_eq!((distribution.min_ns, distribution.median_ns, distribution.max_ns), (1.0, 50.0, 100.0));
        assert_eq!((distribution.p90_ns, distribution.p99_ns, distribution.mean_ns), (90.0, 99.0, 50.5));
    }

    #[test]
    fn every_value_falls_into_one_bin() {
        for most in [2, 100, 5_000] {
            let distribution = LatencyDistribution::of((1..=most).map(SimSpan::from_nanos)).expect("some values");
            let in_bins: usize = distribution.histogram.iter().map(|bin| bin.count).sum();
            let merged: usize = distribution.merged_bins(7).iter().map(|bin| bin.count).sum();
            assert_eq!((in_bins, merged), (most as usize, most as usize));
        }
    }

    #[test]
    fn one_value_is_one_bin() {
        let distribution = LatencyDistribution::of([SimSpan::from_nanos(7); 3]).expect("three values");
        assert_eq!(distribution.histogram, [HistogramBin { from_ns: 7.0, to_ns: 7.0, count: 3 }]);
        assert!(LatencyDistribution::of([] as [SimSpan; 0]).is_none());
    }
}
