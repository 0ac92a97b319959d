//! How the ranks of a job are started: what each is told in its environment, and on which host it is.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use namespaces::Network;

use super::{own_program, random_hex, service, without_settings};

/// The port of the rendezvous on hosts that nobody else uses.
const PORT: u16 = 7411;

/// On which hosts ranks are.
#[derive(Clone, Copy)]
pub enum Hosts<'a> {
    /// All on this machine, as it is.
    This,
    /// All on this machine, and so many at a time as if they were on a host of their own.
    Pretended { per_host: u32 },
    /// On hosts made of network namespaces.
    Namespaces { network: &'a Network, per_host: u32 },
}

/// A job, and what all its ranks have in common.
pub struct Ranks<'a> {
    own: PathBuf,
    job: String,
    token: String,
    size: u32,
    hosts: Hosts<'a>,
    variables: Vec<(&'static str, String)>,
    settings: Settings,
}

/// Whether ranks see what the user has set for jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settings {
    Inherited,
    Ours,
}

impl<'a> Ranks<'a> {
    /// A job of so many ranks. Something that makes it unique is added to its name.
    pub fn new(name: &str, size: u32, hosts: Hosts<'a>) -> Result<Self> {
        let job = format!("{name}-{}-{}", std::process::id(), &random_hex()?[..8]);
        Ok(Self {
            own: own_program()?,
            job,
            token: random_hex()?,
            size,
            hosts,
            variables: Vec::new(),
            settings: Settings::Inherited,
        })
    }

    /// All ranks get these variables too.
    pub fn with(mut self, variables: Vec<(&'static str, String)>) -> Self {
        self.variables.extend(variables);
        self
    }

    /// Ranks see nothing of what the user has set for jobs of their own.
    pub fn without_settings(mut self) -> Self {
        self.settings = Settings::Ours;
        self
    }

    /// The command that starts a rank with this program and its arguments.
    pub fn command(&self, rank: u32, program: &[impl AsRef<OsStr>]) -> Command {
        let namespace = match self.hosts {
            Hosts::Namespaces { network, per_host } => Some(network.host((rank / per_host) as usize).entrance()),
            Hosts::This | Hosts::Pretended { .. } => None,
        };
        let mut command = service::through_launch_rank(&self.own, namespace.as_deref());
        command.args(program);
        if self.settings == Settings::Ours {
            without_settings(&mut command);
        }
        command.env("PLEACH_RANK", rank.to_string()).env("PLEACH_SIZE", self.size.to_string());
        command.env("PLEACH_JOB", &self.job).env("PLEACH_TOKEN", &self.token);
        match self.hosts {
            Hosts::Namespaces { network, per_host } => {
                command.env("PLEACH_RENDEZVOUS", format!("{}:{PORT}", network.host(0).address()));
                // All namespaces have the name of this machine, and the manager tells hosts by their names.
                command.env("PLEACH_HOST", host_name(rank / per_host));
            }
            Hosts::Pretended { per_host } => {
                command.env_remove("PLEACH_RENDEZVOUS");
                command.env("PLEACH_HOST", host_name(rank / per_host));
                command.env("PLEACH_SHARED_MEMORY", per_host.to_string());
            }
            // One that is inherited, perhaps from a job around this one, is another job's.
            Hosts::This => {
                command.env_remove("PLEACH_RENDEZVOUS");
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }
}

/// Ranks that were ended before they had met may have left a word for each other. To be dropped when all have ended.
impl Drop for Ranks<'_> {
    fn drop(&mut self) {
        bootstrap::take_down_notice(&self.job);
    }
}

fn host_name(host: u32) -> String {
    format!("host{host}")
}
