//! Rendering that all commands share: text tables, HTML pages, SVG charts, and where a report goes.

pub(crate) mod page;
mod svg;
mod text_table;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

pub(crate) use svg::{bar_chart, category_chart, escape, histogram, latency_chart, line_chart, standalone};
pub use text_table::{TableRows, format_table, with_header};

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
        html: impl FnOnce(&R) -> String,
    ) -> Result<()> {
        let text = match self.format {
            ReportFormat::Table => table(report),
            ReportFormat::Json => serde_json::to_string_pretty(report)? + "\n",
            ReportFormat::Html => html(report),
        };
        write_report(&text, self.output.as_deref())
    }
}

/// A line chart with logarithmic axes, as an SVG file. Each series is a name and its points.
pub fn line_figure(series: &[(&str, Vec<(f64, f64)>)], across: &str, up: &str) -> String {
    standalone(&line_chart(series, across, up))
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
