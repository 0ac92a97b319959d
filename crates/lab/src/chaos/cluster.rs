//! The processes of a round on their hosts: a manager, aggregation nodes, and the ranks of one job.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::{CREDENTIAL_VARIABLE, ClusterSecret, DEFAULT_CREDENTIAL_LIFETIME, JobCredential, ManagerClient};
use namespaces::NamespaceError;
use namespaces::hosts::{Direction, HostLink, Hosts, HostsBuilder, Wiring};
use nix::sys::signal::Signal;

use super::plan::{ChaosAction, ChaosPlan, ClusterShape, LinkChange, ProcessRef};
use super::rank::AfterLoss;
use crate::local_fabric::child_process::{ChildProcess, OutputLine, StderrMode, launch_rank_command};
use crate::local_fabric::{describe_exit_status, own_executable, random_hex, without_settings};

const MANAGER_PORT: u16 = 4797;
const RENDEZVOUS_PORT: u16 = 7411;
/// For the manager and the nodes to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Lines on the standard output of the manager and of holders of mount namespaces carry this number; those of ranks carry the rank.
const NOT_A_RANK: u32 = u32::MAX;

/// Hosts and what runs on them. Dropping it ends all processes, then the hosts.
pub(super) struct Cluster {
    manager: ChildProcess,
    nodes: Vec<ChildProcess>,
    ranks: Vec<ChildProcess>,
    /// Each keeps the mount namespace of a host.
    shm_holders: Vec<(u32, ChildProcess)>,
    /// Processes that were killed on purpose.
    killed: Vec<ProcessRef>,
    starter: ProcessStarter,
    hosts: Hosts,
}

/// Makes the commands of all processes.
struct ProcessStarter {
    own: PathBuf,
    secret: String,
    job: String,
    token: String,
    shape: ClusterShape,
}

impl Cluster {
    /// Starts everything; lines of ranks go to the receiver. Call it from a thread that lives on: its children end with it.
    ///
    /// # Errors
    /// Network namespaces cannot be created, or a process does not start.
    pub(super) fn start(plan: &ChaosPlan, stop_file: &Path) -> Result<(Self, Receiver<OutputLine>)> {
        let shape = plan.shape.clone();
        let mut builder = HostsBuilder::new(shape.all_hosts(), shape.links as usize);
        builder = builder.wiring(Wiring::Switched).mtu(shape.mtu_bytes);
        let hosts = builder.build().map_err(explain_missing_rights)?;
        for host in 0..shape.all_hosts() {
            // Multicast needs a route of its own: the subnet route does not cover it.
            hosts.host(host).ip("route add 224.0.0.0/4 dev link0\n")?;
        }
        let (own, secret) = (own_executable()?, random_hex()?);
        let job = format!("chaos-{}-{}", std::process::id(), &random_hex()?[..8]);
        let starter = ProcessStarter { own, secret, job, token: random_hex()?, shape };
        let (sender, lines) = channel();
        let manager = starter.manager(&hosts)?;
        let nodes = (0..plan.shape.nodes).map(|node| starter.node(&hosts, node)).collect::<Result<_>>()?;
        let (ranks, shm_holders, killed) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Self { manager, nodes, ranks, shm_holders, killed, starter, hosts };
        cluster.wait_for_nodes()?;
        cluster.hold_small_shm()?;
        for rank in 0..plan.shape.ranks() {
            let mut command = cluster.rank_command(plan, rank, stop_file)?;
            let listener = Some((rank, Sender::clone(&sender)));
            let name = format!("rank {rank}");
            cluster.ranks.push(ChildProcess::start(&name, &mut command, StderrMode::Captured, listener)?);
        }
        Ok((cluster, lines))
    }

    fn manager_client(&self) -> Result<ManagerClient> {
        let address = self.starter.manager_address(&self.hosts);
        let host = self.hosts.host(self.starter.shape.manager_host());
        let secret = ClusterSecret::new(&self.starter.secret).context("invalid random secret")?;
        let connect = move || ManagerClient::connect(address, Some(secret), MANAGER_TIMEOUT);
        host.inside(connect)?.context("cannot query the manager")
    }

    /// Operations that a node has reduced since it was last started, as it reports to the manager; none while it is not registered.
    ///
    /// # Errors
    /// The manager does not answer.
    pub(super) fn operations_of(&self, node: u32) -> Result<Option<u64>> {
        let status = self.manager_client()?.status().context("cannot query the manager")?;
        let name = ProcessRef::Node(node).to_string();
        Ok(status.nodes.iter().find(|found| found.alive && found.name == name).map(|found| found.report.operations))
    }

