//! Development tasks of the project: `cargo xtask <task>`.
//!
//! `test` checks everything; `tidy` runs only its quickest step.

mod debian;
mod install_check;
mod licences;
mod package;
mod process;
mod report;
mod site;
mod steps;
mod test_count;
mod tidy;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand, builder::PossibleValuesParser};

use crate::report::Skips;
use crate::steps::{Extent, Request};

/// Development tasks of Pleach.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check everything: format, project rules, licences, clippy, tests
    ///
    /// Each step prints its commands and its time. A table at the end lists the results, and the last line counts the
    /// tests. The steps after a failed step still run. Debian packages that tests need are installed if possible (as
    /// root, with apt-get); otherwise the table lists the skipped tests and the reason. If CI=true is set in the
    /// environment, a skipped test is a failure. Tests that failed, if at most ten, are run once more, alone; the table
    /// names those that passed then.
    Test {
        /// Also run the slow checks: ignored tests, documentation and its site, cargo-deny, installation (tools go to target/tools)
        #[arg(long)]
        all: bool,
        /// Run only this step; may be given several times
        #[arg(long = "step", value_name = "STEP", value_parser = PossibleValuesParser::new(steps::names()))]
        only: Vec<String>,
    },
    /// Build what users install: a tarball and a Debian package, in target/packages
    ///
    /// Debug information goes into files of its own. `cargo xtask test --step installation` checks the result.
    Package,
    /// Build the documents as a web site with search, in target/site
    ///
    /// mdBook is built under target/tools if it is not installed, which takes minutes. Every link is checked.
    Site,
    /// Check the project rules only: layering, dead files, sizes, whitespace, cited rules (a few seconds)
    Tidy,
}

fn main() -> anyhow::Result<ExitCode> {
    let request = match Arguments::parse().task {
        Task::Test { all, only } => Request { extent: if all { Extent::All } else { Extent::Quick }, only },
        Task::Package => return package::build(&workspace::root()?).map(|packages| packages.print()),
        Task::Site => Request { extent: Extent::All, only: vec!["site".to_owned()] },
        Task::Tidy => Request { extent: Extent::Quick, only: vec!["tidy".to_owned()] },
    };
    let skips = Skips::from_environment(std::env::var("CI").ok().as_deref());
    let report = steps::run(&request)?;
    print!("{report}");
    let failures = report.failures(skips, request.test_requirement());
    for failure in &failures {
        println!("{failure}");
    }
    if request.may_run_tests() {
        println!("{}", report.tests());
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
