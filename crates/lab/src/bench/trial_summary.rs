//! The result of several trials: median, minimum and maximum.

use std::fmt;

use serde::Serialize;

use crate::report::{ChartPoint, PlaceValue};

/// Microseconds, or a ratio, over several trials.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct TrialSummary {
    pub(crate) median: f64,
    #[serde(rename = "least")]
    pub(crate) min: f64,
    #[serde(rename = "most")]
    pub(crate) max: f64,
}

impl TrialSummary {
    /// # Panics
    /// If there are no values.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { median: values[values.len() / 2], min: values[0], max: values[values.len() - 1] }
    }

    /// The median as a point of a chart, with the range as its error bar.
    pub(crate) fn chart_point(&self, x: f64) -> ChartPoint {
        ChartPoint::new(x, self.median).spread(self.min, self.max)
    }

    /// The same as a row of a chart.
    pub(crate) fn place_value(&self) -> PlaceValue {
        PlaceValue::new(self.median).spread(self.min, self.max)
    }

    /// `median (min..max)` with so many decimals.
    pub(crate) fn format(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}..{:.digits$})", self.median, self.min, self.max)
    }
}

/// Two decimals below 10, one above.
impl fmt::Display for TrialSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format(if self.median < 10.0 { 2 } else { 1 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_medians_have_two_decimals() {
        assert_eq!(TrialSummary::of(vec![3.0, 1.0, 2.5]).to_string(), "2.50 (1.00..3.00)");
        assert_eq!(TrialSummary::of(vec![30.0, 10.0, 25.0]).to_string(), "25.0 (10.0..30.0)");
    }
}
