//! An installed MPI: its launcher, and a peer program compiled for it. Runs the peer with the Pleach library or without.
//!
//! `launch_options.rs` places the ranks; `preloaded_library.rs` says what the library does in them.

mod launch_options;
mod preloaded_library;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use namespaces::NamespaceHost;

use super::samples::{BenchPlacement, BenchRun, SampleBudget, collect_samples};
use crate::local_fabric::child_process::{ChildProcess, OutputLine, StderrMode, launch_rank_command};
use crate::mpi::mpi_launcher::{EnvironmentVariable, MpiLauncher};

pub(super) use preloaded_library::PreloadChoice;
pub(crate) use preloaded_library::PreloadedLibrary;

/// The launcher gets this long to exit after the last result.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why MPICH is skipped where its ranks share processors and memory.
pub(super) const NEVER_YIELDS: &str = "its ranks do not yield while they wait, so that the comparison means nothing";

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
        let is_of_mpi = !matches!(launcher, MpiLauncher::Srun(_) | MpiLauncher::Other);
        ensure!(is_of_mpi, "{} is not the launcher of an MPI", program.display());
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

    pub(super) fn is_open_mpi(&self) -> bool {
        matches!(self.implementation, MpiImplementation::OpenMpi4 | MpiImplementation::OpenMpi5)
    }

    /// Its name and version for a column of a table: `Open MPI 4.1.4`.
    pub(super) fn short_name(&self) -> String {
        let number = self.version.rsplit(' ').next().unwrap_or_default();
        match self.implementation {
            MpiImplementation::OpenMpi4 | MpiImplementation::OpenMpi5 => format!("Open MPI {number}"),
            MpiImplementation::Mpich4 | MpiImplementation::Mpich5 => format!("MPICH {number}"),
            MpiImplementation::Other => self.version.clone(),
        }
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
        let host = match placement {
            BenchPlacement::Namespaces { network, .. } => Some(network.host(0)),
            BenchPlacement::OneHost | BenchPlacement::Loopback => None,
        };
        let mut arguments = vec![budget.batches.to_string(), budget.seconds.to_string()];
        arguments.extend(measures.iter().map(|measure| (*measure).to_owned()));
        let mut line = self.peer_command_line(&self.options(ranks, placement)?, ranks, &arguments);
        let mut environment = self.variables(placement);
        if let Some(library) = library {
            let (with_library, for_library) = self.launcher.with(&line, library.library, &library.variables()?)?;
            line = with_library;
            environment.extend(for_library);
        }
        let nodes = library.and_then(|library| library.nodes);
        self.run_command_line(&line, environment, host, |output, launcher| {
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

    /// Starts a command line of the launcher, here or on a host made of a namespace, collects what the ranks print, and waits for the end.
    pub(super) fn run_command_line<T>(
        &self,
        line: &[OsString],
        environment: Vec<EnvironmentVariable>,
        host: Option<NamespaceHost<'_>>,
        collect: impl FnOnce(&Receiver<OutputLine>, &[ChildProcess]) -> Result<T>,
    ) -> Result<T> {
        let mut command = launch_rank_command(&crate::local_fabric::own_executable()?, None);
        // `ip` also mounts the /sys of the namespace, where UCX looks for devices.
        command.args(host.iter().flat_map(|host| ["ip", "netns", "exec", host.name()]));
        command.args(line).envs(environment);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let (sender, output) = channel();
        let mut launcher = ChildProcess::start("mpirun", &mut command, StderrMode::Captured, Some((0, sender)))?;
        let collected = collect(&output, std::slice::from_ref(&launcher))?;
        launcher.kill_and_wait_after(EXIT_TIMEOUT);
        Ok(collected)
    }
}

impl Drop for MpiInstallation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
