//! Rendering that all commands share: text tables, HTML pages, SVG charts, and where a report goes.

mod chart;
mod downloads;
mod escape;
pub(crate) mod page;
mod provenance;
mod text_table;
mod verdict;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

pub(crate) use chart::{
    Axis, ChartPoint, Figure, LineChart, PlaceChart, PlaceValue, bar_chart, histogram, standalone,
};
pub(crate) use downloads::{DataFile, csv_cell};
pub(crate) use escape::escape;
pub(crate) use page::PageSection;
pub use page::ReportPage;
pub use provenance::{ProgramStart, Provenance, announce_program};
pub use text_table::{TableRows, format_table, with_header};
pub(crate) use verdict::PageVerdict;

/// The format of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReportFormat {
    /// Text for the terminal.
    Table,
    /// One JSON object with stable field names.
    Json,
    /// One self-contained page with charts.
    Html,
}

/// The arguments `--format` and `--output` of a command that writes a report.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// Format of the report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub format: ReportFormat,
    /// File to write the report to [default: standard output]
    #[arg(long)]
    pub output: Option<PathBuf>,
}

impl ReportArgs {
    /// Renders the report in the chosen format and writes it to the chosen place.
    ///
    /// # Errors
    /// If the report cannot be encoded as JSON, or the file cannot be written.
    pub fn write<R: Serialize>(
        &self,
        report: &R,
        table: impl FnOnce(&R) -> String,
        page: impl FnOnce(&R) -> ReportPage,
    ) -> Result<()> {
        let text = match self.format {
            ReportFormat::Table => table(report),
            ReportFormat::Json => serde_json::to_string_pretty(report)? + "\n",
            ReportFormat::Html => page(report).render(&serde_json::to_value(report)?, &Provenance::of_this_process()),
        };
        write_report(&text, self.output.as_deref())
    }
}

/// A line chart as an SVG file: a series is a name and its points. Sizes in bytes are across.
pub fn line_figure(series: &[(&str, Vec<(f64, f64)>)], across: &str, up: &str) -> String {
    let chart = LineChart::new(format!("{up} by {across}"), Axis::new(across).bytes(), Axis::new(up).logarithmic());
    standalone(&series.iter().fold(chart, |chart, (name, points)| chart.curve(name, points.iter().copied())).figure())
}

/// Writes a report to a file, or to the standard output.
///
/// # Errors
/// If the file cannot be written.
pub fn write_report(text: &str, output: Option<&Path>) -> Result<()> {
    match output {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("wrote {}", path.display());
        }
        // A closed pipe, as with `| head`, is not an error.
        None => std::io::stdout().write_all(text.as_bytes()).unwrap_or_default(),
    }
    Ok(())
}
