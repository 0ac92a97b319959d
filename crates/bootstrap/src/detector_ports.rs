//! Where a rank's failure detector accepts connections.
//!
//! The ports are opened only when rank 0 listens: launchers often choose the rendezvous port by opening and closing one, and the kernel
//! might give that port to a rank before rank 0 has it.

use std::net::{IpAddr, SocketAddr, TcpListener};

use super::listening::bind;

/// Listeners for the connections of other ranks, one for each path.
pub(super) struct DetectorPorts {
    paths: Vec<IpAddr>,
    opened: Option<(Vec<TcpListener>, Vec<SocketAddr>)>,
}

impl DetectorPorts {
    /// On these addresses; nothing is opened yet.
    pub(super) fn new(paths: Vec<IpAddr>) -> Self {
        Self { paths, opened: None }
    }

    /// Opens them, once; their addresses. A path on which none can be opened has none.
    pub(super) fn open(&mut self) -> &[SocketAddr] {
        let paths = &self.paths;
        let (_, addresses) = self.opened.get_or_insert_with(|| {
            let open = |ip: &IpAddr| {
                let listener = bind(SocketAddr::new(*ip, 0)).ok()?;
                let address = listener.local_addr().ok()?;
                Some((listener, address))
            };
            paths.iter().filter(|ip| !ip.is_unspecified()).filter_map(open).unzip()
        });
        addresses
    }

    pub(super) fn into_listeners(self) -> Vec<TcpListener> {
        self.opened.map_or_else(Vec::new, |(listeners, _)| listeners)
    }
}
