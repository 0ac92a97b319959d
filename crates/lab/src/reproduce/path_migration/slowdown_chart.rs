//! The slowdown of every run as a chart.

use std::fmt::Write;

use super::cable_cuts::{KernelCutResults, RunVariant};

/// Every run as a dot, kernels and variants side by side, and the published 5 to 7 % as a band.
pub(super) fn slowdown_chart(kernels: &[KernelCutResults]) -> String {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 260.0;
    const LEFT: f64 = 44.0;
    const BOTTOM: f64 = 40.0;
    let variants = [RunVariant::Plain, RunVariant::Silent, RunVariant::Noticed];
    let values = kernels.iter().flat_map(|results| &results.runs).filter_map(|run| run.slower_percent);
    let (min, max) = values.fold((-1.0f64, 8.0f64), |(min, max), value| (min.min(value), max.max(value)));
    let y = |percent: f64| 8.0 + (max - percent) / (max - min) * (HEIGHT - BOTTOM - 16.0);
    let column = (WIDTH - LEFT) / (kernels.len() * variants.len()) as f64;
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"slow-down of every run\">\n");
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{}\" height=\"{:.1}\" fill=\"#8883\"><title>published for FT and LU: 5 to 7 %</title></rect>",
        y(7.0),
        WIDTH - LEFT,
        y(5.0) - y(7.0)
    );
    for tick in [0.0, 2.0, 5.0, 7.0] {
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {:.1}H{WIDTH}\"/>", y(tick));
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick} %</text>",
            LEFT - 6.0,
            y(tick) + 4.0
        );
    }
    for (index, (results, variant)) in
        kernels.iter().flat_map(|results| variants.map(|variant| (results, variant))).enumerate()
    {
        let middle = LEFT + column * (index as f64 + 0.5);
        let runs: Vec<f64> =
            results.runs.iter().filter(|run| run.variant == variant).filter_map(|run| run.slower_percent).collect();
        for (dot, percent) in runs.iter().enumerate() {
            let x = middle + ((dot as f64 + 0.5) / runs.len() as f64 - 0.5) * column * 0.6;
            let _ = writeln!(
                svg,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.5\"><title>{percent:+.2} %</title></circle>",
                y(*percent)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text><text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 16.0,
            results.kernel.name(),
            HEIGHT - 8.0,
            variant.label()
        );
    }
    svg.push_str("</svg>\n");
    svg
}
