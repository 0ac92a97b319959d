//! pleach: collectives inside the network, right while the network fails.


mod configuration;


mod doctor;
mod exec;



mod launch;
mod logs;
mod manager;
mod node;
mod pingpong;



mod simulate;
mod top;
mod tune;


use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::{Outcome, bench, demo, reproduce};

/// Pleach: collective operations inside the network, right while the network fails.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Manager, nodes and 8 ranks as processes: barrier, broadcast and allreduce while bits flip, packets vanish and a node is
    /// killed, every result checked; a quarter of a minute.
    Demo(demo::Arguments),
    /// Runs a scenario file and reports latencies, errors and the oracle's verdict.
    Simulate(simulate::Arguments),
    /// Runs a paper's experiments and holds every published number against ours.
    Reproduce(reproduce::Arguments),
    /// Measures speed and size on this machine.
    Bench(bench::Arguments),
    /// Times checksums on this machine and keeps the fastest strong one for each size of message.
    Tune(tune::Arguments),
    /// Two ends bounce a message over UDP as RoCEv2: with each other, or with ibv_rc_pingpong.
    Pingpong(pingpong::Arguments),
    /// Runs the manager: nodes register with it, jobs ask it for groups.
    Manager(manager::Arguments),
    /// Runs an aggregation node on this machine.
    Node(node::Arguments),
    /// Shows jobs, groups, trees and nodes of a manager, operations per second and errors by cause.
    Top(top::Arguments),
    /// Says what this machine can do, how the cluster is, and why a job used aggregation or did not.
    Doctor(doctor::Arguments),
    /// Starts the processes of a job, on this machine or on hosts made of network namespaces.
    Launch(launch::Arguments),
    /// Runs an MPI program as it is, with its barriers, broadcasts and reductions taken over.
    Exec(exec::Arguments),
    /// One process of `pleach launch`.
    #[command(hide = true)]
    LaunchRank(launch::rank::Arguments),
    /// One rank of `pleach demo`.
    #[command(hide = true)]
    DemoRank(demo::rank::Arguments),
    /// One process of `pleach bench collectives`.
    #[command(hide = true)]
    BenchRank(bench::collectives::rank::Arguments),
    /// One process of `pleach bench pingpong`.
    #[command(hide = true)]
    BenchPingpongRank(bench::pingpong::player::Arguments),
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
    let done = match Arguments::parse().command {
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::BenchRank(arguments) => bench::collectives::rank::run(&arguments),
        Command::BenchPingpongRank(arguments) => bench::pingpong::player::run(&arguments),
        Command::Pingpong(arguments) => pingpong::run(&arguments),
        Command::Manager(arguments) => manager::run(arguments),
        Command::Node(arguments) => node::run(arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::DemoRank(arguments) => demo::rank::run(&arguments),
        // Their exit status is also that of other programs, or of a signal.
        Command::Demo(arguments) => return demo::run(&arguments).unwrap_or_else(|error| wrong(&error)),
        Command::Launch(arguments) => return launch::run(&arguments).unwrap_or_else(|error| wrong(&error)),
        Command::Exec(arguments) => return exec::run(&arguments).unwrap_or_else(|error| wrong(&error)),
        Command::LaunchRank(arguments) => return launch::rank::run(&arguments).unwrap_or_else(|error| wrong(&error)),
    };
    match done {
        Ok(Outcome::Right) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(1),
        Err(error) => wrong(&error),
    }
}

/// Tells why nothing could be done.
fn wrong(error: &anyhow::Error) -> ExitCode {
    // In one piece: ranks of a job may say so at once. Where nobody listens there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("error: {error:#}\n").as_bytes());
    ExitCode::from(2)
}
