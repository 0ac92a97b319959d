//! Hosts on one machine with several links each, which tests can cut. A host is a Linux network namespace.
//!
//! ```no_run
//! use namespaces::hosts::{Direction, Hosts};
//!
//! let hosts = Hosts::new(2, 2)?;
//! let server = hosts.host(1).command("sleep").arg("1").spawn()?; // A process on host 1.
//! let socket = hosts.host(0).inside(|| std::net::UdpSocket::bind((hosts.link(0, 1).address(), 0)))??;
//! hosts.link(0, 1).drop_silently(Direction::Out)?; // Link 1 now drops everything that host 0 sends.
//! hosts.link(0, 1).heal()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Host `h` has the addresses 10.7.`l`.`h + 1`/24 and fd00:7:`l`::`h + 1`/64 on link `l`, on a device called `link<l>`. An
//! address answers only on its own link, so traffic cannot bypass a cut link. Names do not clash with other tests and
//! processes; dropping [`Hosts`] deletes everything, and the next process deletes what a killed one leaves behind.
//!
//! Needs root, iproute2 and nftables; without them [`NamespaceError::Missing`] names the missing one. Tests that use hosts
//! belong into a module `between_hosts`: xtask leaves out tests of that name where the packages are missing.

mod builder;
mod link;
mod link_fault;
mod process;

use std::path::PathBuf;
use std::process::Command;

use crate::error::NamespaceError;
use crate::namespace::Namespace;

pub use builder::{HostsBuilder, Wiring};
pub use link::{Direction, HostLink};
pub use link_fault::Corruption;
pub use process::Process;

/// All hosts, and the switch between them if there is one. Dropping it deletes them.
#[derive(Debug)]
pub struct Hosts {
    namespaces: Vec<Namespace>,
    /// Contains one bridge for each link; none if the links are veth pairs from host to host.
    switch: Option<Namespace>,
    link_count: usize,
}

/// One of the hosts.
#[derive(Debug, Clone, Copy)]
pub struct Host<'hosts> {
    hosts: &'hosts Hosts,
    index: usize,
}

impl Hosts {
    /// Creates `count` hosts with `links` links each: two hosts are wired directly, more by a switch for each link.
    ///
    /// # Errors
    /// The machine cannot have such hosts; the error names the missing prerequisite.
    pub fn new(count: usize, links: usize) -> Result<Self, NamespaceError> {
        HostsBuilder::new(count, links).build()
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.namespaces.len()
    }

    /// The number of links of each host.
    pub fn link_count(&self) -> usize {
        self.link_count
    }

    /// A host, counted from zero.
    pub fn host(&self, index: usize) -> Host<'_> {
        assert!(index < self.count(), "host {index} of {}", self.count());
        Host { hosts: self, index }
    }

    /// A host's end of a link, both counted from zero.
    pub fn link(&self, host: usize, link: usize) -> HostLink<'_> {
        assert!(host < self.count(), "host {host} of {}", self.count());
        assert!(link < self.link_count, "link {link} of {}", self.link_count);
        HostLink::new(self, host, link)
    }

    /// The names of all namespaces of these hosts, as `ip netns` lists them.
    pub fn namespaces(&self) -> Vec<&str> {
        self.namespaces.iter().chain(&self.switch).map(Namespace::name).collect()
    }
}

impl<'hosts> Host<'hosts> {
    /// A command that will run on this host. A program that does not exist shows only as exit status 255 of `ip`.
    pub fn command(self, program: &str) -> Command {
        self.hosts.namespaces[self.index].command(program)
    }

    /// Runs a closure in a thread on this host. Sockets that it opens and processes that it starts stay on the host, so a
    /// test can hold sockets of several hosts.
    ///
    /// # Errors
    /// The thread could not enter the namespace. A panic of the closure continues in the caller.
    pub fn inside<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        self.hosts.namespaces[self.index].inside(work)
    }

    /// The file with which a process can enter the host's namespace (`setns`).
    pub fn namespace_path(self) -> PathBuf {
        self.hosts.namespaces[self.index].path()
    }

    /// Runs commands of `ip` on this host, one per line.
    ///
    /// # Errors
    /// A command failed.
    pub fn ip(self, lines: &str) -> Result<String, NamespaceError> {
        self.hosts.namespaces[self.index].ip(lines)
    }

    /// This host's end of a link, counted from zero.
    pub fn link(self, link: usize) -> HostLink<'hosts> {
        self.hosts.link(self.index, link)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // A process or socket on a host keeps the unnamed namespace alive; this removes its links nevertheless.
        let deletions: String = (0..self.link_count).map(|link| format!("link delete link{link}\n")).collect();
        let ends = if self.switch.is_some() { &self.namespaces[..] } else { &self.namespaces[..1] };
        for end in ends {
            // Hosts that were not finished lack some links.
            let _ = end.ip(&deletions);
        }
    }
}
