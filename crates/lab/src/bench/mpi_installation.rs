//! An installed MPI: its launcher, and a peer program compiled for it. Runs the peer with the Pleach library or without.

use std::ffi::OsString;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use namespaces::NamespaceNetwork;

use super::samples::{BenchPlacement, BenchRun, SampleBudget, collect_samples};
use crate::local_fabric::LocalFabric;
use crate::local_fabric::child_process::{ChildProcess, OutputLine, StderrMode, launch_rank_command};
use crate::mpi::mpi_launcher::{EnvironmentVariable, MpiLauncher};

/// The launcher gets this long to exit after the last result.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// An installed MPI, and a temporary folder with the compiled peer program.
pub(crate) struct MpiInstallation {
    pub(crate) version: String,
    pub(super) implementation: MpiImplementation,
    program: OsString,
    launcher: MpiLauncher,
    folder: PathBuf,
}

/// The implementation and its major version, which decide the options of the launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MpiImplementation {
    OpenMpi4,
    OpenMpi5,
    Mpich4,
    Mpich5,
    Other,
}

/// The Pleach library that is loaded into the ranks.
pub(crate) struct PreloadedLibrary<'a> {
    pub(super) library: &'a Path,
    /// The aggregation nodes that the ranks use, if any.
    pub(super) nodes: Option<&'a LocalFabric>,
}

impl MpiInstallation {
    /// Open MPI, if the `mpirun` in the path belongs to it.
    pub(crate) fn open_mpi(peer_source: &str) -> Result<Self> {
        let found = Self::find(Path::new("mpirun"), Path::new("mpicc"), peer_source)?;
        ensure!(
            matches!(found.launcher, MpiLauncher::OpenMpi(_)),
            "mpirun in the path is not Open MPI: {:?}",
            found.version
        );
        Ok(found)
    }

    /// By a folder with `bin/mpirun` and `bin/mpicc`, or by the name of the launcher, such as `mpirun.mpich`.
    pub(super) fn named(name: &Path, peer_source: &str) -> Result<Self> {
        if name.is_dir() {
            return Self::find(&name.join("bin/mpirun"), &name.join("bin/mpicc"), peer_source);
        }
        let file = name.file_name().unwrap_or_default().to_string_lossy();
        let compiler = file.replacen("mpirun", "mpicc", 1).replacen("mpiexec", "mpicc", 1);
        ensure!(compiler != file, "{} is neither a folder nor a launcher such as mpirun", name.display());
        Self::find(name, &name.with_file_name(compiler), peer_source)
    }

    fn find(launcher: &Path, compiler: &Path, peer_source: &str) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let program = launcher.as_os_str().to_owned();
        let launcher = MpiLauncher::of(&program);
        let version = launcher.describe();
        ensure!(launcher != MpiLauncher::Other, "{} is not the launcher of an MPI", program.display());
        let implementation = match (&launcher, &version) {
            (MpiLauncher::OpenMpi(_), version) if version.contains(" 5.") => MpiImplementation::OpenMpi5,
            (MpiLauncher::OpenMpi(_), _) => MpiImplementation::OpenMpi4,
            (_, version) if version.starts_with("Hydra 5") => MpiImplementation::Mpich5,
            (_, version) if version.starts_with("Hydra") => MpiImplementation::Mpich4,
            _ => MpiImplementation::Other,
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pleach-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let this = Self { version, implementation, program, launcher, folder };
        std::fs::write(this.file("peer.c"), peer_source)?;
        let built =
            Command::new(compiler).arg("-O2").arg("-o").arg(this.file("peer")).arg(this.file("peer.c")).output();
        let built = built.with_context(|| format!("cannot run {}", compiler.display()))?;
        let errors = String::from_utf8_lossy(&built.stderr);
        ensure!(built.status.success(), "{} cannot compile the peer program: {errors}", compiler.display());
        Ok(this)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// True if both names are of the same installation.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let number = |version: &str| version.rsplit(' ').next().unwrap_or_default().to_owned();
        self.implementation == other.implementation && number(&self.version) == number(&other.version)
    }

    /// True if the launcher can start ranks on hosts made of namespaces.
    pub(super) fn is_open_mpi(&self) -> bool {
        matches!(self.implementation, MpiImplementation::OpenMpi4 | MpiImplementation::OpenMpi5)
    }

    /// Runs the peer program of the collective benchmarks once, with the Pleach library if one is given.
    pub(crate) fn run(
        &self,
        ranks: u32,
        placement: BenchPlacement<'_>,
        measures: &[&str],
        budget: SampleBudget,
        library: Option<&PreloadedLibrary<'_>>,
    ) -> Result<BenchRun> {
        let namespace = match placement {
            BenchPlacement::Namespaces(network) => Some(network.host(0).namespace_path()),
            _ => None,
        };
        let mut arguments = vec![budget.batches.to_string(), budget.seconds.to_string()];
        arguments.extend(measures.iter().map(|measure| (*measure).to_owned()));
        let mut line = self.peer_command_line(&self.options(ranks, placement)?, ranks, &arguments);
        let mut environment = Vec::new();
        if let Some(library) = library {
            let variables = library.nodes.map(LocalFabric::variables).unwrap_or_default();
            let variables: Vec<EnvironmentVariable> =
                variables.into_iter().map(|(name, value)| (name, OsString::from(value))).collect();
            (line, environment) = self.launcher.with(&line, library.library, &variables)?;
        }
        let nodes = library.and_then(|library| library.nodes);
        self.run_command_line(&line, environment, namespace.as_deref(), |output, launcher| {
            collect_samples(output, measures, nodes, launcher)
        })
    }

