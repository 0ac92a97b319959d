//! The hosts of a job, as `--hosts` and `--hostfile` name them, and the ranks of each.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use lab::text_file::read_text;

use crate::configuration::MAX_TEXT_BYTES;

/// Where the ranks of a job run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LaunchHosts {
    /// On this machine, as one host.
    Loopback,
    /// On hosts made of network namespaces, joined by a bridge.
    Netns,
    /// On other machines.
    Named(Vec<HostSlots>),
}

/// A host, and how many ranks it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HostSlots {
    pub(super) name: String,
    slots: u32,
}

/// The ranks of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HostRanks {
    pub(super) name: String,
    pub(super) ranks: Range<u32>,
}

impl HostSlots {
    /// A host that takes so many ranks.
    ///
    /// # Errors
    /// If the name is not one of a host, or the number is out of bounds.
    pub(super) fn new(name: &str, slots: u32) -> Result<Self, String> {
        // What begins with a dash would be an option of ssh.
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:@%".contains(&byte);
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_allowed) {
            return Err(format!("{name:?} is not a host; write names such as a,b:8,user@c"));
        }
        if !(1..=MAX_SLOTS).contains(&slots) {
            return Err(format!("{name}: the number of ranks is from 1 to {MAX_SLOTS}"));
        }
        Ok(Self { name: name.to_owned(), slots })
    }
}

impl fmt::Display for HostSlots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.name, self.slots)
    }
}

impl FromStr for LaunchHosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "loopback" => Ok(Self::Loopback),
            "netns" => Ok(Self::Netns),
            list => list.split(',').map(str::parse).collect::<Result<_, _>>().map(Self::Named),
        }
    }
}

/// `host` or `host:8`; an IPv6 address with a number is in brackets.
impl FromStr for HostSlots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (name, slots) = match text.rsplit_once(':') {
            Some((name, slots)) if !name.contains(':') || name.ends_with(']') => (name, Some(slots)),
            _ => (text, None),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let slots = slots.map_or(Ok(1), |slots| {
            slots.parse().map_err(|_| format!("{text:?}: the number of ranks is from 1 to {MAX_SLOTS}"))
        })?;
        Self::new(name, slots)
    }
}

const MAX_SLOTS: u32 = 4096;

/// Reads a host file: a host per line, with `:8` or `slots=8` behind it, and comments after `#`.
pub(super) fn read_host_file(path: &Path) -> Result<LaunchHosts> {
    let text = read_text(path, MAX_TEXT_BYTES)?;
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let host = match words[..] {
                [host] => host.to_owned(),
                [host, slots] if slots.starts_with("slots=") => format!("{host}:{}", &slots["slots=".len()..]),
                _ => line.to_owned(),
            };
            let host = host.parse().map_err(anyhow::Error::msg);
            hosts.push(host.with_context(|| format!("{}, line {}", path.display(), index + 1))?);
        }
    }
    ensure!(!hosts.is_empty(), "{} names no host", path.display());
    Ok(LaunchHosts::Named(hosts))
}

/// Gives the hosts their ranks, in order; all that they take if no number is given.
pub(super) fn assign_ranks(hosts: &[HostSlots], ranks: Option<u32>) -> Result<Vec<HostRanks>> {
    let slots: u32 = hosts.iter().map(|host| host.slots).fold(0, u32::saturating_add);
    let wanted = ranks.unwrap_or(slots);
    ensure!(
        wanted <= slots,
        "{wanted} ranks do not fit: the hosts take {slots}; write how many a host takes, such as --hosts {}:8, or ask the batch system \
         for more tasks",
        hosts.first().map_or("host", |host| &host.name)
    );
    ensure!(wanted <= MAX_SLOTS, "a job has at most {MAX_SLOTS} ranks");
    let mut next = 0;
    let assigned = hosts.iter().map(|host| {
        let first = next;
        next = (first + host.slots).min(wanted);
        HostRanks { name: host.name.clone(), ranks: first..next }
    });
    Ok(assigned.filter(|host| !host.ranks.is_empty()).collect())
}

/// A host as others reach it: without the user, and in brackets if it is an IPv6 address.
pub(super) fn address_of(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<HostSlots> {
        match text.parse() {
            Ok(LaunchHosts::Named(hosts)) => hosts,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn hosts_have_names_and_numbers() {
        let host = |name: &str, slots| HostSlots { name: name.to_owned(), slots };
        assert_eq!(named("a,b:8, user@c.example"), [host("a", 1), host("b", 8), host("user@c.example", 1)]);
        assert_eq!(
            named("10.0.0.1:2,fe80::1,[fe80::2]:4"),
            [host("10.0.0.1", 2), host("fe80::1", 1), host("fe80::2", 4)]
        );
        assert_eq!("netns".parse(), Ok(LaunchHosts::Netns));
        for wrong in ["", "a,,b", "a:0", "a:x", "a:99999", "-oProxyCommand=x", "a b", "a;b", "$(a)"] {
            assert!(wrong.parse::<LaunchHosts>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_filled_in_order() {
        let ranges = |text: &str, ranks| {
            let assigned = assign_ranks(&named(text), ranks).map_err(|error| error.to_string())?;
            Ok::<_, String>(assigned.into_iter().map(|host| host.ranks).collect::<Vec<_>>())
        };
        assert_eq!(ranges("a:2,b:3,c", None), Ok(vec![0..2, 2..5, 5..6]));
        assert_eq!(ranges("a:2,b:3,c", Some(4)), Ok(vec![0..2, 2..4]));
        assert!(ranges("a,b", Some(3)).is_err_and(|error| error.contains("a:8")));
    }

    #[test]
    fn a_host_file_has_a_host_per_line() {
        let path = std::env::temp_dir().join(format!("pleach-hosts-{}", std::process::id()));
        std::fs::write(&path, "# the cluster\na\nb:8\nc slots=2   # a small one\n\n").expect("a file");
        let Ok(LaunchHosts::Named(hosts)) = read_host_file(&path) else { panic!("it is valid") };
        assert_eq!(assign_ranks(&hosts, None).expect("they fit").len(), 3);
        std::fs::write(&path, "a\nb c d\n").expect("a file");
        let error = format!("{:#}", read_host_file(&path).expect_err("a wrong line"));
        assert!(error.contains("line 2"), "{error}");
        std::fs::remove_file(path).expect("our own file");
    }
}
