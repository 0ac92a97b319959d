//! Configuration of `pleach manager` and `pleach node`: by flags, by the environment, by a file in TOML.
//!
//! A setting has one name: `--job-grace`, `PLEACH_JOB_GRACE` and `job_grace` are the same. Flags take precedence over the environment,
//! and the environment over the file.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use control::{
    AccessPolicy, CREDENTIAL_VARIABLE, ClientError, ClusterSecret, DEFAULT_CREDENTIAL_LIFETIME, JobCredential,
    ManagerClient,
};
use lab::text_file::read_text;
use manager::message::Quota;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pleach::environment::variable;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The default address of the manager.
pub(crate) const DEFAULT_MANAGER: &str = "127.0.0.1:4797";

/// Reads a configuration file, if one was named.
pub(crate) fn from_file<T: DeserializeOwned + Default>(path: Option<&Path>) -> Result<T> {
    path.map_or_else(|| Ok(T::default()), read_toml)
}

/// The largest file that is read as text. A scenario with a fabric of a million hosts has a few kilobytes.
pub(crate) const MAX_TEXT_BYTES: u64 = 16 << 20;

/// Parses a file in TOML.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = read_text(path, MAX_TEXT_BYTES)?;
    toml::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
}

/// The value of a flag or variable unless it is empty, otherwise the file's.
pub(crate) fn non_empty_or(value: Option<String>, file: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty()).or(file)
}

/// The value of a setting that was renamed. If its old name is used, warns on stderr.
pub(crate) fn renamed<T>(name: &str, value: Option<T>, old_name: &str, old_value: Option<T>) -> Option<T> {
    if old_value.is_some() {
        warn(&pleach::environment::renamed(&all_names(old_name), &all_names(name)));
    }
    value.or(old_value)
}

/// Warns on stderr if a setting is used that no longer has an effect.
pub(crate) fn ignored<T>(name: &str, value: Option<T>, reason: &str) {
    if value.is_some() {
        warn(&format!("{} is deprecated and ignored: {reason}", all_names(name)));
    }
}

fn all_names(name: &str) -> String {
    format!("--{} (PLEACH_{}, {name} in a file)", name.replace('_', "-"), name.to_uppercase())
}

fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "pleach: warning: {text}"); // Without stderr there is nothing to warn.
}

/// The file with the secret: from the flag, else from the environment, else from the configuration file. None if the secret itself is
/// in the environment, or if there is none.
pub(crate) fn secret_file(flag: Option<PathBuf>, file: Option<PathBuf>) -> Option<PathBuf> {
    if flag.is_some() || variable("PLEACH_SECRET").is_some() {
        return flag;
    }
    variable("PLEACH_SECRET_FILE").map(PathBuf::from).or(file)
}

/// The secret of the cluster, from a file or from the environment.
pub(crate) fn secret(file: Option<&Path>) -> Result<Option<ClusterSecret>> {
    let Some(path) = file else {
        let secret = variable("PLEACH_SECRET")
            .map(|secret| ClusterSecret::new(&secret).context("the secret in PLEACH_SECRET"));
        return secret.transpose();
    };
    ClusterSecret::from_file(path).with_context(|| format!("the secret in {}", path.display())).map(Some)
}

/// The variables of the cluster's secret. Ranks get a credential instead.
pub(crate) const SECRET_VARIABLES: [&str; 2] = ["PLEACH_SECRET", "PLEACH_SECRET_FILE"];

/// The variable with a new credential for a job, if this user knows the cluster's secret and has no valid credential. A secret or a
/// credential that cannot be used is reported, and the job runs without aggregation nodes.
pub(crate) fn job_credential() -> Option<(&'static str, String)> {
    let given = variable(CREDENTIAL_VARIABLE).map(|text| JobCredential::parse(&text));
    let useless = match given {
        Some(Ok(credential)) if !credential.has_expired() => return None,
        Some(Ok(_)) => Some("it has expired".to_owned()),
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    let secret = secret(secret_file(None, None).as_deref()).transpose();
    if let (Some(reason), None) = (&useless, &secret) {
        warn(&format!(
            "the manager will not accept {CREDENTIAL_VARIABLE}: {reason}; issue another: pleach credential"
        ));
    }
    let secret = secret?;
    let issued = secret.and_then(|secret| Ok(JobCredential::issue(&secret, DEFAULT_CREDENTIAL_LIFETIME)?));
    match issued {
        Ok(credential) => Some((CREDENTIAL_VARIABLE, credential.to_text())),
        Err(error) => {
            warn(&format!("the job gets no credential for the manager: {error:#}"));
            None
        }
    }
}

/// Whether clients without the secret are accepted.
pub(crate) fn authentication(allow_unauthenticated: Option<bool>) -> AccessPolicy {
    if allow_unauthenticated.unwrap_or(false) { AccessPolicy::AnyAddress } else { AccessPolicy::LoopbackOnly }
}

/// Resolves an address with a port.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let mut found = text.to_socket_addrs().with_context(|| match has_port {
        true => format!("the address of {text} is not found"),
        false => format!("{text} is not an address; write HOST:PORT, for example {DEFAULT_MANAGER}"),
    })?;
    found.next().with_context(|| format!("{text} resolves to no address"))
}

