//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::cable_cuts::{KernelCutResults, RunVariant};
use super::simulated_output;
use super::slowdown_chart::slowdown_chart;
use super::statistics::{format_optional, format_percent};
use super::transitions::TransitionMeasurements;
use super::{MeasuredFindings, PathMigrationFindings};
use crate::bench::TrialSummary;
use crate::bench::migration::DisturbedLatency;
use crate::nas_kernels::RANKS;
use crate::report::{Axis, ChartPoint, LineChart, PageSection, ReportPage, TableRows, format_table, with_header};
use crate::reproduce::comparison::{Gate, explain_differences, gated_sentence};

/// For a number without a measurement.
const NOT_MEASURED: &str = "not measured: no run had such a cut before its end";

fn comparisons(findings: &PathMigrationFindings) -> TableRows {
    let header =
        ["figure", "statement", "published", "paper's adapter", "verdict", "label", "null model", "simulated on"];
    with_header(
        header,
        findings.comparisons.iter().map(|row| {
            let [statement, published, ours, verdict, label, null] = row.cells();
            [row.figure.clone(), statement, published, ours, verdict, label, null, row.preset.clone()]
        }),
    )
}

fn measured_rows(measured: &MeasuredFindings) -> TableRows {
    with_header(
        ["figure", "statement", "published", "this machine", "verdict", "measured on"],
        measured.measured.iter().map(|row| {
            [
                row.figure.clone(),
                row.statement.clone(),
                row.published.clone(),
                row.ours.clone(),
                row.verdict.label().into(),
                row.preset.clone(),
            ]
        }),
    )
}

