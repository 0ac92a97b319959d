//! What hosts to make, and the making.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::error::HostsError;
use super::firewall::{self, Corruption, Trouble};
use super::link;
use super::namespace::{self, Namespace};
use super::{Hosts, Link};

/// Jumbo frames, as clusters use them.
const DEFAULT_MTU: u32 = 9000;

/// The kernel tells of carriers at most once a second, so a set of hosts takes about a second to make.
const READY_LIMIT: Duration = Duration::from_secs(5);
const READY_INTERVAL: Duration = Duration::from_millis(10);

/// An address may answer and be used only on its own link. Duplicate addresses are not looked for: it takes a second.
const SETTINGS_V4: [(&str, &str); 6] = [
    ("ipv4/conf/all/arp_ignore", "1"),
    ("ipv4/conf/default/arp_ignore", "1"),
    ("ipv4/conf/all/arp_announce", "2"),
    ("ipv4/conf/default/arp_announce", "2"),
    ("ipv4/conf/all/rp_filter", "1"),
    ("ipv4/conf/default/rp_filter", "1"),
];

/// IPv6 addresses are kept while a link is down, as IPv4 addresses are.
const SETTINGS_V6: [(&str, &str); 4] = [
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/all/keep_addr_on_down", "1"),
    ("ipv6/conf/default/keep_addr_on_down", "1"),
];

/// A bridge is a switch: it has no address, and nobody filters in it.
const SETTINGS_SWITCH: [(&str, &str); 3] = [
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
];

/// How the ends of a link meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// A cable from host to host, for two hosts: the quickest, but if one end goes down, the other loses its carrier.
    Direct,
    /// A switch for each link, for any number of hosts: what happens to one host's cable, the others do not see.
    Switched,
}

/// How many hosts to make, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    count: usize,
    links: usize,
    wiring: Wiring,
    mtu: u32,
}

impl Plan {
    /// `count` hosts with `links` links each, wired directly if there are two, with an MTU of 9000 bytes.
    pub fn new(count: usize, links: usize) -> Self {
        assert!((1..=254).contains(&count), "{count} hosts: addresses end in 1 to 254");
        assert!((1..=255).contains(&links), "{links} links: addresses have one byte for them");
        let wiring = if count == 2 { Wiring::Direct } else { Wiring::Switched };
        Self { count, links, wiring, mtu: DEFAULT_MTU }
    }

    /// Chooses how the ends of a link meet.
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

