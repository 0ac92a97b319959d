//! `pleach bench`: how fast and how large, measured now, on this machine.

pub mod checksum;
pub mod collectives;
pub(crate) mod migration;
pub(crate) mod mpi;
pub mod pingpong;
mod simulator;
mod steal_time;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::CommandOutcome;

/// Measures speed and size on this machine.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Packet hops a second on one core, bytes a host, and one allreduce over a million hosts.
    Simulator(simulator::BenchSimulatorArgs),
    /// Arming, moving and cutting of 1 to 1,024 connections, and what armed alternates cost.
    Migration(migration::BenchMigrationArgs),
    /// Barriers, allreduces and broadcasts between processes, beside Open MPI where it is installed.
    Collectives(collectives::BenchCollectivesArgs),
    /// MPI programs with and without the library, on every MPI that is found, against targets.
    Mpi(mpi::BenchMpiArgs),
    /// GB/s of every checksum alone, after a copy and fused with it, beside memcpy; and which errors each finds.
    Checksum(checksum::BenchChecksumArgs),
    /// Latency and bandwidth of checked messages between two processes, beside Open MPI.
    Pingpong(pingpong::BenchPingpongArgs),
}

/// Runs a benchmark.
pub fn run(arguments: &BenchArgs) -> Result<CommandOutcome> {
    match &arguments.what {
        BenchCommand::Simulator(arguments) => simulator::run(arguments),
        BenchCommand::Migration(arguments) => migration::run(arguments),
        BenchCommand::Collectives(arguments) => collectives::run(arguments),
        BenchCommand::Mpi(arguments) => mpi::run(arguments),
        BenchCommand::Checksum(arguments) => checksum::run(arguments),
        BenchCommand::Pingpong(arguments) => pingpong::run(arguments),
    }
}

/// A line of this process' memory account, in bytes; zero where the system keeps none.
fn process_memory_bytes(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    found.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
