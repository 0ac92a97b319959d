//! `pleach exec`: runs an unmodified MPI program with its collectives offloaded.
//!
//! In: the command by which the user starts it. Out: its exit status, and a report of what Pleach did. `lab::mpi` finds the
//! library that the ranks preload and adapts the command to the launcher; `exec_report.rs` is the report. Manager and nodes, if wanted,
//! are a [`LocalFabric`], and everything ends together, as in `pleach launch`.

mod exec_report;
mod message_events;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use exec_report::{ExecReport, NodeUsage};
use message_events::MessageEvents;

pub(crate) use exec_report::{MpiExplanation, MpiReport, binary};

use crate::configuration;
use crate::launch::supervisor::{Supervisor, take_over_signals};
use crate::launch::{rank, seconds};
use lab::local_fabric::child_process::{StderrMode, launch_rank_command};
use lab::local_fabric::{FabricSite, LocalFabric, LocalFabricSpec, MAX_NODES, fault_file};
use lab::mpi::mpi_launcher::{EnvironmentVariable, MpiLauncher};
use lab::mpi::{preload_library, provider_library};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExecArgs {
    /// Manager of existing nodes (PLEACH_MANAGER; its secret is in PLEACH_SECRET or PLEACH_SECRET_FILE).
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "nodes")]
    manager: Option<String>,
    /// End the job with the reason if it gets no aggregation nodes (PLEACH_MANAGER_REQUIRED).
    #[arg(long)]
    require_nodes: bool,
    #[command(flatten)]
    environment: JobEnvironmentArgs,
    /// Send all messages of the program by Pleach's libfabric provider, not only its collectives (docs/libfabric.md). The MPI must use
    /// libfabric: Open MPI 4 and 5, MPICH with ofi, Intel MPI.
    #[arg(long)]
    messages: bool,
    /// Format of the report on stderr.
    #[arg(long, value_enum, default_value_t = ExecFormat::Table)]
    format: ExecFormat,
    /// Write the report to a file instead.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Seconds between a termination signal and SIGKILL.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    grace: f64,
    /// Command that starts the program, such as mpirun with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The environment of a job; also for `pleach doctor`.
