//! How the ranks of a job are started: what each is told in its environment, and on which host it is.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use namespaces::NamespaceNetwork;

use super::{child_process, own_executable, random_hex, without_settings};

/// The port of the rendezvous on hosts that nobody else uses.
const PORT: u16 = 7411;

/// On which hosts ranks are.
#[derive(Clone, Copy)]
pub enum RankHosts<'a> {
    /// All on this machine, as it is.
    This,
    /// All on this machine, and so many at a time as if they were on a host of their own.
    Pretended { per_host: u32 },
    /// On hosts made of network namespaces.
    Namespaces { network: &'a NamespaceNetwork, per_host: u32 },
}

/// A job, and what all its ranks have in common.
pub struct RankLauncher<'a> {
    own: PathBuf,
    job: String,
    token: String,
    size: u32,
    hosts: RankHosts<'a>,
    variables: Vec<(&'static str, String)>,
    settings: SettingsSource,
}

/// Whether ranks see what the user has set for jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SettingsSource {
    Inherited,
    Ours,
}

impl<'a> RankLauncher<'a> {
    /// A job of so many ranks. Something that makes it unique is added to its name.
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

    /// All ranks get these variables too.
    pub fn with(mut self, variables: Vec<(&'static str, String)>) -> Self {
        self.variables.extend(variables);
        self
    }

    /// Ranks see nothing of what the user has set for jobs of their own.
    pub fn without_settings(mut self) -> Self {
        self.settings = SettingsSource::Ours;
        self
    }

    /// The command that starts a rank with this program and its arguments.
    pub fn command(&self, rank: u32, program: &[impl AsRef<OsStr>]) -> Command {
        let namespace = match self.hosts {
            RankHosts::Namespaces { network, per_host } => Some(network.host((rank / per_host) as usize).entrance()),
            RankHosts::This | RankHosts::Pretended { .. } => None,
        };
        let mut command = child_process::launch_rank_command(&self.own, namespace.as_deref());
        command.args(program);
        if self.settings == SettingsSource::Ours {
            without_settings(&mut command);
        }
        command.env("PLEACH_RANK", rank.to_string()).env("PLEACH_SIZE", self.size.to_string());
        command.env("PLEACH_JOB", &self.job).env("PLEACH_TOKEN", &self.token);
        match self.hosts {
            RankHosts::Namespaces { network, per_host } => {
                command.env("PLEACH_RENDEZVOUS", format!("{}:{PORT}", network.host(0).address()));
                // All namespaces have the name of this machine, and the manager tells hosts by their names.
                command.env("PLEACH_HOST", host_name(rank / per_host));
            }
            RankHosts::Pretended { per_host } => {
                command.env_remove("PLEACH_RENDEZVOUS");
                command.env("PLEACH_HOST", host_name(rank / per_host));
                command.env("PLEACH_SHARED_MEMORY", per_host.to_string());
            }
            // One that is inherited, perhaps from a job around this one, is another job's.
            RankHosts::This => {
                command.env_remove("PLEACH_RENDEZVOUS");
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }
}

/// Ranks that were ended before they had met may have left a word for each other. To be dropped when all have ended.
impl Drop for RankLauncher<'_> {
    fn drop(&mut self) {
        bootstrap::remove_stale_rendezvous_file(&self.job);
    }
}

fn host_name(host: u32) -> String {
    format!("host{host}")
}
