//! A manager and aggregation nodes as children of a command, for `pleach demo`, and for `pleach launch` and `pleach exec` with --nodes.
//!
//! In: how many nodes, and where: on this machine, or on hosts made of network namespaces. Out: the environment variables by which
//! ranks find them. The children are this executable (`pleach manager`, `pleach node`) with a secret of their own. They end with the
//! [`LocalFabric`], and with this process however it ends.
//!
//! Reading order: `service.rs` is one child, `ranks.rs` is how a rank is started, `faults.rs` reads plans of faults.

pub mod child_process;
pub mod fault_file;
pub mod rank_launcher;
pub mod signals;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control::{CREDENTIAL_VARIABLE, ClusterSecret, DEFAULT_CREDENTIAL_LIFETIME, JobCredential, ManagerClient};
use manager::status::ManagerStatus;
use namespaces::NamespaceNetwork;
use nix::sys::signal::Signal;

use child_process::{ChildProcess, OutputLine, StderrMode};

/// For the manager and the nodes to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// For the manager to answer.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_millis(500);

/// Maximum number of nodes: a root and its leaves.
pub const MAX_NODES: u32 = 64;

/// What to start.
pub struct LocalFabricSpec<'a> {
    /// Number of nodes: one root, and leaves that share the hosts.
    pub nodes: u32,
    /// Where they run.
    pub site: FabricSite<'a>,
    /// Faults to inject into packets of nodes.
    pub faults: Option<&'a Path>,
    /// What to do with their logs.
    pub stderr: StderrMode,
}

/// Where manager and nodes run.
#[derive(Clone, Copy)]
pub enum FabricSite<'a> {
    /// On loopback.
    Loopback,
    /// On this machine, at an address that other hosts reach.
    Address(IpAddr),
    /// On hosts of their own from this index on: the manager first, then the nodes.
    Hosts {
        /// The hosts.
        network: &'a NamespaceNetwork,
        /// The index of the manager's host.
        first: usize,
    },
}

/// How many hosts a fabric with so many nodes needs.
pub fn hosts_for(nodes: u32) -> usize {
    nodes as usize + 1
}

/// A manager and its nodes. Dropping it ends them.
pub struct LocalFabric {
    address: SocketAddr,
    secret: String,
    client: ManagerClient,
    /// The manager first, then the nodes, the root first.
    services: Vec<ChildProcess>,
}

impl LocalFabric {
    /// Starts them, and returns when all nodes have registered. Call it from a thread that lives on: its children end with it.
    pub fn start(plan: &LocalFabricSpec<'_>) -> Result<Self> {
        let starter = FabricStarter { own: own_executable()?, secret: random_hex()?, plan };
        let (manager, lines) = starter.manager()?;
        let mut services = vec![manager];
        let address = first_line(&mut services[0], &lines)?;
        let address: SocketAddr =
            address.parse().with_context(|| format!("cannot parse the manager's address {address:?}"))?;
        for number in 0..plan.nodes {
            services.push(starter.node(number, address)?);
        }
        let client = starter.client(address)?;
        let mut fabric = Self { address, secret: starter.secret, client, services };
        fabric.wait_for_nodes(plan.nodes as usize)?;
        Ok(fabric)
    }

