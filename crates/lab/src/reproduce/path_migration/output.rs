//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::cable_cuts::{KernelCutResults, RunVariant};
use super::simulated_output;
use super::slowdown_chart::slowdown_chart;
use super::statistics::{format_optional, format_percent};
use super::transitions::TransitionMeasurements;
use super::{PathMigrationFindings, SimulatedComparison};
use crate::bench::migration::DisturbedLatency;
use crate::nas_kernels::RANKS;
use crate::report::{TableRows, escape, format_table, line_chart, page, with_header};

/// For a number without a measurement.
const NOT_MEASURED: &str = "not measured: no run had such a cut before its end";

fn comparisons(findings: &PathMigrationFindings) -> TableRows {
    let header = [
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
        header,
        findings.comparisons.iter().map(|row| {
            let simulated_row = findings.simulated_comparisons.iter().find(|simulated| simulated.id == row.id);
            let simulated = |of: fn(&SimulatedComparison) -> &str| simulated_row.map_or("-", of).to_owned();
            let gate = if row.gated { "*" } else { "" };
            [
                format!("{}{gate}", row.figure),
                row.statement.clone(),
                row.published.clone(),
                row.ours.clone(),
                row.verdict.label().into(),
                simulated(|simulated| &simulated.simulated),
                simulated(|simulated| simulated.verdict.label()),
                row.preset.clone(),
                simulated(|simulated| &simulated.of),
            ]
        }),
    )
}

fn transition_rows(transitions: &TransitionMeasurements) -> TableRows {
    let header = ["connections", "to ARMED, us", "to MIGRATED, us", "ratio"];
    with_header(
        header,
        transitions.rows.iter().map(|row| {
            [
                row.connections.to_string(),
                row.arming_us.format(1),
                row.migrating_us.format(1),
                format!("{:.2}", row.migrating_us.median / row.arming_us.median),
            ]
        }),
    )
}

fn latency_rows(rows: &[DisturbedLatency]) -> TableRows {
    let header = ["connections", "bytes", "plain, us", "disturbed, us", "added per connection, us"];
    with_header(
        header,
        rows.iter().map(|row| {
            [
                row.connections.to_string(),
                row.bytes.to_string(),
                row.plain_us.format(1),
                row.disturbed_us.format(1),
                row.per_connection_us.format(1),
            ]
        }),
    )
}

fn kernel_rows(kernels: &[KernelCutResults]) -> TableRows {
    let header = [
        "kernel",
        "candidate",
        "runs",
        "seconds",
        "lost after the cut, ms",
        "of 10 s, %",
        "slower, %",
        "in processor time, %",
        "all migrated after, ms",
    ];
    let one = |results: &KernelCutResults, variant: RunVariant| {
        let seconds = results.seconds(variant);
        let (slower, processor) = match variant {
            // The other variants are compared with armed runs, these with plain ones.
            RunVariant::Armed => (Some(results.armed_over_plain), results.armed_over_plain_processor),
            RunVariant::Plain => (None, None),
            _ => (results.slower(variant), results.slower_processor(variant)),
        };
        [
            results.kernel.name().into(),
            variant.label().into(),
            seconds.map_or(0, |seconds| seconds.count).to_string(),
            format_optional(seconds, 2),
            format_optional(results.lost_ms(variant), 0),
            format_percent(results.lost(variant)),
            format_percent(slower),
            format_percent(processor),
            format_optional(results.moved_after_ms(variant), 1),
        ]
    };
    with_header(header, kernels.iter().flat_map(|results| RunVariant::ALL.map(|variant| one(results, variant))))
}

fn tables(findings: &PathMigrationFindings) -> Vec<(&'static str, TableRows)> {
    let transitions = &findings.transitions;
    vec![
        ("Kernels (Figures 9 to 12): medians and quartiles", kernel_rows(&findings.kernels)),
        ("Transitions (Figures 5 and 6)", transition_rows(transitions)),
        ("128-byte messages while all connections migrate (Figure 7)", latency_rows(&transitions.by_count)),
        ("Messages by size while all connections migrate", latency_rows(&transitions.while_migrating)),
        ("Messages by size after a cut that is noticed (Figure 8)", latency_rows(&transitions.noticed_cut)),
        ("Messages by size after a cut that is silent", latency_rows(&transitions.silent_cut)),
    ]
    .into_iter()
    .chain(simulated_output::tables(&findings.simulated))
    .collect()
}

