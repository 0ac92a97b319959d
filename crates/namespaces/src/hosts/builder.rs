//! Builds hosts: namespaces, links, addresses and kernel parameters.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::error::NamespaceError;
use crate::namespace::{Namespace, NamespaceSet};
use crate::skipping::skip_test;

use super::link;
use super::link_fault::{self, Corruption, LinkFault};
use super::{HostLink, Hosts};

/// Jumbo frames, the usual setting of clusters.
const DEFAULT_MTU: u32 = 9000;

/// An address answers and is used only on its own link. Detection of duplicate addresses is off: it takes a second.
const SETTINGS_V4: [(&str, &str); 6] = [
    ("ipv4/conf/all/arp_ignore", "1"),
    ("ipv4/conf/default/arp_ignore", "1"),
    ("ipv4/conf/all/arp_announce", "2"),
    ("ipv4/conf/default/arp_announce", "2"),
    ("ipv4/conf/all/rp_filter", "1"),
    ("ipv4/conf/default/rp_filter", "1"),
];

/// A link that goes down keeps its IPv6 addresses, as it keeps its IPv4 addresses.
const SETTINGS_V6: [(&str, &str); 4] = [
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/all/keep_addr_on_down", "1"),
    ("ipv6/conf/default/keep_addr_on_down", "1"),
];

/// The bridge acts as a switch: it has no address and no filters.
const SETTINGS_SWITCH: [(&str, &str); 3] = [
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
];

/// How the ends of a link are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// A cable from host to host, for two hosts: the fastest, but if one end goes down, the other loses its carrier.
    Direct,
    /// A switch for each link, for any number of hosts: other hosts do not detect a fault of one host's cable.
    Switched,
}

/// How many hosts to create, and how.
#[derive(Debug, Clone)]
pub struct HostsBuilder {
    count: usize,
    links: usize,
    wiring: Wiring,
    mtu: u32,
}

impl HostsBuilder {
    /// `count` hosts with `links` links each, wired directly if there are two, with an MTU of 9000 bytes.
    pub fn new(count: usize, links: usize) -> Self {
        assert!((1..=254).contains(&count), "{count} hosts: addresses end in 1 to 254");
        assert!((1..=255).contains(&links), "{links} links: addresses have one byte for them");
        let wiring = if count == 2 { Wiring::Direct } else { Wiring::Switched };
        Self { count, links, wiring, mtu: DEFAULT_MTU }
    }

    /// Chooses how the ends of a link are connected.
    #[must_use]
    pub fn wiring(self, wiring: Wiring) -> Self {
        assert!(wiring == Wiring::Switched || self.count == 2, "a cable has two ends, not {}", self.count);
        Self { wiring, ..self }
    }

