//! The findings as a table for the terminal and as a page.

use std::fmt::Write;

use super::cable_cuts::{KernelCutResults, RunVariant};
use super::simulated::SimulatedFigures;
use super::statistics::QuartileSummary;
use super::transitions::TransitionMeasurements;
use super::{PathMigrationFindings, SimulatedComparison};
use crate::bench::migration::{DisturbedLatency, TrialSummary};
use crate::nas_kernels::RANKS;
use crate::report::{TableRows, format_table, line_chart, page, with_header};

/// Said of a number that no run gave.
const NOT_MEASURED: &str = "not measured: no run had such a cut before it was over";

fn figure(figure: &TrialSummary) -> String {
    format!("{:.1} ({:.1}..{:.1})", figure.median, figure.least, figure.most)
}

fn spread(spread: Option<QuartileSummary>, digits: usize) -> String {
    spread.map_or("-".into(), |spread| {
        format!("{:.digits$} ({:.digits$}..{:.digits$})", spread.median, spread.low, spread.high)
    })
}

fn percent(spread: Option<QuartileSummary>) -> String {
    spread.map_or("-".into(), |spread| format!("{:+.2} ({:+.2}..{:+.2})", spread.median, spread.low, spread.high))
}

fn comparisons(findings: &PathMigrationFindings) -> TableRows {
    let head = [
        "figure",
        "statement",
        "published",
        "measured",
        "verdict",
        "simulated",
        "verdict",
        "measured on",
        "simulated on",
    ];
    with_header(
        head,
        findings.comparisons.iter().map(|row| {
            let beside = findings.beside.iter().find(|beside| beside.id == row.id);
            let simulated = |of: fn(&SimulatedComparison) -> &str| beside.map_or("-", of).to_owned();
            let gate = if row.gated { "*" } else { "" };
            [
                format!("{}{gate}", row.figure),
                row.statement.clone(),
                row.published.clone(),
                row.ours.clone(),
                row.verdict.words().into(),
                simulated(|beside| &beside.simulated),
                simulated(|beside| beside.verdict.words()),
                row.preset.clone(),
                simulated(|beside| &beside.of),
            ]
        }),
    )
}

fn beside_rows(rows: &[SimulatedComparison]) -> TableRows {
    let head = ["figure", "statement", "published", "simulated", "verdict", "simulated on"];
    with_header(
        head,
        rows.iter().map(|row| {
            [
                row.figure.clone(),
                row.statement.clone(),
                row.published.clone(),
                row.simulated.clone(),
                row.verdict.words().into(),
                row.of.clone(),
            ]
        }),
    )
}

fn simulated_tables(simulated: &SimulatedFigures) -> Vec<(&'static str, TableRows)> {
    let head = [
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
            spread(slowed.silent_ms, 2),
            spread(slowed.noticed_ms, 3),
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
        ("Simulated kernels (Figures 9 to 12): medians and quartiles", with_header(head, kernels)),
        (
            "Simulated transitions (Figures 5 and 6)",
            with_header(["connections", "to ARMED, us", "to MIGRATED, us", "ratio"], transitions),
        ),
        (
            "Simulated messages while connections move (Figures 7 and 8)",
            with_header(
                ["moved", "connections", "bytes", "plain, us", "disturbed, us", "added per connection, us"],
                bounces,
            ),
        ),
    ]
}

fn simulated_notes(simulated: &SimulatedFigures) -> String {
    let (arming, migrating) = (&simulated.arming_fit, &simulated.migrating_fit);
    format!(
        "Simulated: arming takes {:.3} us per connection and {:.1} us besides (R\u{b2} {:.3}), migrating {:.3} and {:.1} us \
         (R\u{b2} {:.3}). Parameters: experiments/path-migration/README.md.",
        arming.slope, arming.start, arming.r_squared, migrating.slope, migrating.start, migrating.r_squared
    )
}

/// The simulated half for the terminal.
pub(super) fn simulated_table(simulated: &SimulatedFigures, rows: &[SimulatedComparison]) -> String {
    let mut text = format!("Automatic path migration, simulated\n\n{}", format_table(&beside_rows(rows)));
    for row in rows.iter().filter(|row| !row.remark.is_empty()) {
        let _ = writeln!(text, "  {}: {}", row.id, row.remark);
    }
    for (title, rows) in simulated_tables(simulated) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    let _ = writeln!(text, "\n{}", simulated_notes(simulated));
    text
}

