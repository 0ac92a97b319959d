//! Starts the two processes of a contender once, and hears what the first has measured.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::PingpongTransport;
use super::rank::PingpongChecksum;
use crate::local_fabric::child_process::{ChildProcess, OutputLine, StderrMode, launch_rank_command};

/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);
const PEER: &str = include_str!("peer.c");
/// What Open MPI's times are called.
pub(super) const OPEN_MPI: &str = "open-mpi";

/// What a process says of one size and one cover.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PingpongTimes {
    pub(crate) bytes: usize,
    pub(crate) cover: String,
    /// One way, in microseconds, batch by batch.
    pub(crate) micros: Vec<f64>,
}

impl PingpongTimes {
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.micros.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Our own two processes: every size, every cover in turn.
pub(super) fn play(
    transport: PingpongTransport,
    covers: &[PingpongChecksum],
    paths: u8,
    sizes: &[usize],
    seconds: f64,
) -> Result<Vec<PingpongTimes>> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let own = crate::local_fabric::own_executable()?;
    let name = format!("pleach-pingpong-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let command = |rank: u32, meeting: &str| {
        let mut command = launch_rank_command(&own, None);
        command.arg(&own).arg("bench-pingpong-rank").args(["--rank", &rank.to_string(), "--meeting", meeting]);
        command.args(["--transport", if transport == PingpongTransport::Udp { "udp" } else { "shm" }]);
        command.args(["--paths", &paths.to_string(), "--seconds", &seconds.to_string()]);
        for cover in covers {
            command.args(["--checksum", &cover.to_string()]);
        }
        command.args(sizes.iter().map(usize::to_string));
        command
    };
    let (say, heard) = channel();
    let first = ChildProcess::start("rank 0", &mut command(0, &name), StderrMode::Kept, Some((0, say)))?;
    let mut services = vec![first];
    // Over UDP the first says where it can be met.
    let meeting = match transport {
        PingpongTransport::Shm => name.clone(),
        PingpongTransport::Udp => {
            let line = next_line(&heard, Instant::now() + PATIENCE, &services)?;
            line.strip_prefix("meet ").context("rank 0 does not say where")?.to_owned()
        }
    };
    services.push(ChildProcess::start("rank 1", &mut command(1, &meeting), StderrMode::Kept, None)?);
    let times = listen(&heard, sizes.len() * covers.len(), &services)?;
    for service in &mut services {
        let status = service.kill_and_wait_after(Duration::from_secs(10));
        ensure!(status.success(), "{} {}{}", service.name(), crate::local_fabric::how(status), service.last_words());
    }
    Ok(times)
}

fn next_line(heard: &Receiver<OutputLine>, deadline: Instant, services: &[ChildProcess]) -> Result<String> {
    match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok((_, Some(line))) => Ok(line),
        _ => {
            let words: String = services.iter().map(ChildProcess::last_words).collect();
            bail!("rank 0 ended, or took longer than {PATIENCE:?}, before all was measured{words}")
        }
    }
}

fn listen(heard: &Receiver<OutputLine>, count: usize, services: &[ChildProcess]) -> Result<Vec<PingpongTimes>> {
    let deadline = Instant::now() + PATIENCE;
    let mut times = Vec::new();
    while times.len() < count {
        let line = next_line(heard, deadline, services)?;
        times.push(serde_json::from_str(&line).with_context(|| format!("rank 0 said {line:?}"))?);
    }
    Ok(times)
}

/// Open MPI as it is installed, with the peer program built for it.
pub(super) struct OpenMpiPingpong {
    pub(super) version: String,
    folder: PathBuf,
}

impl OpenMpiPingpong {
    pub(super) fn find() -> Result<Self> {
        let said = Command::new("mpirun").arg("--version").output().context("mpirun")?;
        let version = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned();
        ensure!(version.contains("Open MPI"), "mpirun is not Open MPI's: {version:?}");
        let folder = std::env::temp_dir().join(format!("pleach-pingpong-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let this = Self { version, folder };
        std::fs::write(this.folder.join("peer.c"), PEER)?;
        let mut compiler = Command::new("mpicc");
        let built =
            compiler.arg("-O2").arg("-o").arg(this.folder.join("peer")).arg(this.folder.join("peer.c")).output();
        let built = built.context("mpicc")?;
        ensure!(built.status.success(), "mpicc: {}", String::from_utf8_lossy(&built.stderr));
        Ok(this)
    }

    pub(super) fn play(
        &self,
        transport: PingpongTransport,
        sizes: &[usize],
        seconds: f64,
    ) -> Result<Vec<PingpongTimes>> {
        let mut command = launch_rank_command(&crate::local_fabric::own_executable()?, None);
        command.args(["mpirun", "--oversubscribe", "--bind-to", "core", "-n", "2"]);
        if transport == PingpongTransport::Udp {
            let tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"];
            command.args(tcp);
        }
        command.arg(self.folder.join("peer")).arg(seconds.to_string()).args(sizes.iter().map(usize::to_string));
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let (say, heard) = channel();
        let mut service = ChildProcess::start("mpirun", &mut command, StderrMode::Kept, Some((0, say)))?;
        let times = listen(&heard, sizes.len(), std::slice::from_ref(&service))?;
        service.kill_and_wait_after(Duration::from_secs(30));
        Ok(times)
    }
}

impl Drop for OpenMpiPingpong {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
