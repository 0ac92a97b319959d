//! `pleach credential`: prints a credential with which the processes of one job may use the manager (P-105).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use control::JobCredential;
use lab::CommandOutcome;

use crate::configuration;

const SECONDS_PER_HOUR: u64 = 3600;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CredentialArgs {
    /// Hours for which it is valid.
    #[arg(long, value_name = "HOURS", default_value_t = 168, value_parser = clap::value_parser!(u64).range(1..=87_600))]
    hours: u64,
    /// File with the secret of the cluster (PLEACH_SECRET_FILE); PLEACH_SECRET is the secret itself
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  export PLEACH_JOB_CREDENTIAL=$(pleach credential --secret-file /etc/pleach/secret)     and then: srun ./program

Issue one for each job, and give the same to all its processes. Whoever has it may open up to 16 jobs at a time with the manager and use
those that were opened with it: no other jobs, no nodes, no status of the cluster. Ranks of `pleach exec` and `pleach launch` get a new
one by themselves. The secret itself need only be readable where credentials are issued, and for managers and nodes.

Exit status: 0, or 2 if there is no secret or it cannot be read.";

pub(crate) fn run(arguments: &CredentialArgs) -> Result<CommandOutcome> {
    let file = configuration::secret_file(arguments.secret_file.clone(), None);
    let secret = configuration::secret(file.as_deref())?
        .context("there is no secret to issue a credential from: set --secret-file or PLEACH_SECRET")?;
    let lifetime = Duration::from_secs(arguments.hours * SECONDS_PER_HOUR);
    let credential = JobCredential::issue(&secret, lifetime).context("cannot issue a credential")?;
    configuration::announce(&credential.to_text());
    Ok(CommandOutcome::Passed)
}