    fn wait_for_nodes(&mut self, nodes: usize) -> Result<()> {
        let began = Instant::now();
        while self.status()?.nodes.iter().filter(|node| node.alive).count() < nodes {
            for service in &mut self.services {
                if service.ended().is_some() {
                    let status = service.kill_and_wait();
                    bail!("{} {}{}", service.name(), describe_exit_status(status), service.last_stderr_lines());
                }
            }
            if began.elapsed() > START_TIMEOUT {
                let stderr: String = self.services.iter().map(ChildProcess::last_stderr_lines).collect();
                bail!("not all of {nodes} nodes registered with the manager within {START_TIMEOUT:?}{stderr}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The environment variables by which ranks find the manager, with a credential for the job.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn variables(&self) -> Result<Vec<(&'static str, String)>> {
        let secret = ClusterSecret::new(&self.secret).context("invalid random secret")?;
        let credential = JobCredential::issue(&secret, DEFAULT_CREDENTIAL_LIFETIME)?;
        Ok(vec![
            ("PLEACH_MANAGER", self.address.to_string()),
            (CREDENTIAL_VARIABLE, credential.to_text()),
            ("PLEACH_NODES_SUPERVISED", "1".to_owned()),
        ])
    }

    /// The status that the manager reports.
    pub fn status(&mut self) -> Result<ManagerStatus> {
        self.client.status().context("cannot query the local manager")
    }

    /// The process number of a node.
    pub fn process_id(&self, name: &str) -> Option<u32> {
        self.services.iter().find(|service| service.name() == name).map(ChildProcess::id)
    }

    /// Kills a node; returns its process number.
    pub fn kill(&mut self, name: &str) -> Result<u32> {
        let found = self.services.iter_mut().find(|service| service.name() == name);
        found.with_context(|| format!("there is no service named {name}"))?.kill()
    }

    /// CPU time of all nodes so far.
    pub fn processor_micros(&self) -> f64 {
        self.services[1..].iter().map(ChildProcess::processor_micros).sum()
    }

    /// Resident memory of a node, in MiB.
    pub fn resident_mib(&self, name: &str) -> Result<f64> {
        let found = self.services.iter().find(|service| service.name() == name);
        found.with_context(|| format!("there is no service named {name}"))?.resident_mib()
    }

    /// Another connection to the manager, on loopback.
    pub fn another_client(&self) -> Result<ManagerClient> {
        let secret = ClusterSecret::new(&self.secret).context("invalid random secret")?;
        ManagerClient::connect(self.address, Some(secret), MANAGER_TIMEOUT).context("cannot query the local manager")
    }

    /// The services that have ended since the last call, and how.
    pub fn newly_ended(&mut self) -> Vec<(String, String)> {
        let ended = |service: &mut ChildProcess| {
            Some((service.name().to_owned(), describe_exit_status(service.newly_ended()?)))
        };
        self.services.iter_mut().filter_map(ended).collect()
    }
}

impl Drop for LocalFabric {
    fn drop(&mut self) {
        self.services.iter_mut().for_each(|service| service.signal(Signal::SIGTERM));
        let began = Instant::now();
        while began.elapsed() < TERMINATION_GRACE && self.services.iter_mut().any(|service| service.ended().is_none())
        {
            std::thread::sleep(POLL_INTERVAL);
        }
        // Dropping a service kills it.
    }
}

/// The name of a node.
pub fn node_name(number: u32) -> String {
    if number == 0 { "root".to_owned() } else { format!("leaf{number}") }
}

struct FabricStarter<'a> {
    own: PathBuf,
    secret: String,
    plan: &'a LocalFabricSpec<'a>,
}

impl FabricStarter<'_> {
    fn manager(&self) -> Result<(ChildProcess, Receiver<OutputLine>)> {
        let mut command = self.command(0);
        command.args(["manager", "--listen", &format!("{}:0", self.address(0))]);
        let (sender, lines) = channel();
        let service = ChildProcess::start("manager", &mut command, self.plan.stderr, Some((0, sender)))?;
        Ok((service, lines))
    }

    fn node(&self, number: u32, manager: SocketAddr) -> Result<ChildProcess> {
        let mut command = self.command(number + 1);
        let name = node_name(number);
        command.args(["node", "--manager", &manager.to_string(), "--name", &name]);
        command.args(["--listen", &format!("{}:0", self.address(number + 1))]);
        if number > 0 {
            command.args(["--parent", &node_name(0)]);
        }
        if let Some(plan) = self.plan.faults {
            command.env(fault_file::VARIABLE, plan);
        }
        ChildProcess::start(&name, &mut command, self.plan.stderr, None)
    }

    fn command(&self, service: u32) -> Command {
        let namespace = match self.plan.site {
            FabricSite::Loopback | FabricSite::Address(_) => None,
            FabricSite::Hosts { network, first } => Some(network.host(first + service as usize).namespace_path()),
        };
        let mut command = child_process::launch_rank_command(&self.own, namespace.as_deref());
        command.arg(&self.own);
        without_settings(&mut command);
        command.env("PLEACH_SECRET", &self.secret);
        command
    }

    fn address(&self, service: u32) -> String {
        match self.plan.site {
            FabricSite::Loopback => "127.0.0.1".to_owned(),
            FabricSite::Address(IpAddr::V6(address)) => format!("[{address}]"),
            FabricSite::Address(address) => address.to_string(),
            FabricSite::Hosts { network, first } => network.host(first + service as usize).address().to_string(),
        }
    }

    fn client(&self, manager: SocketAddr) -> Result<ManagerClient> {
        let secret = ClusterSecret::new(&self.secret).context("invalid random secret")?;
        let connect = move || ManagerClient::connect(manager, Some(secret), MANAGER_TIMEOUT);
        let client = match self.plan.site {
            FabricSite::Loopback | FabricSite::Address(_) => connect(),
            // A socket stays in the namespace in which it was created.
            FabricSite::Hosts { network, first } => network.host(first).inside(connect)?,
        };
        client.context("cannot query the local manager")
    }
}

/// The manager's first line of output: the address at which it listens.
fn first_line(manager: &mut ChildProcess, lines: &Receiver<OutputLine>) -> Result<String> {
    match lines.recv_timeout(START_TIMEOUT) {
        Ok((_, Some(line))) => Ok(line),
        _ => {
            let status = manager.kill_and_wait();
            bail!("the manager does not start: {}{}", describe_exit_status(status), manager.last_stderr_lines())
        }
    }
}

/// Removes the user's settings for managers, nodes and jobs from the environment, except for logging.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("PLEACH_") && !text.starts_with("PLEACH_LOG") {
            command.env_remove(&name);
        }
    }
}

/// Describes how a process ended.
pub fn describe_exit_status(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => {
            let name =
                Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.to_string());
            format!("was killed by {name}")
        }
        (None, None) => "ended for an unknown reason".to_owned(),
    }
}

/// The path of this executable.
pub fn own_executable() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the path of this executable")
}

/// 128 random bits.
pub fn random_hex() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("cannot get random bits from the kernel: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
