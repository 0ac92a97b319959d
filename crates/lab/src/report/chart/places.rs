//! Values of several series at named places: one row for each place, so that names of any length fit.

use std::fmt::Write;

use super::frame::{
    LINE, WIDTH, fitting, key_entries, open_svg, point_end, point_shape, series_class, text_width, write_key,
    write_ticks,
};
use super::scale::{Axis, ChartScale, short};
use super::{Figure, SpreadDirection, write_spread};
use crate::report::downloads::csv_cell;
use crate::report::escape::escape;

/// Widest column of names.
const MAX_NAME_WIDTH: f64 = 236.0;
/// Distance of the series within a row.
const SERIES_STEP: f64 = 8.0;
/// Ticks of the axis of values, at most.
const TICKS: usize = 6;

/// A chart with a row for each place.
pub(crate) struct PlaceChart {
    title: String,
    axis: Axis,
    places: Vec<String>,
    series: Vec<(String, Vec<Option<PlaceValue>>)>,
    band: Option<(f64, f64, String)>,
}

/// A value at a place, the range over several trials, and the trials themselves.
#[derive(Clone, Default)]
pub(crate) struct PlaceValue {
    value: f64,
    spread: Option<(f64, f64)>,
    trials: Vec<f64>,
}

impl PlaceValue {
    pub(crate) fn new(value: f64) -> Self {
        Self { value, ..Self::default() }
    }

    pub(crate) fn spread(mut self, least: f64, most: f64) -> Self {
        self.spread = Some((least, most));
        self
    }

    pub(crate) fn trials(mut self, trials: Vec<f64>) -> Self {
        self.trials = trials;
        self
    }

    fn numbers(&self) -> impl Iterator<Item = f64> {
        let spread = self.spread.into_iter().flat_map(|(least, most)| [least, most]);
        std::iter::once(self.value).chain(spread).chain(self.trials.iter().copied())
    }
}

impl PlaceChart {
    pub(crate) fn new(title: impl Into<String>, axis: Axis, places: Vec<String>) -> Self {
        Self { title: title.into(), axis, places, series: Vec::new(), band: None }
    }

    /// Adds a series: a value for each place, in order.
    pub(crate) fn series(mut self, name: &str, values: Vec<Option<PlaceValue>>) -> Self {
        let is_drawable = |value: &PlaceValue| value.value.is_finite();
        let values = values.into_iter().map(|value| value.filter(is_drawable)).collect();
        self.series.push((name.to_owned(), values));
        self
    }

    /// A range of values that is shaded, with what it means as a tooltip.
    pub(crate) fn band(mut self, from: f64, to: f64, what: &str) -> Self {
        self.band = Some((from, to, what.to_owned()));
        self
    }

    pub(crate) fn figure(self) -> Figure {
        let values = self.series.iter().flat_map(|(_, values)| values.iter().flatten());
        let numbers: Vec<f64> = values
            .flat_map(PlaceValue::numbers)
            .chain(self.band.iter().flat_map(|(from, to, _)| [*from, *to]))
            .collect();
        let scale = ChartScale::new(&self.axis, numbers.into_iter(), TICKS);
        let names: Vec<&str> = self.series.iter().map(|(name, _)| name.as_str()).collect();
        let key = key_entries(&names);
        let key_rows = key.iter().map(|entry| entry.row + 1).max().unwrap_or(0);
        // The key leaves the line of a vertical axis' title free, which these charts do not have.
        let top = LINE * key_rows as f64 + 8.0;
        let row_height = (SERIES_STEP * self.series.len() as f64 + 8.0).max(LINE + 4.0);
        let bottom = top + row_height * self.places.len() as f64;
        let name_width = self.places.iter().map(|name| text_width(name)).fold(0.0, f64::max).min(MAX_NAME_WIDTH);
        let last = scale.ticks.last().map_or(0.0, |tick| text_width(&self.axis.label(*tick)));
        let scale = scale.over(name_width + 14.0, WIDTH - (last / 2.0).max(14.0));
        let mut svg = open_svg(&self.title, bottom + 2.0 * LINE + 8.0);
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", -LINE);
        write_key(&mut svg, &key);
        svg.push_str("</g>\n");
        self.draw_ground(&mut svg, &scale, (top, bottom), name_width, row_height);
        for (number, (name, values)) in self.series.iter().enumerate() {
            let _ = writeln!(svg, "<g class=\"{}\">", series_class(number));
            let offset = (number as f64 - (self.series.len() as f64 - 1.0) / 2.0) * SERIES_STEP;
            for (row, value) in values.iter().enumerate() {
                let y = top + (row as f64 + 0.5) * row_height + offset;
                if let Some(value) = value {
                    draw_value(&mut svg, &scale, number, name, value, y);
                }
            }
            svg.push_str("</g>\n");
        }
        svg.push_str("</svg>\n");
        Figure { svg, csv: self.csv(), title: self.title }
    }

