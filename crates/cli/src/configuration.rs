//! How `pleach manager` and `pleach node` are set up: by flags, by the environment, by a file in TOML.
//!
//! A setting has one name: `--job-grace`, `PLEACH_JOB_GRACE` and `job_grace` are the same. Flags count more than the
//! environment, and that more than the file.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use control::{AccessPolicy, ClusterSecret};
use manager::message::Quota;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Where a manager listens if nobody says otherwise.
pub(crate) const DEFAULT_MANAGER: &str = "127.0.0.1:4797";

/// The file, if one was named.
pub(crate) fn from_file<T: DeserializeOwned + Default>(path: Option<&Path>) -> Result<T> {
    path.map_or_else(|| Ok(T::default()), read_toml)
}

/// What a file says.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not as it should be", path.display()))
}

/// What was said, by flag or environment, else what the file says. Nothing at all was not said.
pub(crate) fn words(said: Option<String>, file: Option<String>) -> Option<String> {
    said.filter(|words| !words.is_empty()).or(file)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|words| !words.is_empty())
}

/// Where the secret is: as the flag says, else in the environment itself or where that says, else as the file says. None if
/// it is in the environment, or nowhere.
pub(crate) fn secret_file(flag: Option<PathBuf>, file: Option<PathBuf>) -> Option<PathBuf> {
    if flag.is_some() || variable("PLEACH_SECRET").is_some() {
        return flag;
    }
    variable("PLEACH_SECRET_FILE").map(PathBuf::from).or(file)
}

/// The cluster's secret, from a file or from the environment.
pub(crate) fn secret(file: Option<&Path>) -> Result<Option<ClusterSecret>> {
    let Some(path) = file else {
        let words =
            variable("PLEACH_SECRET").map(|words| ClusterSecret::new(&words).context("the secret in PLEACH_SECRET"));
        return words.transpose();
    };
    ClusterSecret::from_file(path).with_context(|| format!("the secret in {}", path.display())).map(Some)
}

/// Whether strangers may be obeyed.
pub(crate) fn openness(open: Option<bool>) -> AccessPolicy {
    if open.unwrap_or(false) { AccessPolicy::Open } else { AccessPolicy::Guarded }
}

/// An address with a port, by name or number.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("{text} is no address; write HOST:PORT, for example {DEFAULT_MANAGER}"))?;
    found.next().with_context(|| format!("{text} has no address"))
}

/// Where the manager is: as said, else at the usual place.
pub(crate) fn manager(said: Option<&str>) -> Result<SocketAddr> {
    resolve(said.filter(|words| !words.is_empty()).unwrap_or(DEFAULT_MANAGER))
}

/// How a command reaches a manager, for those that only ask.
#[derive(clap::Args)]
pub(crate) struct ManagerConnectionArgs {
    /// The manager [default: 127.0.0.1:4797]
    #[arg(long, env = "PLEACH_MANAGER", value_name = "HOST:PORT")]
    pub manager: Option<String>,
    /// A file with the secret of the cluster (PLEACH_SECRET_FILE); or the secret itself in PLEACH_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl ManagerConnectionArgs {
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        manager(self.manager.as_deref())
    }

    pub(crate) fn secret(&self) -> Result<Option<ClusterSecret>> {
        secret(secret_file(self.secret_file.clone(), None).as_deref())
    }
}

/// Tells whoever started a service where it is. After a renewal nobody may listen any more.
pub(crate) fn announce(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Connections are descriptors: takes as many as the system lets us have. With fewer, some callers wait.
pub(crate) fn raise_descriptor_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Parts of a quota; those that are not said stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PartialQuota {
    groups: Option<u32>,
    operations: Option<u32>,
    bytes: Option<u64>,
}

impl PartialQuota {
    pub(crate) fn over(self, usual: Quota) -> Quota {
        Quota {
            groups: self.groups.unwrap_or(usual.groups),
            operations: self.operations.unwrap_or(usual.operations),
            bytes: self.bytes.unwrap_or(usual.bytes),
        }
    }
}

impl FromStr for PartialQuota {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Self::default();
        for part in text.split(',') {
            let wrong = || format!("{part:?} is not one of groups=N, operations=N, bytes=N");
            let (name, number) = part.trim().split_once('=').ok_or_else(wrong)?;
            match name {
                "groups" => parts.groups = Some(number.parse().map_err(|_| wrong())?),
                "operations" => parts.operations = Some(number.parse().map_err(|_| wrong())?),
                "bytes" => parts.bytes = Some(number.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Args;

    /// Every setting is called the same as a flag, as a variable and in the file.
    pub(crate) fn names_agree<T: Args + DeserializeOwned>() {
        let command = T::augment_args(clap::Command::new("test"));
        let mut names = Vec::new();
        for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
            let name = argument.get_id().as_str().to_owned();
            assert_eq!(argument.get_long(), Some(name.replace('_', "-").as_str()));
            let variable = format!("PLEACH_{}", name.to_uppercase());
            // The secret itself may be in the environment too, and then counts less than this flag.
            let read_by_clap = (name != "secret_file").then(|| std::ffi::OsStr::new(&variable));
            assert_eq!(argument.get_env(), read_by_clap, "{name}");
            names.push(name);
        }
        let Err(error) = toml::from_str::<T>("no_such_setting = 1") else { panic!("a file may say anything") };
        let expected = error.message().split('`').skip(3).step_by(2).map(str::to_owned);
        let mut expected: Vec<String> = expected.chain(["config".to_owned()]).collect();
        expected.sort();
        names.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn quotas_are_said_in_part_or_whole() {
        let usual = Quota { groups: 1, operations: 2, bytes: 3 };
        let said = |text: &str| text.parse::<PartialQuota>().map(|parts| parts.over(usual));
        assert_eq!(said("groups=7"), Ok(Quota { groups: 7, ..usual }));
        assert_eq!(said("bytes=9, operations=8"), Ok(Quota { groups: 1, operations: 8, bytes: 9 }));
        for wrong in ["", "groups", "groups=x", "groups=-1", "gruops=1", "groups=1,,"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }
}
