//! What happened over time: throughput, the use of links, queues, marks, pauses, losses and repairs, with the moments of faults.
//!
//! In: the records of a run. Out: a [`RunTimeline`] for the JSON report, its CSV, and charts. Every chart has the same time axis, on which
//! the faults of the plan are marked.

use std::fmt::Write;

use serde::Serialize;
use simulator::TelemetryBucket;
use simulator::fault::FaultPlan;
use simulator::scenario::Scenario;

use super::parameters;
use crate::number_format::si_number;
use crate::report::escape;
use crate::simulated_run::SimulatedRun;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 34.0;

/// The records of a run, in spans of equal length.
#[derive(Clone, Default, Debug, Serialize)]
pub(crate) struct RunTimeline {
    /// The length of a span.
    pub(crate) span_us: f64,
    pub(crate) points: Vec<TimelinePoint>,
    pub(crate) faults: Vec<FaultMoment>,
}

/// One span of time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct TimelinePoint {
    pub(crate) start_us: f64,
    /// Bytes that reached their destination, with headers.
    pub(crate) delivered_gbit_per_s: f64,
    /// Of all links, and of the busiest.
    pub(crate) mean_link_use: f64,
    pub(crate) busiest_link_use: f64,
    pub(crate) longest_queue_bytes: u32,
    pub(crate) ecn_marks: u32,
    pub(crate) pauses: u32,
    pub(crate) losses: u32,
    pub(crate) repairs: u32,
}

/// What a line of a chart shows of each span.
type TimelineValue<'v> = &'v dyn Fn(&TimelinePoint) -> f64;

/// When a fault begins or ends.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FaultMoment {
    pub(crate) at_us: f64,
    pub(crate) what: String,
}

impl RunTimeline {
    pub(crate) fn new(scenario: &Scenario, run: &SimulatedRun) -> Self {
        let faults = moments(&scenario.plan);
        let Some(telemetry) = run.telemetry() else { return Self { faults, ..Self::default() } };
        let (width, buckets) = telemetry.series();
        let span_us = width.as_nanos_f64() / 1e3;
        let links = (2 * scenario.fabric.cable_count()).max(1) as f64;
        let capacity = width.as_picos() as f64 / scenario.link.byte_time.picos_per_byte();
        let elapsed = run.elapsed().as_picos() as f64;
        let point = |(number, bucket): (usize, &TelemetryBucket)| {
            // The run ends within the last span.
            let start = number as f64 * width.as_picos() as f64;
            let share = ((elapsed - start) / width.as_picos() as f64).clamp(1e-6, 1.0);
            TimelinePoint {
                start_us: number as f64 * span_us,
                delivered_gbit_per_s: bucket.delivered_bytes as f64 * 8.0 / (span_us * share * 1e3),
                mean_link_use: (bucket.sent_bytes as f64 / links / capacity / share).min(1.0),
                busiest_link_use: (bucket.busiest_bytes as f64 / capacity / share).min(1.0),
                longest_queue_bytes: bucket.queue_bytes,
                ecn_marks: bucket.marks,
                pauses: bucket.pauses,
                losses: bucket.losses,
                repairs: bucket.repairs,
            }
        };
        let points = buckets.iter().enumerate().map(point).filter(|point| point.start_us * 1e6 <= elapsed).collect();
        Self { span_us, points, faults }
    }

