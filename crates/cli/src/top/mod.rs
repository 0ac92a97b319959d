//! `pleach top`: the manager's view of the cluster, refreshed periodically.

mod history;
mod model;
mod screen;
mod table;
mod terminal;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::configuration::ManagerConnectionArgs;
use dashboard::{ClusterView, ViewMeter};
use lab::CommandOutcome;

/// Shows jobs, groups, trees and nodes, operations per second, who is late, and errors by cause.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    manager: ManagerConnectionArgs,
    /// Print one view and exit, as is the default if stdout is not a terminal
    #[arg(long)]
    once: bool,
    /// Seconds between two views
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Tables, or one JSON object per line
    #[arg(long, value_enum, default_value_t = TopFormat::Table)]
    format: TopFormat,
}

const HELP: &str = "\
Examples:
  pleach top
  pleach top --manager 10.0.0.1:4797 --interval 5
  pleach top --once --format json | jq '.nodes[] | select(.alive | not) | .name'

On a terminal: q quits, Tab or 1 to 5 chooses a list, s sorts, r reverses, / filters, p pauses, Enter shows all about a line, ? lists
the keys. NO_COLOR=1 turns colours off.

Rates cover the time between two reports of a node, which come twice a second; so even one view takes that long.";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopFormat {
    Table,
    Json,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.1 and 3600 seconds".to_owned()) }
}

/// How long the manager may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// By then every live node has reported twice.
const TWO_REPORTS: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &TopArgs) -> Result<CommandOutcome> {
    let address = arguments.manager.address()?;
    let mut client = arguments.manager.connect(PATIENCE)?;
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut meter = ViewMeter::default();
    let once = arguments.once || !std::io::stdout().is_terminal();
    if once {
        let mut view = ClusterView::new(address, client.status()?, &mut meter);
        let began = Instant::now();
        while began.elapsed() < interval || !view.has_rates() && began.elapsed() < interval + TWO_REPORTS {
            std::thread::sleep(interval.saturating_sub(began.elapsed()).max(POLL_INTERVAL));
            view = ClusterView::new(address, client.status()?, &mut meter);
        }
        return print(&text(arguments.format, &view)?).map(|_| CommandOutcome::Passed);
    }
    if arguments.format == TopFormat::Table {
        return terminal::run(client, address, interval).map(|()| CommandOutcome::Passed);
    }
    while print(&text(arguments.format, &ClusterView::new(address, client.status()?, &mut meter))?)? {
        std::thread::sleep(interval);
    }
    Ok(CommandOutcome::Passed)
}

fn text(format: TopFormat, view: &ClusterView) -> Result<String> {
    Ok(match format {
        TopFormat::Table => table::write(view),
        TopFormat::Json => serde_json::to_string(view)? + "\n",
    })
}

/// False if the reader has closed stdout.
fn print(text: &str) -> Result<bool> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to stdout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_positive_and_bounded() {
        assert_eq!(interval("0.5"), Ok(0.5));
        assert!(["0", "-1", "nan", "inf", "1e9", "soon"].iter().all(|text| interval(text).is_err()));
    }
}
