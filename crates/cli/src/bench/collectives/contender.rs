//! Runs one contender once: starts its processes, hears what rank 0 has measured.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use namespaces::Network;
use serde::Serialize;

use super::rank::Times;
use crate::fabric::Fabric;
use crate::fabric::ranks::{Hosts, Ranks};
use crate::fabric::service::{Heard, Service, Voice, through_launch_rank};

/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// The MPI twin of a rank.
const PEER: &str = include_str!("peer.c");

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contender {
    /// Through aggregation nodes where there are any.
    Pleach,
    /// Ours without nodes.
    HostsAlone,
    OpenMpi,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pleach => "Pleach",
            Self::HostsAlone => "hosts alone",
            Self::OpenMpi => "Open MPI",
        })
    }
}

/// How long to measure.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    batches: u32,
    seconds: f64,
}

impl Pace {
    pub(super) const QUICK: Self = Self { batches: 3, seconds: 0.03 };
    pub(super) const CALM: Self = Self { batches: 7, seconds: 0.1 };
}

/// Where ranks are.
#[derive(Clone, Copy)]
pub(super) enum Site<'a> {
    OneHost,
    Loopback,
    Namespaces(&'a Network),
}

/// What one measure took in one round.
pub(super) struct Took {
    /// The median over batches.
    pub micros: f64,
    pub cpu_micros: f64,
}

/// What one run brought.
pub(super) struct Run {
    pub took: Vec<Took>,
    /// How an allreduce of eight bytes went, in the words of rank 0: only ours can say.
    pub way: Option<String>,
}

impl Contender {
    /// Runs our own ranks.
    pub(super) fn run(
        self,
        ranks: u32,
        site: Site<'_>,
        measures: &[&str],
        pace: Pace,
        nodes: Option<&mut Fabric>,
    ) -> Result<Run> {
        let hosts = match site {
            Site::OneHost => Hosts::This,
            Site::Loopback => Hosts::Pretended { per_host: 1 },
            Site::Namespaces(network) => Hosts::Namespaces { network, per_host: 1 },
        };
        let nodes = nodes.filter(|_| self == Self::Pleach);
        let variables = nodes.as_ref().map_or_else(Vec::new, |nodes| nodes.variables());
        let job = Ranks::new("bench", ranks, hosts)?.without_settings().with(variables);
        let own = crate::fabric::own_program()?;
        let mut program = vec![own.into_os_string(), "bench-rank".into()];
        program.extend(["--batches".into(), pace.batches.to_string().into()]);
        program.extend(["--seconds".into(), pace.seconds.to_string().into()]);
        program.extend(measures.iter().map(|measure| (*measure).into()));
        let (say, heard) = channel();
        let mut services = Vec::new();
        for rank in 0..ranks {
            let listener = (rank == 0).then(|| (rank, say.clone()));
            let name = format!("rank {rank}");
            services.push(Service::start(&name, &mut job.command(rank, &program), Voice::Kept, listener)?);
        }
        drop(say);
        let run = listen(&heard, measures, nodes.as_deref(), &mut services)?;
        for service in &mut services {
            let status = service.kill_and_wait_after(Duration::from_secs(10));
            ensure!(status.success(), "{} {}{}", service.name(), crate::fabric::how(status), service.last_words());
        }
        Ok(run)
    }
}

/// Hears rank 0. What the nodes take in processor time meanwhile counts as well.
fn listen(
    heard: &Receiver<Heard>,
    measures: &[&str],
    nodes: Option<&Fabric>,
    services: &mut [Service],
) -> Result<Run> {
    let began = Instant::now();
    let mut took: Vec<Took> = Vec::new();
    let mut way = None;
    let node_micros = || nodes.map_or(0.0, Fabric::processor_micros);
    let mut before = 0.0;
    while took.len() < measures.len() {
        let line = match heard.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
            Ok((_, Some(line))) => line,
            _ => {
                let words: String = services.iter().map(Service::last_words).collect();
                bail!("rank 0 ended, or took longer than {PATIENCE:?}, before all was measured{words}");
            }
        };
        if line.starts_with("begin ") {
            before = node_micros();
        } else if let Some(text) = line.strip_prefix("note ") {
            way = Some(text.to_owned());
        } else if let Some(text) = line.strip_prefix("end ") {
            let spent = node_micros() - before;
            let times: Times = serde_json::from_str(text).with_context(|| format!("rank 0 said {line:?}"))?;
            ensure!(times.measure == measures[took.len()], "rank 0 measured {} out of turn", times.measure);
            let operations = f64::from(times.iterations) * times.micros.len() as f64;
            let mut sorted = times.micros;
            sorted.sort_by(f64::total_cmp);
            let micros = *sorted.get(sorted.len() / 2).context("rank 0 measured nothing")?;
            took.push(Took { micros, cpu_micros: times.cpu_micros + spent / operations });
        }
    }
    Ok(Run { took, way })
}

