//! The rates as tables, and as a page with curves.

use std::fmt::Write;

use checksum::tuning::CopyStrategy;

use super::{ChecksumBenchReport, RateRow};
use crate::report::{format_table, line_chart, page};

/// `4 KiB`.
pub fn format_size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Three digits.
fn rate(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The rows of one way, in order; for the copying ways memcpy comes first, for the other reading.
fn of_way(rates: &[RateRow], way: CopyStrategy) -> impl Iterator<Item = &RateRow> {
    let beside = if way == CopyStrategy::Alone { "reading" } else { "memcpy" };
    rates.iter().filter(move |row| row.way.map_or(row.name == beside, |name| name == way.name()))
}

fn title(way: CopyStrategy) -> &'static str {
    match way {
        CopyStrategy::Alone => "Alone, GB/s",
        CopyStrategy::CopyThen => "Copied block by block, then looked at, GB/s",
        CopyStrategy::Fused => "Copied and looked at in one pass, GB/s",
    }
}

fn grid(report: &ChecksumBenchReport, way: CopyStrategy, cell: impl Fn(&RateRow) -> String) -> Vec<Vec<String>> {
    let Some(first) = report.sizes.first() else { return Vec::new() };
    let head = ["".to_owned(), "strength".to_owned()]
        .into_iter()
        .chain(report.sizes.iter().map(|row| format_size(row.bytes)));
    let rows = of_way(&first.rates, way).enumerate().map(|(number, named)| {
        let cells =
            report.sizes.iter().map(|row| of_way(&row.rates, way).nth(number).map_or_else(String::new, &cell));
        [named.name.to_owned(), named.strength.unwrap_or("").to_owned()].into_iter().chain(cells).collect()
    });
    std::iter::once(head.collect()).chain(rows).collect()
}

/// Every table with its title.
fn tables(report: &ChecksumBenchReport) -> Vec<(String, Vec<Vec<String>>)> {
    let rates =
        CopyStrategy::ALL.map(|way| (title(way).to_owned(), grid(report, way, |row| rate(row.median_gb_per_s))));
    let ratios = [CopyStrategy::CopyThen, CopyStrategy::Fused].map(|way| {
        let strong = |row: &Vec<String>| row[1] == "strong" || row[1] == "strength";
        let rows = grid(report, way, |row| format!("{:.2}", row.of_memcpy)).into_iter().filter(strong).collect();
        (format!("Strong ones as a share of memcpy, {way}"), rows)
    });
    let spread = |row: &RateRow| {
        let of_median = |value: f64| 100.0 * (value / row.median_gb_per_s - 1.0);
        format!("{:+.0} {:+.0}", of_median(row.slowest_gb_per_s), of_median(row.fastest_gb_per_s))
    };
    let spreads = (
        "Slowest and fastest round of those in one pass, % from the median".to_owned(),
        grid(report, CopyStrategy::Fused, spread),
    );
    rates.into_iter().chain(ratios).chain([spreads]).collect()
}

fn heading(report: &ChecksumBenchReport) -> String {
    let rounds = report.sizes.iter().map(|row| row.rounds);
    let (least, most) = (rounds.clone().min().unwrap_or(0), rounds.max().unwrap_or(0));
    let ChecksumBenchReport { processor, kernel, .. } = report;
    format!("{processor}; kernel of the cyclic codes {kernel}; medians of {least} to {most} rounds, one core")
}

pub(super) fn table(report: &ChecksumBenchReport) -> String {
    let mut text = format!("Checksums on this machine: {}\n", heading(report));
    for (title, rows) in tables(report) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    text
}

pub(super) fn html(report: &ChecksumBenchReport) -> String {
    let mut sections = vec![("Machine".to_owned(), format!("<p>{}</p>", crate::report::escape(&heading(report))))];
    for way in CopyStrategy::ALL {
        sections.push((title(way).to_owned(), curves(report, way)));
    }
    for (title, rows) in tables(report) {
        sections.push((title, page::html_table(&rows)));
    }
    page::html_page("Checksums on this machine", &sections)
}

/// One line for each code.
fn curves(report: &ChecksumBenchReport, way: CopyStrategy) -> String {
    let Some(first) = report.sizes.first() else { return String::new() };
    let series: Vec<(&str, Vec<(f64, f64)>)> = of_way(&first.rates, way)
        .enumerate()
        .map(|(number, named)| {
            let points = report.sizes.iter().filter_map(|row| {
                of_way(&row.rates, way).nth(number).map(|rate| (row.bytes as f64, rate.median_gb_per_s))
            });
            (named.name, points.collect())
        })
        .collect();
    line_chart(&series, "bytes of a message", "GB/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!([64, 4096, 1 << 20, 64 << 20].map(format_size), ["64 B", "4 KiB", "1 MiB", "64 MiB"]);
    }

    #[test]
    fn rates_have_three_digits() {
        assert_eq!([0.5, 12.345, 104.2].map(rate), ["0.50", "12.3", "104"]);
    }
}
