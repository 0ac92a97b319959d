//! pleach: collectives inside the network, right while the network fails.

mod configuration;

mod doctor;
mod exec;

mod launch;
mod logging;
mod manager;
mod node;
mod pingpong;

mod simulate;
mod top;
mod tune;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::{CommandOutcome, bench, demo, reproduce};

/// Pleach: collective operations inside the network, right while the network fails.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 110)]
struct CliArgs {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Manager, nodes and 8 ranks as processes: barrier, broadcast and allreduce while bits flip, packets vanish and a node is
    /// killed, every result checked; a quarter of a minute.
    Demo(demo::DemoArgs),
    /// Runs a scenario file and reports latencies, errors and the oracle's verdict.
    Simulate(simulate::SimulateArgs),
    /// Runs a paper's experiments and holds every published number against ours.
    Reproduce(reproduce::ReproduceArgs),
    /// Measures speed and size on this machine.
    Bench(bench::BenchArgs),
    /// Times checksums on this machine and keeps the fastest strong one for each size of message.
    Tune(tune::TuneArgs),
    /// Two ends bounce a message over UDP as RoCEv2: with each other, or with ibv_rc_pingpong.
    Pingpong(pingpong::PingpongArgs),
    /// Runs the manager: nodes register with it, jobs ask it for groups.
    Manager(manager::ManagerArgs),
    /// Runs an aggregation node on this machine.
    Node(node::NodeArgs),
    /// Shows jobs, groups, trees and nodes of a manager, operations per second and errors by cause.
    Top(top::TopArgs),
    /// Says what this machine can do, how the cluster is, and why a job used aggregation or did not.
    Doctor(doctor::DoctorArgs),
    /// Starts the processes of a job, on this machine or on hosts made of network namespaces.
    Launch(launch::LaunchArgs),
    /// Runs an MPI program as it is, with its barriers, broadcasts and reductions taken over.
    Exec(exec::ExecArgs),
    /// One process of `pleach launch`.
    #[command(hide = true)]
    LaunchRank(launch::rank::LaunchRankArgs),
    /// One rank of `pleach demo`.
    #[command(hide = true)]
    DemoRank(demo::rank::DemoRankArgs),
    /// One process of `pleach bench collectives`.
    #[command(hide = true)]
    BenchRank(bench::collectives::rank::BenchRankArgs),
    /// One process of `pleach bench pingpong`.
    #[command(hide = true)]
    BenchPingpongRank(bench::pingpong::rank::BenchPingpongRankArgs),
}

const EXAMPLES: &str = "\
Examples:
  pleach demo                         or, with 1,728 simulated hosts: pleach demo --simulated
  pleach simulate scenarios/paper-failure-free.toml
  pleach simulate scenarios/temporal-random-errors.toml --seed 7 --operations 1000
  pleach simulate scenarios/spatial-cut-cable.toml --format html --output report.html
  pleach simulate --fields            what a scenario file may say
  pleach reproduce soft-errors --format html --output soft-errors.html
  pleach bench simulator
  pleach tune                         the fastest checksum for each size, on this machine
  pleach pingpong --listen            and, on another host: pleach pingpong HOST
  pleach launch -n 4 -- ./program
  pleach exec -- mpirun -n 4 ./program
  pleach manager                      and, on any machine: pleach node --manager HOST:4797
  pleach top                          what the manager sees
  pleach doctor                       what this machine can do

Exit status: 0 if all was right, 1 if the oracle objects or a gated number does not hold, 2 if the command or a file is
wrong.";

fn main() -> ExitCode {
    let done = match CliArgs::parse().command {
        CliCommand::Simulate(arguments) => simulate::run(&arguments),
        CliCommand::Reproduce(arguments) => reproduce::run(&arguments),
        CliCommand::Bench(arguments) => bench::run(&arguments),
        CliCommand::Tune(arguments) => tune::run(&arguments),
        CliCommand::BenchRank(arguments) => bench::collectives::rank::run(&arguments),
        CliCommand::BenchPingpongRank(arguments) => bench::pingpong::rank::run(&arguments),
        CliCommand::Pingpong(arguments) => pingpong::run(&arguments),
        CliCommand::Manager(arguments) => manager::run(arguments),
        CliCommand::Node(arguments) => node::run(arguments),
        CliCommand::Top(arguments) => top::run(&arguments),
        CliCommand::Doctor(arguments) => doctor::run(&arguments),
        CliCommand::DemoRank(arguments) => demo::rank::run(&arguments),
        // Their exit status is also that of other programs, or of a signal.
        CliCommand::Demo(arguments) => return demo::run(&arguments).unwrap_or_else(|error| wrong(&error)),
        CliCommand::Launch(arguments) => return launch::run(&arguments).unwrap_or_else(|error| wrong(&error)),
        CliCommand::Exec(arguments) => return exec::run(&arguments).unwrap_or_else(|error| wrong(&error)),
        CliCommand::LaunchRank(arguments) => {
            return launch::rank::run(&arguments).unwrap_or_else(|error| wrong(&error));
        }
    };
    match done {
        Ok(CommandOutcome::Right) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Wrong) => ExitCode::from(1),
        Err(error) => wrong(&error),
    }
}

/// Tells why nothing could be done.
fn wrong(error: &anyhow::Error) -> ExitCode {
    // In one piece: ranks of a job may say so at once. Where nobody listens there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("error: {error:#}\n").as_bytes());
    ExitCode::from(2)
}
