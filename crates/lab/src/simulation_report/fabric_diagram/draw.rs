//! The diagram as SVG: lines below, boxes above, row names at the left.

use std::fmt::Write;

use super::{BoxPair, DiagramLayout, DiagramLine, FabricDiagram};
use crate::number_format::{group_digits, pluralize};
use crate::report::escape;

const WIDTH: f64 = 1000.0;
/// Width of the row names.
const MARGIN: f64 = 110.0;
/// Height of the arcs above the highest row.
const TOP: f64 = 64.0;
const GAP: f64 = 120.0;
const INNER: f64 = 270.0;
const OUTER: f64 = 310.0;

impl FabricDiagram {
    /// The diagram as one SVG element.
    pub(in crate::simulation_report) fn svg(&self) -> String {
        let (width, height) = self.size();
        let mut svg =
            format!("<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"the fabric\">\n");
        let most = self.lines.iter().map(|(_, line)| line.packets).max().unwrap_or(0).max(1);
        let heaviest = self.lines.iter().map(|(_, line)| line.bytes).max().unwrap_or(0);
        let worst = self.lines.iter().map(|(_, line)| line.faults()).max().unwrap_or(0).max(1);
        for (ends, line) in &self.lines {
            // By bytes where they are known: short acknowledgements do not make a link hot.
            let load = match heaviest {
                0 => f64::from(line.packets) / f64::from(most),
                heaviest => line.bytes as f64 / heaviest as f64,
            };
            let faults = line.faults() as f64 / worst as f64;
            self.draw_line(&mut svg, *ends, line, load, faults);
        }
        for number in 0..self.names.len() as u32 {
            self.draw_box(&mut svg, number);
        }
        if self.shape == DiagramLayout::Rows {
            self.draw_labels(&mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_line(&self, svg: &mut String, (a, b): BoxPair, line: &DiagramLine, load: f64, faults: f64) {
        let ((xa, ya), (xb, yb)) = (self.centre(a), self.centre(b));
        let level = |number: u32| self.rows.partition_point(|row| row.first_box <= number);
        let path = if self.shape == DiagramLayout::Rows && level(a) == level(b) {
            let rise = (12.0 + 0.06 * (xb - xa).abs()).min(TOP - 12.0);
            format!("M{xa:.1} {:.1}Q{:.1} {:.1} {xb:.1} {:.1}", ya - 5.0, (xa + xb) / 2.0, ya - 2.0 * rise, yb - 5.0)
        } else {
            format!("M{xa:.1} {ya:.1}L{xb:.1} {yb:.1}")
        };
        let strong = |least: f64, share: f64| {
            let share = share.sqrt();
            format!(
                "style=\"stroke-opacity:{:.2};stroke-width:{:.1}\"",
                least + (1.0 - least) * share,
                0.6 + 1.6 * share
            )
        };
        let style = match (line.has_faults(), line.packets) {
            (true, _) => format!("class=\"faulty\" {}", strong(0.55, faults)),
            (false, 0) => "class=\"idle\"".to_owned(),
            (false, _) => {
                format!("class=\"busy\" {};stroke:{}\"", strong(0.25, load).trim_end_matches('"'), heat(load))
            }
        };
        let cables = if line.cables > 0 { format!(", {}", pluralize(line.cables, "cable")) } else { String::new() };
        let mut title = format!("{} – {}{cables}: ", self.names[a as usize], self.names[b as usize]);
        let _ = write!(title, "{} on the busiest direction", pluralize(line.packets.into(), "packet"));
        if line.bytes > 0 {
            let _ = write!(title, ", {} bytes", group_digits(line.bytes));
        }
        if line.has_faults() {
            let _ = write!(title, ", {} damaged, {} lost", group_digits(line.damaged), group_digits(line.lost));
        }
        let _ = writeln!(svg, "<path d=\"{path}\" {style}><title>{}</title></path>", escape(&title));
    }

    fn draw_box(&self, svg: &mut String, number: u32) {
        let (x, y) = self.centre(number);
        let row = self.rows.iter().rposition(|row| row.first_box <= number).unwrap_or(0);
        let faults_inside = self.faults_inside[number as usize];
        let class = match (self.killed[number as usize], row) {
            (true, _) => "dead",
            (false, _) if faults_inside > 0 => "dead",
            (false, 0) => "host",
            (false, _) => "switch",
        };
        let (wide, high) = match self.shape {
            DiagramLayout::Rows => ((0.62 * self.step(row)).clamp(3.0, 22.0), 9.0),
            DiagramLayout::Ring => (9.0, 9.0),
        };
        let corner = if row == 0 { 4.0 } else { 1.5 };
        let mut name = escape(&self.names[number as usize]);
        if faults_inside > 0 {
            let _ = write!(name, ": {} damaged or lost on cables inside", pluralize(faults_inside, "packet"));
        }
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{high}\" rx=\"{corner}\"><title>{name}</title></rect>",
            x - wide / 2.0,
            y - high / 2.0,
        );
    }

    fn draw_labels(&self, svg: &mut String) {
        for (level, row) in self.rows.iter().enumerate() {
            let what = pluralize(row.nodes.into(), if level == 0 { "host" } else { "switch" });
            let (_, y) = self.centre(row.first_box);
            let _ = writeln!(svg, "<text x=\"0\" y=\"{:.1}\" class=\"strong\">{what}</text>", y - 2.0);
            let _ = writeln!(svg, "<text x=\"0\" y=\"{:.1}\">level {level}</text>", y + 12.0);
        }
    }

    fn size(&self) -> (f64, f64) {
        match self.shape {
            DiagramLayout::Rows => (WIDTH, TOP + GAP * (self.rows.len() as f64 - 1.0) + 24.0),
            DiagramLayout::Ring => (WIDTH, 2.0 * (OUTER + 20.0)),
        }
    }

    /// The distance between two boxes of a row.
    fn step(&self, row: usize) -> f64 {
        (WIDTH - MARGIN) / f64::from(self.rows[row].boxes())
    }

    /// The centre of a box.
    fn centre(&self, number: u32) -> (f64, f64) {
        let row = self.rows.iter().rposition(|row| row.first_box <= number).unwrap_or(0);
        let position = f64::from(number - self.rows[row].first_box) + 0.5;
        match self.shape {
            DiagramLayout::Rows => {
                let from_top = (self.rows.len() - 1 - row) as f64;
                (MARGIN + position * self.step(row), TOP + GAP * from_top)
            }
            DiagramLayout::Ring => {
                let angle = std::f64::consts::TAU * position / f64::from(self.rows[row].boxes());
                let radius = if row == 0 { OUTER } else { INNER };
                (WIDTH / 2.0 + radius * angle.sin(), OUTER + 20.0 - radius * angle.cos())
            }
        }
    }
}

/// The colour of a load, from cold to hot, as a share of the heaviest.
fn heat(load: f64) -> String {
    // From blue over green and yellow to orange: the red of faults stays theirs.
    format!("hsl({:.0} 75% 45%)", 210.0 - 175.0 * load.clamp(0.0, 1.0))
}
