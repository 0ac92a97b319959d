//! Logs of `pleach manager` and `pleach node`: lines for people, or objects for machines, to standard error.

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::filter::LevelFilter;

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// What ends the process.
    Error,
    /// What an operator may have to do something about.
    Warn,
    /// What happens to nodes, jobs and groups.
    #[default]
    Info,
    /// Connections that come and go.
    Debug,
    /// Everything.
    Trace,
}

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Logs from now on.
pub(crate) fn start(level: Level, format: Format) {
    let level = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match format {
        Format::Text => lines.init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
}
