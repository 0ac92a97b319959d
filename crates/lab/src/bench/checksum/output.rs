//! The rates as text and as an HTML page with charts.

use std::fmt::Write;

use checksum::tuning::CopyStrategy;

use super::{ChecksumBenchReport, RateRow};
use crate::bench::byte_size::ByteSize;
use crate::report::{Axis, ChartPoint, Figure, LineChart, PageSection, PageVerdict, ReportPage, format_table};

/// `4 KiB`.
pub fn format_size(bytes: usize) -> String {
    ByteSize(bytes as u64).to_string()
}

/// A rate with three digits.
fn rate(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The rows of one strategy, in order. The first is memcpy for strategies that copy, and `reading` for the other.
fn of_strategy(rates: &[RateRow], strategy: CopyStrategy) -> impl Iterator<Item = &RateRow> {
    let reference = if strategy == CopyStrategy::Alone { "reading" } else { "memcpy" };
    rates.iter().filter(move |row| row.way.map_or(row.name == reference, |name| name == strategy.name()))
}

fn title(strategy: CopyStrategy) -> &'static str {
    match strategy {
        CopyStrategy::Alone => "Alone, GB/s",
        CopyStrategy::CopyThen => "Copied, then checksummed, block by block, GB/s",
        CopyStrategy::Fused => "Copied and checksummed in one pass, GB/s",
    }
}

fn grid(report: &ChecksumBenchReport, strategy: CopyStrategy, cell: impl Fn(&RateRow) -> String) -> Vec<Vec<String>> {
    let Some(first) = report.sizes.first() else { return Vec::new() };
    let header = ["".to_owned(), "strength".to_owned()]
        .into_iter()
        .chain(report.sizes.iter().map(|row| format_size(row.bytes)));
    let rows = of_strategy(&first.rates, strategy).enumerate().map(|(number, named)| {
        let cells = report
            .sizes
            .iter()
            .map(|row| of_strategy(&row.rates, strategy).nth(number).map_or_else(String::new, &cell));
        [named.name.to_owned(), named.strength.unwrap_or("").to_owned()].into_iter().chain(cells).collect()
    });
    std::iter::once(header.collect()).chain(rows).collect()
}

/// Every table with its title.
fn tables(report: &ChecksumBenchReport) -> Vec<(String, Vec<Vec<String>>)> {
    let rates = CopyStrategy::ALL
        .map(|strategy| (title(strategy).to_owned(), grid(report, strategy, |row| rate(row.median_gb_per_s))));
    let ratios = [CopyStrategy::CopyThen, CopyStrategy::Fused].map(|strategy| {
        let strong = |row: &Vec<String>| row[1] == "strong" || row[1] == "strength";
        let rows = grid(report, strategy, |row| format!("{:.2}", row.of_memcpy)).into_iter().filter(strong).collect();
        (format!("Strong checksums as a share of memcpy, {strategy}"), rows)
    });
    let spread = |row: &RateRow| {
        let of_median = |value: f64| 100.0 * (value / row.median_gb_per_s - 1.0);
        format!("{:+.0} {:+.0}", of_median(row.slowest_gb_per_s), of_median(row.fastest_gb_per_s))
    };
    let spreads = (
        "Slowest and fastest round in one pass, % from the median".to_owned(),
        grid(report, CopyStrategy::Fused, spread),
    );
    rates.into_iter().chain(ratios).chain([spreads]).collect()
}

fn heading(report: &ChecksumBenchReport) -> String {
    let rounds = report.sizes.iter().map(|row| row.rounds);
    let (least, most) = (rounds.clone().min().unwrap_or(0), rounds.max().unwrap_or(0));
    let ChecksumBenchReport { processor, kernel, .. } = report;
    format!("{processor}; CRC kernel {kernel}; medians of {least} to {most} rounds, one core")
}

pub(super) fn table(report: &ChecksumBenchReport) -> String {
    let mut text = format!("Checksums on this machine: {}\n", heading(report));
    for (title, rows) in tables(report) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    text
}

pub(super) fn html(report: &ChecksumBenchReport) -> ReportPage {
    let verdict = format!("rates of all checksums measured at {} sizes of messages.", report.sizes.len());
    let charts = CopyStrategy::ALL.map(|strategy| curves(report, strategy));
    ReportPage::new("Checksums on this machine", PageVerdict::measured(verdict))
        .about(heading(report))
        .section(PageSection::new("Rates: median and range of the rounds").charts(charts.into_iter().flatten()))
        .sections(tables(report).into_iter().map(|(title, rows)| PageSection::new(title).table(&rows)))
}

/// One line for each checksum.
fn curves(report: &ChecksumBenchReport, strategy: CopyStrategy) -> Option<Figure> {
    let first = report.sizes.first()?;
    let chart = LineChart::new(title(strategy), Axis::new("size of a message").bytes(), Axis::new("rate, GB/s"));
    let curve = |chart: LineChart, (number, named): (usize, &RateRow)| {
        let points = report.sizes.iter().filter_map(|row| {
            let rate = of_strategy(&row.rates, strategy).nth(number)?;
            let point = ChartPoint::new(row.bytes as f64, rate.median_gb_per_s);
            Some(point.spread(rate.slowest_gb_per_s, rate.fastest_gb_per_s))
        });
        chart.curve(named.name, points)
    };
    of_strategy(&first.rates, strategy).enumerate().fold(chart, curve).figure_if_any()
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