#[derive(Args)]
pub(crate) struct JobEnvironmentArgs {
    /// Start a manager and this many aggregation nodes for the job: a root, and leaves that share the hosts.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_NODES)))]
    nodes: Option<u32>,
    /// Address of this host at which ranks reach the manager and the nodes [default: loopback]
    #[arg(long, value_name = "ADDRESS", requires = "nodes")]
    listen: Option<IpAddr>,
    /// Treat each group of this many ranks as a host of its own, for trials on one machine [default: 1 with --nodes and without
    /// --listen]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    ranks_per_host: Option<u16>,
    /// Faults to inject into packets of ranks and nodes, as in scenarios: flip, lose, duplicate, delay, reorder, down. Ranks on
    /// other hosts read the same file.
    #[arg(long, value_name = "FILE", alias = "fault")]
    faults: Option<PathBuf>,
    /// Show the logs of the manager and the nodes.
    #[arg(long, requires = "nodes")]
    node_logs: bool,
    /// Library that the ranks preload, at the same path on all hosts (PLEACH_MPI_LIBRARY) [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExecFormat {
    Table,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  pleach exec -- mpirun -n 4 ./program
  pleach exec --nodes 1 -- mpirun -n 4 ./program                             through a node, as if on 4 hosts
  pleach exec --nodes 3 --listen 10.0.0.1 -- mpirun -H a:8,b:8 ./program     hosts a and b reach the nodes here
  pleach exec --manager 10.0.0.1:4797 -- mpirun -H a:8,b:8 ./program         existing nodes
  pleach exec --nodes 1 --faults faults.toml -- mpirun -n 4 ./program
  pleach exec --messages -- mpirun -n 4 ./program                            all messages, not only collectives
  pleach exec --format json --output report.json -- mpiexec -n 2 python3 script.py

The launchers of Open MPI, MPICH and Intel MPI are supported; any other command must pass its environment on to the ranks. Rank 0
writes the report in MPI_Finalize; times are those that a rank spent in a call. Settings of ranks: docs/mpi.md.

Exit status: that of the command; 128 plus the signal number if it was killed, 127 if there is no such program, 2 if the
library, the nodes or the command line are wrong.";

pub(crate) fn run(arguments: &ExecArgs) -> Result<ExitCode> {
    if let Some(program) = arguments.command.first().filter(|program| rank::is_missing(program)) {
        eprintln!("pleach exec: cannot run {}: there is no such program", program.display());
        return Ok(ExitCode::from(rank::NO_PROGRAM));
    }
    // Blocked until the supervisor reads them, so that an early signal does not leave processes behind.
    let signals = take_over_signals().context("cannot block signals")?;
    let folder = ReportFolder::new()?;
    let manager = arguments.manager.as_deref();
    let mut more: Vec<EnvironmentVariable> =
        arguments.require_nodes.then(|| ("PLEACH_MANAGER_REQUIRED", "1".into())).into_iter().collect();
    if arguments.messages {
        let variables = provider_library::variables(&MpiLauncher::of(&arguments.command[0]), folder.path())?;
        if let Some(warning) = provider_library::warning(&variables, folder.path(), &arguments.command) {
            eprintln!("pleach exec: {warning}");
        }
        more.extend(variables);
    }
    let PreparedJob { mut command, mut fabric, launcher } =
        arguments.environment.prepare(manager, &arguments.command, &folder, &more)?;
    if std::io::stdin().is_terminal() {
        command.stdin(Stdio::null()); // It is in a process group of its own, where reading from the terminal would stop it.
    }
    let name = Path::new(&arguments.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let began = Instant::now();
    let mut supervisor = Supervisor::new("pleach exec", signals, Duration::from_secs_f64(arguments.grace));
    supervisor.start(name.clone(), &name, &mut command).with_context(|| format!("cannot start {name}"))?;
    let mut lost = Vec::new();
    let status = supervisor.run(|| {
        for (name, how) in fabric.iter_mut().flat_map(LocalFabric::newly_ended) {
            eprintln!("pleach exec: {name} {how}; the job continues without it");
            lost.push(format!("{name} {how}"));
        }
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let nodes = fabric.as_mut().and_then(|fabric| fabric.status().ok()).map_or_else(Vec::new, NodeUsage::all);
    let report = MpiReport::read(&folder.report());
    let messages = arguments.messages.then(|| MessageEvents::read(folder.path()));
    let report = ExecReport { launcher: launcher.describe(), seconds, status, report, nodes, lost, messages };
    let text = match arguments.format {
        ExecFormat::Table => report.table(),
        ExecFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    match &arguments.output {
        None if arguments.format == ExecFormat::Table && report.has_no_job() => {} // The launcher has said why.
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?,
        None => std::io::stderr().write_all(text.as_bytes()).unwrap_or_default(),
    }
    Ok(ExitCode::from(status))
}

/// A job that is ready to start.
pub(crate) struct PreparedJob {
    pub command: Command,
    pub fabric: Option<LocalFabric>,
    pub launcher: MpiLauncher,
}

impl JobEnvironmentArgs {
    /// Finds the library, starts the manager and the nodes, and builds the command that passes both to the ranks.
    pub(crate) fn prepare(
        &self,
        manager: Option<&str>,
        command: &[OsString],
        folder: &ReportFolder,
        more: &[EnvironmentVariable],
    ) -> Result<PreparedJob> {
        let named = self.library.clone().or_else(|| std::env::var_os("PLEACH_MPI_LIBRARY").map(PathBuf::from));
        let library = preload_library::find(named.as_deref())?;
        let plan = self.faults.as_deref().map(|path| -> Result<PathBuf> {
            fault_file::read(path)?;
            std::path::absolute(path).with_context(|| path.display().to_string())
        });
        let plan = plan.transpose()?;
        let launcher = MpiLauncher::of(&command[0]);
        let site = self.listen.map_or(FabricSite::Loopback, FabricSite::Address);
        let stderr = if self.node_logs { StderrMode::Forwarded } else { StderrMode::Captured };
        let fabric = self.nodes.map(|nodes| {
            let plan = LocalFabricSpec { nodes, site, faults: plan.as_deref(), stderr };
            LocalFabric::start(&plan).context("cannot start aggregation nodes")
        });
        let fabric = fabric.transpose()?;
        let mut variables: Vec<EnvironmentVariable> = vec![("PLEACH_MPI_REPORT", folder.report().into_os_string())];
        let of_manager = match &fabric {
            Some(fabric) => fabric.variables()?,
            None => configuration::job_credential().into_iter().collect(),
        };
        variables.extend(of_manager.into_iter().map(|(name, value)| (name, value.into())));
        variables.extend(manager.map(|manager| ("PLEACH_MANAGER", manager.into())));
        variables.extend(plan.map(|plan| (fault_file::VARIABLE, plan.into_os_string())));
        let emulated = self.ranks_per_host.or((self.nodes.is_some() && self.listen.is_none()).then_some(1));
        variables.extend(emulated.map(|ranks| ("PLEACH_MPI_RANKS_PER_HOST", ranks.to_string().into())));
        variables.extend_from_slice(more);
        let (line, environment) = launcher.with(command, &library, &variables)?;
        let mut command = launch_rank_command(&lab::local_fabric::own_executable()?, None);
        command.args(line).envs(environment);
        configuration::SECRET_VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        Ok(PreparedJob { command, fabric, launcher })
    }
}

/// A temporary folder for the report; dropping it removes the folder.
pub(crate) struct ReportFolder(PathBuf);

impl ReportFolder {
    pub(crate) fn new() -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("pleach-exec-{}-{}", std::process::id(), &lab::local_fabric::random_hex()?[..8]);
        let path = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    /// The folder itself, where ranks of this host write events.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Where rank 0 writes the report.
    pub(crate) fn report(&self) -> PathBuf {
        self.0.join("report.json")
    }
}

impl Drop for ReportFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