/// The simulated half as a page.
pub(super) fn simulated_html(simulated: &SimulatedFigures, rows: &[SimulatedComparison]) -> String {
    let mut sections = vec![
        ("Published and simulated".to_owned(), page::html_table(&beside_rows(rows)) + &simulated_remarks(rows)),
        ("Simulated transitions by connections".to_owned(), simulated_lines(simulated)),
    ];
    sections
        .extend(simulated_tables(simulated).into_iter().map(|(title, rows)| (title.into(), page::html_table(&rows))));
    let notes = format!("<p>{}</p>", crate::report::escape(&simulated_notes(simulated)));
    sections.push(("Notes".to_owned(), notes));
    page::html_page("Automatic path migration, simulated", &sections)
}

fn simulated_lines(simulated: &SimulatedFigures) -> String {
    let points = |of: fn(&super::simulated::SimulatedTransition) -> f64| -> Vec<(f64, f64)> {
        simulated.transitions.iter().map(|row| (row.connections as f64, of(row))).collect()
    };
    let series =
        [("MIGRATED to ARMED", points(|row| row.arming_us)), ("ARMED to MIGRATED", points(|row| row.migrating_us))];
    line_chart(&series, "connections", "us")
}

fn simulated_remarks(rows: &[SimulatedComparison]) -> String {
    let rows = rows.iter().filter(|row| !row.remark.is_empty());
    rows.map(|row| format!("<p>{}, simulated: {}</p>", row.id, crate::report::escape(&row.remark))).collect()
}

fn transition_rows(transitions: &TransitionMeasurements) -> TableRows {
    let head = ["connections", "to ARMED, us", "to MIGRATED, us", "ratio"];
    with_header(
        head,
        transitions.rows.iter().map(|row| {
            [
                row.connections.to_string(),
                figure(&row.arming_us),
                figure(&row.migrating_us),
                format!("{:.2}", row.migrating_us.median / row.arming_us.median),
            ]
        }),
    )
}

fn bouncing_rows(rows: &[DisturbedLatency]) -> TableRows {
    let head = ["connections", "bytes", "plain, us", "disturbed, us", "added per connection, us"];
    with_header(
        head,
        rows.iter().map(|row| {
            [
                row.connections.to_string(),
                row.bytes.to_string(),
                figure(&row.plain_us),
                figure(&row.disturbed_us),
                figure(&row.per_connection_us),
            ]
        }),
    )
}

fn kernel_rows(kernels: &[KernelCutResults]) -> TableRows {
    let head = [
        "kernel",
        "candidate",
        "runs",
        "seconds",
        "lost after the cut, ms",
        "of 10 s, %",
        "slower, %",
        "in processor time, %",
        "all moved after, ms",
    ];
    let one = |pulled: &KernelCutResults, candidate: RunVariant| {
        let seconds = pulled.seconds(candidate);
        let (slower, processor) = match candidate {
            // The others are held against armed runs, these against plain ones.
            RunVariant::Armed => (Some(pulled.armed_over_plain), pulled.armed_over_plain_processor),
            RunVariant::Plain => (None, None),
            _ => (pulled.slower(candidate), pulled.slower_processor(candidate)),
        };
        [
            pulled.kernel.name().into(),
            candidate.words().into(),
            seconds.map_or(0, |seconds| seconds.count).to_string(),
            spread(seconds, 2),
            spread(pulled.lost_ms(candidate), 0),
            percent(pulled.lost(candidate)),
            percent(slower),
            percent(processor),
            spread(pulled.moved_after_ms(candidate), 1),
        ]
    };
    with_header(head, kernels.iter().flat_map(|pulled| RunVariant::ALL.map(|candidate| one(pulled, candidate))))
}

