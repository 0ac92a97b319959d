//! Why aggregation was used, or not, for a job: what the manager remembers of it.

use anyhow::{Context, Result};
use control::ManagerClient;
use manager::job_history::{JobEvent, JobHistory};
use serde::Serialize;

use super::DoctorFormat;
use super::cluster::PATIENCE;
use crate::configuration::ManagerConnectionArgs;
use lab::CommandOutcome;
use lab::number_format::pluralize;
use lab::report::write_report;

/// What is said. Field names are those of the JSON output and stay as they are.
#[derive(Serialize)]
struct JobExplanation {
    job: String,
    /// Whether the newest job of that name has had aggregation.
    aggregation: bool,
    /// In one sentence.
    because: String,
    /// The newest first.
    accounts: Vec<JobHistory>,
}

const UNKNOWN: &str = "the manager remembers no such job: it did not ask this manager. Its ranks had no PLEACH_MANAGER, could not \
     reach it, or were all on one host, where shared memory is faster; Communicator::explain tells in the program itself";

pub(super) fn run(arguments: &ManagerConnectionArgs, job: &str, format: DoctorFormat) -> Result<CommandOutcome> {
    let mut client = ManagerClient::connect(arguments.address()?, arguments.secret()?, PATIENCE)
        .context("the manager has the records of jobs; say where it is with --manager")?;
    let accounts = client.explain(job)?;
    let (aggregation, because) = accounts.first().map_or((false, UNKNOWN.to_owned()), because);
    let explanation = JobExplanation { job: job.to_owned(), aggregation, because, accounts };
    let text = match format {
        DoctorFormat::Json => serde_json::to_string_pretty(&explanation)? + "\n",
        DoctorFormat::Table => table(&explanation),
    };
    write_report(&text, None)?;
    Ok(if explanation.aggregation { CommandOutcome::Right } else { CommandOutcome::Wrong })
}

/// Whether a job had aggregation, and why, in one sentence.
fn because(account: &JobHistory) -> (bool, String) {
    let totals = account.totals;
    let last = |wanted: fn(&JobEvent) -> Option<&str>| {
        account.happenings.iter().rev().find_map(|happening| wanted(&happening.what)).map(str::to_owned)
    };
    let refusal = last(|what| match what {
        JobEvent::GroupRefused { why, .. } => Some(why),
        _ => None,
    });
    let revocation = last(|what| match what {
        JobEvent::GroupRevoked { why, .. } => Some(why),
        _ => None,
    });
    let had = totals.opened > 0;
    let groups = pluralize(totals.opened, "group");
    let mut words = match (had, totals.operations) {
        (false, _) if totals.refused == 0 => {
            "it was admitted and asked for no group: its communicators are within one host".to_owned()
        }
        (false, _) => {
            format!("every group was refused; the last one because {}", refusal.clone().unwrap_or_default())
        }
        (true, 0) => format!(
            "it had {groups}, and nodes have reported no operation: it did none yet, or the selector chose other ways"
        ),
        (true, count) => format!("it had {groups}, in which nodes folded {}", pluralize(count, "operation")),
    };
    if let Some(why) = revocation {
        let went_on = "; the operations under way then went on among the hosts";
        words +=
            &format!("; {} lost on the way, the last one because {why}{went_on}", pluralize(totals.revoked, "group"));
    }
    if let Some(why) = refusal.filter(|_| had) {
        words += &format!("; {} refused, the last one because {why}", pluralize(totals.refused, "group"));
    }
    (had, words)
}

fn table(explanation: &JobExplanation) -> String {
    let verdict = if explanation.aggregation { "aggregation was used" } else { "no aggregation" };
    let mut text = format!("{}: {verdict}\n  {}\n", explanation.job, explanation.because);
    for account in &explanation.accounts {
        let state = if account.alive { "running" } else { "gone" };
        text += &format!("\njob {:016x} ({}), {state}\n", account.job.0, account.name);
        if account.forgotten > 0 {
            text += &format!("  {} before that forgotten\n", pluralize(account.forgotten, "happening"));
        }
        for happening in &account.happenings {
            text += &format!("  {:>9} ago  {}\n", ago(happening.ago_ms), happening.what);
        }
    }
    text
}

fn ago(millis: u64) -> String {
    match millis / 1_000 {
        0 => format!("{millis} ms"),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
