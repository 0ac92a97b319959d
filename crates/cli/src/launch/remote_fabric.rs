//! A manager and aggregation nodes on the hosts of a job, for `pleach launch --nodes` with hosts or in an allocation.
//!
//! In: the hosts and the number of nodes. Out: the variables by which ranks find them. The manager and the first node run on the first
//! host, further nodes on the next hosts in turn. Each is started as a host's ranks are, by the agent; all end with the job.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::{CREDENTIAL_VARIABLE, ClusterSecret, DEFAULT_CREDENTIAL_LIFETIME, JobCredential, ManagerClient};
use lab::local_fabric::signals::{SignalQueue, TERMINATION};
use lab::local_fabric::{fault_file, node_name, random_hex};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use transport::udp::local_address_towards;

use super::host_agent::HostJob;
use super::host_list::{HostRanks, address_of};
use super::host_start::{HostStarter, StartingHosts};

/// For the manager and all nodes to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// For the manager to answer.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Between two signs of life: without them the services end.
const SIGN_OF_LIFE_INTERVAL: Duration = Duration::from_secs(1);
/// For the services to end before they are killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What to start.
pub(super) struct RemoteFabricSpec<'a> {
    /// One root, and leaves that share the hosts.
    pub(super) nodes: u32,
    /// Faults to inject into packets of nodes.
    pub(super) faults: Option<&'a str>,
    pub(super) logs: NodeLogs,
}

/// What is shown of the services' logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeLogs {
    Warnings,
    All,
}

/// The services of a job. Dropping it ends them.
pub(super) struct RemoteFabric {
    services: Vec<RemoteService>,
    manager: SocketAddr,
    secret: String,
    next_sign_of_life: Instant,
}

struct RemoteService {
    name: String,
    /// Its stdin stays open: the service ends with it.
    agent: Child,
}

impl RemoteFabric {
    /// Starts them, and returns when all nodes have registered.
    pub(super) fn start(
        starter: &HostStarter<'_>,
        hosts: &[HostRanks],
        plan: &RemoteFabricSpec<'_>,
        signals: &SignalQueue,
    ) -> Result<Self> {
        let address = manager_address(hosts)?;
        let mut first = StartingHosts::start(starter, [&hosts[0].name[..]])?;
        let port = first.reserve_port(signals)?;
        let mut agent = first.into_agents().pop().context("the first host has an agent")?;
        forward_output(&mut agent);
        let manager = SocketAddr::new(address, port);
        let next_sign_of_life = Instant::now();
        let mut fabric = Self { services: Vec::new(), manager, secret: random_hex()?, next_sign_of_life };
        let any: IpAddr = if address.is_ipv6() { [0; 16].into() } else { [0; 4].into() };
        let listen = SocketAddr::new(any, port).to_string();
        fabric.add(starter, plan, "the manager".to_owned(), agent, ["manager", "--listen", &listen])?;
        for number in 0..plan.nodes {
            let host = &hosts[number as usize % hosts.len()].name;
            let (name, root, manager) = (node_name(number), node_name(0), manager.to_string());
            let mut arguments = vec!["node", "--manager", &manager, "--name", &name];
            if number > 0 {
                arguments.extend(["--parent", &root]);
            }
            let agent = starter.start(host, Stdio::null(), Stdio::inherit())?;
            fabric.add(starter, plan, format!("node {name} on {host}"), agent, arguments)?;
        }
        fabric.wait_for_nodes(plan.nodes as usize, signals)?;
        Ok(fabric)
    }

    fn add<'a>(
        &mut self,
        starter: &HostStarter<'_>,
        plan: &RemoteFabricSpec<'_>,
        name: String,
        mut agent: Child,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<()> {
        let level = if plan.logs == NodeLogs::All { "info" } else { "warn" };
        let mut variables =
            vec![("PLEACH_SECRET".to_owned(), self.secret.clone()), ("PLEACH_LOG".to_owned(), level.to_owned())];
        variables.extend(plan.faults.map(|faults| (fault_file::VARIABLE.to_owned(), faults.to_owned())));
        let program =
            std::iter::once(starter.remote_pleach()?).chain(arguments.into_iter().map(str::to_owned)).collect();
        let job = HostJob {
            first_rank: 0,
            ranks: 1,
            folder: "/".into(),
            variables,
            program,
            prefix: false,
            grace_seconds: END_TIMEOUT.as_secs_f64(),
            service: Some(name.clone()),
            input: None,
        };
        let stdin = agent.stdin.as_mut().context("the agent has a stdin")?;
        // If it has ended already, the wait for the nodes reports how.
        let _ = writeln!(stdin, "{}", serde_json::to_string(&job)?);
        self.services.push(RemoteService { name, agent });
        Ok(())
    }

