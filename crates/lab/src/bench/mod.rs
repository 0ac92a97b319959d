//! `pleach bench`: speed and memory, measured on this machine.
//!
//! Shared by the benchmarks: `trial_summary` (median and range), `target_verdict`, `byte_size`, `samples` and `rank_processes` (runs of several processes),
//! `mpi_installation` and `baseline` (the MPI that Pleach is compared with), `steal_time`.

mod bare_socket;
mod baseline;
mod byte_size;
pub mod checksum;
pub mod collectives;
pub(crate) mod migration;
pub(crate) mod mpi;
mod mpi_installation;
pub mod pingpong;
mod rank_processes;
mod samples;
mod simulator;
mod steal_time;
mod target_verdict;
mod trial_summary;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::CommandOutcome;
pub(crate) use trial_summary::TrialSummary;

/// Measures speed and memory on this machine.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Simulator: packet hops per second on one core, bytes per host, and one allreduce over a million hosts.
    Simulator(simulator::BenchSimulatorArgs),
    /// Path migration: arming, migrating and cutting 1 to 1,024 connections, and the cost of armed alternates.
    Migration(migration::BenchMigrationArgs),
    /// Barrier, allreduce and broadcast between processes, compared with Open MPI if it is installed.
    Collectives(collectives::BenchCollectivesArgs),
    /// MPI programs with and without the Pleach library, on every installed MPI, against targets.
    Mpi(Box<mpi::BenchMpiArgs>),
    /// GB/s of every checksum alone, after a copy and fused with it, compared with memcpy; and which errors each detects.
    Checksum(checksum::BenchChecksumArgs),
    /// Latency and bandwidth of checksummed messages between two processes, compared with the best of several MPIs.
    Pingpong(pingpong::BenchPingpongArgs),
}

/// Runs a benchmark.
///
/// # Errors
/// If the benchmark cannot be run, or a result is wrong.
pub fn run(arguments: &BenchArgs) -> Result<CommandOutcome> {
    match &arguments.command {
        BenchCommand::Simulator(arguments) => simulator::run(arguments),
        BenchCommand::Migration(arguments) => migration::run(arguments),
        BenchCommand::Collectives(arguments) => collectives::run(arguments),
        BenchCommand::Mpi(arguments) => mpi::run(arguments),
        BenchCommand::Checksum(arguments) => checksum::run(arguments),
        BenchCommand::Pingpong(arguments) => pingpong::run(arguments),
    }
}

/// A line of this process' `/proc/self/status`, in bytes; zero where the kernel does not report it.
fn process_memory_bytes(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    found.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
