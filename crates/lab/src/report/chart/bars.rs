//! Named counts as bars on a logarithmic scale that begins at zero.

use std::fmt::Write;

use super::Figure;
use super::frame::{LINE, WIDTH, open_svg, text_width};
use crate::number_format::group_digits;
use crate::report::downloads::csv_cell;
use crate::report::escape::escape;

const STEP: f64 = 22.0;

/// Counts with a name and an explanation. `unit` is the title of the axis.
pub(crate) fn bar_chart(title: &str, unit: &str, counts: &[(&str, &str, u64)]) -> Figure {
    let most = counts.iter().map(|(_, _, number)| *number).max().unwrap_or(0);
    let end = (most as f64).max(10.0);
    let left = counts.iter().map(|(name, ..)| text_width(name)).fold(0.0, f64::max) + 8.0;
    // Room for the number behind the longest bar.
    let full = WIDTH - left - text_width(&group_digits(most)) - 12.0;
    let length = |number: f64| full * number.ln_1p() / end.ln_1p();
    let base = STEP * counts.len() as f64 + 4.0;
    let mut svg = open_svg(title, base + 2.0 * LINE + 8.0);
    let decades = std::iter::successors(Some(1_u64), |tick| tick.checked_mul(10));
    let decades: Vec<u64> = decades.take_while(|tick| *tick as f64 <= end).collect();
    // So many decades have room for their labels; others are lines only.
    let every = (decades.len() * 56).div_ceil(full as usize).max(1);
    for (place, tick) in std::iter::once(0).chain(decades).enumerate() {
        let x = left + length(tick as f64);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} 0V{base}\"/>");
        if tick == 0 || (place - 1).is_multiple_of(every) {
            let label = super::scale::short(tick as f64);
            let _ =
                writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", base + LINE);
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\">{}, logarithmic</text>",
        WIDTH / 2.0,
        base + 2.0 * LINE + 2.0,
        escape(unit)
    );
    let mut csv = format!("class,{}\n", csv_cell(unit));
    for (position, (name, about, number)) in counts.iter().enumerate() {
        let y = STEP * position as f64 + 4.0;
        let width = length(*number as f64);
        let class = if *number > 0 { "fault" } else { "none" };
        let _ = writeln!(csv, "{},{number}", csv_cell(about));
        let (name, about) = (escape(name), escape(about));
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{class}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"15\" rx=\"2\"><title>{about}</title></rect>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"strong\">{}</text>",
            left - 8.0,
            y + 12.0,
            left + width + 6.0,
            y + 12.0,
            group_digits(*number)
        );
    }
    svg.push_str("</svg>\n");
    Figure { title: title.to_owned(), svg, csv }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_three_ticks_even_if_nothing_was_counted() {
        let svg = bar_chart("t", "packets", &[("lost", "lost by a rule", 0)]).svg;
        for label in [">0</text>", ">1</text>", ">10</text>", ">packets, logarithmic</text>"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
    }
}
