//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::SoftErrorsFindings;
use crate::report::escape;
use crate::reproduce::comparison::{Comparison, gated_sentence};

/// As text.
pub(super) fn table(findings: &SoftErrorsFindings) -> String {
    let mut text = String::new();
    let width = findings.comparisons.iter().map(|row| row.statement.chars().count()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "Soft errors on fabric-based collectives: 1,728 hosts, {} collectives per random point, seed {}\n",
        findings.collectives, findings.seed
    );
    let _ = writeln!(
        text,
        "{:6} {:width$} {:>9} {:>9}  {:16} preset",
        "figure", "statement", "published", "ours", "verdict"
    );
    for row in &findings.comparisons {
        let gate = if row.gated { "*" } else { " " };
        let _ = writeln!(
            text,
            "{:>5}{gate} {:width$} {:>9} {:>9}  {:16} {}",
            row.figure,
            row.statement,
            row.published,
            row.ours,
            row.verdict.label(),
            row.preset
        );
        if !row.remark.is_empty() {
            let _ = writeln!(text, "       {}", row.remark);
        }
    }
    let _ = writeln!(text, "\n* gated: the exit status depends on it. So does each of these:");
    for gate in &findings.gates {
        let _ = writeln!(text, "  {gate}");
    }
    let _ = writeln!(
        text,
        "\n{:10} {:9} {:>6} {:>12} {:>12}  preset",
        "errors", "scheme", "copies", "mean ns", "std error"
    );
    for point in &findings.points {
        let scheme = format!("{:?}", point.scheme).to_lowercase();
        let _ = writeln!(
            text,
            "{:10} {scheme:9} {:>6} {:>12.1} {:>12.1}  {}",
            point.point.label(),
            point.copies,
            point.mean_ns,
            point.standard_error_ns,
            point.preset
        );
    }
    let _ = writeln!(text, "\n{}", gated_sentence(findings.holds));
    text
}

/// As an HTML page: the numbers as bars, figure by figure, and the table.
pub(super) fn html(findings: &SoftErrorsFindings) -> String {
    let mut page = String::from(HEAD);
    let _ = writeln!(
        page,
        "<h1>Soft errors on fabric-based collectives</h1><p>XGFT(3;24,12,6;1,12,6), 1,728 hosts; {} collectives per random point, \
         seed {}. {}</p>",
        findings.collectives,
        findings.seed,
        if findings.holds { "All gated numbers hold." } else { "<b>A gated number does not hold.</b>" }
    );
    for figure in ["3", "4", "5", "6"] {
        let rows: Vec<&Comparison> = findings.comparisons.iter().filter(|row| row.figure == figure).collect();
        let preset = rows.first().map_or("", |row| &row.preset);
        let _ = writeln!(page, "<h2>Figure {figure}</h2><p>Preset <code>{preset}</code></p>{}", bars(&rows));
    }
    page.push_str(
        "<h2>Numbers</h2><table><tr><th>figure<th>claim<th>statement<th>published<th>ours<th>verdict<th>remark</tr>",
    );
    for row in &findings.comparisons {
        let _ = writeln!(
            page,
            "<tr class='{}'><td>{}<td>{}<td>{}<td class=n>{}<td class=n>{}<td>{}{}<td>{}</tr>",
            row.verdict.label().replace(' ', "-"),
            row.figure,
            row.claim,
            escape(&row.statement),
            row.published,
            row.ours,
            row.verdict.label(),
            if row.gated { " (gated)" } else { "" },
            escape(&row.remark)
        );
    }
    page.push_str("</table><h2>Orderings that must hold</h2><ul>");
    for gate in &findings.gates {
        let _ = writeln!(
            page,
            "<li>{}: {}</li>",
            if gate.holds { "holds" } else { "<b>broken</b>" },
            escape(&gate.statement)
        );
    }
    page.push_str("</ul><h2>Points</h2><table><tr><th>errors<th>scheme<th>copies<th>mean ns<th>standard error<th>preset<th>trace</tr>");
    for point in &findings.points {
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td class=n>{}<td class=n>{:.1}<td class=n>{:.1}<td>{}<td><code>{}</code></tr>",
            point.point.label(),
            format!("{:?}", point.scheme).to_lowercase(),
            point.copies,
            point.mean_ns,
            point.standard_error_ns,
            point.preset,
            point.trace
        );
    }
    page.push_str("</table></body></html>\n");
    page
}

/// Published and ours side by side, one pair of bars for each number.
fn bars(rows: &[&Comparison]) -> String {
    const LEFT: f64 = 150.0;
    const WIDTH: f64 = 700.0;
    const ROW: f64 = 46.0;
    // Percentages and ratios have separate scales.
    let max = |percent: bool| {
        let alike = rows.iter().filter(|row| row.published.ends_with('%') == percent);
        alike.map(|row| row.published_value.max(row.ours_value)).fold(1.0, f64::max)
    };
    let scale = |value: f64, max: f64| (value.max(0.0) / max * (WIDTH - LEFT - 150.0)).max(1.0);
    let height = ROW * rows.len() as f64 + 8.0;
    let mut svg = format!("<svg viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' role='img'>");
    for (index, row) in rows.iter().enumerate() {
        let top = ROW * index as f64 + 4.0;
        let bar = |offset: f64, value: f64, class: &str, label: &str| {
            let (y, length) = (top + offset, scale(value, max(row.published.ends_with('%'))));
            let (x, middle) = (LEFT + length + 6.0, y + 12.0);
            format!(
                "<rect class='{class}' x='{LEFT}' y='{y}' width='{length:.1}' height='15'/><text x='{x:.1}' y='{middle}'>{label}</text>"
            )
        };
        let _ = write!(
            svg,
            "<g><title>{}</title><text class='name' x='{}' y='{}'>{}</text>{}{}</g>",
            escape(&row.statement),
            LEFT - 8.0,
            top + 20.0,
            row.id,
            bar(0.0, row.published_value, "published", &format!("{} published", row.published)),
            bar(17.0, row.ours_value, "ours", &format!("{} ours", row.ours))
        );
    }
    svg.push_str("</svg>");
    svg
}

const HEAD: &str = "<!doctype html><html lang=en><head><meta charset=utf-8><title>pleach reproduce soft-errors</title><style>
:root{color-scheme:light dark;--published:#9aa7b4;--ours:#2f7d4f}
body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .6rem;text-align:left;border-bottom:1px solid #8884;vertical-align:top}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}.differs td{background:#e8a33d22}.not-reproducible td{background:#8882}
svg text{font-size:12px;fill:currentColor}svg .name{text-anchor:end}.published{fill:var(--published)}.ours{fill:var(--ours)}
</style></head><body>";
