//! The simulated figures as text and as an HTML page.

use std::fmt::Write;

use super::SimulatedComparison;
use super::simulated::{SimulatedFigures, SimulatedTransition};
use super::statistics::format_optional;
use crate::report::{TableRows, escape, format_table, line_chart, page, with_header};

fn comparison_rows(rows: &[SimulatedComparison]) -> TableRows {
    let header = ["figure", "statement", "published", "simulated", "verdict", "simulated on"];
    with_header(
        header,
        rows.iter().map(|row| {
            [
                row.figure.clone(),
                row.statement.clone(),
                row.published.clone(),
                row.simulated.clone(),
                row.verdict.label().into(),
                row.of.clone(),
            ]
        }),
    )
}

pub(super) fn tables(simulated: &SimulatedFigures) -> Vec<(&'static str, TableRows)> {
    let header = [
        "kernel",
        "iterations",
        "computing, us",
        "armed, ms",
        "armed by one path, %",
        "silent cut lost, ms",
        "noticed cut lost, ms",
    ];
    let kernels = simulated.kernels.iter().map(|slowed| {
        [
            slowed.kernel.name().into(),
            slowed.iterations.to_string(),
            format!("{:.0}", slowed.compute_us),
            format!("{:.2}", slowed.armed_ms),
            format!("{:+.4}", slowed.armed_percent),
            format_optional(slowed.silent_ms, 2),
            format_optional(slowed.noticed_ms, 3),
        ]
    });
    let transitions = simulated.transitions.iter().map(|row| {
        [
            row.connections.to_string(),
            format!("{:.2}", row.arming_us),
            format!("{:.2}", row.migrating_us),
            format!("{:.2}", row.migrating_us / row.arming_us),
        ]
    });
    let rows = [
        ("by hand", &simulated.by_count),
        ("by hand", &simulated.while_migrating),
        ("noticed cut", &simulated.noticed_cut),
        ("silent cut", &simulated.silent_cut),
    ];
    let bounces =
        rows.into_iter().flat_map(|(what, rows)| rows.iter().map(move |row| (what, row))).map(|(what, row)| {
            [
                what.into(),
                row.connections.to_string(),
                row.bytes.to_string(),
                format!("{:.3}", row.plain_us),
                format!("{:.3}", row.disturbed_us),
                format!("{:.3}", row.per_connection_us),
            ]
        });
    vec![
        ("Simulated kernels (Figures 9 to 12): medians and quartiles", with_header(header, kernels)),
        (
            "Simulated transitions (Figures 5 and 6)",
            with_header(["connections", "to ARMED, us", "to MIGRATED, us", "ratio"], transitions),
        ),
        (
            "Simulated messages while connections migrate (Figures 7 and 8)",
            with_header(
                ["event", "connections", "bytes", "plain, us", "disturbed, us", "added per connection, us"],
                bounces,
            ),
        ),
    ]
}

pub(super) fn notes(simulated: &SimulatedFigures) -> String {
    let (arming, migrating) = (&simulated.arming_fit, &simulated.migrating_fit);
    format!(
        "Simulated: arming takes {:.3} us per connection plus {:.1} us (R\u{b2} {:.3}), migrating {:.3} and {:.1} us \
         (R\u{b2} {:.3}). Parameters: experiments/path-migration/README.md.",
        arming.slope, arming.start, arming.r_squared, migrating.slope, migrating.start, migrating.r_squared
    )
}

/// As text.
pub(super) fn table(simulated: &SimulatedFigures, rows: &[SimulatedComparison]) -> String {
    let mut text = format!("Automatic path migration, simulated\n\n{}", format_table(&comparison_rows(rows)));
    for row in rows.iter().filter(|row| !row.remark.is_empty()) {
        let _ = writeln!(text, "  {}: {}", row.id, row.remark);
    }
    for (title, rows) in tables(simulated) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    let _ = writeln!(text, "\n{}", notes(simulated));
    text
}

/// As an HTML page.
pub(super) fn html(simulated: &SimulatedFigures, rows: &[SimulatedComparison]) -> String {
    let mut sections = vec![
        ("Published and simulated".to_owned(), page::html_table(&comparison_rows(rows)) + &remarks(rows)),
        ("Simulated transitions by connections".to_owned(), transitions_chart(simulated)),
    ];
    sections.extend(tables(simulated).into_iter().map(|(title, rows)| (title.into(), page::html_table(&rows))));
    let notes = format!("<p>{}</p>", escape(&notes(simulated)));
    sections.push(("Notes".to_owned(), notes));
    page::html_page("Automatic path migration, simulated", &sections)
}

pub(super) fn transitions_chart(simulated: &SimulatedFigures) -> String {
    let points = |of: fn(&SimulatedTransition) -> f64| -> Vec<(f64, f64)> {
        simulated.transitions.iter().map(|row| (row.connections as f64, of(row))).collect()
    };
    let series =
        [("MIGRATED to ARMED", points(|row| row.arming_us)), ("ARMED to MIGRATED", points(|row| row.migrating_us))];
    line_chart(&series, "connections", "us")
}

pub(super) fn remarks(rows: &[SimulatedComparison]) -> String {
    let rows = rows.iter().filter(|row| !row.remark.is_empty());
    rows.map(|row| format!("<p>{}, simulated: {}</p>", row.id, escape(&row.remark))).collect()
}
