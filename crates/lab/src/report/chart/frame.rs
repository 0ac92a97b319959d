//! The frame of a chart: title of the vertical axis and key above, axes with ticks and grid around the plot. What is placed here never
//! overlaps: widths of texts are estimated, generously.

use std::fmt::Write;

use super::scale::{Axis, ChartScale};
use crate::report::escape::escape;

/// Width of every chart, so that all fonts have one size.
pub(super) const WIDTH: f64 = 480.0;
/// Height of the plot between the axes.
const PLOT_HEIGHT: f64 = 180.0;
/// Height of a line of text.
pub(super) const LINE: f64 = 16.0;
/// An upper estimate of the mean width of a character, for the widest of the usual fonts.
const CHARACTER: f64 = 7.2;
/// What a wide letter takes beyond that, if there are more of them than one in six.
const WIDE_LETTER: f64 = 8.0;
/// Ticks of the vertical axis.
const VERTICAL_TICKS: usize = 6;
/// Of the horizontal one.
const HORIZONTAL_TICKS: usize = 7;
/// Depth of the labels below a horizontal axis: below the lowest label of the vertical one, which is as high as the axis.
const TICK_LABEL: f64 = 19.0;
/// Marks of a key.
const KEY_MARK: f64 = 26.0;

/// An upper estimate of the width of a text. In a short one a few wide letters exceed the mean.
pub(super) fn text_width(text: &str) -> f64 {
    let (letters, wide) = (text.chars().count(), text.chars().filter(|letter| "mwMW@%".contains(*letter)).count());
    CHARACTER * letters as f64 + WIDE_LETTER * wide.saturating_sub(letters / 6) as f64
}

/// A text that fits. If it must be shortened, its middle goes, since texts of one chart often begin alike, and the whole of it is a tooltip.
pub(super) fn fitting(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return escape(text);
    }
    let kept = ((width / CHARACTER) as usize).saturating_sub(1);
    let letters: Vec<char> = text.chars().collect();
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let [head, tail] =
        [&letters[..head], &letters[letters.len() - tail..]].map(|part| part.iter().collect::<String>());
    format!("{}…{}<title>{}</title>", escape(head.trim_end()), escape(tail.trim_start()), escape(text))
}

/// A chart under construction.
pub(super) struct ChartFrame {
    pub(super) svg: String,
    pub(super) x: ChartScale,
    pub(super) y: ChartScale,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl ChartFrame {
    /// Draws everything but the data.
    pub(super) fn new(title: &str, x: &Axis, xs: &[f64], y: &Axis, ys: &[f64], names: &[&str]) -> Self {
        let vertical = ChartScale::new(y, ys.iter().copied(), VERTICAL_TICKS);
        let widest = vertical.ticks.iter().map(|tick| text_width(&y.label(*tick))).fold(24.0, f64::max);
        let left = widest + 10.0;
        let key = key_entries(names);
        let top = LINE * (1 + key.iter().map(|entry| entry.row + 1).max().unwrap_or(0)) as f64 + 10.0;
        let bottom = top + PLOT_HEIGHT;
        let horizontal = ChartScale::new(x, xs.iter().copied(), HORIZONTAL_TICKS);
        let last = horizontal.ticks.last().map_or(0.0, |tick| text_width(&x.label(*tick)));
        let right = WIDTH - (last / 2.0).max(14.0);
        let room = horizontal.ticks.iter().map(|tick| text_width(&x.label(*tick))).fold(0.0, f64::max) + 8.0;
        let horizontal = horizontal.over(left, right).at_values(xs.to_vec(), HORIZONTAL_TICKS + 1, room);
        let vertical = vertical.over(bottom, top);
        let height = bottom + 2.0 * LINE + 8.0;
        let mut svg = open_svg(title, height);
        let _ = writeln!(svg, "<text x=\"0\" y=\"11\">{}</text>", fitting(&y.title, WIDTH));
        write_key(&mut svg, &key);
        let mut frame = Self { svg, x: horizontal, y: vertical, left, right, top, bottom };
        frame.vertical_axis(y);
        frame.horizontal_axis(x);
        frame
    }

    fn vertical_axis(&mut self, axis: &Axis) {
        let (left, right) = (self.left, self.right);
        for tick in &self.y.ticks {
            let y = self.y.at(*tick);
            let _ = writeln!(
                self.svg,
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 4.0,
                axis.label(*tick)
            );
        }
    }

    fn horizontal_axis(&mut self, axis: &Axis) {
        let (left, right, base) = (self.left, self.right, self.bottom);
        let _ = writeln!(self.svg, "<path class=\"axis\" d=\"M{left:.1} {base:.1}H{right:.1}\"/>");
        write_ticks(&mut self.svg, &self.x, axis, base);
    }

    /// The whole drawing.
    pub(super) fn close(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// The ticks of a horizontal axis below a line, as many as have room, and its title.
pub(super) fn write_ticks(svg: &mut String, scale: &ChartScale, axis: &Axis, base: f64) {
    let labels: Vec<(f64, String)> = scale.ticks.iter().map(|tick| (scale.at(*tick), axis.label(*tick))).collect();
    let is_tight = labels.windows(2).any(|pair| {
        let [(a, before), (b, after)] = pair else { return false };
        b - a < (text_width(before) + text_width(after)) / 2.0 + 4.0
    });
    let every = if is_tight && labels.len() > 4 { 2 } else { 1 };
    for (number, (x, label)) in labels.iter().enumerate() {
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{x:.1} {base:.1}v4\"/>");
        if number % every == 0 {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                base + TICK_LABEL
            );
        }
    }
    let half = text_width(&axis.title).min(WIDTH) / 2.0;
    let middle = f64::midpoint(scale.start, scale.end).clamp(half, WIDTH - half);
    let title = fitting(&axis.title, WIDTH);
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{title}</text>",
        base + 2.0 * LINE + 4.0
    );
}

