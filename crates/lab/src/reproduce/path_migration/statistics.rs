//! Many measurements of one thing in a few numbers, and a straight line through some.

use serde::Serialize;

/// The median and the quartiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct QuartileSummary {
    pub count: usize,
    pub median: f64,
    /// A quarter are below.
    pub low: f64,
    /// A quarter are above.
    pub high: f64,
    /// The standard error of the median, from the quartiles as if the spread were normal.
    pub error: f64,
}

impl QuartileSummary {
    /// Of these; none if there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        // Between two ranks, in proportion.
        let quantile = |share: f64| {
            let place = share * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        let (low, high) = (quantile(0.25), quantile(0.75));
        // The quartiles are 1.35 deviations apart, and a median scatters 1.25 times as much as a mean.
        let error = 1.25 * (high - low) / 1.35 / (sorted.len() as f64).sqrt();
        Some(Self { count: sorted.len(), median: quantile(0.5), low, high, error })
    }
}

/// A straight line by least squares.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LinearFit {
    pub slope: f64,
    pub start: f64,
    /// The share of the variance that it explains: 1 for points on a line.
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