    /// The command line that starts the peer program on so many ranks.
    pub(super) fn peer_command_line(&self, options: &[String], ranks: u32, arguments: &[String]) -> Vec<OsString> {
        let mut line = vec![self.program.clone()];
        line.extend(options.iter().map(OsString::from));
        line.extend(["-n".into(), ranks.to_string().into(), self.file("peer").into_os_string()]);
        line.extend(arguments.iter().map(OsString::from));
        line
    }

    /// Starts a command line of the launcher, collects what the ranks print, and waits for the end.
    pub(super) fn run_command_line<T>(
        &self,
        line: &[OsString],
        environment: Vec<EnvironmentVariable>,
        namespace: Option<&Path>,
        collect: impl FnOnce(&Receiver<OutputLine>, &[ChildProcess]) -> Result<T>,
    ) -> Result<T> {
        let mut command = launch_rank_command(&crate::local_fabric::own_executable()?, namespace);
        command.args(line).envs(environment);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let (sender, output) = channel();
        let mut launcher = ChildProcess::start("mpirun", &mut command, StderrMode::Captured, Some((0, sender)))?;
        let collected = collect(&output, std::slice::from_ref(&launcher))?;
        launcher.kill_and_wait_after(EXIT_TIMEOUT);
        Ok(collected)
    }

    /// Binds each rank to a core if there are enough. If not, ranks yield their processor while they wait.
    fn options(&self, ranks: u32, placement: BenchPlacement<'_>) -> Result<Vec<String>> {
        let oversubscribed = ranks as usize > std::thread::available_parallelism().map_or(1, usize::from);
        let binding = if oversubscribed { "none" } else { "core" };
        if !self.is_open_mpi() {
            let binds = matches!(self.implementation, MpiImplementation::Mpich4 | MpiImplementation::Mpich5)
                && !oversubscribed;
            return Ok(if binds { vec!["-bind-to".into(), binding.into()] } else { Vec::new() });
        }
        let mut options: Vec<String> = Vec::new();
        let mut add = |arguments: &[&str]| options.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        match self.implementation {
            MpiImplementation::OpenMpi5 => add(&["--map-by", ":OVERSUBSCRIBE"]),
            _ => add(&["--oversubscribe"]),
        }
        add(&["--bind-to", binding, "--mca", "mpi_yield_when_idle", if oversubscribed { "1" } else { "0" }]);
        match placement {
            BenchPlacement::OneHost => {}
            BenchPlacement::Loopback => {
                add(&OVER_TCP);
                add(&["lo"]);
            }
            BenchPlacement::Namespaces(network) => {
                let agent = self.agent(network, ranks)?.display().to_string();
                let names: Vec<String> = (0..ranks as usize).map(|host| address(network, host).to_string()).collect();
                add(&["--host", &names.join(",")]);
                add(&OVER_TCP);
                add(&["10.77.0.0/16"]);
                match self.implementation {
                    MpiImplementation::OpenMpi5 => {
                        add(&["--prtemca", "plm_ssh_agent", &agent, "--prtemca", "plm_ssh_no_tree_spawn", "1"]);
                        add(&["--prtemca", "prte_if_include", "10.77.0.0/16"]);
                    }
                    _ => {
                        add(&["--mca", "oob_tcp_if_include", "10.77.0.0/16"]);
                        add(&["--mca", "plm_rsh_agent", &agent, "--mca", "plm_rsh_no_tree_spawn", "1"]);
                    }
                }
            }
        }
        Ok(options)
    }

    /// A script that mpirun calls instead of ssh: it runs a command in the namespace with the given address.
    fn agent(&self, network: &NamespaceNetwork, ranks: u32) -> Result<PathBuf> {
        let path = self.file("agent");
        let mut text = "#!/bin/sh\nhost=$1; shift\ncase $host in\n".to_owned();
        for host in 0..ranks as usize {
            text += &format!("{}) space={} ;;\n", address(network, host), network.host(host).name());
        }
        // Each namespace gets its own host name: from equal names Open MPI concludes that the ranks share one host.
        text += "esac\nexec ip netns exec $space unshare -u sh -c \"hostname $space; $*\"\n";
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(path)
    }
}

/// Options with which Open MPI uses TCP. The name of an interface or a subnet must follow.
pub(super) const OVER_TCP: [&str; 8] =
    ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include"];

impl Drop for MpiInstallation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn address(network: &NamespaceNetwork, host: usize) -> IpAddr {
    network.host(host).address().into()
}
