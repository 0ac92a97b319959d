//! Charts as SVG, small and without scripts. Colours are those of the page (`page.rs`).

use std::fmt::Write;

use units::SimSpan;

use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize, time_unit};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 54.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 14.0;

/// Escapes text for use between tags and in quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A scale from data to the drawing, linear or logarithmic.
struct ChartScale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
    /// Minimum distance of two ticks: 1 for counts.
    min_step: f64,
}

impl ChartScale {
    fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + share * (self.end - self.start)
    }

    /// A few round values.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.from.log10().floor() as i32)..=(self.to.log10().ceil() as i32);
            let steps: &[f64] = if self.to / self.from > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
            return all.filter(|tick| (self.from..=self.to).contains(tick)).collect();
        }
        let rough = (self.to - self.from) / 4.0;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * magnitude).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * magnitude).max(self.min_step);
        let first = (self.from / step).ceil() as i64;
        (first..=(self.to / step).floor() as i64).map(|number| number as f64 * step).collect()
    }
}

fn open(title: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n", escape(title))
}

/// At most three decimals without trailing zeros; thousands as `k`, millions as `M`.
fn short(value: f64) -> String {
    let (value, letter) = match value {
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn horizontal_axis(svg: &mut String, scale: &ChartScale, what: &str) {
    let base = HEIGHT - BOTTOM;
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {base}H{}\"/>", WIDTH - RIGHT);
    for tick in scale.ticks() {
        let x = scale.at(tick);
        let _ =
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", base + 15.0, short(tick));
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{what}</text>", HEIGHT - 4.0);
}

fn vertical_axis(svg: &mut String, scale: &ChartScale) {
    for tick in scale.ticks() {
        let y = scale.at(tick);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(tick)
        );
    }
}

/// A histogram of latencies.
pub(crate) fn histogram(distribution: &LatencyDistribution, title: &str) -> String {
    let (unit, size) = time_unit(SimSpan::from_picos((distribution.median_ns * 1e3) as u64));
    let in_unit = |nanos: f64| nanos * 1e3 / size;
    let (mut from, mut to) = (in_unit(distribution.min_ns), in_unit(distribution.max_ns));
    let single = to <= from;
    if single {
        (from, to) = (from * 0.9, from * 1.1 + f64::from(u8::from(from == 0.0)));
    }
    let bins = &distribution.histogram;
    let logarithmic = bins.len() > 1 && bins[1].to_ns - bins[1].from_ns > 1.001 * (bins[0].to_ns - bins[0].from_ns);
    let x = ChartScale { from, to, start: LEFT, end: WIDTH - RIGHT, logarithmic, min_step: 0.0 };
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1);
    let y = ChartScale {
        from: 0.0,
        to: most as f64,
        start: HEIGHT - BOTTOM,
        end: TOP,
        logarithmic: false,
        min_step: 1.0,
    };
    let mut svg = open(title, HEIGHT);
    vertical_axis(&mut svg, &y);
    for bin in bins.iter().filter(|bin| bin.count > 0) {
        let (left, right) = if single {
            (x.at(in_unit(bin.from_ns)) - 6.0, x.at(in_unit(bin.from_ns)) + 6.0)
        } else {
            (x.at(in_unit(bin.from_ns)), x.at(in_unit(bin.to_ns)))
        };
        // A bin with one value among thousands stays visible.
        let top = y.at(bin.count as f64).min(HEIGHT - BOTTOM - 1.5);
        let (low, high) = (short(in_unit(bin.from_ns)), short(in_unit(bin.to_ns)));
        let _ = writeln!(
            svg,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{low} to {high} {unit}: {}</title></rect>",
            left + 0.5,
            (right - left - 1.0).max(1.0),
            HEIGHT - BOTTOM - top,
            pluralize(bin.count as u64, "operation"),
        );
    }
    let scale = if logarithmic { format!("{unit}, logarithmic") } else { unit.to_owned() };
    horizontal_axis(&mut svg, &x, &scale);
    svg.push_str("</svg>\n");
    svg
}

/// A chart as a file of its own, with the colours of the page.
pub(crate) fn standalone(chart: &str) -> String {
    let namespace = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";
    let style =
        format!(">\n<style>\n{FIGURE_STYLE}</style>\n<rect class=\"surface\" width=\"100%\" height=\"100%\"/>\n");
    chart.replacen("<svg ", namespace, 1).replacen(">\n", &style, 1)
}

