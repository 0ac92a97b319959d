//! The report as text and as an HTML page.

use std::fmt::Write;

use super::scenarios::ScenarioRow;
use super::{AllreduceRow, SimulatorBenchReport, TrafficRow, WormholeRow};
use crate::number_format::group_digits;
use crate::report::{
    Axis, Figure, PageSection, PageVerdict, PlaceChart, PlaceValue, ReportPage, TableRows, format_table, with_header,
};

/// Every table with its title.
fn tables(report: &SimulatorBenchReport) -> [(String, TableRows); 4] {
    let traffic = format!(
        "Permutation traffic, {} B packets, one core: median of {} intervals of {} M hops",
        report.packet_bytes,
        report.stretches,
        report.hops_per_stretch / 1_000_000
    );
    [
        (traffic, traffic_rows(&report.traffic)),
        (
            "One allreduce of 256 B over all hosts with the protocol machines".to_owned(),
            allreduce_rows(&report.allreduce),
        ),
        ("Wormhole network, full packets, one core".to_owned(), wormhole_rows(&report.wormhole)),
        (
            "Scenarios with payload, protocol machines and faults, every bit judged, one core".to_owned(),
            scenario_rows(&report.scenarios),
        ),
    ]
}

/// The slowest and the fastest rate.
fn range(slowest: f64, fastest: f64) -> String {
    format!("{slowest:.2}..{fastest:.2}")
}

fn traffic_rows(rows: &[TrafficRow]) -> TableRows {
    let header = ["hosts", "fabric", "M hops/s", "slowest..fastest", "idle B/host", "busy B/host", "set-up s"];
    with_header(
        header,
        rows.iter().map(|row| {
            [
                group_digits(row.hosts.into()),
                row.fabric.clone(),
                format!("{:.2}", row.median_mhops_per_s),
                range(row.slowest_mhops_per_s, row.fastest_mhops_per_s),
                format!("{:.0}", row.idle_bytes_per_host),
                format!("{:.0}", row.busy_bytes_per_host),
                format!("{:.2}", row.set_up_s),
            ]
        }),
    )
}

fn allreduce_rows(rows: &[AllreduceRow]) -> TableRows {
    let header = ["hosts", "fabric", "set-up s", "run s", "simulated us", "hops", "idle B/host", "peak GiB"];
    with_header(
        header,
        rows.iter().map(|row| {
            [
                group_digits(row.hosts.into()),
                row.fabric.clone(),
                format!("{:.2}", row.set_up_s),
                format!("{:.2}", row.run_s),
                format!("{:.3}", row.simulated_us),
                group_digits(row.hops),
                format!("{:.0}", row.resident_bytes_per_host),
                format!("{:.2}", row.peak_resident_gib),
            ]
        }),
    )
}

fn wormhole_rows(rows: &[WormholeRow]) -> TableRows {
    let header = ["nodes", "pattern", "M hops/s", "slowest..fastest", "events/hop", "MB/s of a node"];
    with_header(
        header,
        rows.iter().map(|row| {
            [
                group_digits(row.nodes.into()),
                row.pattern.to_owned(),
                format!("{:.2}", row.median_mhops_per_s),
                range(row.slowest_mhops_per_s, row.fastest_mhops_per_s),
                format!("{:.2}", row.events_per_hop),
                format!("{:.1}", row.megabytes_per_second),
            ]
        }),
    )
}

fn scenario_rows(rows: &[ScenarioRow]) -> TableRows {
    let header = ["hosts", "scenario", "bytes", "M hops/s", "slowest..fastest", "hops", "judged", "oracle"];
    with_header(
        header,
        rows.iter().map(|row| {
            [
                group_digits(row.hosts.into()),
                row.scenario.to_owned(),
                group_digits(row.bytes.into()),
                format!("{:.2}", row.median_mhops_per_s),
                range(row.slowest_mhops_per_s, row.fastest_mhops_per_s),
                group_digits(row.hops),
                group_digits(row.results_judged),
                format!("{:.0} %", 100.0 * row.oracle_share),
            ]
        }),
    )
}

/// As text.
pub(super) fn table(report: &SimulatorBenchReport) -> String {
    let mut text = String::new();
    for (number, (title, rows)) in tables(report).iter().enumerate() {
        let gap = if number > 0 { "\n" } else { "" };
        let _ = write!(text, "{gap}{title}\n\n{}", format_table(rows));
    }
    text
}

/// As an HTML page.
pub(super) fn html(report: &SimulatorBenchReport) -> ReportPage {
    let verdict = "rates of the simulator measured; every scenario was judged, and no result was wrong.";
    ReportPage::new("Speed and memory of the simulator", PageVerdict::measured(verdict))
        .section(PageSection::new("Rates: median, slowest and fastest").charts(charts(report)))
        .sections(tables(report).into_iter().map(|(title, rows)| PageSection::new(title).table(&rows)))
}

fn charts(report: &SimulatorBenchReport) -> [Figure; 3] {
    let traffic = report.traffic.iter().map(|row| {
        let rates = [row.median_mhops_per_s, row.slowest_mhops_per_s, row.fastest_mhops_per_s];
        (format!("{} hosts", group_digits(row.hosts.into())), rates)
    });
    let wormhole = report.wormhole.iter().map(|row| {
        let rates = [row.median_mhops_per_s, row.slowest_mhops_per_s, row.fastest_mhops_per_s];
        (format!("{} nodes, {}", group_digits(row.nodes.into()), row.pattern), rates)
    });
    let scenarios = report.scenarios.iter().map(|row| {
        let rates = [row.median_mhops_per_s, row.slowest_mhops_per_s, row.fastest_mhops_per_s];
        (row.scenario.to_owned(), rates)
    });
    [
        chart("Permutation traffic", traffic.collect()),
        chart("Wormhole network", wormhole.collect()),
        chart("Scenarios", scenarios.collect()),
    ]
}

fn chart(title: &str, rows: Vec<(String, [f64; 3])>) -> Figure {
    let value = |[median, slowest, fastest]: [f64; 3]| Some(PlaceValue::new(median).spread(slowest, fastest));
    let (places, rates): (Vec<String>, Vec<[f64; 3]>) = rows.into_iter().unzip();
    let axis = Axis::new("million packet hops per second").starting_at_zero();
    PlaceChart::new(title, axis, places).series("rate", rates.into_iter().map(value).collect()).figure()
}
