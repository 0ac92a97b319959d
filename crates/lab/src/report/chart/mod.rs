//! The charts of all pages, as SVG, small and without scripts. Colours are those of the stylesheet (`charts.css`).
//!
//! A chart is a value: its axes, which are titled with units, and its series. It becomes a [`Figure`]: the drawing, and its data as CSV.

mod bars;
mod frame;
mod histogram;
mod lines;
mod places;
mod scale;

use std::fmt::Write;

pub(crate) use bars::bar_chart;
pub(crate) use histogram::histogram;
pub(crate) use lines::{ChartPoint, LineChart};
pub(crate) use places::{PlaceChart, PlaceValue};
pub(crate) use scale::Axis;

/// The part of the stylesheet that has the colours and the marks of charts.
pub(super) const CHART_STYLE: &str = include_str!("../charts.css");

/// A chart that is drawn.
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) svg: String,
    pub(crate) csv: String,
}

/// A chart as a file of its own, with the colours of the pages.
pub(crate) fn standalone(figure: &Figure) -> String {
    let namespace = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";
    let style =
        format!(">\n<style>\n{CHART_STYLE}</style>\n<rect class=\"surface\" width=\"100%\" height=\"100%\"/>\n");
    figure.svg.replacen("<svg ", namespace, 1).replacen(">\n", &style, 1)
}

/// Which way an error bar points.
#[derive(Clone, Copy)]
enum SpreadDirection {
    Upright,
    Level,
}

/// A bar with caps from one value to another.
fn write_spread(svg: &mut String, direction: SpreadDirection, place: f64, (from, to): (f64, f64)) {
    let _ = match direction {
        SpreadDirection::Upright => {
            writeln!(svg, "<path class=\"spread\" d=\"M{0:.1} {from:.1}h6m-3 0V{to:.1}m-3 0h6\"/>", place - 3.0)
        }
        SpreadDirection::Level => {
            writeln!(svg, "<path class=\"spread\" d=\"M{from:.1} {0:.1}v6m0 -3H{to:.1}m0 -3v6\"/>", place - 3.0)
        }
    };
}