    /// The records as CSV.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from(
            "start_us,delivered_gbit_per_s,mean_link_use,busiest_link_use,longest_queue_bytes,ecn_marks,pauses,losses,repairs\n",
        );
        for p in &self.points {
            let _ = writeln!(
                text,
                "{},{:.3},{:.4},{:.4},{},{},{},{},{}",
                p.start_us,
                p.delivered_gbit_per_s,
                p.mean_link_use,
                p.busiest_link_use,
                p.longest_queue_bytes,
                p.ecn_marks,
                p.pauses,
                p.losses,
                p.repairs
            );
        }
        text
    }

    /// The charts of what the run has, each with its title.
    pub(super) fn charts(&self) -> Vec<(String, String)> {
        if self.points.len() < 2 {
            return Vec::new();
        }
        let mut charts = vec![
            self.chart("Delivered, Gb/s", &[("delivered", &|p| p.delivered_gbit_per_s)]),
            self.chart(
                "Use of the links, share",
                &[("busiest link", &|p| p.busiest_link_use), ("mean", &|p| p.mean_link_use)],
            ),
            self.chart("Longest queue of a switch, kB", &[("queue", &|p| f64::from(p.longest_queue_bytes) / 1e3)]),
        ];
        let has = |count: &dyn Fn(&TimelinePoint) -> u32| self.points.iter().any(|point| count(point) > 0);
        if has(&|p| p.ecn_marks) || has(&|p| p.pauses) {
            charts.push(self.chart(
                "ECN marks and pauses per span",
                &[("marks", &|p| f64::from(p.ecn_marks)), ("pauses", &|p| f64::from(p.pauses))],
            ));
        }
        if has(&|p| p.losses) || has(&|p| p.repairs) {
            charts.push(self.chart(
                "Losses and repairs per span, packets",
                &[("losses", &|p| f64::from(p.losses)), ("repairs", &|p| f64::from(p.repairs))],
            ));
        }
        charts
    }

    /// A dashed line at every moment of a fault.
    fn mark_faults(&self, svg: &mut String, end: f64, x: impl Fn(f64) -> f64) {
        for moment in self.faults.iter().filter(|moment| moment.at_us <= end) {
            let _ = writeln!(
                svg,
                "<path class=\"cross\" stroke-dasharray=\"3 3\" d=\"M{0:.1} {TOP}V{1}\"><title>{2}</title></path>",
                x(moment.at_us),
                HEIGHT - BOTTOM,
                escape(&format!("{} us: {}", moment.at_us, moment.what))
            );
        }
    }

    fn chart(&self, title: &str, lines: &[(&str, TimelineValue<'_>)]) -> (String, String) {
        let end = (self.points.len() as f64 * self.span_us).max(1e-9);
        let values = || lines.iter().flat_map(|(_, value)| self.points.iter().map(value));
        let most = round_up(values().fold(0.0, f64::max));
        let x = |micros: f64| LEFT + micros / end * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - BOTTOM - TOP);
        let mut svg =
            format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", escape(title));
        for part in 0..=4 {
            let value = most * f64::from(part) / 4.0;
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {0:.1}H{1}\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
                y(value),
                WIDTH - RIGHT,
                LEFT - 6.0,
                y(value) + 4.0,
                short(value)
            );
        }
        for part in 0..=4 {
            let micros = end * f64::from(part) / 4.0;
            let anchor = if part == 4 { "end" } else { "middle" };
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                x(micros),
                HEIGHT - BOTTOM + 15.0,
                short(micros)
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {0}H{1}\"/><text x=\"{2}\" y=\"{3}\" text-anchor=\"middle\">time, us</text>",
            HEIGHT - BOTTOM,
            WIDTH - RIGHT,
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 4.0
        );
        self.mark_faults(&mut svg, end, x);
        for (number, (name, value)) in lines.iter().enumerate() {
            let mut path = String::new();
            for point in &self.points {
                let command = if path.is_empty() { 'M' } else { 'H' };
                let _ = match command {
                    'M' => write!(path, "M{:.1} {:.1}", x(point.start_us), y(value(point))),
                    _ => write!(path, "H{:.1}V{:.1}", x(point.start_us), y(value(point))),
                };
            }
            let _ = write!(path, "H{:.1}", x(end));
            let dash = if number == 0 { "" } else { " stroke-dasharray=\"5 3\"" };
            let _ = writeln!(svg, "<path class=\"busy\"{dash} d=\"{path}\"/>");
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"13\">{} {name}</text>",
                LEFT + 130.0 * number as f64,
                if number == 0 { "—" } else { "- -" }
            );
        }
        svg.push_str("</svg>\n");
        (title.to_owned(), svg)
    }
}

