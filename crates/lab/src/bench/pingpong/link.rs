//! The link between the two ends: loopback, or a bridge between two network namespaces.

use anyhow::Result;
use clap::ValueEnum;
use namespaces::{NamespaceHost, NamespaceNetwork};
use serde::Serialize;

/// The MTU of the loopback interface of Linux.
const LOOPBACK_MTU_BYTES: usize = 65_536;

/// Between what messages are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PingpongPlacement {
    /// Two processes of this host.
    Processes,
    /// Two hosts made of network namespaces on one bridge; needs root.
    Namespaces,
}

/// The place of both ends.
pub(crate) enum PingpongLink {
    Loopback,
    Namespaces { network: NamespaceNetwork, mtu_bytes: u32 },
}

impl PingpongLink {
    /// # Errors
    /// If namespaces cannot be created.
    pub(super) fn new(placement: PingpongPlacement, mtu_bytes: u32) -> Result<Self> {
        Ok(match placement {
            PingpongPlacement::Processes => Self::Loopback,
            PingpongPlacement::Namespaces => {
                Self::Namespaces { network: NamespaceNetwork::with_mtu(2, mtu_bytes)?, mtu_bytes }
            }
        })
    }

    /// The MTU between the ends.
    pub(super) fn mtu_bytes(&self) -> usize {
        match self {
            Self::Loopback => LOOPBACK_MTU_BYTES,
            Self::Namespaces { mtu_bytes, .. } => *mtu_bytes as usize,
        }
    }

    /// The host of this end; none on loopback.
    pub(super) fn host(&self, rank: usize) -> Option<NamespaceHost<'_>> {
        match self {
            Self::Loopback => None,
            Self::Namespaces { network, .. } => Some(network.host(rank)),
        }
    }

    /// Runs a closure at this end. Sockets that it opens stay there.
    pub(super) fn inside<T: Send>(&self, rank: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self.host(rank) {
            None => Ok(work()),
            Some(host) => Ok(host.inside(work)?),
        }
    }
}
