//! The paper's figures drawn again: the curves that its text describes, those of the model, and the null model's.
//!
//! The paper prints shapes and ratios, and its times in plots only. So a curve is drawn in the terms of its claim (PM-5 to PM-7): in
//! percent of the other transition, in queue pairs, or in terms of its first point.

use super::kernels::NasProgram;
use super::{AdapterFigures, AdapterSlowdown};
use crate::report::{Axis, Figure, LineChart, PageSection, PlaceChart, PlaceValue};
use crate::reproduce::comparison::Comparison;
use crate::reproduce::figure_charts::figure_charts;
use crate::reproduce::path_migration::simulated::SimulatedLatency;
use crate::reproduce::robustness::SeedSpread;

/// A curve of the paper over named places: published, the model and the null model.
struct Curve {
    title: &'static str,
    /// What the places are, and the unit of the values.
    axes: (&'static str, &'static str),
    points: Vec<(String, [f64; 3])>,
}

impl Curve {
    /// Over numbers as lines, over names row by row.
    fn draw(&self) -> Figure {
        let (across, unit) = self.axes;
        let numbers: Option<Vec<f64>> = self.points.iter().map(|(place, _)| place.parse().ok()).collect();
        let series = ["published", "the model", "null model"].into_iter().enumerate();
        if let Some(numbers) = numbers {
            let chart = LineChart::new(self.title, Axis::new(across).logarithmic(), Axis::new(unit));
            let at = |of: usize| numbers.iter().zip(&self.points).map(move |(x, (_, values))| (*x, values[of]));
            return series.fold(chart, |chart, (of, name)| chart.curve(name, at(of))).figure();
        }
        let places = self.points.iter().map(|(place, _)| place.clone()).collect();
        let chart = PlaceChart::new(self.title, Axis::new(unit), places);
        let of = |of: usize| self.points.iter().map(|(_, values)| Some(PlaceValue::new(values[of]))).collect();
        series.fold(chart, |chart, (number, name)| chart.series(name, of(number))).figure()
    }
}

impl AdapterFigures {
    /// A section for each figure, with the compared rows.
    pub(in super::super) fn charts(&self, rows: &[Comparison], seeds: &[SeedSpread]) -> Vec<PageSection> {
        let published = |id: &str| rows.iter().find(|row| row.id == id).map_or(f64::NAN, |row| row.published_value);
        let draw = |curves: Vec<Curve>| curves.iter().map(Curve::draw).collect::<Vec<Figure>>();
        let classes: Vec<Comparison> =
            rows.iter().filter(|row| ["9", "10"].contains(&row.figure.as_str())).cloned().collect();
        let program = |program: NasProgram, name: &str| {
            let found = self.programs.iter().find(|slowdown| slowdown.program == program);
            let curve = found.map(|slowdown| lost_by_program(slowdown, name, published));
            draw(curve.into_iter().collect())
        };
        let figures = [
            ("Figures 5 and 6", draw(vec![self.lead_by_queue_pairs(published)])),
            ("Figure 7", draw(self.latency_by_queue_pairs(published))),
            ("Figure 8", draw(vec![by_size(&self.verbs.pulled_cable, published("cut-size"))])),
            ("Figures 9 and 10", figure_charts(&classes, seeds)),
            ("Figure 11", program(NasProgram::FourierB, "ft")),
            ("Figure 12", program(NasProgram::WavefrontB, "lu")),
        ];
        figures.into_iter().map(|(title, figures)| PageSection::new(title).charts(figures)).collect()
    }

    /// PM-5: the lead of one transition for few and for many queue pairs; the text says nothing about the numbers between.
    fn lead_by_queue_pairs(&self, published: impl Fn(&str) -> f64) -> Curve {
        let points = self.verbs.transitions.iter().filter_map(|row| {
            let id = match row.connections {
                1..=16 => "lead-few",
                64..=512 => "lead-many",
                _ => return None,
            };
            let ours = 100.0 * (row.migrating_us / row.arming_us - 1.0);
            Some((row.connections.to_string(), [published(id), ours, 0.0]))
        });
        Curve {
            title: "ARMED to MIGRATED takes so much longer than MIGRATED to ARMED",
            axes: ("queue pairs", "longer by, %"),
            points: points.collect(),
        }
    }

    /// PM-6: how many iterations are slowed, and by how much.
    fn latency_by_queue_pairs(&self, published: impl Fn(&str) -> f64) -> Vec<Curve> {
        let rows = &self.verbs.by_count;
        let first = rows.first().map_or(f64::NAN, |row| row.disturbed_us);
        let slowed = rows.iter().map(|row| {
            let count = row.connections as f64;
            (row.connections.to_string(), [published("affected-iterations") * count, row.affected as f64, 0.0])
        });
        let latency = rows.iter().map(|row| {
            let flat = published("migrating-connections");
            (row.connections.to_string(), [flat, row.disturbed_us / first, 1.0])
        });
        vec![
            Curve {
                title: "Slower iterations while all migrate",
                axes: ("queue pairs", "iterations"),
                points: slowed.collect(),
            },
            Curve {
                title: "Their mean latency in terms of that with the fewest queue pairs",
                axes: ("queue pairs", "ratio"),
                points: latency.collect(),
            },
            by_size(&self.verbs.while_migrating, published("migrating-size")),
        ]
    }
}

/// PM-6: what is added for a queue pair does not depend on the size.
fn by_size(rows: &[SimulatedLatency], published: f64) -> Curve {
    let first = rows.first().map_or(f64::NAN, |row| row.per_connection_us);
    let points = rows.iter().map(|row| (row.bytes.to_string(), [published, row.per_connection_us / first, 1.0]));
    Curve {
        title: "Added for each queue pair in terms of the shortest messages",
        axes: ("bytes of a message", "ratio"),
        points: points.collect(),
    }
}

/// PM-7: a run without a fault, and with a pulled cable.
fn lost_by_program(slowdown: &AdapterSlowdown, name: &str, published: impl Fn(&str) -> f64) -> Curve {
    let places = [
        ("no fault", "free", slowdown.free_percent()),
        ("cable, 1 queue pair a peer", "fault", slowdown.few.mean),
        ("cable, many queue pairs", "many", slowdown.many.mean),
    ];
    let points = places.map(|(place, id, ours)| (place.to_owned(), [published(&format!("{name}-{id}")), ours, 0.0]));
    Curve { title: "Added to the run time", axes: ("", "added, %"), points: points.into() }
}
