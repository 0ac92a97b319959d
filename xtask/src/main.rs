//! The project's own chores, run as `cargo xtask <chore>`.
//!
//! `test` is the one command that tells whether the project is in order; `tidy` is its quickest step alone.

mod debian;
mod licences;
mod process;
mod report;
mod steps;
mod test_count;
mod tidy;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand, builder::PossibleValuesParser};

use crate::report::Skips;
use crate::steps::{Extent, Request};

/// Chores of the Pleach project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check everything: format, taste, licences, clippy, tests
    ///
    /// Each step says what it runs and how long it took; a table at the end sums up, and the last line counts the
    /// tests. A failed step does not stop the later ones. Debian packages that tests need are installed where that is
    /// allowed (root and apt-get); otherwise the table says which tests were skipped and why. With CI=true in the
    /// environment a skipped test is a failure.
    Test {
        /// Also run what takes long: ignored tests, the documentation, cargo-deny (installed under target/tools)
        #[arg(long)]
        all: bool,
        /// Run only this step; may be given several times
        #[arg(long = "step", value_name = "STEP", value_parser = PossibleValuesParser::new(steps::names()))]
        only: Vec<String>,
    },
    /// Check taste only: layering, dead files, sizes, whitespace, cited rules (under a second)
    Tidy,
}

fn main() -> anyhow::Result<ExitCode> {
    let request = match Arguments::parse().chore {
        Chore::Test { all, only } => Request { extent: if all { Extent::All } else { Extent::Quick }, only },
        Chore::Tidy => Request { extent: Extent::Quick, only: vec!["tidy".to_owned()] },
    };
    let skips = Skips::from_environment(std::env::var("CI").ok().as_deref());
    let report = steps::run(&request)?;
    print!("{report}");
    let faults = report.faults(skips, request.demands_tests());
    for fault in &faults {
        println!("{fault}");
    }
    if request.may_run_tests() {
        println!("{}", report.tests());
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
