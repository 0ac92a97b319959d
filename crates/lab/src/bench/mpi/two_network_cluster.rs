//! A program over the provider on hosts with two networks and a third one for the launcher, and perhaps a cable that is pulled.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use namespaces::hosts::{Direction, Hosts, HostsBuilder, Wiring};
use serde::Serialize;

use crate::bench::mpi_installation::MpiInstallation;
use crate::local_fabric::child_process::{ChildProcess, OutputLine};
use crate::mpi::mpi_launcher::EnvironmentVariable;

/// The link whose cable is pulled, the other one, and that of the launcher, which cannot lose its own.
const DATA_LINKS: [usize; 2] = [0, 1];
const LAUNCHER_LINK: usize = 2;
/// Without a line of the program for this long, the run has failed.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How a cable is pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CablePull {
    /// The host's own link is down, as its kernel says.
    Noticed,
    /// The link drops everything and says nothing.
    Silent,
}

/// When which host loses its link.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedPull {
    pub(super) kind: CablePull,
    pub(super) host: usize,
    pub(super) after: Duration,
}

/// Whether the provider checksums what it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProviderChecksums {
    On,
    Off,
}

/// What a program said of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramOutcome {
    pub(super) seconds: f64,
    pub(super) is_right: bool,
    /// Its speed at the end over that at the beginning, if it measures that.
    pub(super) slowdown: Option<f64>,
}

/// The hosts, one for each rank, and how ranks are started on them.
pub(super) struct TwoNetworkCluster<'a> {
    mpi: &'a MpiInstallation,
    hosts: Hosts,
    ranks: usize,
    agent: PathBuf,
    provider: &'a Path,
}