    fn wait_for_nodes(&mut self) -> Result<()> {
        let (began, mut client) = (Instant::now(), self.manager_client()?);
        let alive = |client: &mut ManagerClient| -> Result<usize> {
            let status = client.status().context("cannot query the manager")?;
            Ok(status.nodes.iter().filter(|node| node.alive).count())
        };
        while alive(&mut client)? < self.nodes.len() {
            ensure!(
                began.elapsed() < START_TIMEOUT,
                "not all nodes register with the manager{}",
                self.stderr_lines()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn hold_small_shm(&mut self) -> Result<()> {
        let Some((host, bytes)) = self.starter.shape.small_shm else { return Ok(()) };
        let mut command = self.starter.command(&self.hosts, host as usize);
        command.args(["chaos-rank", "--hold-shm-bytes", &bytes.to_string()]);
        let (sender, lines) = channel();
        let mut holder =
            ChildProcess::start("/dev/shm", &mut command, StderrMode::Captured, Some((NOT_A_RANK, sender)))?;
        if !matches!(lines.recv_timeout(START_TIMEOUT), Ok((_, Some(line))) if line == "ready") {
            holder.kill_and_wait();
            bail!("a small /dev/shm cannot be mounted{}", holder.last_stderr_lines());
        }
        self.shm_holders.push((host, holder));
        Ok(())
    }

    fn rank_command(&self, plan: &ChaosPlan, rank: u32, stop_file: &Path) -> Result<Command> {
        let (starter, shape) = (&self.starter, &plan.shape);
        let host = shape.host_of(rank);
        let mut command = starter.command(&self.hosts, host as usize);
        command.arg("chaos-rank").args(["--seed", &plan.seed.to_string()]).arg("--stop-file").arg(stop_file);
        command.args(["--after-loss", if plan.after_loss == AfterLoss::Shrink { "shrink" } else { "end" }]);
        if let Some((_, holder)) = self.shm_holders.iter().find(|(held, _)| *held == host) {
            command.args(["--mount-namespace", &format!("/proc/{}/ns/mnt", holder.id())]);
        }
        if let Some((limited, limit)) = shape.few_descriptors
            && limited == rank
        {
            command.args(["--descriptors", &limit.to_string()]);
        }
        let addresses: Vec<String> =
            (0..shape.links).map(|link| self.link(host as usize, link).address().to_string()).collect();
        let secret = ClusterSecret::new(&starter.secret).context("invalid random secret")?;
        let credential = JobCredential::issue(&secret, DEFAULT_CREDENTIAL_LIFETIME)?;
        command.env_remove("PLEACH_SECRET").env(CREDENTIAL_VARIABLE, credential.to_text());
        command.env("PLEACH_RANK", rank.to_string()).env("PLEACH_SIZE", shape.ranks().to_string());
        command.env("PLEACH_JOB", &starter.job).env("PLEACH_TOKEN", &starter.token);
        command.env("PLEACH_RENDEZVOUS", format!("{}:{RENDEZVOUS_PORT}", self.link(0, 0).address()));
        command.env("PLEACH_HOST", format!("host{host}")).env("PLEACH_ADDRESSES", addresses.join(","));
        if shape.nodes > 0 {
            command.env("PLEACH_MANAGER", starter.manager_address(&self.hosts).to_string());
        }
        command.envs(shape.algorithm.map(|algorithm| ("PLEACH_ALGORITHM", algorithm)));
        Ok(command)
    }

    fn link(&self, host: usize, link: u32) -> HostLink<'_> {
        self.hosts.link(host, link as usize)
    }

    /// Does something to the cluster. A process that has ended already is left alone.
    ///
    /// # Errors
    /// The link cannot be changed, or the process cannot be started.
    pub(super) fn act(&mut self, action: &ChaosAction) -> Result<()> {
        match action {
            ChaosAction::Kill(process) => {
                self.killed.push(*process);
                self.process(*process).signal(Signal::SIGKILL);
            }
            ChaosAction::Stop(process) => self.process(*process).signal(Signal::SIGSTOP),
            ChaosAction::Continue(process) => self.process(*process).signal(Signal::SIGCONT),
            ChaosAction::Restart(process) => self.restart(*process)?,
            ChaosAction::Link { host, link, change } => {
                let changed = change_link(self.link(*host, *link), change);
                changed.with_context(|| format!("cannot change link {link} of host {host}: {change:?}"))?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, process: ProcessRef) -> Result<()> {
        self.process(process).kill_and_wait();
        match process {
            ProcessRef::Manager => self.manager = self.starter.manager(&self.hosts)?,
            ProcessRef::Node(node) => self.nodes[node as usize] = self.starter.node(&self.hosts, node)?,
            ProcessRef::Rank(rank) => bail!("rank {rank} cannot be started again"),
        }
        self.killed.retain(|killed| *killed != process);
        Ok(())
    }

    fn process(&mut self, process: ProcessRef) -> &mut ChildProcess {
        match process {
            ProcessRef::Manager => &mut self.manager,
            ProcessRef::Node(node) => &mut self.nodes[node as usize],
            ProcessRef::Rank(rank) => &mut self.ranks[rank as usize],
        }
    }

    /// A rank.
    pub(super) fn rank(&mut self, rank: u32) -> &mut ChildProcess {
        &mut self.ranks[rank as usize]
    }

    /// The manager and nodes that have ended although nobody killed them, and how.
    pub(super) fn services_that_ended(&mut self) -> Vec<String> {
        let nodes = (0..self.nodes.len() as u32).map(ProcessRef::Node);
        let unharmed: Vec<ProcessRef> =
            std::iter::once(ProcessRef::Manager).chain(nodes).filter(|one| !self.killed.contains(one)).collect();
        let mut ended = Vec::new();
        for service in unharmed {
            let process = self.process(service);
            if let Some(status) = process.ended() {
                ended.push(format!("{service} {}{}", describe_exit_status(status), process.last_stderr_lines()));
            }
        }
        ended
    }

    fn stderr_lines(&self) -> String {
        std::iter::once(&self.manager).chain(&self.nodes).map(ChildProcess::last_stderr_lines).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        bootstrap::remove_stale_rendezvous_file(&self.starter.job);
    }
}

impl ProcessStarter {
    /// This program, on a host, without the user's settings.
    fn command(&self, hosts: &Hosts, host: usize) -> Command {
        let mut command = launch_rank_command(&self.own, Some(&hosts.host(host).namespace_path()));
        command.arg(&self.own);
        without_settings(&mut command);
        command.env("PLEACH_SECRET", &self.secret);
        command
    }

    fn manager_address(&self, hosts: &Hosts) -> SocketAddr {
        (hosts.link(self.shape.manager_host(), 0).address(), MANAGER_PORT).into()
    }

    /// Returns when it listens.
    fn manager(&self, hosts: &Hosts) -> Result<ChildProcess> {
        let mut command = self.command(hosts, self.shape.manager_host());
        command.args(["manager", "--listen", &self.manager_address(hosts).to_string()]);
        let (sender, lines) = channel();
        let mut manager =
            ChildProcess::start("manager", &mut command, StderrMode::Captured, Some((NOT_A_RANK, sender)))?;
        match lines.recv_timeout(START_TIMEOUT) {
            Ok((_, Some(_))) => Ok(manager),
            _ => {
                manager.kill_and_wait();
                bail!("the manager does not start{}", manager.last_stderr_lines())
            }
        }
    }

    fn node(&self, hosts: &Hosts, node: u32) -> Result<ChildProcess> {
        let host = self.shape.node_host(node);
        let mut command = self.command(hosts, host);
        let name = ProcessRef::Node(node).to_string();
        command.args(["node", "--manager", &self.manager_address(hosts).to_string(), "--name", &name]);
        for link in 0..self.shape.links as usize {
            command.args(["--listen", &format!("{}:0", hosts.link(host, link).address())]);
        }
        if node > 0 {
            command.args(["--parent", &ProcessRef::Node(0).to_string()]);
        }
        ChildProcess::start(&name, &mut command, StderrMode::Captured, None)
    }
}

fn change_link(link: HostLink<'_>, change: &LinkChange) -> Result<(), NamespaceError> {
    match change {
        LinkChange::Down => link.down(),
        LinkChange::Up => link.up(),
        LinkChange::Unplug => link.unplug(),
        LinkChange::PlugIn => link.plug_in(),
        LinkChange::RemoveAddress => link.remove_address(),
        LinkChange::RestoreAddress => link.restore_address(),
        LinkChange::MoveToOtherSwitch => link.move_to_other_switch(),
        LinkChange::Drop(direction) => link.drop_silently(*direction),
        LinkChange::Lose { one_in } => link.lose(Direction::Both, *one_in),
        LinkChange::Corrupt(corruption) => link.corrupt(Direction::Both, corruption.clone()),
        LinkChange::Duplicate { one_in } => link.duplicate(Direction::Both, *one_in),
        LinkChange::Reorder { one_in } => link.reorder(Direction::Both, *one_in),
        LinkChange::Clear => link.clear_faults(),
        LinkChange::Mtu(bytes) => link.set_mtu(*bytes),
    }
}

/// Says what a user can do who may not have network namespaces.
fn explain_missing_rights(error: NamespaceError) -> anyhow::Error {
    let is_missing = matches!(error, NamespaceError::Missing(_));
    let error = anyhow::Error::new(error);
    if is_missing {
        error.context("cannot create the hosts of a round; run it as root (sudo pleach chaos), or in a container with --privileged")
    } else {
        error
    }
}
