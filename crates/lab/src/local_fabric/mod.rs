//! A manager and aggregation nodes as children of a command, for `pleach demo`, and for `pleach launch` and `pleach exec` with --nodes.
//!
//! In: how many nodes, and where: on this machine, or on hosts made of network namespaces. Out: the variables by which ranks
//! find them. They are this very program (`pleach manager`, `pleach node`) with a secret of their own. They end with the
//! [`LocalFabric`], and with this process however that ends.
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
use control::{ClusterSecret, ManagerClient};
use manager::status::ManagerStatus;
use namespaces::NamespaceNetwork;
use nix::sys::signal::Signal;

use child_process::{ChildProcess, OutputLine, StderrMode};

/// For manager and nodes to come up.
const PATIENCE: Duration = Duration::from_secs(20);
/// For the manager to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(10);
/// Between asking manager and nodes to end and ending them.
const LAST_CALL: Duration = Duration::from_millis(500);

/// Nodes at most: a root and its leaves.
pub const MOST_NODES: u32 = 64;

/// What is wanted.
pub struct LocalFabricSpec<'a> {
    /// Nodes: one root, and the others are leaves below it, which share the hosts.
    pub nodes: u32,
    /// Where they run.
    pub site: FabricSite<'a>,
    /// Faults in what nodes send.
    pub faults: Option<&'a Path>,
    /// What becomes of what they log.
    pub voice: StderrMode,
}

/// Where manager and nodes run.
#[derive(Clone, Copy)]
pub enum FabricSite<'a> {
    /// Beside this process.
    Loopback,
    /// The same, at an address that other hosts reach.
    Here(IpAddr),
    /// On hosts of their own from this number on: the manager first, then the nodes.
    Hosts { network: &'a NamespaceNetwork, first: usize },
}

/// How many hosts a fabric of so many nodes takes.
pub fn hosts_for(nodes: u32) -> usize {
    nodes as usize + 1
}

/// A manager and nodes that know each other.
pub struct LocalFabric {
    address: SocketAddr,
    secret: String,
    client: ManagerClient,
    /// The manager first, then the nodes, the root first.
    services: Vec<ChildProcess>,
}

impl LocalFabric {
    /// Starts them, and returns when the manager knows all nodes. To be called by a thread that stays: its children end with
    /// it.
    pub fn start(plan: &LocalFabricSpec<'_>) -> Result<Self> {
        let starter = FabricStarter { own: own_executable()?, secret: random_hex()?, plan };
        let (manager, heard) = starter.manager()?;
        let mut services = vec![manager];
        let address = first_line(&mut services[0], &heard)?;
        let address: SocketAddr = address.parse().with_context(|| format!("the manager's address: {address:?}"))?;
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
                    bail!("{} {}{}", service.name(), how(status), service.last_words());
                }
            }
            if began.elapsed() > PATIENCE {
                let words: String = self.services.iter().map(ChildProcess::last_words).collect();
                bail!("the manager does not know all {nodes} nodes after {PATIENCE:?}{words}");
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// What ranks must know to find the manager.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("PLEACH_MANAGER", self.address.to_string()), ("PLEACH_SECRET", self.secret.clone())]
    }

    /// How things are, as the manager sees it.
    pub fn status(&mut self) -> Result<ManagerStatus> {
        self.client.status().context("the manager of the nodes")
    }

    /// Kills a node by its process number, which is returned.
    pub fn kill(&mut self, name: &str) -> Result<u32> {
        let found = self.services.iter_mut().find(|service| service.name() == name);
        found.with_context(|| format!("there is no {name}"))?.kill()
    }

    /// Processor time that nodes have taken so far.
    pub fn processor_micros(&self) -> f64 {
        self.services[1..].iter().map(ChildProcess::processor_micros).sum()
    }

    /// Memory of a node that is in use, in MiB.
    pub fn resident_mib(&self, name: &str) -> Result<f64> {
        let found = self.services.iter().find(|service| service.name() == name);
        found.with_context(|| format!("there is no {name}"))?.resident_mib()
    }

    /// One more word with the manager, on loopback.
    pub fn another_client(&self) -> Result<ManagerClient> {
        let secret = ClusterSecret::new(&self.secret).context("a random secret")?;
        ManagerClient::connect(self.address, Some(secret), ANSWER).context("the manager of the nodes")
    }

    /// Manager and nodes that have ended since this was last asked, and how.
    pub fn newly_ended(&mut self) -> Vec<(String, String)> {
        let ended = |service: &mut ChildProcess| Some((service.name().to_owned(), how(service.newly_ended()?)));
        self.services.iter_mut().filter_map(ended).collect()
    }
}

impl Drop for LocalFabric {
    fn drop(&mut self) {
        self.services.iter_mut().for_each(|service| service.signal(Signal::SIGTERM));
        let began = Instant::now();
        while began.elapsed() < LAST_CALL && self.services.iter_mut().any(|service| service.ended().is_none()) {
            std::thread::sleep(GLANCE);
        }
        // Whoever is left ends with its service.
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
        let (say, heard) = channel();
        let service = ChildProcess::start("manager", &mut command, self.plan.voice, Some((0, say)))?;
        Ok((service, heard))
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
        ChildProcess::start(&name, &mut command, self.plan.voice, None)
    }

    fn command(&self, service: u32) -> Command {
        let namespace = match self.plan.site {
            FabricSite::Loopback | FabricSite::Here(_) => None,
            FabricSite::Hosts { network, first } => Some(network.host(first + service as usize).entrance()),
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
            FabricSite::Here(IpAddr::V6(address)) => format!("[{address}]"),
            FabricSite::Here(address) => address.to_string(),
            FabricSite::Hosts { network, first } => network.host(first + service as usize).address().to_string(),
        }
    }

    fn client(&self, manager: SocketAddr) -> Result<ManagerClient> {
        let secret = ClusterSecret::new(&self.secret).context("a random secret")?;
        let connect = move || ManagerClient::connect(manager, Some(secret), ANSWER);
        let client = match self.plan.site {
            FabricSite::Loopback | FabricSite::Here(_) => connect(),
            // A socket stays where it was made.
            FabricSite::Hosts { network, first } => network.host(first).inside(connect)?,
        };
        client.context("the manager of the nodes")
    }
}

/// Where the manager listens.
fn first_line(manager: &mut ChildProcess, heard: &Receiver<OutputLine>) -> Result<String> {
    match heard.recv_timeout(PATIENCE) {
        Ok((_, Some(line))) => Ok(line),
        _ => {
            let status = manager.kill_and_wait();
            bail!("the manager does not start: it {}{}", how(status), manager.last_words())
        }
    }
}

/// What the user has set for managers, nodes or jobs of their own is not for ours; how much is logged is.
fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("PLEACH_") && !text.starts_with("PLEACH_LOG") {
            command.env_remove(&name);
        }
    }
}

/// How a process ended, in words.
pub fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => {
            let name =
                Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.to_string());
            format!("was ended by {name}")
        }
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// This very program.
pub fn own_executable() -> Result<PathBuf> {
    std::env::current_exe().context("this program cannot find itself")
}

/// 128 random bits.
pub fn random_hex() -> Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
