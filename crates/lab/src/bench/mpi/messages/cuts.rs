//! What a cut path costs one message: two hosts with two networks, round trips of 8 B, and a cable that is pulled in the middle.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::bench::TrialSummary;
use crate::bench::mpi::target_verdict::TargetVerdict;
use crate::bench::mpi::two_network_cluster::{
    CablePull, PlannedPull, ProgramOutcome, ProviderChecksums, TwoNetworkCluster,
};
use crate::bench::mpi_installation::MpiInstallation;
use crate::report::{TableRows, with_header};

/// How long round trips go on, and when the cable is pulled.
const SECONDS: f64 = 1.6;
const PULL_AFTER: Duration = Duration::from_millis(700);
/// What is pulled, and how many milliseconds that may add to a message. The runs without a cut show what the machine itself adds.
const CUTS: [(&str, Option<(CablePull, f64)>); 3] =
    [("none", None), ("noticed", Some((CablePull::Noticed, 5.0))), ("silent", Some((CablePull::Silent, 50.0)))];

/// One kind of cut.
#[derive(Serialize)]
pub(super) struct CutRow {
    cut: &'static str,
    /// Milliseconds by which the longest round trip was longer than the median, run by run.
    added: TrialSummary,
    /// The median round trip at the end over that at the beginning.
    afterwards: TrialSummary,
    target: Option<f64>,
    verdict: Option<TargetVerdict>,
}

impl CutRow {
    pub(super) fn passed(&self) -> bool {
        self.verdict != Some(TargetVerdict::Missed)
    }
}

/// Pulls a cable of either host by turns.
///
/// # Errors
/// If the hosts cannot be made, or a run fails or has a wrong result.
pub(super) fn measure(mpi: &MpiInstallation, provider: &Path, scratch: &Path, rounds: u32) -> Result<Vec<CutRow>> {
    let cluster = TwoNetworkCluster::new(mpi, 2, provider, scratch)?;
    let mut found = CUTS.map(|_| (Vec::new(), Vec::new()));
    for round in 0..rounds {
        for ((_, cut), (added, afterwards)) in CUTS.iter().zip(&mut found) {
            let host = round as usize % 2;
            let pull = cut.map(|(kind, _)| PlannedPull { kind, host, after: PULL_AFTER });
            let arguments = [SECONDS.to_string(), "cut".to_owned()];
            let ProgramOutcome { seconds, is_right, slowdown } =
                cluster.run(&arguments, ProviderChecksums::On, pull)?;
            ensure!(is_right, "a message was wrong or out of order");
            added.push(seconds * 1e3);
            afterwards.extend(slowdown);
        }
    }
    let row =
        |((cut, kind), (added, afterwards)): (&(&'static str, Option<(CablePull, f64)>), (Vec<f64>, Vec<f64>))| {
            let (added, target) = (TrialSummary::of(added), kind.map(|(_, most)| most));
            let verdict = target.map(|most| TargetVerdict::of(&added, most));
            CutRow { cut, added, afterwards: TrialSummary::of(afterwards), target, verdict }
        };
    Ok(CUTS.iter().zip(found).map(row).collect())
}

/// Title and rows of the table.
pub(super) fn section(rows: &[CutRow]) -> (String, TableRows) {
    let row = |row: &CutRow| {
        let target = row.target.map_or_else(String::new, |most| format!("{most:.0} ms"));
        let verdict = row.verdict.map_or_else(String::new, |verdict| verdict.to_string());
        [row.cut.to_owned(), row.added.to_string(), target, verdict, row.afterwards.to_string()]
    };
    let header = ["cut", "added to one round trip, ms", "target", "", "round trip afterwards, ratio"];
    let title = "Two hosts with two networks, 8 B, one cable pulled".to_owned();
    (title, with_header(header, rows.iter().map(row)))
}
