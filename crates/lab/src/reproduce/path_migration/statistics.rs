//! Summary statistics: quartiles of repeated measurements, and a linear fit.

use serde::Serialize;

/// The median and the quartiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct QuartileSummary {
    pub count: usize,
    pub median: f64,
    /// The first quartile.
    pub low: f64,
    /// The third quartile.
    pub high: f64,
    /// The standard error of the median, estimated from the quartiles of a normal distribution.
    pub error: f64,
}

impl QuartileSummary {
    /// The quartiles of these values; none if there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        // Linear interpolation between two ranks.
        let quantile = |share: f64| {
            let place = share * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        let (low, high) = (quantile(0.25), quantile(0.75));
        // Quartiles are 1.35 standard deviations apart, and a median scatters 1.25 times as much as a mean.
        let error = 1.25 * (high - low) / 1.35 / (sorted.len() as f64).sqrt();
        Some(Self { count: sorted.len(), median: quantile(0.5), low, high, error })
    }
}

/// `median (low..high)` with so many decimals; a dash for no value.
pub(super) fn format_optional(summary: Option<QuartileSummary>, digits: usize) -> String {
    summary.map_or("-".into(), |summary| {
        format!("{:.digits$} ({:.digits$}..{:.digits$})", summary.median, summary.low, summary.high)
    })
}

/// The same for a difference in percent, with its sign.
pub(super) fn format_percent(summary: Option<QuartileSummary>) -> String {
    summary
        .map_or("-".into(), |summary| format!("{:+.2} ({:+.2}..{:+.2})", summary.median, summary.low, summary.high))
}

/// A straight line by least squares.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LinearFit {
    pub slope: f64,
    pub start: f64,
    /// The share of the variance that the line explains: 1 for points on a line.
    pub r_squared: f64,
}

impl LinearFit {
    pub(super) fn through(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|a, _| a * a), sum(&|a, b| a * b), sum(&|_, b| b * b));
        let slope = xy / xx;
        Self { slope, start: y - slope * x, r_squared: xy * xy / (xx * yy) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_values() {
        let spread = QuartileSummary::of([4.0, 1.0, 3.0, 2.0, 5.0]).expect("five values");
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 3.0, 4.0));
        let spread = QuartileSummary::of([1.0, 2.0]).expect("two values");
        assert_eq!((spread.low, spread.median, spread.high), (1.25, 1.5, 1.75));
        assert!(QuartileSummary::of([]).is_none());
    }

    #[test]
    fn a_line_goes_through_points_on_it() {
        let line = LinearFit::through(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]);
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.start - 3.0).abs() < 1e-12);
        assert!((line.r_squared - 1.0).abs() < 1e-12);
        assert!(LinearFit::through(&[(1.0, 0.0), (2.0, 1.0), (3.0, 0.0)]).r_squared < 0.1);
    }
}
