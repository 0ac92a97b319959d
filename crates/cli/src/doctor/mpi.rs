//! What Pleach would do for an MPI program, tried with the program's own command, which ends after the bootstrap
//! (`PLEACH_MPI=explain`).

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::finding::Finding;
use super::finding::FindingStatus::{Broken, Limited};
use crate::exec::{JobEnvironmentArgs, MpiExplanation, MpiReport, PreparedJob, ReportFolder, binary};
use lab::local_fabric::child_process::{ChildProcess, StderrMode};
use lab::local_fabric::describe_exit_status;
use lab::mpi::mpi_launcher::MpiLauncher;
use lab::number_format::pluralize;

/// For the program to complete `MPI_Init`.
const INIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Between SIGTERM and SIGKILL of the launcher.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(super) fn findings(
    environment: &JobEnvironmentArgs,
    manager: Option<&str>,
    command: &[OsString],
) -> Result<Vec<Finding>> {
    let folder = ReportFolder::new()?;
    let more = [("PLEACH_MPI", OsString::from("explain"))];
    let PreparedJob { mut command, fabric, launcher } =
        environment.prepare(manager.filter(|manager| !manager.is_empty()), command, &folder, &more)?;
    let mut findings = vec![match &launcher {
        MpiLauncher::Other => {
            let advice = "ranks on other hosts may not load the library: use mpirun or mpiexec directly, or let the script pass LD_PRELOAD on";
            Finding::bad("launcher", Limited, launcher.describe(), advice)
        }
        _ => Finding::good("launcher", launcher.describe()),
    }];
    let mut service = ChildProcess::start("the command", &mut command, StderrMode::Captured, None)?;
    let began = Instant::now();
    while service.ended().is_none() && began.elapsed() < INIT_TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
    let in_time = service.ended().is_some();
    service.signal(Signal::SIGTERM);
    let status = service.kill_and_wait_after(TERMINATION_GRACE);
    drop(fabric);
    match MpiReport::read(&folder.report()) {
        Some(report) => findings.extend(of_report(&report)),
        None => {
            let ending = if in_time { describe_exit_status(status) } else { format!("ran for {INIT_TIMEOUT:?}") };
            let found = format!("the command {ending}, and no rank reported{}", service.last_stderr_lines());
            let advice = "the program must call MPI_Init, must not be setuid or linked statically to its MPI, and rank 0 must \
                          have access to this host's temporary folder";
            findings.push(Finding::bad("ranks", Broken, found, advice));
        }
    }
    Ok(findings)
}

fn of_report(report: &MpiReport) -> Vec<Finding> {
    if let Some(why) = &report.off {
        let advice = "fix that; until then the native MPI does everything";
        return vec![Finding::bad("ranks", Broken, format!("Pleach is off: {why}"), advice)];
    }
    let mpi = &report.mpi;
    let met =
        format!("{} on {} joined", pluralize(report.ranks.into(), "rank"), pluralize(report.hosts.into(), "host"));
    let mut findings = vec![
        Finding::good("MPI", format!("{}, with the ABI of {} ({})", mpi.version, mpi.abi, mpi.library)),
        Finding::good("ranks", met),
    ];
    let Some(explanation) = &report.explanation else { return findings };
    findings.push(if explanation.trial.ends_with("right sums") {
        Finding::good("trial", explanation.trial.clone())
    } else {
        Finding::bad("trial", Broken, explanation.trial.clone(), "check the logs of ranks, nodes and manager")
    });
    findings.push(nodes(report));
    findings.extend(explained(explanation));
    findings
}

fn nodes(report: &MpiReport) -> Finding {
    let what = "nodes";
    match (report.hosts, report.operations.through_nodes) {
        (..=1, _) => Finding::good(what, "not needed, since all ranks are on one host"),
        (_, 0) => {
            let advice =
                "set --manager or PLEACH_MANAGER to the manager of existing nodes, or start some with --nodes";
            Finding::bad(what, Limited, "no operation used a node: the hosts did all among themselves", advice)
        }
        (_, count) => Finding::good(what, format!("{} went through them", pluralize(count, "operation"))),
    }
}

fn explained(explanation: &MpiExplanation) -> Vec<Finding> {
    const BLOCKING: &str = "barrier, broadcast, reduce, allreduce, reduce-scatter, scan and exscan on intracommunicators, \
         with the types and operators of the standard (docs/mpi.md)";
    const BLOCKS: &str = "allgather(v), gather, scatter and alltoall: within a host if faster there; \
         between hosts only with PLEACH_MPI_CHOICE=pleach";
    let mut findings = vec![Finding::good("offloaded", BLOCKING), Finding::good("offloaded", BLOCKS)];
    findings.push(if explanation.non_blocking.starts_with("offloaded") {
        Finding::good("non-blocking", explanation.non_blocking.clone())
    } else {
        let advice = "initialize with MPI_THREAD_MULTIPLE, and unset PLEACH_MPI=blocking";
        Finding::bad("non-blocking", Limited, explanation.non_blocking.clone(), advice)
    });
    let ways = explanation.ways.iter();
    findings.extend(ways.map(|way| Finding::good("allreduce", format!("{}: {}", binary(way.bytes), way.way))));
    findings
}