const FIGURE_STYLE: &str = "\
.surface { fill: #fcfcfb; } text { fill: #6b6862; font: 11.5px system-ui, sans-serif; }
.axis { stroke: #6b6862; fill: none; } .grid { stroke: #e3e1dc; fill: none; }
.dot { fill: #2a6fb0; fill-opacity: .75; } .cross { stroke: #c8372d; stroke-width: 1.5; fill: none; }
@media (prefers-color-scheme: dark) { .surface { fill: #171615; } text { fill: #a19d95; } .axis { stroke: #a19d95; }
  .grid { stroke: #34312d; } .dot { fill: #69aeea; } .cross { stroke: #f0645a; } }
";

/// Latency by operation, on a logarithmic scale if they differ much; failed ones are marked at the top.
pub(crate) fn latency_chart(points: &[(u32, Option<SimSpan>)], operations: u32) -> String {
    let spans = || points.iter().filter_map(|(_, span)| *span);
    let longest = spans().max().unwrap_or(SimSpan::from_nanos(1));
    let shortest = spans().min().unwrap_or_default();
    let logarithmic = shortest > SimSpan::ZERO && longest.as_picos() > 10 * shortest.as_picos();
    let (unit, size) = time_unit(longest);
    let in_unit = |span: SimSpan| span.as_picos() as f64 / size;
    let x = ChartScale {
        from: 0.0,
        to: f64::from(operations.max(2) - 1),
        start: LEFT,
        end: WIDTH - RIGHT,
        logarithmic: false,
        min_step: 1.0,
    };
    let (from, to) = if logarithmic {
        (round_down(in_unit(shortest)), round_up(in_unit(longest)))
    } else {
        (0.0, in_unit(longest) * 1.05)
    };
    let y = ChartScale { from, to, start: HEIGHT - BOTTOM, end: TOP, logarithmic, min_step: 0.0 };
    let mut svg = open("latency by operation", HEIGHT);
    vertical_axis(&mut svg, &y);
    for (operation, span) in points {
        let place = x.at(f64::from(*operation));
        match span {
            Some(span) => {
                let _ = writeln!(
                    svg,
                    "<circle class=\"dot\" cx=\"{place:.1}\" cy=\"{:.1}\" r=\"1.8\"><title>operation {operation}: {span}</title></circle>",
                    y.at(in_unit(*span)),
                );
            }
            None => {
                let _ = writeln!(
                    svg,
                    "<path class=\"cross\" d=\"M{:.1} {TOP}l6 6m0 -6l-6 6\"><title>operation {operation}: failed</title></path>",
                    place - 3.0,
                );
            }
        }
    }
    horizontal_axis(&mut svg, &x, &format!("operation; latency in {unit}"));
    svg.push_str("</svg>\n");
    svg
}

/// Several named series of points, both axes logarithmic. The key is above, three entries to a row: entries of one
/// column share a colour.
pub(crate) fn line_chart(series: &[(&str, Vec<(f64, f64)>)], across: &str, up: &str) -> String {
    let all = || series.iter().flat_map(|(_, points)| points.iter().copied());
    let bounds = |values: Vec<f64>| {
        let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(*value), b.max(*value)));
        (least.max(1e-3), most.max(least * 1.01).max(2e-3))
    };
    let ((left, right), (low, high)) = (bounds(all().map(|p| p.0).collect()), bounds(all().map(|p| p.1).collect()));
    let x = ChartScale { from: left, to: right, start: LEFT, end: WIDTH - RIGHT, logarithmic: true, min_step: 0.0 };
    let (from, to) = (round_down(low), round_up(high));
    let y = ChartScale { from, to, start: HEIGHT - BOTTOM, end: TOP, logarithmic: true, min_step: 0.0 };
    let key_height = 16.0 * series.len().div_ceil(KEY_COLUMNS) as f64;
    let mut svg = open(&format!("{up} by {across}"), HEIGHT + key_height);
    write_key(&mut svg, &series.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let _ = writeln!(svg, "<g transform=\"translate(0 {key_height})\">");
    vertical_axis(&mut svg, &y);
    for (number, (_, points)) in series.iter().enumerate() {
        let path: Vec<String> =
            points.iter().map(|(a, b)| format!("{:.1} {:.1}", x.at(a.max(left)), y.at(b.max(low)))).collect();
        let _ = writeln!(svg, "<path d=\"M{}\" {}/>", path.join("L"), stroke(number));
    }
    horizontal_axis(&mut svg, &x, &escape(&format!("{across}; {up}")));
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Several series over the same named places, equally spaced. The vertical scale is linear, or logarithmic if all values are
/// positive and far apart.
pub(crate) fn category_chart(places: &[String], series: &[(&str, Vec<f64>)], what: &str) -> String {
    let all = || series.iter().flat_map(|(_, values)| values.iter().copied());
    let (least, most) = all().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
    let logarithmic = least > 0.0 && most > 20.0 * least;
    let (from, to) = match logarithmic {
        true => (round_down(least), round_up(most)),
        false => (least.min(0.0) * 1.05, most.max(0.0) * 1.05),
    };
    let to = if to > from { to } else { from + 1.0 };
    let y = ChartScale { from, to, start: HEIGHT - BOTTOM, end: TOP, logarithmic, min_step: 0.0 };
    let step = (WIDTH - LEFT - RIGHT) / places.len().max(1) as f64;
    let x = |place: usize| LEFT + (place as f64 + 0.5) * step;
    // Long names are turned and need room below.
    let turned = places.iter().any(|name| name.len() as f64 * 6.5 > step);
    let below = if turned { 90.0 } else { 0.0 };
    let key_height = 16.0;
    let mut svg = open(what, HEIGHT + key_height + below);
    write_key(&mut svg, &series.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let _ = writeln!(svg, "<g transform=\"translate(0 {key_height})\">");
    vertical_axis(&mut svg, &y);
    for (number, (_, values)) in series.iter().enumerate() {
        let points: Vec<String> =
            values.iter().enumerate().map(|(place, value)| format!("{:.1} {:.1}", x(place), y.at(*value))).collect();
        let _ = writeln!(svg, "<path d=\"M{}\" {}/>", points.join("L"), stroke(number));
        for (place, value) in values.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.4\"><title>{}</title></circle>",
                x(place),
                y.at(*value),
                short(*value)
            );
        }
    }
    let base = HEIGHT - BOTTOM + 15.0;
    for (place, name) in places.iter().enumerate() {
        let (x, name) = (x(place), escape(name));
        let (anchor, turn) = if turned {
            ("end", format!(" transform=\"rotate(-40 {x:.1} {base})\""))
        } else {
            ("middle", String::new())
        };
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{base}\" text-anchor=\"{anchor}\"{turn}>{name}</text>");
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        HEIGHT + below - 4.0,
        escape(what)
    );
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// The names of the series above a chart, each with its stroke.
fn write_key(svg: &mut String, names: &[&str]) {
    for (number, name) in names.iter().enumerate() {
        let left = LEFT + (number % KEY_COLUMNS) as f64 * (WIDTH - LEFT - RIGHT) / KEY_COLUMNS as f64;
        let height = 16.0 * (number / KEY_COLUMNS) as f64 + 12.0;
        let (stroke, name) = (stroke(number), escape(name));
        let _ = writeln!(
            svg,
            "<path d=\"M{left:.1} {:.1}h22\" {stroke}/><text x=\"{:.1}\" y=\"{height:.1}\">{name}</text>",
            height - 4.0,
            left + 28.0,
        );
    }
}

/// Entries in a row of the key.
const KEY_COLUMNS: usize = 3;

/// The stroke of a series: distinct dashes as well as colours.
fn stroke(number: usize) -> String {
    let colour = ["#2f7d4f", "#b3582c", "#3a6ea5"][number % 3];
    let dash = ["none", "7 3", "3 2", "12 3", "2 3", "7 3 2 3"][number % 6];
    format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"")
}

/// The largest of 1, 2 and 5 times a power of ten that is at most `value`.
fn round_down(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].map(|step| step * decade).into_iter().find(|round| *round <= value).unwrap_or(decade)
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `value`.
fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].map(|step| step * decade).into_iter().find(|round| *round >= value).unwrap_or(10.0 * decade)
}

/// Named counts as bars on a logarithmic scale.
pub(crate) fn bar_chart(counts: &[(&str, &str, u64)]) -> String {
    let step = 22.0;
    let height = step * counts.len() as f64 + 6.0;
    let most = counts.iter().map(|(_, _, number)| *number).max().unwrap_or(0);
    let length = |number: u64| match number {
        0 => 0.0,
        number => 8.0 + 280.0 * (number as f64).ln_1p() / (most as f64).ln_1p(),
    };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"errors by class\">\n");
    for (position, (name, about, number)) in counts.iter().enumerate() {
        let y = step * position as f64 + 4.0;
        let width = length(*number);
        let _ = writeln!(svg, "<text x=\"84\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", y + 12.0);
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"92\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"15\" rx=\"2\"><title>{about}</title></rect>",
            if *number > 0 { "fault" } else { "none" },
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"strong\">{}</text>",
            98.0 + width,
            y + 12.0,
            group_digits(*number)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let scale = ChartScale { from: 1.724, to: 9.8, start: 0.0, end: 1.0, logarithmic: false, min_step: 0.0 };
        assert_eq!(scale.ticks(), [2.5, 5.0, 7.5]);
        let scale = ChartScale { from: 1.5, to: 900.0, start: 0.0, end: 1.0, logarithmic: true, min_step: 0.0 };
        assert_eq!(scale.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
    }

    #[test]
    fn bounds_are_rounded_to_1_2_or_5() {
        assert_eq!([3.2, 5.0, 0.07].map(round_down), [2.0, 5.0, 0.05]);
        assert_eq!([3.2, 5.0, 7.0].map(round_up), [5.0, 5.0, 10.0]);
    }

    #[test]
    fn tick_labels_are_short() {
        assert_eq!([0.05, 12.5, 1000.0, 20_000.0, 1e6].map(short), ["0.05", "12.5", "1000", "20k", "1M"]);
    }

    #[test]
    fn escaped_text_cannot_end_a_tag_or_a_quote() {
        assert_eq!(escape("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
    }
}