/// The address of the manager.
pub(crate) fn manager(address: Option<&str>) -> Result<SocketAddr> {
    resolve(address.filter(|address| !address.is_empty()).unwrap_or(DEFAULT_MANAGER))
}

/// How commands that query the manager reach it.
#[derive(clap::Args)]
pub(crate) struct ManagerConnectionArgs {
    /// The manager [default: 127.0.0.1:4797]
    #[arg(long, env = "PLEACH_MANAGER", value_name = "HOST:PORT")]
    pub manager: Option<String>,
    /// File with the secret of the cluster (PLEACH_SECRET_FILE); PLEACH_SECRET is the secret itself
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl ManagerConnectionArgs {
    /// Connects to the manager.
    pub(crate) fn connect(&self, timeout: Duration) -> Result<ManagerClient> {
        ManagerClient::connect(self.address()?, self.secret()?, timeout).map_err(|error| match error {
            ClientError::Lost { .. } | ClientError::TimedOut { .. } => {
                anyhow!("{error}; is `pleach manager` running there? --manager and PLEACH_MANAGER name another")
            }
            error => error.into(),
        })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        manager(self.manager.as_deref())
    }

    pub(crate) fn secret(&self) -> Result<Option<ClusterSecret>> {
        secret(secret_file(self.secret_file.clone(), None).as_deref())
    }
}

/// Prints where a service listens. The parent may have closed stdout.
pub(crate) fn announce(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Raises the limit of open files to its maximum: each connection is a descriptor, and without one a client waits.
pub(crate) fn raise_descriptor_limit() {
    if let Ok((_, maximum)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, maximum, maximum);
    }
}

/// Some parts of a quota; the others keep their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PartialQuota {
    groups: Option<u32>,
    operations: Option<u32>,
    bytes: Option<u64>,
}

impl PartialQuota {
    pub(crate) fn over(self, default: Quota) -> Quota {
        Quota {
            groups: self.groups.unwrap_or(default.groups),
            operations: self.operations.unwrap_or(default.operations),
            bytes: self.bytes.unwrap_or(default.bytes),
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

    /// Checks that every setting has the same name as a flag, as a variable and in the file.
    pub(crate) fn names_agree<T: Args + DeserializeOwned>() {
        let command = T::augment_args(clap::Command::new("test"));
        let mut names = Vec::new();
        for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
            let name = argument.get_id().as_str().to_owned();
            assert_eq!(argument.get_long(), Some(name.replace('_', "-").as_str()));
            let variable = format!("PLEACH_{}", name.to_uppercase());
            // Not read by clap: the secret itself may be in the environment too, and then has lower precedence than this flag.
            let read_by_clap = (name != "secret_file").then(|| std::ffi::OsStr::new(&variable));
            assert_eq!(argument.get_env(), read_by_clap, "{name}");
            names.push(name);
        }
        let Err(error) = toml::from_str::<T>("no_such_setting = 1") else { panic!("unknown settings are rejected") };
        let expected = error.message().split('`').skip(3).step_by(2).map(str::to_owned);
        let mut expected: Vec<String> = expected.chain(["config".to_owned()]).collect();
        expected.sort();
        names.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn quotas_may_be_partial() {
        let usual = Quota { groups: 1, operations: 2, bytes: 3 };
        let parse = |text: &str| text.parse::<PartialQuota>().map(|parts| parts.over(usual));
        assert_eq!(parse("groups=7"), Ok(Quota { groups: 7, ..usual }));
        assert_eq!(parse("bytes=9, operations=8"), Ok(Quota { groups: 1, operations: 8, bytes: 9 }));
        for wrong in ["", "groups", "groups=x", "groups=-1", "gruops=1", "groups=1,,"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
