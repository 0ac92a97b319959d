//! Lines over a numeric axis: curves with error bars, steps over time with the moments of faults, single points.

use std::fmt::Write;

use super::frame::{ChartFrame, point_end, point_shape, series_class};
use super::scale::{Axis, short};
use super::{Figure, SpreadDirection, write_spread};
use crate::report::downloads::csv_cell;
use crate::report::escape::escape;

/// Points that are marked singly; more would hide the line.
const MAX_MARKED_POINTS: usize = 40;

/// Several named series over a numeric axis.
pub(crate) struct LineChart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<LineSeries>,
    moments: Vec<(f64, String)>,
    failures: Vec<(f64, String)>,
}

struct LineSeries {
    name: String,
    style: LineStyle,
    points: Vec<ChartPoint>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineStyle {
    /// From point to point.
    Curve,
    /// Each value holds until the next point.
    Steps,
    /// Points that are not connected.
    Scattered,
}

/// A point, and the range over several trials if there is one.
#[derive(Clone)]
pub(crate) struct ChartPoint {
    x: f64,
    y: f64,
    spread: Option<(f64, f64)>,
    /// A tooltip instead of the number.
    note: Option<String>,
}

impl ChartPoint {
    pub(crate) fn new(x: f64, y: f64) -> Self {
        Self { x, y, spread: None, note: None }
    }

    pub(crate) fn spread(mut self, least: f64, most: f64) -> Self {
        self.spread = Some((least, most));
        self
    }

    pub(crate) fn note(mut self, text: impl Into<String>) -> Self {
        self.note = Some(text.into());
        self
    }

    fn is_drawable(&self) -> bool {
        self.x.is_finite() && self.y.is_finite()
    }
}

impl From<(f64, f64)> for ChartPoint {
    fn from((x, y): (f64, f64)) -> Self {
        Self::new(x, y)
    }
}

impl LineChart {
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: Vec::new(), moments: Vec::new(), failures: Vec::new() }
    }

    /// Adds a curve. One without points is left out.
    pub(crate) fn curve<P: Into<ChartPoint>>(self, name: &str, points: impl IntoIterator<Item = P>) -> Self {
        self.series(name, LineStyle::Curve, points)
    }

    pub(crate) fn steps<P: Into<ChartPoint>>(self, name: &str, points: impl IntoIterator<Item = P>) -> Self {
        self.series(name, LineStyle::Steps, points)
    }

    pub(crate) fn scattered<P: Into<ChartPoint>>(self, name: &str, points: impl IntoIterator<Item = P>) -> Self {
        self.series(name, LineStyle::Scattered, points)
    }

    fn series<P: Into<ChartPoint>>(
        mut self,
        name: &str,
        style: LineStyle,
        points: impl IntoIterator<Item = P>,
    ) -> Self {
        let points: Vec<ChartPoint> = points.into_iter().map(Into::into).filter(ChartPoint::is_drawable).collect();
        if !points.is_empty() {
            self.series.push(LineSeries { name: name.to_owned(), style, points });
        }
        self
    }

    /// A dashed line over the whole height where something happened, with a tooltip.
    pub(crate) fn moment(mut self, x: f64, what: impl Into<String>) -> Self {
        self.moments.push((x, what.into()));
        self
    }

    /// A cross at the top for what has no value because it failed.
    pub(crate) fn failure(mut self, x: f64, what: impl Into<String>) -> Self {
        self.failures.push((x, what.into()));
        self
    }

    /// The figure; none without points.
    pub(crate) fn figure_if_any(self) -> Option<Figure> {
        (!self.series.is_empty()).then(|| self.figure())
    }

    pub(crate) fn figure(self) -> Figure {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let xs: Vec<f64> = points().map(|point| point.x).chain(self.failures.iter().map(|(x, _)| *x)).collect();
        let spreads = points().filter_map(|point| point.spread).flat_map(|(least, most)| [least, most]);
        let ys: Vec<f64> = points().map(|point| point.y).chain(spreads).collect();
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let mut frame = ChartFrame::new(&self.title, &self.x, &xs, &self.y, &ys, &names);
        self.draw_moments(&mut frame);
        for (number, series) in self.series.iter().enumerate() {
            let _ = writeln!(frame.svg, "<g class=\"{}\">", series_class(number));
            draw_series(&mut frame, number, series);
            frame.svg.push_str("</g>\n");
        }
        for (x, what) in &self.failures {
            let (x, top) = (frame.x.at(*x), frame.top);
            let _ = writeln!(
                frame.svg,
                "<path class=\"cross\" d=\"M{:.1} {top}l6 6m0 -6l-6 6\"><title>{}</title></path>",
                x - 3.0,
                escape(what)
            );
        }
        Figure { svg: frame.close(), csv: self.csv(), title: self.title }
    }

    fn draw_moments(&self, frame: &mut ChartFrame) {
        for (x, what) in &self.moments {
            let x = frame.x.at(*x);
            if (frame.left..=frame.right).contains(&x) {
                let (top, bottom) = (frame.top, frame.bottom);
                let _ = writeln!(
                    frame.svg,
                    "<path class=\"moment\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"><title>{}</title></path>",
                    escape(what)
                );
            }
        }
    }

    /// Every point, with its series.
    fn csv(&self) -> String {
        let has_spread = self.series.iter().flat_map(|series| &series.points).any(|point| point.spread.is_some());
        let mut text = format!("series,{},{}", csv_cell(&self.x.title), csv_cell(&self.y.title));
        text.push_str(if has_spread { ",least,most\n" } else { "\n" });
        for (series, point) in self.series.iter().flat_map(|series| series.points.iter().map(move |p| (series, p))) {
            let _ = write!(text, "{},{},{}", csv_cell(&series.name), point.x, point.y);
            if has_spread {
                let (least, most) =
                    point.spread.map_or_else(Default::default, |(a, b)| (a.to_string(), b.to_string()));
                let _ = write!(text, ",{least},{most}");
            }
            text.push('\n');
        }
        text
    }
}