fn notes(findings: &PathMigrationFindings) -> Vec<String> {
    let mut notes = vec![format!(
        "Slower: runs with a cut compared with the armed runs before and after, armed runs with those with one path; {RANKS} ranks \
         on {} cores. Lost: within the run, after the cut; armed runs at the same moments show the noise.",
        findings.cores
    )];
    for results in &findings.kernels {
        notes.push(format!(
            "{}: {} runs of {} to {} iterations, {} of them shorter than requested; other programs used {} % of the processors, so {} of {} \
             comparisons are undisturbed; {} ends migrated without a cut.",
            results.kernel.name(),
            results.runs.len(),
            results.iterations().0,
            results.iterations().1,
            results.short(),
            format_optional(results.others_percent(), 0),
            results.undisturbed().0,
            results.undisturbed().1,
            results.stray_moves()
        ));
    }
    let [arming, migrating] = [&findings.transitions.arming_fit, &findings.transitions.migrating_fit];
    notes.push(format!(
        "Arming takes {:.1} us per connection plus {:.0} us (R\u{b2} {:.3}), migrating {:.1} and {:.0} us (R\u{b2} {:.3}).",
        arming.slope, arming.start, arming.r_squared, migrating.slope, migrating.start, migrating.r_squared
    ));
    notes.push(simulated_output::notes(&findings.simulated));
    notes
}

/// As text.
pub(super) fn table(findings: &PathMigrationFindings) -> String {
    let mut text = format!(
        "Automatic path migration: runs of {} s, cable cut at {} moments\n\n{}",
        findings.seconds,
        findings.cuts,
        format_table(&comparisons(findings))
    );
    for row in findings.comparisons.iter().filter(|row| !row.remark.is_empty()) {
        let _ = writeln!(text, "  {}: {}", row.id, row.remark);
    }
    for row in findings.simulated_comparisons.iter().filter(|row| !row.remark.is_empty()) {
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
    let _ = writeln!(text, "Targets:");
    for gate in &findings.targets {
        let _ = writeln!(text, "  {} {}", if gate.holds { "met    " } else { "not met" }, gate.statement);
    }
    text
}

/// As an HTML page.
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
            page::html_table(&comparisons(findings))
                + &remarks(findings)
                + &simulated_output::remarks(&findings.simulated_comparisons),
        ),
        ("Statements".to_owned(), statements(findings)),
        ("Slower than without a fault, %, run by run".to_owned(), slowdown_chart(&findings.kernels)),
        ("Transitions by connections".to_owned(), line_chart(&by_count, "connections", "us")),
        ("Simulated transitions by connections".to_owned(), simulated_output::transitions_chart(&findings.simulated)),
        (
            "Added per connection by size".to_owned(),
            line_chart(&by_size, "bytes of a message", "us added per connection"),
        ),
    ];
    for (title, rows) in tables(findings) {
        sections.push((title.to_owned(), page::html_table(&rows)));
    }
    let notes: String = notes(findings).iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
    sections.push(("Notes".to_owned(), notes));
    page::html_page("Automatic path migration, published and ours", &sections)
}

fn remarks(findings: &PathMigrationFindings) -> String {
    let rows = findings.comparisons.iter().filter(|row| !row.remark.is_empty());
    let remarks = rows.map(|row| format!("<p>{}: {}</p>", row.id, escape(&row.remark)));
    remarks.chain(findings.missing.iter().map(|id| format!("<p>{id}: {NOT_MEASURED}</p>"))).collect()
}

fn statements(findings: &PathMigrationFindings) -> String {
    let item = |status: &str, statement: &str| format!("<li>{status}: {}</li>", escape(statement));
    let gated = findings.gates.iter().map(|gate| item(if gate.holds { "holds" } else { "broken" }, &gate.statement));
    let targets = findings
        .targets
        .iter()
        .map(|gate| item(if gate.holds { "target, met" } else { "target, not met" }, &gate.statement));
    format!("<ul>{}</ul>", gated.chain(targets).collect::<String>())
}
