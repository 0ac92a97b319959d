//! What Pleach would do for an MPI program, tried with the program's own command: it ends as soon as its ranks have met
//! (`PLEACH_MPI=explain`).

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::finding::Finding;
use super::finding::FindingStatus::{Broken, Limited};
use crate::exec::{JobEnvironmentArgs, MpiExplanation, MpiReport, PreparedJob, ReportFolder, binary};
use lab::local_fabric::child_process::{ChildProcess, StderrMode};
use lab::local_fabric::how;
use lab::mpi::mpi_launcher::MpiLauncher;
use lab::number_format::pluralize;

/// For the program to come to `MPI_Init` and through it.
const PATIENCE: Duration = Duration::from_secs(60);
/// For its launcher to end when asked to.
const LAST_CALL: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(10);

pub(super) fn findings(
    surroundings: &JobEnvironmentArgs,
    manager: Option<&str>,
    command: &[OsString],
) -> Result<Vec<Finding>> {
    let folder = ReportFolder::new()?;
    let more = [("PLEACH_MPI", OsString::from("explain"))];
    let PreparedJob { mut command, fabric, launcher } =
        surroundings.prepare(manager.filter(|manager| !manager.is_empty()), command, &folder, &more)?;
    let mut findings = vec![match &launcher {
        MpiLauncher::Other => {
            let advice = "ranks on other hosts may miss the library: use mpirun or mpiexec itself, or let it pass LD_PRELOAD on";
            Finding::bad("launcher", Limited, launcher.describe(), advice)
        }
        _ => Finding::good("launcher", launcher.describe()),
    }];
    let mut service = ChildProcess::start("the command", &mut command, StderrMode::Kept, None)?;
    let began = Instant::now();
    while service.ended().is_none() && began.elapsed() < PATIENCE {
        std::thread::sleep(GLANCE);
    }
    let in_time = service.ended().is_some();
    service.signal(Signal::SIGTERM);
    let status = service.kill_and_wait_after(LAST_CALL);
    drop(fabric);
    match MpiReport::read(&folder.report()) {
        Some(report) => findings.extend(of_report(&report)),
        None => {
            let ending = if in_time { how(status) } else { format!("ran for {PATIENCE:?}") };
            let found = format!("the command {ending}, and no rank told anything{}", service.last_words());
            let advice = "the program must call MPI_Init, and must not be linked statically to its MPI nor be setuid; rank 0 must \
                          see this host's temporary folder";
            findings.push(Finding::bad("ranks", Broken, found, advice));
        }
    }
    Ok(findings)
}

fn of_report(report: &MpiReport) -> Vec<Finding> {
    if let Some(why) = &report.off {
        let advice = "mend that; until then the MPI does everything itself";
        return vec![Finding::bad("ranks", Broken, format!("Pleach is not used: {why}"), advice)];
    }
    let mpi = &report.mpi;
    let met = format!("{} on {} met", pluralize(report.ranks.into(), "rank"), pluralize(report.hosts.into(), "host"));
    let mut findings = vec![
        Finding::good("MPI", format!("{}, with the ABI of {} ({})", mpi.version, mpi.abi, mpi.library)),
        Finding::good("ranks", met),
    ];
    let Some(explanation) = &report.explanation else { return findings };
    findings.push(if explanation.trial.ends_with("right sums") {
        Finding::good("trial", explanation.trial.clone())
    } else {
        Finding::bad("trial", Broken, explanation.trial.clone(), "look at what ranks, nodes and manager say")
    });
    findings.push(nodes(report));
    findings.extend(explained(explanation));
    findings
}

fn nodes(report: &MpiReport) -> Finding {
    let what = "nodes";
    match (report.hosts, report.aggregated) {
        (..=1, _) => Finding::good(what, "not needed: all ranks are on one host"),
        (_, 0) => {
            let advice =
                "if there are nodes, say where their manager is (--manager, PLEACH_MANAGER), or start some (--nodes)";
            Finding::bad(what, Limited, "no operation went through any: hosts do it among themselves", advice)
        }
        (_, count) => Finding::good(what, format!("{} went through them", pluralize(count, "operation"))),
    }
}

fn explained(explanation: &MpiExplanation) -> Vec<Finding> {
    const BLOCKING: &str = "barrier, broadcast, reduce, allreduce, reduce-scatter-block, scan and exscan on intracommunicators, with the \
         types and operators of the standard (docs/mpi.md)";
    let mut findings = vec![Finding::good("taken over", BLOCKING)];
    findings.push(if explanation.non_blocking.starts_with("taken over") {
        Finding::good("non-blocking", explanation.non_blocking.clone())
    } else {
        let advice = "initialize with MPI_THREAD_MULTIPLE, and do not set PLEACH_MPI=blocking";
        Finding::bad("non-blocking", Limited, explanation.non_blocking.clone(), advice)
    });
    let ways = explanation.ways.iter();
    findings.extend(ways.map(|way| Finding::good("allreduce", format!("{}: {}", binary(way.bytes), way.way))));
    findings
}
