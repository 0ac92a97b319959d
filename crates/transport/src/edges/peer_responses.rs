//! When remote sockets last responded, over whichever edge (P-131).
//!
//! In: authentic control frames. Out: whether a peer that is silent on one edge answers on others. The edges to one socket share its time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{PathId, Time};

use crate::udp::UdpRoute;

/// In nanoseconds. Zero: never.
type ResponseTime = Arc<AtomicU64>;

/// The remote sockets of all edges.
#[derive(Default)]
pub(super) struct PeerResponses {
    sockets: BTreeMap<SocketAddr, ResponseTime>,
}

/// The remote sockets of one edge, by path.
pub(super) struct EdgeResponses(Vec<ResponseTime>);

impl PeerResponses {
    pub(super) fn add(&mut self, routes: &[UdpRoute]) -> EdgeResponses {
        EdgeResponses(routes.iter().map(|route| self.sockets.entry(route.to).or_default().clone()).collect())
    }

    /// An edge with these routes is gone: forgets sockets to which no other edge leads.
    pub(super) fn remove(&mut self, routes: &[UdpRoute], edge: EdgeResponses) {
        drop(edge);
        for UdpRoute { to, .. } in routes {
            if self.sockets.get(to).is_some_and(|time| Arc::strong_count(time) == 1) {
                self.sockets.remove(to);
            }
        }
    }
}

impl EdgeResponses {
    pub(super) fn note(&self, path: PathId, now: Time) {
        if let Some(time) = self.0.get(path.index()) {
            time.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    pub(super) fn is_any_since(&self, since: Time) -> bool {
        let last = self.0.iter().map(|time| time.load(Ordering::Relaxed)).max().unwrap_or(0);
        last > 0 && Time::from_nanos(last) >= since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpPortIndex;

    #[test]
    fn edges_to_one_socket_share_its_time_and_nothing_stays_behind() {
        let route = |port: u16| UdpRoute::new(UdpPortIndex(0), SocketAddr::from(([127, 0, 0, 1], port)));
        let mut responses = PeerResponses::default();
        let (both, one) = ([route(1), route(2)], [route(1)]);
        let (first, second) = (responses.add(&both), responses.add(&one));
        assert!(!first.is_any_since(Time::ZERO));
        first.note(PathId(0), Time::from_nanos(50));
        assert!(second.is_any_since(Time::from_nanos(50)) && !second.is_any_since(Time::from_nanos(51)));
        second.note(PathId(9), Time::from_nanos(60));
        assert!(!second.is_any_since(Time::from_nanos(51)), "it has no such path");
        responses.remove(&both, first);
        assert_eq!(responses.sockets.len(), 1);
        responses.remove(&one, second);
        assert!(responses.sockets.is_empty());
    }
}
