//! The scene "messages": point-to-point messages of Open MPI by Pleach's libfabric provider and by libfabric's own for TCP, in turn.

use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use namespaces::NamespaceNetwork;
use serde::Serialize;

use crate::bench::TrialSummary;
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::samples::BenchPlacement;
use crate::bench::target_verdict::TargetVerdict;
use crate::local_fabric::child_process::{ChildProcess, OutputLine};
use crate::mpi::mpi_launcher::EnvironmentVariable;
use crate::mpi::provider_library;
use crate::report::{TableRows, with_header};

const PEER_SOURCE: &str = include_str!("messages_peer.c");
/// libfabric's TCP provider for messages.
const TCP: &str = "tcp;ofi_rxm";
/// Without a line of the peer for this long, the run has failed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Measures with the bound for the ratio of times, Pleach over TCP: 0.9 of the bandwidth is 1/0.9 of the time.
const MEASURES: [(&str, f64); 4] =
    [("latency-8", 0.9), ("latency-4096", 0.9), ("bandwidth-1MiB", 1.0 / 0.9), ("rate-8", 1.0)];

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
}

#[derive(Serialize)]
struct MessageRow {
    placement: MessagePlacement,
    measure: &'static str,
    /// Microseconds of one message.
    tcp: TrialSummary,
    pleach: TrialSummary,
    /// Pleach over TCP, round by round.
    ratio: TrialSummary,
    target: f64,
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
    let mut rows = Vec::new();
    let measured = provider.and_then(|folder| {
        rows.extend(measure(&mpi, MessagePlacement::OneHost, BenchPlacement::OneHost, &folder, (rounds, seconds))?);
        match NamespaceNetwork::new(2) {
            Ok(network) => {
                let placement = BenchPlacement::Namespaces { network: &network, ranks_per_host: 1 };
                let place = MessagePlacement::TwoNamespaces;
                rows.extend(measure(&mpi, place, placement, &folder, (rounds, seconds))?);
            }
            Err(error) => notes.push(format!("messages: without namespaces: {error}")),
        }
        Ok(())
    });
    let _ = std::fs::remove_dir_all(&scratch);
    measured?;
    Ok(MessagesReport { mpi: mpi.short_name(), rows })
}

fn measure(
    mpi: &MpiInstallation,
    place: MessagePlacement,
    placement: BenchPlacement<'_>,
    provider: &Path,
    (rounds, seconds): (u32, f64),
) -> Result<Vec<MessageRow>> {
    let mut times: Vec<[Vec<f64>; 2]> = vec![[Vec::new(), Vec::new()]; MEASURES.len()];
    for _ in 0..rounds {
        for (variant, name) in [TCP, "pleach"].into_iter().enumerate() {
            let found = run_once(mpi, placement, name, provider, seconds)?;
            times.iter_mut().zip(found).for_each(|(all, time)| all[variant].push(time));
        }
    }
    let row = |((measure, target), [tcp, pleach]): ((&'static str, f64), [Vec<f64>; 2])| {
        let ratio = TrialSummary::of(pleach.iter().zip(&tcp).map(|(pleach, tcp)| pleach / tcp).collect());
        let verdict = TargetVerdict::of(&ratio, target);
        let (tcp, pleach) = (TrialSummary::of(tcp), TrialSummary::of(pleach));
        MessageRow { placement: place, measure, tcp, pleach, ratio, target, verdict }
    };
    Ok(MEASURES.into_iter().zip(times).map(row).collect())
}

/// One run with one provider: the times of all measures.
fn run_once(
    mpi: &MpiInstallation,
    placement: BenchPlacement<'_>,
    name: &str,
    provider: &Path,
    seconds: f64,
) -> Result<Vec<f64>> {
    let mut options = mpi.options(2, placement)?;
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
    let line = mpi.peer_command_line(&options, 2, &[seconds.to_string()]);
    mpi.run_command_line(&line, environment, host, |output, launcher| collect(output, launcher, name))
}

fn collect(output: &Receiver<OutputLine>, launcher: &[ChildProcess], name: &str) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    while found.len() < MEASURES.len() {
        let said = || launcher.iter().map(ChildProcess::last_stderr_lines).collect::<String>();
        match output.recv_timeout(TIMEOUT) {
            Ok((_, Some(line))) => {
                let value =
                    line.strip_prefix(MEASURES[found.len()].0).and_then(|rest| rest.trim().parse::<f64>().ok());
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

/// Title and rows of the table.
pub(super) fn section(report: &MessagesReport) -> (String, TableRows) {
    let row = |row: &MessageRow| {
        let place = match row.placement {
            MessagePlacement::OneHost => "one host",
            MessagePlacement::TwoNamespaces => "two namespaces",
        };
        let [tcp, pleach] = [row.tcp, row.pleach].map(|time| time.to_string());
        let (ratio, target) = (row.ratio.to_string(), format!("{:.2}", row.target));
        [place.to_owned(), row.measure.to_owned(), tcp, pleach, ratio, target, row.verdict.to_string()]
    };
    let header = ["ranks on", "measure", "libfabric tcp, us", "Pleach, us", "ratio", "target", ""];
    let title = format!("Messages of {}, two ranks, all by libfabric; us of one message", report.mpi);
    (title, with_header(header, report.rows.iter().map(row)))
}

impl MessagesReport {
    pub(super) fn verdicts(&self) -> impl Iterator<Item = TargetVerdict> {
        self.rows.iter().map(|row| row.verdict)
    }
}
