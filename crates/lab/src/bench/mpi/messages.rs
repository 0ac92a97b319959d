//! The scene "messages": point-to-point messages of Open MPI by Pleach's libfabric provider and by libfabric's own for TCP, in turn.
//! `cuts.rs`: what a cut path costs one message.

mod cuts;

use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use namespaces::NamespaceNetwork;
use serde::Serialize;

use self::cuts::CutRow;
use super::target_verdict::TargetVerdict;
use crate::bench::TrialSummary;
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::samples::BenchPlacement;
use crate::local_fabric::child_process::{ChildProcess, OutputLine};
use crate::mpi::mpi_launcher::EnvironmentVariable;
use crate::mpi::provider_library;
use crate::report::{TableRows, with_header};

const PEER_SOURCE: &str = include_str!("messages_peer.c");
/// libfabric's TCP provider for messages.
const TCP: &str = "tcp;ofi_rxm";
/// Without a line of the peer for this long, the run has failed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Measures of two ranks, with the bound for the ratio of times, Pleach over TCP: 0.9 of the bandwidth is 1/0.9 of the time.
const PAIR_MEASURES: [MessageMeasure; 4] = [
    MessageMeasure { name: "latency-8", target: MessageTarget::Ratio(0.9) },
    MessageMeasure { name: "latency-4096", target: MessageTarget::Ratio(0.9) },
    MessageMeasure { name: "bandwidth-1MiB", target: MessageTarget::Ratio(1.0 / 0.9) },
    MessageMeasure { name: "rate-8", target: MessageTarget::Ratio(1.0) },
];
/// Ranks that exchange messages, all with all, and their measures. KiB of a peer that is idle after many short messages.
const CROWD: u32 = 16;
const CROWD_MEASURES: [MessageMeasure; 2] = [
    MessageMeasure { name: "memory-per-peer", target: MessageTarget::MostKib(16.0) },
    MessageMeasure { name: "exchange-4096", target: MessageTarget::Ratio(1.0) },
];

/// What is measured, and how good it should be.
#[derive(Clone, Copy)]
struct MessageMeasure {
    name: &'static str,
    target: MessageTarget,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum MessageTarget {
    Ratio(f64),
    MostKib(f64),
}

/// Where the two ranks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum MessagePlacement {
    OneHost,
    TwoNamespaces,
}

/// The results of all measures.
#[derive(Serialize)]
pub(super) struct MessagesReport {
    mpi: String,
    rows: Vec<MessageRow>,
    cuts: Vec<CutRow>,
}

#[derive(Serialize)]
struct MessageRow {
    placement: MessagePlacement,
    measure: &'static str,
    ranks: u32,
    /// Microseconds of one operation, or KiB.
    tcp: TrialSummary,
    pleach: TrialSummary,
    /// Pleach over TCP, round by round.
    ratio: TrialSummary,
    target: MessageTarget,
    verdict: TargetVerdict,
}

