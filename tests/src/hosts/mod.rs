//! Hosts on one machine, each a Linux network namespace, joined by several links that can be cut.
//!
//! ```no_run
//! use tests::hosts::{Direction, Hosts};
//!
//! let hosts = Hosts::new(2, 2)?;
//! let server = hosts.host(1).command("sleep").arg("1").spawn()?; // A process on host 1.
//! let socket = hosts.host(0).inside(|| std::net::UdpSocket::bind((hosts.link(0, 1).address(), 0)))??;
//! hosts.link(0, 1).drop_silently(Direction::Out)?; // Host 0 is not heard any more on link 1.
//! hosts.link(0, 1).heal()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Host `h` has the addresses 10.7.`l`.`h + 1`/24 and fd00:7:`l`::`h + 1`/64 on link `l`, on a device called `link<l>`. An
//! address answers only on its own link, so a cut link cannot be bypassed. Names are free of clashes with other tests
//! and processes; dropping [`Hosts`] deletes everything, and what a killed run left is swept when the next one starts.
//!
//! Needs root, iproute2 and nftables; without them [`HostsError::Missing`] says what is not there. Put tests that use
//! hosts into a module `between_hosts`: that is the name by which they are left out where those packages are missing.

mod error;
mod firewall;
mod link;
mod namespace;
mod plan;
mod process;

use std::process::Command;

pub use error::HostsError;
pub use firewall::Corruption;
pub use link::{Direction, Link};
pub use plan::{Plan, Wiring};
pub use process::Process;

use namespace::Namespace;

/// All hosts, and the switch between them if there is one. Dropped, they are gone.
#[derive(Debug)]
pub struct Hosts {
    namespaces: Vec<Namespace>,
    /// Holds one bridge for each link; `None` if the links are veth pairs from host to host.
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
    /// Makes `count` hosts with `links` links each: two are joined directly, more by a switch for each link.
    ///
    /// # Errors
    /// This machine cannot have such hosts; the error says what is missing.
    pub fn new(count: usize, links: usize) -> Result<Self, HostsError> {
        Plan::new(count, links).build()
    }

    /// The hosts that there are.
    pub fn count(&self) -> usize {
        self.namespaces.len()
    }

    /// The links that each host has.
    pub fn link_count(&self) -> usize {
        self.link_count
    }

    /// A host, counted from zero.
    pub fn host(&self, index: usize) -> Host<'_> {
        assert!(index < self.count(), "host {index} of {}", self.count());
        Host { hosts: self, index }
    }

    /// A host's end of a link, both counted from zero.
    pub fn link(&self, host: usize, link: usize) -> Link<'_> {
        assert!(host < self.count(), "host {host} of {}", self.count());
        assert!(link < self.link_count, "link {link} of {}", self.link_count);
        Link::new(self, host, link)
    }

    /// The names of all namespaces of this set, as `ip netns` lists them.
    pub fn namespaces(&self) -> Vec<&str> {
        self.namespaces.iter().chain(&self.switch).map(Namespace::name).collect()
    }
}

impl<'hosts> Host<'hosts> {
    /// A command that will run on this host. A program that does not exist shows only when it is run: `ip` starts, and
    /// ends with status 255.
    pub fn command(self, program: &str) -> Command {
        self.hosts.namespaces[self.index].command(program)
    }

    /// Runs a closure in a thread on this host. Sockets that it opens, and processes that it starts, stay on the host
    /// after it has returned; so a test can hold sockets of several hosts.
    ///
    /// # Errors
    /// The thread could not move to the host. A panic of the closure goes on in the caller.
    pub fn inside<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, HostsError> {
        self.hosts.namespaces[self.index].inside(work)
    }

    /// This host's end of a link, counted from zero.
    pub fn link(self, link: usize) -> Link<'hosts> {
        self.hosts.link(self.index, link)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // A process or socket that is still on a host keeps the namespace alive without its name. The links go at once.
        let deletions: String = (0..self.link_count).map(|link| format!("link delete link{link}\n")).collect();
        let ends = if self.switch.is_some() { &self.namespaces[..] } else { &self.namespaces[..1] };
        for end in ends {
            // A set that was not finished lacks some links.
            let _ = end.ip(&deletions);
        }
    }
}
