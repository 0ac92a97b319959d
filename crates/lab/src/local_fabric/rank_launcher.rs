//! Commands that start the ranks of a job: the environment and the host of each.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use namespaces::NamespaceNetwork;

use super::{child_process, own_executable, random_hex, without_settings};

/// The rendezvous port on hosts of network namespaces, where it is certainly free.
const RENDEZVOUS_PORT: u16 = 7411;

/// On which hosts the ranks run.
#[derive(Clone, Copy)]
pub enum RankHosts<'a> {
    /// All on this machine, as one host.
    Local,
    /// All on this machine, each group of `per_host` ranks as a host of its own.
    Emulated {
        /// Ranks per host.
        per_host: u32,
    },
    /// On hosts made of network namespaces.
    Namespaces {
        /// The hosts.
        network: &'a NamespaceNetwork,
        /// Ranks per host.
        per_host: u32,
    },
}

/// A job, with the settings that all its ranks share.
pub struct RankLauncher<'a> {
    own: PathBuf,
    job: String,
    token: String,
    size: u32,
    hosts: RankHosts<'a>,
    variables: Vec<(&'static str, String)>,
    settings: SettingsSource,
}

/// Whether ranks inherit the user's settings for jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SettingsSource {
    Inherited,
    Cleared,
}

impl<'a> RankLauncher<'a> {
    /// A job of so many ranks. A unique suffix is added to its name.
    pub fn new(name: &str, size: u32, hosts: RankHosts<'a>) -> Result<Self> {
        let job = format!("{name}-{}-{}", std::process::id(), &random_hex()?[..8]);
        Ok(Self {
            own: own_executable()?,
            job,
            token: random_hex()?,
            size,
            hosts,
            variables: Vec::new(),
            settings: SettingsSource::Inherited,
        })
    }

    /// Adds variables for all ranks.
    pub fn with(mut self, variables: Vec<(&'static str, String)>) -> Self {
        self.variables.extend(variables);
        self
    }

    /// Ranks do not inherit the user's settings for jobs.
    pub fn without_settings(mut self) -> Self {
        self.settings = SettingsSource::Cleared;
        self
    }

    /// The command that starts a rank with this program and its arguments.
    pub fn command(&self, rank: u32, program: &[impl AsRef<OsStr>]) -> Command {
        let namespace = match self.hosts {
            RankHosts::Namespaces { network, per_host } => {
                Some(network.host((rank / per_host) as usize).namespace_path())
            }
            RankHosts::Local | RankHosts::Emulated { .. } => None,
        };
        let mut command = child_process::launch_rank_command(&self.own, namespace.as_deref());
        command.args(program);
        if self.settings == SettingsSource::Cleared {
            without_settings(&mut command);
        }
        command.env("PLEACH_RANK", rank.to_string()).env("PLEACH_SIZE", self.size.to_string());
        command.env("PLEACH_JOB", &self.job).env("PLEACH_TOKEN", &self.token);
        match self.hosts {
            RankHosts::Namespaces { network, per_host } => {
                command.env("PLEACH_RENDEZVOUS", format!("{}:{RENDEZVOUS_PORT}", network.host(0).address()));
                // All namespaces have the host name of this machine, but the manager identifies hosts by name.
                command.env("PLEACH_HOST", host_name(rank / per_host));
            }
            RankHosts::Emulated { per_host } => {
                command.env_remove("PLEACH_RENDEZVOUS");
                command.env("PLEACH_HOST", host_name(rank / per_host));
                command.env("PLEACH_SHARED_MEMORY", per_host.to_string());
            }
            // An inherited one belongs to another job, perhaps one around this.
            RankHosts::Local => {
                command.env_remove("PLEACH_RENDEZVOUS");
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }
}

/// Removes the rendezvous file, which ranks that ended early may have left. To be dropped after all ranks have ended.
impl Drop for RankLauncher<'_> {
    fn drop(&mut self) {
        bootstrap::remove_stale_rendezvous_file(&self.job);
    }
}

fn host_name(host: u32) -> String {
    format!("host{host}")
}
