//! Paths and links of an endpoint: what it learns about them reaches every queue pair that uses them.
//!
//! In: changes of links, damaged packets, rejected sends, orders of the user. Out: calls of the machines, which migrate or
//! report. Rules: P-19, P-28; claims PM-2, PM-3.

use std::net::SocketAddr;

use protocol::connection::path::PathState;
use units::limits::MAX_PATHS;
use units::{PathId, QpNumber, Span};

use super::endpoint::Endpoint;
use super::event::QueuePairError;
use super::link_monitor::live_addresses;
use super::options::LinkCut;
use super::port::UdpPortIndex;
use super::queue_pair::UdpQueuePair;

/// The shortest time between two rounds of shared suspicions.
const SUSPICION_INTERVAL: Span = Span::from_micros(50_000);

/// What an endpoint learns about a path.
#[derive(Clone, Copy)]
pub(super) enum PathObservation {
    Damaged,
    Down,
    Up,
    /// Another connection left it after a timeout.
    Suspect,
}

impl Endpoint {
    /// The state of a queue pair's paths; none if it has only one path.
    pub fn path_state(&self, number: QpNumber) -> Option<(PathState, PathId)> {
        let paths = self.pairs.get(&number)?.machine.connection().paths()?;
        Some((paths.state(), paths.current()))
    }

    /// Loads an alternate path; [`super::EndpointEvent::Path`] reports when it is armed.
    pub fn load_path(&mut self, number: QpNumber, path: PathId) -> Result<(), QueuePairError> {
        let now = self.clock.now();
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        pair.machine.load_path(now, path).map_err(QueuePairError::Load)?;
        self.update_timer(number);
        Ok(())
    }

    /// Loads an alternate path of several queue pairs (PM-2). Each reports by an event when it is armed. Returns the queue
    /// pairs that cannot load it, with the reason; the others continue.
    pub fn load_paths(&mut self, numbers: &[QpNumber], path: PathId) -> Vec<(QpNumber, QueuePairError)> {
        let refused = |number: &QpNumber| Some((*number, self.load_path(*number, path).err()?));
        numbers.iter().filter_map(refused).collect()
    }

    /// Moves traffic to the armed alternate path.
    pub fn migrate(&mut self, number: QpNumber) -> Result<(), QueuePairError> {
        let now = self.clock.now();
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let mut outbox = std::mem::take(&mut self.outbox);
        let migrated = pair.machine.migrate(now, &mut |packet| outbox.push(packet)).map_err(QueuePairError::Migrate);
        self.carry_out(number, outbox);
        self.flush();
        migrated
    }

    /// Cuts a port for tests and benchmarks, as if its cable were pulled: it drops what it sends and receives. `cut` says
    /// whether the connections learn of it.
    pub fn cut(&mut self, port: UdpPortIndex, cut: LinkCut) {
        self.ports[port.index()].is_cut = true;
        if cut == LinkCut::Noticed {
            self.notify_port_users(port, PathObservation::Down);
            self.flush();
        }
    }

    /// Restores a port that was cut.
    pub fn mend(&mut self, port: UdpPortIndex, cut: LinkCut) {
        self.ports[port.index()].is_cut = false;
        if cut == LinkCut::Noticed {
            self.notify_port_users(port, PathObservation::Up);
            self.flush();
        }
    }

    /// Of a damaged packet, only the source address is usable.
    pub(super) fn report_damage(&mut self, at: UdpPortIndex, from: SocketAddr) {
        self.notify_paths(PathObservation::Damaged, |pair| pair.path(at, from));
    }

    /// A message that arrived over a path failed its checksum (P-28). Counts as damage of the path.
    pub fn report_corruption(&mut self, number: QpNumber, path: PathId) {
        let now = self.clock.now();
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let mut outbox = std::mem::take(&mut self.outbox);
        pair.machine.handle_damage(now, path, &mut |packet| outbox.push(packet));
        self.carry_out(number, outbox);
        self.flush();
    }

    /// Reports an observation to every queue pair with a matching path.
    pub(super) fn notify_paths(
        &mut self,
        observation: PathObservation,
        which: impl Fn(&UdpQueuePair) -> Option<PathId>,
    ) {
        let now = self.clock.now();
        let concerned: Vec<(QpNumber, PathId)> =
            self.pairs.iter().filter_map(|(number, pair)| Some((*number, which(pair)?))).collect();
        for (number, path) in concerned {
            let mut outbox = std::mem::take(&mut self.outbox);
            let pair = self.pairs.get_mut(&number).expect("just seen");
            let out = &mut |packet| outbox.push(packet);
            match observation {
                PathObservation::Damaged => pair.machine.handle_damage(now, path, out),
                PathObservation::Down => pair.machine.handle_path_down(now, path, out),
                PathObservation::Up => pair.machine.handle_path_up(now, path),
                PathObservation::Suspect => pair.machine.suspect_path(now, path),
            }
            self.carry_out(number, outbox);
        }
    }

    /// P-19: a connection that left a path spares the others on it the same timeout. Seldom, because the connections that
    /// follow would only repeat the report.
    pub(super) fn share_suspicions(&mut self) {
        if self.suspects.is_empty() || self.clock.now() < self.suspected_at + SUSPICION_INTERVAL {
            return;
        }
        self.suspected_at = self.clock.now();
        for (port, to) in std::mem::take(&mut self.suspects) {
            self.notify_paths(PathObservation::Suspect, |pair| {
                let current = pair.machine.connection().paths()?.current();
                let route = pair.routes.get(current.index())?;
                ((route.port, route.to) == (port, to)).then_some(current)
            });
        }
    }

    /// The link monitor reported a change of links or addresses.
    pub(super) fn poll_links(&mut self) {
        let Ok(live) = live_addresses() else { return };
        for index in 0..self.ports.len() {
            let port = UdpPortIndex(index as u8);
            let address = self.ports[index].local.ip();
            // A multicast address belongs to no link.
            let is_up = address.is_unspecified() || address.is_multicast() || live.contains(&address);
            if std::mem::replace(&mut self.ports[index].is_up, is_up) == is_up {
                continue;
            }
            self.notify_port_users(port, if is_up { PathObservation::Up } else { PathObservation::Down });
        }
    }

    /// Reports an observation to every queue pair with a path through this port.
    fn notify_port_users(&mut self, port: UdpPortIndex, observation: PathObservation) {
        for path in 0..MAX_PATHS as u8 {
            self.notify_paths(observation, |pair| {
                let route = pair.routes.get(usize::from(path))?;
                (route.port == port || route.at == port).then_some(PathId(path))
            });
        }
    }
}