fn draw_series(frame: &mut ChartFrame, number: usize, series: &LineSeries) {
    let place = |point: &ChartPoint| (frame.x.at(point.x), frame.y.at(point.y));
    let mut path = String::new();
    for point in &series.points {
        let (x, y) = place(point);
        let _ = match series.style {
            LineStyle::Scattered => Ok(()),
            _ if path.is_empty() => write!(path, "M{x:.1} {y:.1}"),
            LineStyle::Curve => write!(path, "L{x:.1} {y:.1}"),
            LineStyle::Steps => write!(path, "H{x:.1}V{y:.1}"),
        };
    }
    if series.style == LineStyle::Steps {
        let _ = write!(path, "H{:.1}", frame.right);
    }
    let mut marks = String::new();
    let is_marked = series.style != LineStyle::Steps && series.points.len() <= MAX_MARKED_POINTS;
    for point in &series.points {
        let (x, y) = place(point);
        if let Some((least, most)) = point.spread {
            write_spread(&mut marks, SpreadDirection::Upright, x, (frame.y.at(least), frame.y.at(most)));
        }
        let note = point.note.clone().unwrap_or_else(|| format!("{}: {}", series.name, short(point.y)));
        if series.style == LineStyle::Scattered {
            let _ = writeln!(
                marks,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.8\"><title>{}</title></circle>",
                escape(&note)
            );
        } else if is_marked {
            let (shape, end) = (point_shape(number, x, y), point_end(number));
            let _ = writeln!(marks, "{shape}<title>{}</title>{end}", escape(&note));
        }
    }
    if !path.is_empty() {
        let _ = writeln!(frame.svg, "<path class=\"line\" d=\"{path}\"/>");
    }
    frame.svg.push_str(&marks);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_over_several_trials_has_an_error_bar_and_its_range_in_the_data() {
        let points = [ChartPoint::new(1.0, 5.0).spread(4.0, 7.5), ChartPoint::new(2.0, 6.0)];
        let figure = LineChart::new("t", Axis::new("bytes, B"), Axis::new("us")).curve("a", points).figure();
        assert_eq!(figure.svg.matches("class=\"spread\"").count(), 1);
        assert_eq!(figure.csv, "series,\"bytes, B\",us,least,most\na,1,5,4,7.5\na,2,6,,\n");
    }

    #[test]
    fn axes_are_titled_and_what_is_no_number_is_left_out() {
        let points = [(1.0, f64::NAN), (2.0, 3.0), (f64::INFINITY, 1.0)];
        let chart =
            LineChart::new("t", Axis::new("hosts"), Axis::new("us")).curve("a", points).curve("b", [(0.0, 0.0); 0]);
        let figure = chart.figure();
        assert!(figure.svg.contains(">hosts</text>") && figure.svg.contains(">us</text>"));
        assert!(!figure.svg.contains("NaN") && !figure.svg.contains("inf"), "{}", figure.svg);
        assert_eq!(figure.csv, "series,hosts,us\na,2,3\n");
    }

    #[test]
    fn a_chart_without_points_is_none() {
        assert!(LineChart::new("t", Axis::new("x"), Axis::new("y")).figure_if_any().is_none());
        // Axes alone can be drawn as well.
        assert!(LineChart::new("t", Axis::new("x"), Axis::new("y")).figure().svg.ends_with("</svg>\n"));
    }
}