impl<'a> TwoNetworkCluster<'a> {
    /// # Errors
    /// If there can be no namespaces, or a file cannot be written.
    pub(super) fn new(mpi: &'a MpiInstallation, ranks: usize, provider: &'a Path, scratch: &Path) -> Result<Self> {
        let hosts = HostsBuilder::new(ranks, 3).wiring(Wiring::Switched).build()?;
        let agent = scratch.join("agent");
        // Options of ssh come first. From equal host names Open MPI concludes that the ranks share one host.
        let mut text =
            "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nto=$1; shift\ncase $to in\n".to_owned();
        for (host, name) in hosts.namespaces().into_iter().take(ranks).enumerate() {
            let addresses = data_addresses(&hosts, host);
            text += &format!("{}) space={name} data={addresses} ;;\n", hosts.link(host, LAUNCHER_LINK).address());
        }
        text += "esac\nexport PLEACH_ADDRESSES=$data\nexec ip netns exec $space unshare -u sh -c \"hostname $space; $*\"\n";
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&agent)?;
        file.write_all(text.as_bytes())?;
        Ok(Self { mpi, hosts, ranks, agent, provider })
    }

    /// Runs the program with arguments; pulls a cable after it said "begin", if that is planned, and plugs it in afterwards.
    ///
    /// # Errors
    /// If the run ends early or hangs, or the cable cannot be pulled.
    pub(super) fn run(
        &self,
        arguments: &[String],
        checksums: ProviderChecksums,
        pull: Option<PlannedPull>,
    ) -> Result<ProgramOutcome> {
        let line = self.mpi.peer_command_line(&self.options(), self.ranks as u32, arguments);
        let environment: Vec<EnvironmentVariable> = vec![
            ("FI_PROVIDER_PATH", self.provider.as_os_str().to_owned()),
            ("FI_PROVIDER", "pleach".into()),
            ("PLEACH_ADDRESSES", data_addresses(&self.hosts, 0).into()),
            ("PLEACH_MESSAGES_CHECKSUM", if checksums == ProviderChecksums::On { "on" } else { "off" }.into()),
        ];
        let first = self.hosts.namespaces()[0];
        let outcome = self.mpi.run_command_line(&line, environment, Some(first), |output, launcher| {
            collect(output, launcher, || pull.map_or(Ok(()), |pull| self.pull(pull)))
        });
        let mended = pull.map_or(Ok(()), |pull| self.mend(pull));
        let what =
            || format!("{}, {}", arguments.join(" "), pull.map_or("no fault".to_owned(), |pull| format!("{pull:?}")));
        let outcome = outcome.with_context(what)?;
        mended.with_context(what)?;
        Ok(outcome)
    }

    fn options(&self) -> Vec<String> {
        let addresses = (0..self.ranks).map(|host| format!("{}:1", self.hosts.link(host, LAUNCHER_LINK).address()));
        let (agent, launcher_network) = (self.agent.display().to_string(), format!("10.7.{LAUNCHER_LINK}.0/24"));
        let list = Vec::from_iter(addresses).join(",");
        let (prefix, agent_name) =
            if self.mpi.is_open_mpi_5() { ("--prtemca", "plm_ssh_agent") } else { ("--mca", "plm_rsh_agent") };
        let tree = agent_name.replace("agent", "no_tree_spawn");
        let network_name = if self.mpi.is_open_mpi_5() { "prte_if_include" } else { "oob_tcp_if_include" };
        let sharing: &[&str] =
            if self.mpi.is_open_mpi_5() { &["--map-by", ":OVERSUBSCRIBE"] } else { &["--oversubscribe"] };
        let others = [
            &["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--host", list.as_str()][..],
            &[
                prefix,
                agent_name,
                agent.as_str(),
                prefix,
                tree.as_str(),
                "1",
                prefix,
                network_name,
                launcher_network.as_str(),
            ],
            &["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "pleach"],
            &["-x", "FI_PROVIDER_PATH", "-x", "FI_PROVIDER", "-x", "PLEACH_MESSAGES_CHECKSUM"],
        ];
        sharing.iter().chain(others.concat().iter()).map(|option| (*option).to_owned()).collect()
    }

    fn pull(&self, PlannedPull { kind, host, after }: PlannedPull) -> Result<()> {
        std::thread::sleep(after);
        let link = self.hosts.link(host, DATA_LINKS[0]);
        match kind {
            CablePull::Noticed => link.down()?,
            CablePull::Silent => link.drop_silently(Direction::Both)?,
        }
        Ok(())
    }

    fn mend(&self, PlannedPull { kind, host, .. }: PlannedPull) -> Result<()> {
        let link = self.hosts.link(host, DATA_LINKS[0]);
        match kind {
            CablePull::Noticed => link.up()?,
            CablePull::Silent => link.heal()?,
        }
        Ok(())
    }
}

fn data_addresses(hosts: &Hosts, host: usize) -> String {
    DATA_LINKS.map(|link| hosts.link(host, link).address().to_string()).join(",")
}

/// Waits for the program's two lines, with the pull between them.
fn collect(
    output: &Receiver<OutputLine>,
    launcher: &[ChildProcess],
    pull: impl Fn() -> Result<()>,
) -> Result<ProgramOutcome> {
    let said = || launcher.iter().map(ChildProcess::last_stderr_lines).collect::<String>();
    loop {
        match output.recv_timeout(TIMEOUT) {
            Ok((_, Some(line))) if line == "begin" => pull()?,
            Ok((_, Some(line))) => {
                let Some(rest) = line.strip_prefix("took ") else { continue };
                let mut words = rest.split(' ');
                let (Some(seconds), Some(verdict)) = (words.next(), words.next()) else {
                    bail!("malformed: {line:?}")
                };
                ensure!(matches!(verdict, "right" | "WRONG"), "malformed: {line:?}");
                let slowdown = words.next().map(str::parse).transpose()?;
                return Ok(ProgramOutcome { seconds: seconds.parse()?, is_right: verdict == "right", slowdown });
            }
            Ok((_, None)) | Err(RecvTimeoutError::Disconnected) => bail!("the run ended early{}", said()),
            Err(RecvTimeoutError::Timeout) => bail!("the run hangs{}", said()),
        }
    }
}
