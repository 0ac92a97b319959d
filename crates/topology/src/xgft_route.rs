//! Routes in an extended generalised fat tree.
//!
//! In: the current node of a packet, its destination and its flow. Out: the port it leaves by, by formula.
//! Rules: up until the destination is below, then down. The up port is the destination's digit
//! (D-mod-K: destination / (w1..wi) mod w_i+1) plus the flow's digit, so flow 0 is plain D-mod-K
//! and flows 0..(w1..wh) together use every path. The decision does not depend on the path so far.

use std::hint::select_unpredictable;

use crate::parts::{NextHop, NodeId};
use crate::xgft::{Xgft, XgftCoordinates};

impl Xgft {
    /// The caller has checked that `at` and `to` differ and exist.
    #[inline]
    pub(crate) fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<NextHop> {
        if to.0 < self.hosts {
            return Some(NextHop::on_lane_0(self.port_toward_host(at, to, flow)));
        }
        self.port_toward_switch(self.coordinates(at), to, flow).map(NextHop::on_lane_0)
    }

    /// The up ports of `at`, if host `to` is not below it.
    pub(crate) fn up_ports_toward(&self, at: NodeId, to: NodeId) -> Option<std::ops::Range<u16>> {
        let level = &self.levels[self.level_of(at)];
        let subtree = level.planes.divide(u64::from(at.0 - level.first));
        if level.hosts_below.divide(u64::from(to.0)) == subtree {
            return None;
        }
        // Ports of a node are at most 65,535 (`bounded_ports`).
        Some(level.children as u16..(level.children + level.parents.value()) as u16)
    }

    #[inline]
    fn port_toward_host(&self, at: NodeId, to: NodeId, flow: u32) -> u32 {
        let level = &self.levels[self.level_of(at)];
        let subtree = level.planes.divide(u64::from(at.0 - level.first));
        let host = u64::from(to.0);
        let is_below = level.hosts_below.divide(host) == subtree;
        let down = level.hosts_per_child.divide(host).wrapping_sub(subtree * level.children);
        let spread = u64::from(level.planes.divide(host)) + u64::from(level.planes.divide(u64::from(flow)));
        let up = level.children + level.parents.remainder(spread);
        // Half the hops of a simulation go up, half down, in an unpredictable order: computing both
        // ports costs less than one branch misprediction.
        select_unpredictable(is_below, down, up)
    }

    /// Toward a switch, the digits of its plane can only be set on the way up, so a packet whose plane
    /// is already wrong must first go down: such a route (from root to root, for example) turns at the
    /// bottom instead of the top. It is the shortest route, and only control traffic takes it.
    fn port_toward_switch(&self, at: XgftCoordinates, to: NodeId, flow: u32) -> Option<u32> {
        let target = self.coordinates(to);
        let level = &self.levels[at.level];
        let low = at.level.min(target.level);
        let high = at.level.max(target.level);
        let wrong_plane = self.plane_at(at, low) != self.plane_at(target, low);
        let wrong_subtree = self.subtree_at(at, high) != self.subtree_at(target, high);
        if wrong_plane && self.plane_at(at, 1) != self.plane_at(target, 1) {
            return None; // Only hosts connect the two planes, and hosts do not forward.
        }
        let climb = match wrong_plane {
            true => wrong_subtree && at.level >= target.level,
            false => wrong_subtree || at.level < target.level,
        };
        if climb {
            let up = if at.level < target.level {
                self.plane_at(target, at.level + 1) % level.parents.value()
            } else {
                let spread =
                    u64::from(level.planes.divide(u64::from(to.0))) + u64::from(level.planes.divide(u64::from(flow)));
                level.parents.remainder(spread)
            };
            return Some(level.children + up);
        }
        Some(if at.level > target.level {
            self.subtree_at(target, at.level - 1) % level.children
        } else {
            ((u64::from(to.0) + u64::from(flow)) % u64::from(level.children)) as u32
        })
    }

    /// The plane, at a lower level, of the switches below `coordinates`.
    fn plane_at(&self, coordinates: XgftCoordinates, level: usize) -> u32 {
        coordinates.plane / (self.levels[coordinates.level].planes.value() / self.levels[level].planes.value())
    }

    /// The subtree of a higher level that `coordinates` belongs to.
    fn subtree_at(&self, coordinates: XgftCoordinates, level: usize) -> u32 {
        coordinates.subtree
            / (self.levels[level].hosts_below.value() / self.levels[coordinates.level].hosts_below.value())
    }
}