    /// The names, a line for each row, the shaded range and the axis.
    fn draw_ground(
        &self,
        svg: &mut String,
        scale: &ChartScale,
        (top, bottom): (f64, f64),
        name_width: f64,
        row_height: f64,
    ) {
        if let Some((from, to, what)) = &self.band {
            let (from, to) = (scale.at(*from), scale.at(*to));
            let _ = writeln!(
                svg,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                to - from,
                bottom - top,
                escape(what)
            );
        }
        for tick in &scale.ticks {
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{:.1} {top:.1}V{bottom:.1}\"/>", scale.at(*tick));
        }
        for (row, name) in self.places.iter().enumerate() {
            let y = top + (row as f64 + 0.5) * row_height;
            let (left, right) = (scale.start, scale.end);
            let _ = writeln!(
                svg,
                "<text x=\"{name_width:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>",
                y + 4.0,
                fitting(name, name_width.max(1.0))
            );
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{:.1} {bottom:.1}H{:.1}\"/>", scale.start, scale.end);
        write_ticks(svg, scale, &self.axis, bottom);
    }

    fn csv(&self) -> String {
        let mut text = format!("place,series,{},least,most\n", csv_cell(&self.axis.title));
        for (row, place) in self.places.iter().enumerate() {
            for (name, values) in &self.series {
                let Some(Some(value)) = values.get(row) else { continue };
                let (least, most) =
                    value.spread.map_or_else(Default::default, |(a, b)| (a.to_string(), b.to_string()));
                let _ = writeln!(text, "{},{},{},{least},{most}", csv_cell(place), csv_cell(name), value.value);
            }
        }
        text
    }
}

fn draw_value(svg: &mut String, scale: &ChartScale, number: usize, name: &str, value: &PlaceValue, y: f64) {
    for trial in value.trials.iter().filter(|trial| trial.is_finite()) {
        let _ = writeln!(svg, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"1.6\"/>", scale.at(*trial));
    }
    if let Some((least, most)) = value.spread {
        write_spread(svg, SpreadDirection::Level, y, (scale.at(least), scale.at(most)));
    }
    let (shape, end) = (point_shape(number, scale.at(value.value), y), point_end(number));
    let _ = writeln!(svg, "{shape}<title>{}: {}</title>{end}", escape(name), short(value.value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_keep_their_names_and_values_their_ranges() {
        let values = vec![Some(PlaceValue::new(2.0).spread(1.0, 4.0)), None, Some(PlaceValue::new(f64::NAN))];
        let places = ["no fault", "a <cut>", "none"].map(str::to_owned).to_vec();
        let figure = PlaceChart::new("t", Axis::new("lost, %"), places).series("ours", values).figure();
        for wanted in [">no fault</text>", ">a &lt;cut&gt;</text>", ">lost, %</text>", "class=\"spread\""] {
            assert!(figure.svg.contains(wanted), "{wanted}");
        }
        assert_eq!(figure.csv, "place,series,\"lost, %\",least,most\nno fault,ours,2,1,4\n");
    }
}