    fn wait_for_nodes(&mut self, nodes: usize, signals: &SignalQueue) -> Result<()> {
        let began = Instant::now();
        loop {
            while let Some(signal) = signals.next() {
                ensure!(!TERMINATION.contains(&signal), "interrupted by {signal}");
            }
            if let Some(ended) = self.watch().first() {
                bail!("{ended} before the job began");
            }
            let registered = self.registered_nodes();
            if registered.as_ref().is_ok_and(|registered| *registered >= nodes) {
                return Ok(());
            }
            if began.elapsed() > START_TIMEOUT {
                let (seconds, manager) = (START_TIMEOUT.as_secs(), self.manager);
                match registered {
                    Ok(registered) => bail!(
                        "{registered} of {nodes} nodes registered with the manager at {manager} within {seconds} s; do the hosts reach \
                         each other at that address?"
                    ),
                    Err(error) => bail!("the manager at {manager} does not answer within {seconds} s: {error:#}"),
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn registered_nodes(&self) -> Result<usize> {
        let secret = ClusterSecret::new(&self.secret).context("invalid random secret")?;
        let status = ManagerClient::connect(self.manager, Some(secret), MANAGER_TIMEOUT)?.status()?;
        Ok(status.nodes.iter().filter(|node| node.alive).count())
    }

    /// Gives signs of life, and returns the services that have ended since the last call. Call it every few seconds.
    pub(super) fn watch(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        let is_due = Instant::now() >= self.next_sign_of_life;
        if is_due {
            self.next_sign_of_life = Instant::now() + SIGN_OF_LIFE_INTERVAL;
        }
        self.services.retain_mut(|service| {
            if is_due {
                let _ = service.agent.stdin.as_mut().map(|stdin| writeln!(stdin));
            }
            match service.agent.try_wait() {
                Ok(Some(status)) => {
                    ended.push(format!("{} ended ({status})", service.name));
                    false
                }
                _ => true,
            }
        });
        ended
    }

    /// The variables by which ranks find the manager, with a credential for the job.
    pub(super) fn variables(&self) -> Result<Vec<(&'static str, String)>> {
        let secret = ClusterSecret::new(&self.secret).context("invalid random secret")?;
        let credential = JobCredential::issue(&secret, DEFAULT_CREDENTIAL_LIFETIME)?;
        Ok(vec![
            ("PLEACH_MANAGER", self.manager.to_string()),
            (CREDENTIAL_VARIABLE, credential.to_text()),
            ("PLEACH_NODES_SUPERVISED", "1".to_owned()),
        ])
    }
}

impl Drop for RemoteFabric {
    fn drop(&mut self) {
        for service in &mut self.services {
            drop(service.agent.stdin.take());
        }
        let began = Instant::now();
        for service in &mut self.services {
            while began.elapsed() < END_TIMEOUT && matches!(service.agent.try_wait(), Ok(None)) {
                std::thread::sleep(POLL_INTERVAL);
            }
            if matches!(service.agent.try_wait(), Ok(None)) {
                let _ = killpg(Pid::from_raw(service.agent.id().cast_signed()), Signal::SIGKILL);
            }
            let _ = service.agent.wait();
        }
    }
}

/// Shows what an agent writes to stderr, and drops the rest: a pipe that nobody reads would stop it.
fn forward_output(agent: &mut Child) {
    let (stdout, stderr) = (agent.stdout.take(), agent.stderr.take());
    std::thread::spawn(move || stdout.map(|mut stdout| std::io::copy(&mut stdout, &mut std::io::sink())));
    std::thread::spawn(move || stderr.map(|mut stderr| copy_lines(&mut stderr)));
}

fn copy_lines(from: &mut impl Read) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let _ = std::io::stderr().write_all(&bytes[..count]);
    }
}

/// Where other hosts reach the first one. Its own name often means loopback there; then its address towards the next host counts.
fn manager_address(hosts: &[HostRanks]) -> Result<IpAddr> {
    let resolve = |host: &HostRanks| -> Result<IpAddr> {
        let name = address_of(&host.name);
        let mut found =
            format!("{name}:0").to_socket_addrs().with_context(|| format!("cannot resolve the host {name}"))?;
        found.next().map(|address| address.ip()).with_context(|| format!("the host {name} has no address"))
    };
    let first = resolve(&hosts[0])?;
    match hosts.get(1) {
        Some(next) if first.is_loopback() => {
            let next = resolve(next)?;
            local_address_towards(SocketAddr::new(next, 9)).with_context(|| format!("no route to {next}"))
        }
        _ => Ok(first),
    }
}
