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
use crate::report::{Axis, Figure, LineChart};
use crate::simulated_run::SimulatedRun;

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

    /// The charts of what the run has.
    pub(super) fn charts(&self) -> Vec<Figure> {
        if self.points.len() < 2 {
            return Vec::new();
        }
        let mut charts = vec![
            self.chart("Delivered", Axis::new("rate, Gb/s"), &[("delivered", &|p| p.delivered_gbit_per_s)]),
            self.chart(
                "Use of the links",
                Axis::new("share of the rate"),
                &[("busiest link", &|p| p.busiest_link_use), ("mean", &|p| p.mean_link_use)],
            ),
            self.chart(
                "Longest queue of a switch",
                Axis::new("queue, kB"),
                &[("queue", &|p| f64::from(p.longest_queue_bytes) / 1e3)],
            ),
        ];
        let has = |count: &dyn Fn(&TimelinePoint) -> u32| self.points.iter().any(|point| count(point) > 0);
        let unit = format!("in {} us", self.span_us);
        if has(&|p| p.ecn_marks) || has(&|p| p.pauses) {
            charts.push(self.chart(
                "ECN marks and pauses",
                Axis::new(format!("number {unit}")).counts(),
                &[("marks", &|p| f64::from(p.ecn_marks)), ("pauses", &|p| f64::from(p.pauses))],
            ));
        }
        if has(&|p| p.losses) || has(&|p| p.repairs) {
            charts.push(self.chart(
                "Losses and repairs",
                Axis::new(format!("packets {unit}")).counts(),
                &[("losses", &|p| f64::from(p.losses)), ("repairs", &|p| f64::from(p.repairs))],
            ));
        }
        charts
    }

    /// Lines over the time of the run, with the moments of faults.
    fn chart(&self, title: &str, values: Axis, lines: &[(&str, TimelineValue<'_>)]) -> Figure {
        let end = self.points.len() as f64 * self.span_us;
        let time = Axis::new("time, us").tight().including([0.0, end]);
        let mut chart = LineChart::new(title, time, values.starting_at_zero());
        for (name, value) in lines {
            chart = chart.steps(name, self.points.iter().map(|point| (point.start_us, value(point))));
        }
        for moment in &self.faults {
            chart = chart.moment(moment.at_us, format!("{} us: {}", moment.at_us, moment.what));
        }
        chart.figure()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Provenance;

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
        let json = serde_json::to_value(&report).expect("JSON");
        let page = super::super::html(&report).render(&json, &Provenance::default());
        assert!(page.contains("verdict wrong") && !page.contains("verdict right"));
        let charts = report.timeline.charts();
        assert!(charts.len() >= 4, "{}", charts.len());
        for Figure { title, svg, .. } in &charts {
            assert!(svg.contains("20 us: the link is down"), "{title}");
            assert!(svg.matches("<text").count() >= 8, "{title} has no ticks");
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