fn tables(findings: &PathMigrationFindings) -> Vec<(&'static str, TableRows)> {
    let transitions = &findings.transitions;
    vec![
        ("Kernels (Figures 9 to 12): medians and quartiles", kernel_rows(&findings.kernels)),
        ("Transitions (Figures 5 and 6)", transition_rows(transitions)),
        ("128-byte messages while all connections migrate (Figure 7)", bouncing_rows(&transitions.by_count)),
        ("Messages by size while all connections migrate", bouncing_rows(&transitions.while_migrating)),
        ("Messages by size after a cut that is noticed (Figure 8)", bouncing_rows(&transitions.noticed_cut)),
        ("Messages by size after a cut that is silent", bouncing_rows(&transitions.silent_cut)),
    ]
    .into_iter()
    .chain(simulated_tables(&findings.simulated))
    .collect()
}

fn notes(findings: &PathMigrationFindings) -> Vec<String> {
    let mut notes = vec![format!(
        "Slower: cuts than armed runs before and after, armed runs than those with one path; {RANKS} ranks on {} cores. \
         Lost: within the run, in the time after the cut; armed runs at the same moments show the noise of it.",
        findings.cores
    )];
    for pulled in &findings.kernels {
        notes.push(format!(
            "{}: {} runs of {} to {} iterations, {} of them shorter than asked for; other programs had {} % of the processors, so {} of {} comparisons are \
             undisturbed; {} ends moved without a cut of theirs.",
            pulled.kernel.name(),
            pulled.runs.len(),
            pulled.iterations().0,
            pulled.iterations().1,
            pulled.short(),
            spread(pulled.others_percent(), 0),
            pulled.undisturbed().0,
            pulled.undisturbed().1,
            pulled.stray_moves()
        ));
    }
    let [arming, migrating] = [&findings.transitions.arming_fit, &findings.transitions.migrating_fit];
    notes.push(format!(
        "Arming takes {:.1} us per connection and {:.0} us besides (R\u{b2} {:.3}), migrating {:.1} and {:.0} us (R\u{b2} {:.3}).",
        arming.slope, arming.start, arming.r_squared, migrating.slope, migrating.start, migrating.r_squared
    ));
    notes.push(simulated_notes(&findings.simulated));
    notes
}

/// For the terminal.
pub(super) fn table(findings: &PathMigrationFindings) -> String {
    let mut text = format!(
        "Automatic path migration: runs of {} s, cut at {} moments\n\n{}",
        findings.seconds,
        findings.cuts,
        format_table(&comparisons(findings))
    );
    for row in findings.comparisons.iter().filter(|row| !row.remark.is_empty()) {
        let _ = writeln!(text, "  {}: {}", row.id, row.remark);
    }
    for row in findings.beside.iter().filter(|row| !row.remark.is_empty()) {
        let _ = writeln!(text, "  {}, simulated: {}", row.id, row.remark);
    }
    for id in &findings.missing {
        let _ = writeln!(text, "  {id}: {NOT_MEASURED}");
    }
    for (title, rows) in tables(findings) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    text.push('\n');
    for note in notes(findings) {
        let _ = writeln!(text, "{note}");
    }
    let _ = writeln!(text, "\nGated:");
    for gate in &findings.gates {
        let _ = writeln!(text, "  {gate}");
    }
    let _ = writeln!(text, "Hoped for:");
    for gate in &findings.targets {
        let _ = writeln!(text, "  {} {}", if gate.holds { "shown    " } else { "not shown" }, gate.statement);
    }
    text
}