    /// Chooses the largest packet, IP header included: 1280 (less has no IPv6) to 65535 bytes.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        assert!((1280..=65535).contains(&mtu), "an MTU of {mtu} bytes");
        Self { mtu, ..self }
    }

    /// Creates the hosts and returns once all links are up.
    ///
    /// # Errors
    /// The machine cannot have such hosts; the error names the missing prerequisite.
    pub fn build(&self) -> Result<Hosts, NamespaceError> {
        static TOOLS: OnceLock<Result<(), String>> = OnceLock::new();
        let tools = TOOLS.get_or_init(check_tools);
        tools.clone().map_err(NamespaceError::Missing)?;

        let set = NamespaceSet::new()?;
        let first = set.create("host0")?;
        static RULES: OnceLock<Result<(), String>> = OnceLock::new();
        RULES.get_or_init(|| try_rules(&first)).clone().map_err(NamespaceError::Missing)?;

        let mut hosts = Hosts { namespaces: vec![first], switch: None, link_count: self.links };
        for index in 1..self.count {
            hosts.namespaces.push(set.create(&format!("host{index}"))?);
        }
        if self.wiring == Wiring::Switched {
            hosts.switch = Some(set.create("switch")?);
        }
        // A new device copies the defaults, so they come first.
        for namespace in &hosts.namespaces {
            namespace.configure(&SETTINGS_V4)?;
            namespace.configure(&present(&SETTINGS_V6))?;
        }
        match &hosts.switch {
            None => self.wire_directly(&hosts)?,
            Some(switch) => self.wire_to(switch, &hosts)?,
        }
        for (index, namespace) in hosts.namespaces.iter().enumerate() {
            namespace.ip(&self.host_lines(&hosts, index))?;
        }
        wait_until_up(&hosts, self.links)?;
        Ok(hosts)
    }

    /// As [`HostsBuilder::build`], for tests: if a prerequisite is missing, prints which and returns `None`, so that the test
    /// can end. With `CI` set it panics instead, so that CI cannot skip these tests unnoticed.
    pub fn build_or_skip(&self) -> Option<Hosts> {
        match self.build() {
            Ok(hosts) => Some(hosts),
            Err(error @ NamespaceError::Missing(_)) => {
                skip_test(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn wire_directly(&self, hosts: &Hosts) -> Result<(), NamespaceError> {
        let mut lines = String::new();
        for link in 0..self.links {
            self.add_pair(&mut lines, link, &format!("link{link}"), hosts.namespaces[1].name());
        }
        hosts.namespaces[0].ip(&lines).map(drop)
    }

    fn wire_to(&self, switch: &Namespace, hosts: &Hosts) -> Result<(), NamespaceError> {
        switch.configure(&present(&SETTINGS_SWITCH))?;
        let mut bridges = String::new();
        for link in 0..self.links {
            // Without snooping the bridge sends multicast to all ports; no querier would keep the groups alive.
            let kind = "type bridge forward_delay 0 stp_state 0 mcast_snooping 0";
            append_line(&mut bridges, format_args!("link add name rail{link} mtu {} {kind}", self.mtu));
            append_line(&mut bridges, format_args!("link set dev rail{link} up"));
        }
        switch.ip(&bridges)?;
        let mut ports = String::new();
        for (index, namespace) in hosts.namespaces.iter().enumerate() {
            let mut pairs = String::new();
            for link in 0..self.links {
                let port = link::port(index, link);
                self.add_pair(&mut pairs, link, &port, switch.name());
                append_line(&mut ports, format_args!("link set dev {port} master rail{link} up"));
            }
            namespace.ip(&pairs)?;
        }
        switch.ip(&ports).map(drop)
    }

    fn add_pair(&self, lines: &mut String, link: usize, peer: &str, namespace: &str) {
        let mtu = self.mtu;
        let near = format!("link add name link{link} mtu {mtu} type veth");
        append_line(lines, format_args!("{near} peer name {peer} mtu {mtu} netns {namespace}"));
    }

    /// Commands of `ip` that give a host its addresses and set its links up.
    fn host_lines(&self, hosts: &Hosts, host: usize) -> String {
        let mut lines = "link set dev lo up\n".to_owned();
        for link in 0..self.links {
            lines += &HostLink::new(hosts, host, link).address_lines("add");
            append_line(&mut lines, format_args!("link set dev link{link} up"));
        }
        lines
    }
}

/// The settings that this kernel supports: a kernel without IPv6 or without bridge filters lacks some.
fn present(settings: &'static [(&str, &str)]) -> Vec<(&'static str, &'static str)> {
    settings.iter().copied().filter(|(name, _)| Path::new("/proc/sys/net").join(name).exists()).collect()
}

fn append_line(lines: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(lines, "{line}").expect("writing to a string succeeds");
}

fn wait_until_up(hosts: &Hosts, links: usize) -> Result<(), NamespaceError> {
    hosts.namespaces.iter().try_for_each(|host| host.wait_until_up(links))?;
    // One port for each host, and the bridge.
    hosts.switch.iter().try_for_each(|switch| switch.wait_until_up(links * (hosts.count() + 1)))
}

fn check_tools() -> Result<(), String> {
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Err("root".to_owned());
    }
    for (program, flag, package) in [("ip", "-Version", "iproute2"), ("nft", "--version", "nftables")] {
        if !Command::new(program).arg(flag).output().is_ok_and(|output| output.status.success()) {
            return Err(format!("the program {program} (Debian package {package})"));
        }
    }
    Ok(())
}

/// Tries every rule that a fault may need, once, on a device that every namespace has.
fn try_rules(namespace: &Namespace) -> Result<(), String> {
    let corruption = Corruption { one_in: 2, bytes: vec![0, 1000], flip: 1 };
    for fault in [LinkFault::DropAll, LinkFault::Lose { one_in: 2 }, LinkFault::Corrupt(corruption)] {
        let tried = namespace.nft(&link_fault::install_script("lo", &fault));
        tried.map_err(|error| format!("nftables rules at netdev ingress in the kernel ({error})"))?;
    }
    namespace.nft(&link_fault::clear_script("lo")).map_err(|error| error.to_string())
}
