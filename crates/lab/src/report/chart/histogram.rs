//! How many operations took how long.

use std::fmt::Write;

use units::SimSpan;

use super::Figure;
use super::frame::ChartFrame;
use super::scale::{Axis, short};
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{pluralize, time_unit};
use crate::report::escape::escape;

/// A histogram of latencies.
pub(crate) fn histogram(distribution: &LatencyDistribution, title: &str) -> Figure {
    let (unit, size) = time_unit(SimSpan::from_picos((distribution.median_ns * 1e3) as u64));
    let in_unit = |nanos: f64| nanos * 1e3 / size;
    let bins = &distribution.histogram;
    let is_single = distribution.max_ns <= distribution.min_ns;
    let is_logarithmic =
        bins.len() > 1 && bins[1].to_ns - bins[1].from_ns > 1.001 * (bins[0].to_ns - bins[0].from_ns);
    let axis = |title: String| if is_logarithmic { Axis::new(title).logarithmic() } else { Axis::new(title).tight() };
    let x = axis(format!("latency, {unit}{}", if is_logarithmic { ", logarithmic" } else { "" }));
    let (from, to) = (in_unit(distribution.min_ns), in_unit(distribution.max_ns));
    // One value alone stands in the middle.
    let ends = if is_single { [from * 0.9, from * 1.1 + f64::from(u8::from(from == 0.0))] } else { [from, to] };
    let counts: Vec<f64> = bins.iter().map(|bin| bin.count as f64).collect();
    let mut frame =
        ChartFrame::new(title, &x, &ends, &Axis::new("operations").counts().starting_at_zero(), &counts, &[]);
    let mut csv = format!("from_{unit},to_{unit},operations\n");
    for bin in bins.iter().filter(|bin| bin.count > 0) {
        let (low, high) = (in_unit(bin.from_ns), in_unit(bin.to_ns));
        let _ = writeln!(csv, "{low},{high},{}", bin.count);
        let (left, right) = (frame.x.at(low), frame.x.at(high));
        let (left, right) = if is_single { (left - 6.0, left + 6.0) } else { (left, right) };
        // A bin with one value among thousands stays visible.
        let top = frame.y.at(bin.count as f64).min(frame.bottom - 1.5);
        let note = format!("{} to {} {unit}: {}", short(low), short(high), pluralize(bin.count as u64, "operation"));
        let _ = writeln!(
            frame.svg,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            left + 0.5,
            (right - left - 1.0).max(1.0),
            frame.bottom - top,
            escape(&note),
        );
    }
    Figure { title: title.to_owned(), svg: frame.close(), csv }
}
