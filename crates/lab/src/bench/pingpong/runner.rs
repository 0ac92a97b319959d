//! Runs two processes once, of Pleach or of an MPI, and collects the times that rank 0 prints.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use anyhow::{Context, Result};
use namespaces::NamespaceHost;
use serde::{Deserialize, Serialize};

use super::PingpongTransport;
use super::link::PingpongLink;
use super::rank::PingpongChecksum;
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::rank_processes::{RUN_TIMEOUT, next_line, wait_for_success};
use crate::bench::samples::BenchPlacement;
use crate::local_fabric::child_process::{ChildProcess, OutputLine, StderrMode, launch_rank_command};

/// The peer program for MPI: the same sizes and batches as `rank.rs`.
pub(super) const MPI_PEER_SOURCE: &str = include_str!("peer.c");
/// What the peer program writes as its checksum.
pub(super) const MPI: &str = "mpi";

/// What rank 0 reports of one size and one checksum.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PingpongTimes {
    pub(crate) bytes: usize,
    pub(crate) checksum: String,
    /// One-way time in microseconds, batch by batch.
    pub(crate) micros: Vec<f64>,
}

impl PingpongTimes {
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.micros.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Where the two processes run, and what they exchange.
#[derive(Clone, Copy)]
pub(super) struct PingpongRunner<'a> {
    pub(super) link: &'a PingpongLink,
    pub(super) transport: PingpongTransport,
    pub(super) sizes: &'a [usize],
    /// Seconds that a batch should take.
    pub(super) seconds: f64,
}

impl PingpongRunner<'_> {
    /// Runs two ranks of Pleach: every size, with every checksum in turn.
    pub(super) fn run_ranks(&self, checksums: &[PingpongChecksum], paths: u8) -> Result<Vec<PingpongTimes>> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let own = crate::local_fabric::own_executable()?;
        let name = format!("pleach-pingpong-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let command = |rank: usize, rendezvous: &str| {
            let host = self.link.host(rank);
            let mut command = launch_rank_command(&own, host.map(NamespaceHost::namespace_path).as_deref());
            command.arg(&own).arg("bench-pingpong-rank");
            command.args(["--rank", &rank.to_string(), "--rendezvous", rendezvous]);
            command.args(["--transport", if self.transport == PingpongTransport::Udp { "udp" } else { "shm" }]);
            command.args(["--paths", &paths.to_string(), "--seconds", &self.seconds.to_string()]);
            if let Some(host) = host {
                command.args(["--address", &host.address().to_string()]);
            }
            for checksum in checksums {
                command.args(["--checksum", &checksum.to_string()]);
            }
            command.args(self.sizes.iter().map(usize::to_string));
            command
        };
        let (sender, output) = channel();
        let first = ChildProcess::start("rank 0", &mut command(0, &name), StderrMode::Captured, Some((0, sender)))?;
        let mut processes = vec![first];
        // Over UDP rank 0 chooses the address and prints it first.
        let rendezvous = match self.transport {
            PingpongTransport::Shm => name.clone(),
            PingpongTransport::Udp => {
                let line = next_line(&output, Instant::now() + RUN_TIMEOUT, &processes)?;
                let address = line.strip_prefix("meet ");
                address.with_context(|| format!("rank 0 printed {line:?} instead of its address"))?.to_owned()
            }
        };
        processes.push(ChildProcess::start("rank 1", &mut command(1, &rendezvous), StderrMode::Captured, None)?);
        let times = collect_times(&output, self.sizes.len() * checksums.len(), &processes)?;
        wait_for_success(&mut processes)?;
        Ok(times)
    }

    /// Runs two ranks of an MPI: every size.
    pub(super) fn run_mpi(&self, mpi: &MpiInstallation) -> Result<Vec<PingpongTimes>> {
        let placement = match (self.link, self.transport) {
            (PingpongLink::Namespaces { network, .. }, _) => {
                BenchPlacement::Namespaces { network, ranks_per_host: 1 }
            }
            (PingpongLink::Loopback, PingpongTransport::Udp) => BenchPlacement::Loopback,
            (PingpongLink::Loopback, PingpongTransport::Shm) => BenchPlacement::OneHost,
        };
        let options = mpi.options(2, placement)?;
        let arguments: Vec<String> =
            std::iter::once(self.seconds.to_string()).chain(self.sizes.iter().map(usize::to_string)).collect();
        let line = mpi.peer_command_line(&options, 2, &arguments);
        mpi.run_command_line(&line, mpi.variables(placement), self.link.host(0), |output, launcher| {
            collect_times(output, self.sizes.len(), launcher)
        })
    }
}

fn collect_times(
    output: &Receiver<OutputLine>,
    count: usize,
    processes: &[ChildProcess],
) -> Result<Vec<PingpongTimes>> {
    let deadline = Instant::now() + RUN_TIMEOUT;
    let mut times = Vec::new();
    while times.len() < count {
        let line = next_line(output, deadline, processes)?;
        let parsed = serde_json::from_str(&line);
        times.push(parsed.with_context(|| format!("malformed result from rank 0: {line:?}"))?);
    }
    Ok(times)
}
