//! The tables and the chart of the simulated figures.

use super::simulated::{SimulatedFigures, SimulatedSlowdown, SimulatedTransition};
use super::statistics::format_optional;
use crate::report::{Axis, Figure, LineChart, TableRows, with_header};

pub(super) fn tables(simulated: &SimulatedFigures) -> Vec<(&'static str, TableRows)> {
    let transitions = simulated.transitions.iter().map(|row| {
        [
            row.connections.to_string(),
            format!("{:.2}", row.arming_us),
            format!("{:.2}", row.migrating_us),
            format!("{:.2}", row.migrating_us / row.arming_us),
        ]
    });
    let arming = vec![simulated.while_arming];
    let rows = [
        ("arming", &arming),
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
                row.affected.to_string(),
            ]
        });
    vec![
        ("The product, simulated: kernels (Figures 9 to 12): medians and quartiles", kernel_rows(simulated)),
        (
            "The product, simulated: transitions (Figures 5 and 6)",
            with_header(["connections", "to ARMED, us", "to MIGRATED, us", "ratio"], transitions),
        ),
        (
            "The product, simulated: messages while connections migrate (Figures 7 and 8)",
            with_header(
                [
                    "event",
                    "connections",
                    "bytes",
                    "plain, us",
                    "disturbed, us",
                    "added per connection, us",
                    "slower trips",
                ],
                bounces,
            ),
        ),
    ]
}

fn kernel_rows(simulated: &SimulatedFigures) -> TableRows {
    let header = [
        "kernel",
        "iterations",
        "computing, us",
        "armed, ms",
        "armed by one path, %",
        "silent cut lost, ms",
        "noticed cut lost, ms",
        "silent, 63 queue pairs, ms",
    ];
    let row = |slowed: &SimulatedSlowdown| {
        [
            slowed.kernel.name().into(),
            slowed.iterations.to_string(),
            format!("{:.0}", slowed.compute_us),
            format!("{:.2}", slowed.armed_ms),
            format!("{:+.4}", slowed.armed_percent),
            format_optional(slowed.silent_ms, 2),
            format_optional(slowed.noticed_ms, 3),
            format_optional(slowed.many_silent_ms, 2),
        ]
    };
    with_header(header, simulated.kernels.iter().map(row))
}

pub(super) fn notes(simulated: &SimulatedFigures) -> String {
    let (arming, migrating) = (&simulated.arming_fit, &simulated.migrating_fit);
    format!(
        "The product, simulated: arming takes {:.3} us per connection plus {:.1} us (R\u{b2} {:.3}), migrating {:.3} and {:.1} us \
         (R\u{b2} {:.3}). Parameters: experiments/path-migration/README.md.",
        arming.slope, arming.start, arming.r_squared, migrating.slope, migrating.start, migrating.r_squared
    )
}

pub(super) fn transitions_chart(simulated: &SimulatedFigures) -> Figure {
    let points = |of: fn(&SimulatedTransition) -> f64| {
        simulated.transitions.iter().map(move |row| (row.connections as f64, of(row)))
    };
    LineChart::new("Transitions", Axis::new("connections").logarithmic(), Axis::new("time, us").logarithmic())
        .curve("MIGRATED to ARMED", points(|row| row.arming_us))
        .curve("ARMED to MIGRATED", points(|row| row.migrating_us))
        .figure()
}
