//! Explains why a job used aggregation or did not, from the manager's records.

use anyhow::Result;
use manager::job_history::{JobEvent, JobHistory};
use serde::Serialize;

use super::DoctorFormat;
use super::cluster::MANAGER_TIMEOUT;
use crate::configuration::ManagerConnectionArgs;
use lab::CommandOutcome;
use lab::number_format::pluralize;
use lab::report::write_report;

/// The explanation. Field names are part of the JSON format.
#[derive(Serialize)]
struct JobExplanation {
    job: String,
    /// Whether the newest job of that name used aggregation.
    aggregation: bool,
    /// In one sentence.
    because: String,
    /// The newest first.
    accounts: Vec<JobHistory>,
}

const UNKNOWN: &str = "the manager has no record of such a job: it did not contact this manager. Its ranks had no PLEACH_MANAGER, could not \
     reach it, or were all on one host, where shared memory is faster; Communicator::explain gives the reason in the program itself";

pub(super) fn run(arguments: &ManagerConnectionArgs, job: &str, format: DoctorFormat) -> Result<CommandOutcome> {
    let mut client = arguments.connect(MANAGER_TIMEOUT)?;
    let accounts = client.job_history(job)?;
    let (aggregation, because) = accounts.first().map_or((false, UNKNOWN.to_owned()), because);
    let explanation = JobExplanation { job: job.to_owned(), aggregation, because, accounts };
    let text = match format {
        DoctorFormat::Json => serde_json::to_string_pretty(&explanation)? + "\n",
        DoctorFormat::Table => table(&explanation),
    };
    write_report(&text, None)?;
    Ok(if explanation.aggregation { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

/// Whether a job used aggregation, and why, in one sentence.
fn because(account: &JobHistory) -> (bool, String) {
    let totals = account.totals;
    let last = |wanted: fn(&JobEvent) -> Option<&str>| {
        account.entries.iter().rev().find_map(|happening| wanted(&happening.event)).map(str::to_owned)
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
    let mut reason = match (had, totals.operations) {
        (false, _) if totals.refused == 0 => {
            "it was admitted and requested no group: its communicators are within one host".to_owned()
        }
        (false, _) => {
            format!("every group was rejected; the last one because {}", refusal.clone().unwrap_or_default())
        }
        (true, 0) => format!(
            "it had {groups}, but nodes have reported no operation: it did none yet, or other methods were faster"
        ),
        (true, count) => format!("it had {groups}, in which nodes reduced {}", pluralize(count, "operation")),
    };
    if let Some(why) = revocation {
        let went_on = "; operations in flight continued among the hosts";
        reason += &format!("; {} revoked, the last one because {why}{went_on}", pluralize(totals.revoked, "group"));
    }
    if let Some(why) = refusal.filter(|_| had) {
        reason += &format!("; {} rejected, the last one because {why}", pluralize(totals.refused, "group"));
    }
    (had, reason)
}

fn table(explanation: &JobExplanation) -> String {
    let verdict = if explanation.aggregation { "aggregation was used" } else { "no aggregation" };
    let mut text = format!("{}: {verdict}\n  {}\n", explanation.job, explanation.because);
    for account in &explanation.accounts {
        let state = if account.alive { "running" } else { "ended" };
        text += &format!("\njob {:016x} ({}), {state}\n", account.job.0, account.name);
        if account.dropped_entries > 0 {
            text += &format!("  {} earlier omitted\n", pluralize(account.dropped_entries, "event"));
        }
        for happening in &account.entries {
            text += &format!("  {:>9} ago  {}\n", ago(happening.ago_ms), happening.event);
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