/// When rules begin and end to apply, if they say so.
fn moments(plan: &FaultPlan) -> Vec<FaultMoment> {
    let texts = parameters::faults(plan);
    let mut moments = Vec::new();
    for (rule, what) in plan.rules.iter().zip(texts) {
        let Some(at) = rule.at_us.as_ref().map(|at| *at.get_ref()) else { continue };
        moments.push(FaultMoment { at_us: at, what: what.clone() });
        if let Some(length) = &rule.for_us {
            moments.push(FaultMoment { at_us: at + length.get_ref(), what: format!("over: {what}") });
        }
    }
    moments
}

fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 5.0, 8.0, 10.0]
        .map(|factor| factor * magnitude)
        .into_iter()
        .find(|top| *top >= value)
        .unwrap_or(value)
}

fn short(value: f64) -> String {
    if value >= 1e4 {
        return si_number(value);
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers_above_the_values() {
        for value in [0.0, 0.3, 1.0, 7.5, 99.0, 101.0, 12_345.0] {
            let top = round_up(value);
            assert!(top >= value && (value == 0.0 || top <= 2.1 * value), "{value}: {top}");
        }
    }

    /// Flows over a fabric with a host that is cut off at 20 us.
    fn failing() -> super::super::SimulationReport {
        let text = "name = \"a <cut> host\"\n[fabric]\nkind = \"xgft\"\nchildren = [4, 2]\nparents = [1, 4]\n\
            [link]\nrate = \"100G\"\nwire-ns = 100\n\
            [[traffic]]\npattern = \"all-to-all\"\nbytes = 200000\n[flows]\ntimeout-us = 50\nretry-limit = 2\n\
            [[fault]]\nkind = \"down\"\nlink = \"H0-S0\"\nat-us = 20\nfor-us = 5000\n";
        let scenario = Scenario::parse(text, "cut.toml").unwrap_or_else(|error| panic!("{error}"));
        let mut run = SimulatedRun::set_up(&scenario).expect("it can be set up");
        let mut checker = run.checker(&scenario);
        let timings = run.run(&scenario, &mut checker, |_| ());
        let cost = super::super::RunCost::default();
        super::super::SimulationReport::new(&scenario, "cut.toml", &run, &timings, checker.judge(), cost)
    }

    #[test]
    fn a_run_with_failures_is_not_green_and_every_time_axis_shows_the_fault() {
        let report = failing();
        assert!(report.has_failures() && report.flows.failed > 0);
        assert!(report.flows.listed_failures[0].cause.contains("H0"), "{}", report.flows.listed_failures[0].cause);
        let page = super::super::html(&report);
        assert!(page.contains("verdict wrong") && !page.contains("verdict right"));
        let charts = report.timeline.charts();
        assert!(charts.len() >= 4, "{}", charts.len());
        for (title, chart) in &charts {
            assert!(chart.contains("20 us: the link is down"), "{title}");
            assert!(chart.matches("<text").count() >= 8, "{title} has no ticks");
        }
        for part in ["download=\"report.json\"", "download=\"over-time.csv\"", "download=\"traffic.csv\""] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<cut>"), "names are escaped");
    }

    #[test]
    fn the_records_add_up_and_repeat_byte_by_byte() {
        let (first, second) = (failing(), failing());
        assert_eq!(first.timeline.csv(), second.timeline.csv());
        let losses: u64 = first.timeline.points.iter().map(|point| u64::from(point.losses)).sum();
        assert_eq!(losses, first.counters.lost_on_down_links);
        let repairs: u64 = first.timeline.points.iter().map(|point| u64::from(point.repairs)).sum();
        assert!(repairs > 0);
        assert!(first.timeline.points.iter().all(|point| point.busiest_link_use <= 1.0));
        assert_eq!(first.timeline.csv().lines().count(), first.timeline.points.len() + 1);
    }
}