    /// Makes the hosts, and returns when all links are up.
    ///
    /// # Errors
    /// This machine cannot have such hosts; the error says what is missing.
    pub fn build(&self) -> Result<Hosts, HostsError> {
        static TOOLS: OnceLock<Result<(), String>> = OnceLock::new();
        let tools = TOOLS.get_or_init(look_for_tools);
        tools.clone().map_err(HostsError::Missing)?;

        let set = namespace::new_set();
        let first = Namespace::create(&set, "host0")?;
        static RULES: OnceLock<Result<(), String>> = OnceLock::new();
        RULES.get_or_init(|| try_rules(&first)).clone().map_err(HostsError::Missing)?;

        let mut hosts = Hosts { namespaces: vec![first], switch: None, link_count: self.links };
        for index in 1..self.count {
            hosts.namespaces.push(Namespace::create(&set, &format!("host{index}"))?);
        }
        if self.wiring == Wiring::Switched {
            hosts.switch = Some(Namespace::create(&set, "switch")?);
        }
        // Defaults are copied when a device appears, so they come first.
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

    /// As [`Plan::build`], for tests: where something is missing that hosts need, says so and returns `None`, so that
    /// the test can end; with `CI` set it panics, since nobody reads what a passing run says.
    pub fn build_or_skip(&self) -> Option<Hosts> {
        match self.build() {
            Ok(hosts) => Some(hosts),
            Err(error @ HostsError::Missing(_)) => {
                let ci = std::env::var("CI").unwrap_or_default();
                assert!(matches!(ci.as_str(), "" | "0" | "false"), "not tested, and CI is set: {error}");
                println!("not tested: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn wire_directly(&self, hosts: &Hosts) -> Result<(), HostsError> {
        let mut lines = String::new();
        for link in 0..self.links {
            self.add_pair(&mut lines, link, &format!("link{link}"), hosts.namespaces[1].name());
        }
        hosts.namespaces[0].ip(&lines).map(drop).map_err(lack_of_devices)
    }

    fn wire_to(&self, switch: &Namespace, hosts: &Hosts) -> Result<(), HostsError> {
        switch.configure(&present(&SETTINGS_SWITCH))?;
        let mut bridges = String::new();
        for link in 0..self.links {
            // Without snooping a multicast goes to all ports: there is no querier here that would keep groups alive.
            let kind = "type bridge forward_delay 0 stp_state 0 mcast_snooping 0";
            text(&mut bridges, format_args!("link add name rail{link} mtu {} {kind}", self.mtu));
            text(&mut bridges, format_args!("link set dev rail{link} up"));
        }
        switch.ip(&bridges).map_err(lack_of_devices)?;
        let mut ports = String::new();
        for (index, namespace) in hosts.namespaces.iter().enumerate() {
            let mut pairs = String::new();
            for link in 0..self.links {
                let port = link::port(index, link);
                self.add_pair(&mut pairs, link, &port, switch.name());
                text(&mut ports, format_args!("link set dev {port} master rail{link} up"));
            }
            namespace.ip(&pairs).map_err(lack_of_devices)?;
        }
        switch.ip(&ports).map(drop)
    }

    fn add_pair(&self, lines: &mut String, link: usize, peer: &str, namespace: &str) {
        let mtu = self.mtu;
        let near = format!("link add name link{link} mtu {mtu} type veth");
        text(lines, format_args!("{near} peer name {peer} mtu {mtu} netns {namespace}"));
    }

    /// Gives a host its addresses and sets its links up.
    fn host_lines(&self, hosts: &Hosts, host: usize) -> String {
        let mut lines = "link set dev lo up\n".to_owned();
        for link in 0..self.links {
            lines += &Link::new(hosts, host, link).address_lines("add");
            text(&mut lines, format_args!("link set dev link{link} up"));
        }
        lines
    }
}

/// The settings that this kernel has: one without IPv6 or without filters in bridges lacks some.
fn present(settings: &'static [(&str, &str)]) -> Vec<(&'static str, &'static str)> {
    settings.iter().copied().filter(|(name, _)| Path::new("/proc/sys/net").join(name).exists()).collect()
}

fn text(lines: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(lines, "{line}").expect("a string takes all text");
}

/// A link is up when both of its ends have told all that listen. Before that a switch may drop the first packets, and a
/// program that asks for the state of its links may take them for cut.
fn wait_until_up(hosts: &Hosts, links: usize) -> Result<(), HostsError> {
    let deadline = Instant::now() + READY_LIMIT;
    for namespace in hosts.namespaces.iter().chain(&hosts.switch) {
        let expected = if hosts.switch.as_ref().is_some_and(|switch| switch.name() == namespace.name()) {
            links * (hosts.count() + 1) // One port for each host, and the bridge.
        } else {
            links
        };
        loop {
            let listed = namespace.ip("link show up\n")?;
            if listed.lines().filter(|line| line.contains(" state UP ")).count() >= expected {
                break;
            }
            if Instant::now() >= deadline {
                let line = format!("ip -n {} link show up", namespace.name());
                return Err(HostsError::Command { line, said: format!("not all up in {READY_LIMIT:?}:\n{listed}") });
            }
            std::thread::sleep(READY_INTERVAL);
        }
    }
    Ok(())
}

fn look_for_tools() -> Result<(), String> {
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Err("root".to_owned());
    }
    for (program, flag, package) in [("ip", "-Version", "iproute2"), ("nft", "--version", "nftables")] {
        if namespace::run(Command::new(program).arg(flag), "").is_err() {
            return Err(format!("the program {program} (Debian package {package})"));
        }
    }
    Ok(())
}

/// Every rule that a cut may need, once, on a device that every namespace has.
fn try_rules(namespace: &Namespace) -> Result<(), String> {
    let corruption = Corruption { one_in: 2, bytes: vec![0, 1000], flip: 1 };
    for trouble in [Trouble::DropAll, Trouble::Lose { one_in: 2 }, Trouble::Corrupt(corruption)] {
        let tried = namespace.nft(&firewall::script("lo", &trouble));
        tried.map_err(|error| format!("nftables rules at netdev ingress in the kernel ({error})"))?;
    }
    namespace.nft(&firewall::end_all("lo")).map_err(|error| error.to_string())
}

fn lack_of_devices(error: HostsError) -> HostsError {
    match error {
        HostsError::Command { said, .. }
            if said.contains("Unknown device type") || said.contains("not supported") =>
        {
            HostsError::Missing(format!("veth and bridge devices in the kernel ({})", said.trim()))
        }
        other => other,
    }
}
