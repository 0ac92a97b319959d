//! `pleach bench`: how fast and how large, measured now, on this machine.

pub mod checksum;
pub mod collectives;
pub(crate) mod migration;
pub(crate) mod mpi;
pub mod pingpong;
mod simulator;
mod stolen;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::Outcome;

/// Measures speed and size on this machine.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Packet hops a second on one core, bytes a host, and one allreduce over a million hosts.
    Simulator(simulator::Arguments),
    /// Arming, moving and cutting of 1 to 1,024 connections, and what armed alternates cost.
    Migration(migration::Arguments),
    /// Barriers, allreduces and broadcasts between processes, beside Open MPI where it is installed.
    Collectives(collectives::Arguments),
    /// MPI programs with and without the library, on every MPI that is found, against targets.
    Mpi(mpi::Arguments),
    /// GB/s of every checksum alone, after a copy and fused with it, beside memcpy; and which errors each finds.
    Checksum(checksum::Arguments),
    /// Latency and bandwidth of checked messages between two processes, beside Open MPI.
    Pingpong(pingpong::Arguments),
}

/// Runs a benchmark.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    match &arguments.what {
        What::Simulator(arguments) => simulator::run(arguments),
        What::Migration(arguments) => migration::run(arguments),
        What::Collectives(arguments) => collectives::run(arguments),
        What::Mpi(arguments) => mpi::run(arguments),
        What::Checksum(arguments) => checksum::run(arguments),
        What::Pingpong(arguments) => pingpong::run(arguments),
    }
}

/// A line of this process' memory account, in bytes; zero where the system keeps none.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    found.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