/// Measures in both placements.
///
/// # Errors
/// If Open MPI, libfabric or the provider is missing, or a run fails.
pub(super) fn run(rounds: u32, seconds: f64, notes: &mut Vec<String>) -> Result<MessagesReport> {
    let mpi = MpiInstallation::named(Path::new("mpirun.openmpi"), PEER_SOURCE)
        .or_else(|_| MpiInstallation::open_mpi(PEER_SOURCE))
        .context("the scene \"messages\" needs Open MPI")?;
    let scratch = std::env::temp_dir().join(format!("pleach-bench-messages-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let provider = provider_library::folder(&scratch);
    let (mut rows, mut found_cuts) = (Vec::new(), Vec::new());
    let measured = provider.and_then(|folder| {
        for ranks in [2, CROWD] {
            let place = (MessagePlacement::OneHost, BenchPlacement::OneHost, ranks);
            rows.extend(measure(&mpi, place, &folder, (rounds, seconds))?);
        }
        match NamespaceNetwork::new(2) {
            Ok(network) => {
                let placement = BenchPlacement::Namespaces { network: &network, ranks_per_host: 1 };
                let place = (MessagePlacement::TwoNamespaces, placement, 2);
                rows.extend(measure(&mpi, place, &folder, (rounds, seconds))?);
                found_cuts = cuts::measure(&mpi, &folder, &scratch, rounds)?;
            }
            Err(error) => notes.push(format!("messages: without namespaces: {error}")),
        }
        Ok(())
    });
    let _ = std::fs::remove_dir_all(&scratch);
    measured?;
    Ok(MessagesReport { mpi: mpi.short_name(), rows, cuts: found_cuts })
}

fn measure(
    mpi: &MpiInstallation,
    (place, placement, ranks): (MessagePlacement, BenchPlacement<'_>, u32),
    provider: &Path,
    (rounds, seconds): (u32, f64),
) -> Result<Vec<MessageRow>> {
    let measures: &[MessageMeasure] = if ranks == 2 { &PAIR_MEASURES } else { &CROWD_MEASURES };
    let mut times: Vec<[Vec<f64>; 2]> = vec![[Vec::new(), Vec::new()]; measures.len()];
    for _ in 0..rounds {
        for (variant, name) in [TCP, "pleach"].into_iter().enumerate() {
            let found = run_once(mpi, (placement, ranks), name, provider, (seconds, measures))?;
            times.iter_mut().zip(found).for_each(|(all, time)| all[variant].push(time));
        }
    }
    let row = |(MessageMeasure { name, target }, [tcp, pleach]): (&MessageMeasure, [Vec<f64>; 2])| {
        let ratio = TrialSummary::of(pleach.iter().zip(&tcp).map(|(pleach, tcp)| pleach / tcp).collect());
        let (tcp, pleach) = (TrialSummary::of(tcp), TrialSummary::of(pleach));
        let verdict = match target {
            MessageTarget::Ratio(bound) => TargetVerdict::of(&ratio, *bound),
            MessageTarget::MostKib(bound) => TargetVerdict::of(&pleach, *bound),
        };
        MessageRow { placement: place, measure: name, ranks, tcp, pleach, ratio, target: *target, verdict }
    };
    Ok(measures.iter().zip(times).map(row).collect())
}

/// One run with one provider: the times of all measures.
fn run_once(
    mpi: &MpiInstallation,
    (placement, ranks): (BenchPlacement<'_>, u32),
    name: &str,
    provider: &Path,
    (seconds, measures): (f64, &[MessageMeasure]),
) -> Result<Vec<f64>> {
    let mut options = mpi.options(ranks, placement)?;
    // The options of hosts choose Open MPI's own TCP.
    if let Some(pml) = options.iter().position(|option| option == "ob1") {
        options[pml] = "cm".into();
    } else {
        options.extend(["--mca", "pml", "cm"].map(str::to_owned));
    }
    options.extend(["--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", name].map(str::to_owned));
    let (host, device) = match placement {
        BenchPlacement::Namespaces { network, .. } => (Some(network.host(0)), "net0"),
        BenchPlacement::OneHost | BenchPlacement::Loopback => (None, "lo"),
    };
    let mut environment: Vec<EnvironmentVariable> = vec![("FI_TCP_IFACE", OsString::from(device))];
    if name == TCP {
        environment.push(("FI_PROVIDER", TCP.into()));
    } else {
        environment.push(("FI_PROVIDER_PATH", provider.as_os_str().to_owned()));
        environment.push(("FI_PROVIDER", name.into()));
        if host.is_none() {
            environment.push(("PLEACH_ADDRESSES", "127.0.0.1".into()));
        }
    }
    options.extend(environment.iter().flat_map(|(name, _)| ["-x".to_owned(), (*name).to_owned()]));
    let line = mpi.peer_command_line(&options, ranks, &[seconds.to_string()]);
    let host = host.as_ref().map(|host| host.name());
    mpi.run_command_line(&line, environment, host, |output, launcher| collect(output, launcher, (name, measures)))
}

fn collect(
    output: &Receiver<OutputLine>,
    launcher: &[ChildProcess],
    (name, measures): (&str, &[MessageMeasure]),
) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    while found.len() < measures.len() {
        let said = || launcher.iter().map(ChildProcess::last_stderr_lines).collect::<String>();
        match output.recv_timeout(TIMEOUT) {
            Ok((_, Some(line))) => {
                let value =
                    line.strip_prefix(measures[found.len()].name).and_then(|rest| rest.trim().parse::<f64>().ok());
                found.extend(value);
            }
            Ok((_, None)) | Err(RecvTimeoutError::Disconnected) => {
                bail!("the run with provider {name} ended early{}", said())
            }
            Err(RecvTimeoutError::Timeout) => bail!("the run with provider {name} hangs{}", said()),
        }
    }
    Ok(found)
}

/// Titles and rows of the tables.
pub(super) fn sections(report: &MessagesReport) -> Vec<(String, TableRows)> {
    let row = |row: &MessageRow| {
        let place = match row.placement {
            MessagePlacement::OneHost => "one host",
            MessagePlacement::TwoNamespaces => "two namespaces",
        };
        let [tcp, pleach] = [row.tcp, row.pleach].map(|time| time.to_string());
        let ratio = row.ratio.to_string();
        let target = match row.target {
            MessageTarget::Ratio(bound) => format!("{bound:.2}"),
            MessageTarget::MostKib(bound) => format!("{bound:.0} KiB"),
        };
        let place = format!("{place}, {} ranks", row.ranks);
        [place, row.measure.to_owned(), tcp, pleach, ratio, target, row.verdict.to_string()]
    };
    let header = ["ranks on", "measure", "libfabric tcp", "Pleach", "ratio", "target", ""];
    let title = format!("Messages of {}, all by libfabric; us of one operation, KiB of one peer", report.mpi);
    let measured = (title, with_header(header, report.rows.iter().map(row)));
    if report.cuts.is_empty() { vec![measured] } else { vec![measured, cuts::section(&report.cuts)] }
}

impl MessagesReport {
    pub(super) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != TargetVerdict::Missed) && self.cuts.iter().all(CutRow::passed)
    }
}
