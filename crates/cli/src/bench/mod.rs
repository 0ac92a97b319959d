//! `pleach bench`: how fast and how large, measured now, on this machine.

mod simulator;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::Outcome;

/// Measures speed and size on this machine.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Packet hops a second on one core, bytes a host, and one allreduce over a million hosts.
    Simulator(simulator::Arguments),
}

/// Runs a benchmark.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    match &arguments.what {
        What::Simulator(arguments) => simulator::run(arguments),
    }
}