/// As a page.
pub(super) fn html(findings: &PathMigrationFindings) -> String {
    let points = |of: fn(&super::transitions::TransitionRow) -> f64| -> Vec<(f64, f64)> {
        findings.transitions.rows.iter().map(|row| (row.connections as f64, of(row))).collect()
    };
    let by_count = [
        ("MIGRATED to ARMED", points(|row| row.arming_us.median)),
        ("ARMED to MIGRATED", points(|row| row.migrating_us.median)),
    ];
    let added = |rows: &[DisturbedLatency]| -> Vec<(f64, f64)> {
        rows.iter().map(|row| (row.bytes as f64, row.per_connection_us.median.max(0.1))).collect()
    };
    let by_size = [
        ("by hand", added(&findings.transitions.while_migrating)),
        ("cut, noticed", added(&findings.transitions.noticed_cut)),
        ("cut, silent", added(&findings.transitions.silent_cut)),
    ];
    let mut sections = vec![
        (
            "Published, measured and simulated".to_owned(),
            page::html_table(&comparisons(findings)) + &remarks(findings) + &simulated_remarks(&findings.beside),
        ),
        ("Statements".to_owned(), statements(findings)),
        ("Slower than without a fault, %, run by run".to_owned(), slowdowns(&findings.kernels)),
        ("Transitions by connections".to_owned(), line_chart(&by_count, "connections", "us")),
        ("Simulated transitions by connections".to_owned(), simulated_lines(&findings.simulated)),
        (
            "Added per connection by size".to_owned(),
            line_chart(&by_size, "bytes of a message", "us added per connection"),
        ),
    ];
    for (title, rows) in tables(findings) {
        sections.push((title.to_owned(), page::html_table(&rows)));
    }
    let notes: String =
        notes(findings).iter().map(|note| format!("<p>{}</p>", crate::report::escape(note))).collect();
    sections.push(("Notes".to_owned(), notes));
    page::html_page("Automatic path migration, published and ours", &sections)
}

fn remarks(findings: &PathMigrationFindings) -> String {
    let rows = findings.comparisons.iter().filter(|row| !row.remark.is_empty());
    let remarks = rows.map(|row| format!("<p>{}: {}</p>", row.id, crate::report::escape(&row.remark)));
    remarks.chain(findings.missing.iter().map(|id| format!("<p>{id}: {NOT_MEASURED}</p>"))).collect()
}

fn statements(findings: &PathMigrationFindings) -> String {
    let item = |word: &str, statement: &str| format!("<li>{word}: {}</li>", crate::report::escape(statement));
    let gated = findings.gates.iter().map(|gate| item(if gate.holds { "holds" } else { "broken" }, &gate.statement));
    let hoped = findings
        .targets
        .iter()
        .map(|gate| item(if gate.holds { "hoped for, shown" } else { "hoped for, not shown" }, &gate.statement));
    format!("<ul>{}</ul>", gated.chain(hoped).collect::<String>())
}

/// Every run as a dot, kernels and candidates side by side, and the paper's 5 to 7 % as a band.
fn slowdowns(kernels: &[KernelCutResults]) -> String {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 260.0;
    const LEFT: f64 = 44.0;
    const BOTTOM: f64 = 40.0;
    let candidates = [RunVariant::Plain, RunVariant::Silent, RunVariant::Noticed];
    let values = kernels.iter().flat_map(|pulled| &pulled.runs).filter_map(|run| run.slower_percent);
    let (least, most) = values.fold((-1.0f64, 8.0f64), |(least, most), value| (least.min(value), most.max(value)));
    let y = |percent: f64| 8.0 + (most - percent) / (most - least) * (HEIGHT - BOTTOM - 16.0);
    let column = (WIDTH - LEFT) / (kernels.len() * candidates.len()) as f64;
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"slow-down of every run\">\n");
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{}\" height=\"{:.1}\" fill=\"#8883\"><title>published for FT and LU: 5 to 7 %</title></rect>",
        y(7.0),
        WIDTH - LEFT,
        y(5.0) - y(7.0)
    );
    for tick in [0.0, 2.0, 5.0, 7.0] {
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {:.1}H{WIDTH}\"/>", y(tick));
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick} %</text>",
            LEFT - 6.0,
            y(tick) + 4.0
        );
    }
    for (place, (pulled, candidate)) in
        kernels.iter().flat_map(|pulled| candidates.map(|candidate| (pulled, candidate))).enumerate()
    {
        let middle = LEFT + column * (place as f64 + 0.5);
        let runs: Vec<f64> = pulled
            .runs
            .iter()
            .filter(|run| run.candidate == candidate)
            .filter_map(|run| run.slower_percent)
            .collect();
        for (index, percent) in runs.iter().enumerate() {
            let x = middle + ((index as f64 + 0.5) / runs.len() as f64 - 0.5) * column * 0.6;
            let _ = writeln!(
                svg,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.5\"><title>{percent:+.2} %</title></circle>",
                y(*percent)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text><text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 16.0,
            pulled.kernel.name(),
            HEIGHT - 8.0,
            candidate.words()
        );
    }
    svg.push_str("</svg>\n");
    svg
}