pub(super) fn open_svg(title: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.1}\" role=\"img\" aria-label=\"{}\">\n", escape(title))
}

/// The classes of a series: a colour of ten, and a dash that helps where colours look alike.
pub(super) fn series_class(number: usize) -> String {
    let dash = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2][number % 10] + if number % 20 < 10 { 0 } else { 1 };
    format!("s{} d{dash}", number % 10)
}

/// The mark of a series at a point: shapes differ as well as colours.
pub(super) fn point_shape(number: usize, x: f64, y: f64) -> String {
    match number % 3 {
        0 => format!("<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.8\">"),
        1 => format!("<path class=\"point\" d=\"M{:.1} {:.1}h5v5h-5z\">", x - 2.5, y - 2.5),
        _ => format!("<path class=\"point\" d=\"M{x:.1} {:.1}l3.6 3.6l-3.6 3.6l-3.6 -3.6z\">", y - 3.6),
    }
}

/// The end tag of what [`point_shape`] opens.
pub(super) fn point_end(number: usize) -> &'static str {
    if number.is_multiple_of(3) { "</circle>" } else { "</path>" }
}

/// An entry of the key: its series, where it stands and how much room its name has.
pub(super) struct KeyEntry<'n> {
    name: &'n str,
    x: f64,
    width: f64,
    pub(super) row: usize,
}

/// Entries from left to right, in as many rows as they need. One series needs no key: the title of the axis names it.
pub(super) fn key_entries<'n>(names: &[&'n str]) -> Vec<KeyEntry<'n>> {
    if names.len() < 2 {
        return Vec::new();
    }
    let (mut x, mut row) = (0.0, 0);
    let mut entries = Vec::new();
    for name in names {
        let width = text_width(name).min(WIDTH - KEY_MARK);
        if x > 0.0 && x + KEY_MARK + width > WIDTH {
            (x, row) = (0.0, row + 1);
        }
        entries.push(KeyEntry { name, x, width, row });
        x += KEY_MARK + width + 12.0;
    }
    entries
}

/// The key below the title of the vertical axis: each name with its stroke and mark.
pub(super) fn write_key(svg: &mut String, entries: &[KeyEntry<'_>]) {
    for (number, entry) in entries.iter().enumerate() {
        let y = LINE * (entry.row + 1) as f64 + 12.0;
        let x = entry.x;
        let _ = writeln!(
            svg,
            "<g class=\"{}\"><path class=\"line\" d=\"M{x:.1} {:.1}h20\"/>{}{}</g><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            series_class(number),
            y - 4.0,
            point_shape(number, x + 10.0, y - 4.0),
            point_end(number),
            x + KEY_MARK,
            fitting(entry.name, entry.width.max(CHARACTER))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_key_stay_within_the_chart_and_apart() {
        let names =
            ["a", "a name of some length", "link.rate=EDR fabric.children=[8,8] and so on and so on and on", "b"];
        let names: Vec<&str> = names.iter().copied().cycle().take(12).collect();
        let entries = key_entries(&names);
        assert_eq!(entries.len(), 12);
        for (number, entry) in entries.iter().enumerate() {
            assert!(entry.x + KEY_MARK + entry.width <= WIDTH, "{}", entry.name);
            for other in entries[..number].iter().filter(|other| other.row == entry.row) {
                assert!(other.x + KEY_MARK + other.width < entry.x, "{} / {}", other.name, entry.name);
            }
        }
        assert!(key_entries(&["alone"]).is_empty());
    }

    #[test]
    fn twenty_series_have_twenty_looks() {
        let mut classes: Vec<String> = (0..20).map(series_class).collect();
        classes.sort();
        classes.dedup();
        assert_eq!(classes.len(), 20);
    }

    #[test]
    fn a_text_that_is_cut_says_so_and_keeps_the_whole_as_a_tooltip() {
        assert_eq!(fitting("a & b", 100.0), "a &amp; b");
        assert_eq!(fitting("a long text", 45.0), "a l…xt<title>a long text</title>");
    }
}
