//! An MPI as it is installed here, with the peer program built for it: runs that once, with our library or without.

use std::ffi::OsString;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use namespaces::NamespaceNetwork;

use crate::bench::collectives::contender::{
    BenchPlacement, BenchRun, MPI_PEER_SOURCE, SampleBudget, collect_samples,
};
use crate::local_fabric::LocalFabric;
use crate::local_fabric::child_process::{ChildProcess, StderrMode, launch_rank_command};
use crate::mpi::mpi_launcher::{EnvironmentVariable, MpiLauncher};

/// An MPI: its launcher, and a folder with the peer.
pub(crate) struct MpiInstallation {
    pub(crate) version: String,
    pub(super) kind: MpiImplementation,
    program: OsString,
    launcher: MpiLauncher,
    folder: PathBuf,
}

/// Which options its launcher has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MpiImplementation {
    OpenMpi4,
    OpenMpi5,
    Mpich4,
    Mpich5,
    Other,
}

/// What is loaded into the ranks.
pub(crate) struct PreloadedLibrary<'a> {
    pub(super) library: &'a Path,
    /// Through which they go, if there are any.
    pub(super) nodes: Option<&'a LocalFabric>,
}

impl MpiInstallation {
    /// Open MPI, if `mpirun` is its own.
    pub(crate) fn open_mpi() -> Result<Self> {
        let found = Self::find(Path::new("mpirun"), Path::new("mpicc"))?;
        ensure!(matches!(found.launcher, MpiLauncher::OpenMpi(_)), "mpirun is not Open MPI's: {:?}", found.version);
        Ok(found)
    }

    /// By a folder that has `bin/mpirun` and `bin/mpicc`, or by the name of its launcher, such as `mpirun.mpich`.
    pub(super) fn named(name: &Path) -> Result<Self> {
        if name.is_dir() {
            return Self::find(&name.join("bin/mpirun"), &name.join("bin/mpicc"));
        }
        let file = name.file_name().unwrap_or_default().to_string_lossy();
        let compiler = file.replacen("mpirun", "mpicc", 1).replacen("mpiexec", "mpicc", 1);
        ensure!(compiler != file, "{} is neither a folder nor a launcher such as mpirun", name.display());
        Self::find(name, &name.with_file_name(compiler))
    }

    fn find(launcher: &Path, compiler: &Path) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let program = launcher.as_os_str().to_owned();
        let launcher = MpiLauncher::of(&program);
        let version = launcher.describe();
        ensure!(launcher != MpiLauncher::Other, "{} is no launcher of an MPI", program.display());
        let kind = match (&launcher, &version) {
            (MpiLauncher::OpenMpi(_), version) if version.contains(" 5.") => MpiImplementation::OpenMpi5,
            (MpiLauncher::OpenMpi(_), _) => MpiImplementation::OpenMpi4,
            (_, version) if version.starts_with("Hydra 5") => MpiImplementation::Mpich5,
            (_, version) if version.starts_with("Hydra") => MpiImplementation::Mpich4,
            _ => MpiImplementation::Other,
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pleach-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let this = Self { version, kind, program, launcher, folder };
        std::fs::write(this.file("peer.c"), MPI_PEER_SOURCE)?;
        let built =
            Command::new(compiler).arg("-O2").arg("-o").arg(this.file("peer")).arg(this.file("peer.c")).output();
        let built = built.with_context(|| compiler.display().to_string())?;
        ensure!(built.status.success(), "{}: {}", compiler.display(), String::from_utf8_lossy(&built.stderr));
        Ok(this)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// True if both are the same program under two names.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let number = |version: &str| version.rsplit(' ').next().unwrap_or_default().to_owned();
        self.kind == other.kind && number(&self.version) == number(&other.version)
    }

    /// True if its launcher knows how to start ranks on hosts made of namespaces.
    pub(super) fn is_open_mpi(&self) -> bool {
        matches!(self.kind, MpiImplementation::OpenMpi4 | MpiImplementation::OpenMpi5)
    }

    pub(crate) fn run(
        &self,
        ranks: u32,
        site: BenchPlacement<'_>,
        measures: &[&str],
        pace: SampleBudget,
        loaded: Option<&PreloadedLibrary<'_>>,
    ) -> Result<BenchRun> {
        let own = crate::local_fabric::own_executable()?;
        let entrance = match site {
            BenchPlacement::Namespaces(network) => Some(network.host(0).entrance()),
            _ => None,
        };
        let mut command = launch_rank_command(&own, entrance.as_deref());
        let mut line = vec![self.program.clone()];
        line.extend(self.options(ranks, site)?.into_iter().map(OsString::from));
        line.extend(["-n".into(), ranks.to_string().into(), self.file("peer").into_os_string()]);
        line.extend([pace.batches.to_string(), pace.seconds.to_string()].map(OsString::from));
        line.extend(measures.iter().map(OsString::from));
        if let Some(loaded) = loaded {
            let variables = loaded.nodes.map(LocalFabric::variables).unwrap_or_default();
            let variables: Vec<EnvironmentVariable> =
                variables.into_iter().map(|(name, value)| (name, OsString::from(value))).collect();
            let (with_library, environment) = self.launcher.with(&line, loaded.library, &variables)?;
            line = with_library;
            command.envs(environment);
        }
        command.args(line).env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let (say, heard) = channel();
        let mut service = ChildProcess::start("mpirun", &mut command, StderrMode::Kept, Some((0, say)))?;
        let nodes = loaded.and_then(|loaded| loaded.nodes);
        let run = collect_samples(&heard, measures, nodes, std::slice::from_mut(&mut service))?;
        service.kill_and_wait_after(Duration::from_secs(30));
        Ok(run)
    }

    /// Ranks have processors of their own where there are enough, and give them up while they wait where there are not.
    fn options(&self, ranks: u32, site: BenchPlacement<'_>) -> Result<Vec<String>> {
        let crowded = ranks as usize > std::thread::available_parallelism().map_or(1, usize::from);
        let binding = if crowded { "none" } else { "core" };
        if !self.is_open_mpi() {
            let binds = matches!(self.kind, MpiImplementation::Mpich4 | MpiImplementation::Mpich5) && !crowded;
            return Ok(if binds { vec!["-bind-to".into(), binding.into()] } else { Vec::new() });
        }
        let mut options: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| options.extend(words.iter().map(|word| (*word).to_owned()));
        match self.kind {
            MpiImplementation::OpenMpi5 => add(&["--map-by", ":OVERSUBSCRIBE"]),
            _ => add(&["--oversubscribe"]),
        }
        add(&["--bind-to", binding, "--mca", "mpi_yield_when_idle", if crowded { "1" } else { "0" }]);
        let tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include"];
        match site {
            BenchPlacement::OneHost => {}
            BenchPlacement::Loopback => {
                add(&tcp);
                add(&["lo"]);
            }
            BenchPlacement::Namespaces(network) => {
                let agent = self.agent(network, ranks)?.display().to_string();
                let names: Vec<String> = (0..ranks as usize).map(|host| address(network, host).to_string()).collect();
                add(&["--host", &names.join(",")]);
                add(&tcp);
                add(&["10.77.0.0/16"]);
                match self.kind {
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

    /// A program that mpirun calls as it would call ssh: it runs what it is told on the host whose address it is given.
    fn agent(&self, network: &NamespaceNetwork, ranks: u32) -> Result<PathBuf> {
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

impl Drop for MpiInstallation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn address(network: &NamespaceNetwork, host: usize) -> IpAddr {
    network.host(host).address().into()
}