/// Open MPI as it is installed here, and our peer program built for it.
pub(super) struct OpenMpi {
    pub version: String,
    folder: PathBuf,
}

impl OpenMpi {
    /// Looks for it, and builds the peer.
    pub(super) fn find() -> Result<Self> {
        let version = Command::new("mpirun").arg("--version").output().context("mpirun")?;
        let version = String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or_default().to_owned();
        ensure!(version.contains("Open MPI"), "mpirun is not Open MPI's: {version:?}");
        let folder = std::env::temp_dir().join(format!("pleach-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let this = Self { version, folder };
        std::fs::write(this.file("peer.c"), PEER)?;
        let built =
            Command::new("mpicc").arg("-O2").arg("-o").arg(this.file("peer")).arg(this.file("peer.c")).output();
        let built = built.context("mpicc")?;
        ensure!(built.status.success(), "mpicc: {}", String::from_utf8_lossy(&built.stderr));
        Ok(this)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn run(&self, ranks: u32, site: Site<'_>, measures: &[&str], pace: Pace) -> Result<Run> {
        let own = crate::fabric::own_program()?;
        let mut command = match site {
            Site::Namespaces(network) => through_launch_rank(&own, Some(&network.host(0).entrance())),
            _ => through_launch_rank(&own, None),
        };
        command.args(["mpirun", "-n", &ranks.to_string(), "--oversubscribe"]);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let crowded = ranks as usize > std::thread::available_parallelism().map_or(1, usize::from);
        let binding = if crowded { "none" } else { "core" };
        command.args(["--bind-to", binding, "--mca", "mpi_yield_when_idle", if crowded { "1" } else { "0" }]);
        match site {
            Site::OneHost => {}
            Site::Loopback => {
                command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                command.args(["--mca", "btl_tcp_if_include", "lo"]);
            }
            Site::Namespaces(network) => {
                let agent = self.agent(network, ranks)?;
                let names: Vec<String> = (0..ranks as usize).map(|host| address(network, host).to_string()).collect();
                command.arg("--host").arg(names.join(","));
                command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                command.args(["--mca", "btl_tcp_if_include", "10.77.0.0/16"]);
                command.args(["--mca", "oob_tcp_if_include", "10.77.0.0/16"]);
                command.arg("--mca").arg("plm_rsh_agent").arg(agent);
                command.args(["--mca", "plm_rsh_no_tree_spawn", "1"]);
            }
        }
        command.arg(self.file("peer")).arg(pace.batches.to_string()).arg(pace.seconds.to_string()).args(measures);
        let (say, heard) = channel();
        let mut service = Service::start("mpirun", &mut command, Voice::Kept, Some((0, say)))?;
        let run = listen(&heard, measures, None, std::slice::from_mut(&mut service))?;
        service.kill_and_wait_after(Duration::from_secs(30));
        Ok(run)
    }

    /// A program that mpirun calls as it would call ssh: it runs what it is told on the host whose address it is given.
    fn agent(&self, network: &Network, ranks: u32) -> Result<PathBuf> {
        let path = self.file("agent");
        let mut text = "#!/bin/sh\nhost=$1; shift\ncase $host in\n".to_owned();
        for host in 0..ranks as usize {
            text += &format!("{}) space={} ;;\n", address(network, host), network.host(host).name());
        }
        // Each host has a name of its own: by equal names Open MPI would know that they are one machine.
        text += "esac\nexec ip netns exec $space unshare -u sh -c \"hostname $space; $*\"\n";
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(path)
    }
}

impl Drop for OpenMpi {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn address(network: &Network, host: usize) -> IpAddr {
    network.host(host).address().into()
}
