//! The slowdown of every run as a chart.

use super::cable_cuts::{KernelCutResults, RunVariant};
use crate::report::{Axis, Figure, PlaceChart, PlaceValue};

/// Every run as a dot, with the median and the range, and the published 5 to 7 % as a band.
pub(super) fn slowdown_chart(kernels: &[KernelCutResults]) -> Figure {
    let variants = [RunVariant::Plain, RunVariant::Silent, RunVariant::Noticed];
    let (mut places, mut values) = (Vec::new(), Vec::new());
    for (results, variant) in kernels.iter().flat_map(|results| variants.map(|variant| (results, variant))) {
        places.push(format!("{}, {}", results.kernel.name(), variant.label()));
        let runs = results.runs.iter().filter(|run| run.variant == variant);
        values.push(summary(runs.filter_map(|run| run.slower_percent).collect()));
    }
    let title = "Slower than without a fault, run by run, with the median";
    PlaceChart::new(title, Axis::new("slower by, %"), places)
        .series("runs", values)
        .band(5.0, 7.0, "published for FT and LU: 5 to 7 %")
        .figure()
}

/// The median and the range of the runs, with all of them; none without runs.
fn summary(mut runs: Vec<f64>) -> Option<PlaceValue> {
    runs.sort_by(f64::total_cmp);
    let (least, most) = (*runs.first()?, *runs.last()?);
    Some(PlaceValue::new(runs[runs.len() / 2]).spread(least, most).trials(runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_without_runs_are_empty_and_the_band_is_drawn() {
        assert!(summary(Vec::new()).is_none() && summary(vec![3.0, -1.0, 2.0]).is_some());
        assert!(slowdown_chart(&[]).svg.contains("class=\"band\""));
    }
}
