//! `pleach doctor`: what this machine can do, how the cluster is, why a job used aggregation or did not, and what Pleach would do
//! for an MPI program.

mod cluster;
mod finding;
mod job;
mod machine;
mod mpi;
mod network;
mod software;

use std::ffi::OsString;

use anyhow::Result;
use clap::ValueEnum;

use crate::configuration::ManagerConnectionArgs;
use crate::exec::JobEnvironmentArgs;
use finding::{Diagnosis, FindingStatus};
use lab::CommandOutcome;
use lab::report::write_report;

/// Says what this machine can do, whether the manager can be reached, why a job used aggregation or did not, and what would be
/// offloaded of an MPI program.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    manager: ManagerConnectionArgs,
    /// Says why aggregation was used, or not, for the jobs whose name is or begins so, or the one of this number; asks the
    /// manager
    #[arg(long, value_name = "NAME|NUMBER")]
    job: Option<String>,
    /// A table for people, or one object for machines
    #[arg(long, value_enum, default_value_t = DoctorFormat::Table)]
    format: DoctorFormat,
    #[command(flatten)]
    surroundings: JobEnvironmentArgs,
    /// The command that starts an MPI program: says what would be offloaded of it. The program ends in MPI_Init
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "job")]
    command: Vec<OsString>,
}

const HELP: &str = "\
Examples:
  pleach doctor
  pleach doctor --manager 10.0.0.1:4797
  pleach doctor --manager 10.0.0.1:4797 --job simulation
  pleach doctor --nodes 1 -- mpirun -n 4 ./program
  pleach doctor --format json | jq '.findings[] | select(.verdict != \"good\")'

Verdicts: good; limited, which works but could be better; missing, which rules out what is named; broken, which must be
mended before Pleach works. Exit status 1 if something is broken or the job got no aggregation, 2 if nothing could be found out.";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DoctorFormat {
    Table,
    Json,
}

pub(crate) fn run(arguments: &DoctorArgs) -> Result<CommandOutcome> {
    if let Some(job) = &arguments.job {
        return job::run(&arguments.manager, job, arguments.format);
    }
    let mut findings = if arguments.command.is_empty() {
        let machine = machine::findings().into_iter();
        machine.chain(network::findings()).chain(software::findings()).collect()
    } else {
        mpi::findings(&arguments.surroundings, arguments.manager.manager.as_deref(), &arguments.command)?
    };
    if arguments.manager.manager.as_ref().is_some_and(|manager| !manager.is_empty()) {
        findings.extend(cluster::findings(&arguments.manager)?);
    }
    let diagnosis = Diagnosis::new(findings);
    let text = match arguments.format {
        DoctorFormat::Table => diagnosis.table(),
        DoctorFormat::Json => serde_json::to_string_pretty(&diagnosis)? + "\n",
    };
    write_report(&text, None)?;
    Ok(if diagnosis.worst() == FindingStatus::Broken { CommandOutcome::Wrong } else { CommandOutcome::Right })
}