fn product_rows(findings: &PathMigrationFindings) -> TableRows {
    with_header(
        ["figure", "statement", "published", "product", "verdict", "simulated on"],
        findings.product.iter().map(|row| {
            let [figure, statement, published] = [&row.figure, &row.statement, &row.published].map(Clone::clone);
            [figure, statement, published, row.ours.clone(), row.verdict.label().into(), row.preset.clone()]
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

fn measured_tables(measured: &MeasuredFindings) -> Vec<(&'static str, TableRows)> {
    let transitions = &measured.transitions;
    vec![
        ("This machine: published numbers", measured_rows(measured)),
        ("This machine: kernels (Figures 9 to 12), medians and quartiles", kernel_rows(&measured.kernels)),
        ("This machine: transitions (Figures 5 and 6)", transition_rows(transitions)),
        (
            "This machine: 128-byte messages while all connections migrate (Figure 7)",
            latency_rows(&transitions.by_count),
        ),
        ("This machine: messages by size while all connections migrate", latency_rows(&transitions.while_migrating)),
        ("This machine: messages by size after a cut that is noticed", latency_rows(&transitions.noticed_cut)),
        ("This machine: messages by size after a silent cut (Figure 8)", latency_rows(&transitions.silent_cut)),
    ]
}

fn tables(findings: &PathMigrationFindings) -> Vec<(&'static str, TableRows)> {
    let mut tables = findings.adapter.tables();
    tables.push(("The product's queue pairs in the simulator: published numbers", product_rows(findings)));
    tables.extend(simulated_output::tables(&findings.simulated));
    tables.extend(findings.measured.iter().flat_map(measured_tables));
    tables
}

fn measured_notes(measured: &MeasuredFindings) -> Vec<String> {
    let mut notes = vec![format!(
        "This machine: runs of {} s, cable cut at {} moments. Slower: runs with a cut compared with the armed runs before and after, \
         armed runs with those with one path; {RANKS} ranks on {} cores. Lost: within the run, after the cut; armed runs at the same \
         moments show the noise.",
        measured.seconds, measured.cuts, measured.cores
    )];
    for results in &measured.kernels {
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
    let [arming, migrating] = [&measured.transitions.arming_fit, &measured.transitions.migrating_fit];
    notes.push(format!(
        "Arming takes {:.1} us per connection plus {:.0} us (R\u{b2} {:.3}), migrating {:.1} and {:.0} us (R\u{b2} {:.3}).",
        arming.slope, arming.start, arming.r_squared, migrating.slope, migrating.start, migrating.r_squared
    ));
    notes
}

/// Explanations and notes, one a line.
fn notes(findings: &PathMigrationFindings) -> Vec<String> {
    let mut notes = vec![simulated_output::notes(&findings.simulated)];
    let remarks = findings.product.iter().filter(|row| !row.remark.is_empty());
    notes.extend(remarks.map(|row| format!("{}, the product simulated: {}", row.id, row.remark)));
    if let Some(measured) = &findings.measured {
        let remarks = measured.measured.iter().filter(|row| !row.remark.is_empty());
        notes.extend(remarks.map(|row| format!("{}, this machine: {}", row.id, row.remark)));
        notes.extend(measured.missing.iter().map(|id| format!("{id}: {NOT_MEASURED}")));
        notes.extend(measured_notes(measured));
    }
    notes
}

const TITLE: &str = "Automatic path migration";

fn statements(findings: &PathMigrationFindings) -> Vec<String> {
    let mut statements: Vec<String> = findings.gates.iter().map(Gate::to_string).collect();
    for target in findings.measured.iter().flat_map(|measured| &measured.targets) {
        statements.push(format!(
            "{} {}",
            if target.holds { "target, met:" } else { "target, not met:" },
            target.sentence()
        ));
    }
    statements.push(gated_sentence(findings.holds).to_owned());
    statements
}

/// As text.
pub(super) fn table(findings: &PathMigrationFindings) -> String {
    let mut text = format!("{TITLE}\n\n{}\n", findings.summary.head_text());
    text += &format_table(&comparisons(findings));
    text += &explain_differences(&findings.comparisons);
    for (title, rows) in tables(findings) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    text.push('\n');
    for note in notes(findings) {
        let _ = writeln!(text, "{note}");
    }
    let _ = write!(text, "\n{}", findings.summary.tail_text());
    let _ = writeln!(text, "* gated: the exit status depends on it. So does each of these:");
    text + &statements(findings).join("\n") + "\n"
}

/// As an HTML page.
pub(super) fn html(findings: &PathMigrationFindings) -> ReportPage {
    let summary = &findings.summary;
    let compared = PageSection::new("Published, and by the model of the paper's adapter")
        .table(&comparisons(findings))
        .paragraphs(explain_differences(&findings.comparisons).lines());
    let mut page = summary
        .page(TITLE, &findings.gates, findings.holds)
        .seed(findings.seed)
        .section(PageSection::new("Statements").paragraphs(statements(findings)))
        .section(compared)
        .sections(findings.adapter.charts(&findings.comparisons, &summary.robustness.seeds))
        .section(
            PageSection::new("Simulated transitions by connections")
                .charts([simulated_output::transitions_chart(&findings.simulated)]),
        );
    if let Some(measured) = &findings.measured {
        page = page.sections(measured_charts(measured));
    }
    page.sections(tables(findings).into_iter().map(|(title, rows)| PageSection::new(title).table(&rows)))
        .section(PageSection::new("Notes").paragraphs(notes(findings)))
        .sections(summary.tail_sections())
}

fn measured_charts(measured: &MeasuredFindings) -> [PageSection; 3] {
    let points = |of: fn(&super::transitions::TransitionRow) -> &TrialSummary| {
        let rows = measured.transitions.rows.iter();
        rows.map(move |row| of(row).chart_point(row.connections as f64))
    };
    let transitions =
        LineChart::new("Transitions", Axis::new("connections").logarithmic(), Axis::new("time, us").logarithmic())
            .curve("MIGRATED to ARMED", points(|row| &row.arming_us))
            .curve("ARMED to MIGRATED", points(|row| &row.migrating_us));
    fn added(rows: &[DisturbedLatency]) -> impl Iterator<Item = ChartPoint> {
        rows.iter().map(|row| row.per_connection_us.chart_point(row.bytes as f64))
    }
    let by_size = LineChart::new(
        "Added for a connection",
        Axis::new("size of a message").bytes(),
        Axis::new("added, us").logarithmic(),
    )
    .curve("by hand", added(&measured.transitions.while_migrating))
    .curve("cut, noticed", added(&measured.transitions.noticed_cut))
    .curve("cut, silent", added(&measured.transitions.silent_cut));
    [
        PageSection::new("This machine: slower than without a fault, %, run by run")
            .charts([slowdown_chart(&measured.kernels)]),
        PageSection::new("This machine: transitions by connections").charts(transitions.figure_if_any()),
        PageSection::new("This machine: added per connection by size").charts(by_size.figure_if_any()),
    ]
}
