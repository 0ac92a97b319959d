//! `pleach exec`: runs an MPI program as it is, with its collectives taken over.
//!
//! In: the command by which the user starts it. Out: its exit status, and what Pleach did for it. `library.rs` finds what is loaded
//! into the ranks, `launcher.rs` says how they get it, `account.rs` is what they tell at the end. Manager and nodes, if wanted, are
//! a [`LocalFabric`], and all of it ends together, as in `pleach launch`.

mod exec_report;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use exec_report::{ExecReport, NodeUsage};
pub(crate) use exec_report::{MpiExplanation, MpiReport, binary};

use crate::launch::seconds;
use crate::launch::supervisor::{Supervisor, take_over_signals};
use lab::local_fabric::child_process::{StderrMode, launch_rank_command};
use lab::local_fabric::{FabricSite, LocalFabric, LocalFabricSpec, MOST_NODES, fault_file};
use lab::mpi::mpi_launcher::{EnvironmentVariable, MpiLauncher};
use lab::mpi::preload_library;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExecArgs {
    /// The manager of nodes that are there already (PLEACH_MANAGER; its secret in PLEACH_SECRET or PLEACH_SECRET_FILE).
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "nodes")]
    manager: Option<String>,
    #[command(flatten)]
    surroundings: JobEnvironmentArgs,
    /// How to report what was offloaded, on the standard error.
    #[arg(long, value_enum, default_value_t = ExecFormat::Table)]
    format: ExecFormat,
    /// Writes the report to a file instead.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Seconds that the job has to end by itself when asked to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    grace: f64,
    /// The command that starts the program, such as mpirun with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What is around the job, for `pleach doctor` too.
#[derive(Args)]
pub(crate) struct JobEnvironmentArgs {
    /// Starts a manager and so many aggregation nodes for the job: a root, and leaves that share the hosts.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_NODES)))]
    nodes: Option<u32>,
    /// The address of this host by which those of the ranks reach manager and nodes [default: loopback]
    #[arg(long, value_name = "ADDRESS", requires = "nodes")]
    listen: Option<IpAddr>,
    /// So many ranks count as a host of their own, for trials on one machine [default: 1 with --nodes and without --listen]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    ranks_per_host: Option<u16>,
    /// Faults in what ranks and nodes send, as in scenarios: flip, lose, duplicate, delay, reorder, down. Ranks of other hosts
    /// read the same file.
    #[arg(long, value_name = "FILE", alias = "fault")]
    faults: Option<PathBuf>,
    /// Shows what manager and nodes log.
    #[arg(long, requires = "nodes")]
    node_logs: bool,
    /// The library that is loaded into the ranks, at the same place on all hosts (PLEACH_MPI_LIBRARY) [default: the one beside
    /// this program]
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
  pleach exec --manager 10.0.0.1:4797 -- mpirun -H a:8,b:8 ./program         nodes that are there already
  pleach exec --nodes 1 --faults faults.toml -- mpirun -n 4 ./program
  pleach exec --format json --output report.json -- mpiexec -n 2 python3 script.py

The launchers of Open MPI, MPICH and Intel MPI are known; any other command passes its environment on to the ranks. The report
is written by rank 0 when the MPI is finalized; its times are those that a rank spent in a call. Settings of ranks: docs/mpi.md.

Exit status: that of the command; 128 and the signal's number if it was killed, 127 if there is no such program, 2 if the
library, the nodes or the command line are wrong.";

pub(crate) fn run(arguments: &ExecArgs) -> Result<ExitCode> {
    // From here on signals wait until the supervisor takes them, so that an early one leaves nothing behind either.
    let signals = take_over_signals().context("signals cannot be taken over")?;
    let folder = ReportFolder::new()?;
    let manager = arguments.manager.as_deref();
    let PreparedJob { mut command, mut fabric, launcher } =
        arguments.surroundings.prepare(manager, &arguments.command, &folder, &[])?;
    if std::io::stdin().is_terminal() {
        command.stdin(Stdio::null()); // It is in a process group of its own, and would be stopped when it reads.
    }
    let name = Path::new(&arguments.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let began = Instant::now();
    let mut supervisor = Supervisor::new("pleach exec", signals, Duration::from_secs_f64(arguments.grace));
    supervisor.start(name.clone(), &name, &mut command).with_context(|| format!("{name} cannot be started"))?;
    let mut lost = Vec::new();
    let status = supervisor.run(|| {
        for (name, how) in fabric.iter_mut().flat_map(LocalFabric::newly_ended) {
            eprintln!("pleach exec: {name} {how}; the job goes on without it");
            lost.push(format!("{name} {how}"));
        }
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let nodes = fabric.as_mut().and_then(|fabric| fabric.status().ok()).map_or_else(Vec::new, NodeUsage::all);
    let report = MpiReport::read(&folder.report());
    let account = ExecReport { launcher: launcher.describe(), seconds, status, report, nodes, lost };
    let text = match arguments.format {
        ExecFormat::Table => account.table(),
        ExecFormat::Json => serde_json::to_string_pretty(&account)? + "\n",
    };
    match &arguments.output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?,
        None => std::io::stderr().write_all(text.as_bytes()).unwrap_or_default(),
    }
    Ok(ExitCode::from(status))
}

/// A job that can be started.
pub(crate) struct PreparedJob {
    pub command: Command,
    pub fabric: Option<LocalFabric>,
    pub launcher: MpiLauncher,
}

impl JobEnvironmentArgs {
    /// Finds the library, starts manager and nodes, and makes the command with which ranks get to know of all that.
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
        let site = self.listen.map_or(FabricSite::Loopback, FabricSite::Here);
        let voice = if self.node_logs { StderrMode::Shown } else { StderrMode::Kept };
        let fabric = self.nodes.map(|nodes| {
            let plan = LocalFabricSpec { nodes, site, faults: plan.as_deref(), voice };
            LocalFabric::start(&plan).context("aggregation nodes cannot be had")
        });
        let fabric = fabric.transpose()?;
        let mut variables: Vec<EnvironmentVariable> = vec![("PLEACH_MPI_REPORT", folder.report().into_os_string())];
        let of_fabric = fabric.as_ref().map(LocalFabric::variables).unwrap_or_default();
        variables.extend(of_fabric.into_iter().map(|(name, value)| (name, value.into())));
        variables.extend(manager.map(|manager| ("PLEACH_MANAGER", manager.into())));
        variables.extend(plan.map(|plan| (fault_file::VARIABLE, plan.into_os_string())));
        let pretended = self.ranks_per_host.or((self.nodes.is_some() && self.listen.is_none()).then_some(1));
        variables.extend(pretended.map(|ranks| ("PLEACH_MPI_RANKS_PER_HOST", ranks.to_string().into())));
        variables.extend_from_slice(more);
        let (line, environment) = launcher.with(command, &library, &variables)?;
        let mut command = launch_rank_command(&lab::local_fabric::own_executable()?, None);
        command.args(line).envs(environment);
        Ok(PreparedJob { command, fabric, launcher })
    }
}

/// A folder for the report, which goes with it.
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

    /// Where rank 0 reports.
    pub(crate) fn report(&self) -> PathBuf {
        self.0.join("report.json")
    }
}

impl Drop for ReportFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
