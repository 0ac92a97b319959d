//! The `pleach` program: parses the command line and runs a command.

mod command_line;
mod configuration;
mod credential;
mod doctor;
#[cfg(test)]
mod document_examples;
mod exec;
mod launch;
mod logging;
mod manager;
mod node;
mod pingpong;
mod service_notifier;
mod shell_files;
mod simulate;
mod top;
mod tune;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::report::announce_program;
use lab::{CommandOutcome, bench, chaos, demo, reproduce, soak};

/// Pleach: in-network collective operations with correct results while the network fails.
#[derive(Parser)]
#[command(name = "pleach", version = env!("PLEACH_VERSION"), after_help = EXAMPLES, max_term_width = 110)]
struct CliArgs {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run a manager, nodes and 8 ranks as processes: barrier, broadcast and allreduce while bits flip, packets are lost and a node
    /// is killed, with every result checked; takes 15 s.
    Demo(demo::DemoArgs),
    /// Run a scenario file and report latencies, errors and the oracle's verdict.
    Simulate(simulate::SimulateArgs),
    /// Run random operations and faults in simulated fabrics, seed after seed, and check every result.
    Soak(soak::SoakArgs),
    /// Run random collectives on real processes while processes and links fail, and check every result and error.
    Chaos(chaos::ChaosArgs),
    /// Run a paper's experiments and compare with every published number.
    Reproduce(reproduce::ReproduceArgs),
    /// Measure speed and memory on this machine.
    Bench(bench::BenchArgs),
    /// Time checksums on this machine and save the fastest strong one for each message size.
    Tune(tune::TuneArgs),
    /// Exchange messages over UDP as RoCEv2 with another pleach or with ibv_rc_pingpong.
    Pingpong(pingpong::PingpongArgs),
    /// Run the manager: nodes register with it, jobs request groups from it.
    Manager(manager::ManagerArgs),
    /// Run an aggregation node on this machine.
    Node(node::NodeArgs),
    /// Print a credential with which one job may use the manager, without the cluster's secret.
    Credential(credential::CredentialArgs),
    /// Show jobs, groups, trees and nodes of a manager, operations per second and errors by cause.
    Top(top::TopArgs),
    /// Check this machine and the cluster, and explain why a job used aggregation or did not.
    Doctor(doctor::DoctorArgs),
    /// Start the processes of a job, on this machine, on others by ssh, or on hosts made of network namespaces.
    Launch(launch::LaunchArgs),
    /// Run an unmodified MPI program with its collective operations offloaded.
    Exec(exec::ExecArgs),
    /// Print the completions of a shell.
    Completions(shell_files::CompletionsArgs),
    /// Write the manual pages of all commands.
    #[command(hide = true)]
    ManPages(shell_files::ManPagesArgs),
    /// One process of `pleach launch`.
    #[command(hide = true)]
    LaunchRank(launch::rank::LaunchRankArgs),
    /// The processes of `pleach launch` on one of its hosts.
    #[command(hide = true)]
    LaunchHost(launch::host_agent::LaunchHostArgs),
    /// Ends what ranks of `pleach launch` have started, if that is killed.
    #[command(hide = true)]
    LaunchGuard,
    /// One rank of `pleach demo`.
    #[command(hide = true)]
    DemoRank(demo::rank::DemoRankArgs),
    /// One rank of `pleach chaos`.
    #[command(hide = true)]
    ChaosRank(chaos::rank::ChaosRankArgs),
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
  pleach simulate --fields            the fields of a scenario file
  pleach soak --seeds 10000           random operations and faults, checked by the oracle
  pleach chaos --minutes 10           the same with real processes and links that fail (as root)
  pleach reproduce soft-errors --format html --output soft-errors.html
  pleach bench simulator
  pleach tune                         the fastest checksum for each size, on this machine
  pleach pingpong --listen            and, on another host: pleach pingpong HOST
  pleach launch -n 4 -- ./program
  pleach exec -- mpirun -n 4 ./program
  pleach manager                      and, on any machine: pleach node --manager HOST:4797
  pleach credential --hours 24        for a job whose user must not know the cluster's secret
  pleach top                          status of the cluster
  pleach doctor                       check this machine

Exit status: 0 on success, 1 if the oracle finds a violation or a gated number misses its target, 2 if the command line or a
file is wrong.";

fn main() -> ExitCode {
    let matches = CliArgs::command().get_matches();
    announce_program(command_line::program_start(env!("PLEACH_VERSION"), &CliArgs::command(), &matches));
    let arguments = CliArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let done = match arguments.command {
        CliCommand::Simulate(arguments) => simulate::run(&arguments),
        CliCommand::Soak(arguments) => soak::run(&arguments),
        CliCommand::Chaos(arguments) => chaos::run(&arguments),
        CliCommand::ChaosRank(arguments) => chaos::rank::run(&arguments),
        CliCommand::Reproduce(arguments) => reproduce::run(&arguments),
        CliCommand::Bench(arguments) => bench::run(&arguments),
        CliCommand::Tune(arguments) => tune::run(&arguments),
        CliCommand::BenchRank(arguments) => bench::collectives::rank::run(&arguments),
        CliCommand::BenchPingpongRank(arguments) => bench::pingpong::rank::run(&arguments),
        CliCommand::Pingpong(arguments) => pingpong::run(&arguments),
        CliCommand::Manager(arguments) => manager::run(arguments),
        CliCommand::Node(arguments) => node::run(arguments),
        CliCommand::Credential(arguments) => credential::run(&arguments),
        CliCommand::Top(arguments) => top::run(&arguments),
        CliCommand::Doctor(arguments) => doctor::run(&arguments),
        CliCommand::Completions(arguments) => shell_files::print_completions(&arguments, CliArgs::command()),
        CliCommand::ManPages(arguments) => shell_files::write_man_pages(&arguments, CliArgs::command()),
        CliCommand::DemoRank(arguments) => demo::rank::run(&arguments),
        // Their exit status may be that of another program or of a signal.
        CliCommand::Demo(arguments) => return demo::run(&arguments).unwrap_or_else(|error| report_error(&error)),
        CliCommand::Launch(arguments) => return launch::run(&arguments).unwrap_or_else(|error| report_error(&error)),
        CliCommand::Exec(arguments) => return exec::run(&arguments).unwrap_or_else(|error| report_error(&error)),
        CliCommand::LaunchHost(arguments) => {
            return launch::host_agent::run(&arguments).unwrap_or_else(|error| report_error(&error));
        }
        CliCommand::LaunchGuard => return launch::group_guard::run(),
        CliCommand::LaunchRank(arguments) => {
            return launch::rank::run(&arguments).unwrap_or_else(|error| report_error(&error));
        }
    };
    match done {
        Ok(CommandOutcome::Passed) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Failed) => ExitCode::from(1),
        Err(error) => report_error(&error),
    }
}

/// Prints an error. What every rank of a job gets alike, only rank 0 prints; not if the ranks were started by hand, which gives the job no name:
/// then each has a terminal of its own.
fn report_error(error: &anyhow::Error) -> ExitCode {
    let is_same_at_all_ranks =
        error.downcast_ref::<pleach::JoinError>().is_some_and(pleach::JoinError::is_same_at_all_ranks);
    let has_launcher = std::env::var_os("PLEACH_JOB").is_some();
    if is_same_at_all_ranks && has_launcher && std::env::var("PLEACH_RANK").is_ok_and(|rank| rank != "0") {
        return ExitCode::from(2);
    }
    // In one write: the ranks of a job may print at the same time. A failure to write is ignored.
    let _ = std::io::stderr().write_all(format!("error: {error:#}\n").as_bytes());
    ExitCode::from(2)
}
