//! `pleach doctor`: checks this machine and the cluster, explains why a job used aggregation or did not, and what Pleach would do for
//! an MPI program.

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

/// Checks this machine and its connection to the manager, explains why a job used aggregation or did not, and what would be
/// offloaded of an MPI program.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    manager: ManagerConnectionArgs,
    /// Explain why jobs of this name or name prefix, or the job of this number, used aggregation or did not; queries the manager
    #[arg(long, value_name = "NAME|NUMBER")]
    job: Option<String>,
    /// A table, or one JSON object
    #[arg(long, value_enum, default_value_t = DoctorFormat::Table)]
    format: DoctorFormat,
    #[command(flatten)]
    environment: JobEnvironmentArgs,
    /// Command that starts an MPI program: explain what would be offloaded of it. The program ends in MPI_Init
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

Verdicts: good; limited: works but could be better; missing: the named feature does not work; broken: fix it before using
Pleach. Exit status 1 if something is broken or the job got no aggregation, 2 if the checks could not run.";

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
        mpi::findings(&arguments.environment, arguments.manager.manager.as_deref(), &arguments.command)?
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
    Ok(if diagnosis.worst() == FindingStatus::Broken { CommandOutcome::Failed } else { CommandOutcome::Passed })
}
