//! Routes in an extended generalised fat tree.
//!
//! In: where a packet is, where it goes, its flow. Out: the port it leaves by, by formula.
//! Rules: up until the destination is below, then down. The up port is the destination's digit
//! (D-mod-K: destination / (w1..wi) mod w_i+1) plus the flow's digit, so flow 0 is plain D-mod-K
//! and flows 0..(w1..wh) together use every path. The decision needs no memory of the way so far.

use std::hint::select_unpredictable;

use crate::parts::{NextHop, NodeId};
use crate::xgft::{Xgft, XgftCoordinates};

impl Xgft {
    /// The caller has checked that `at` and `to` differ and exist.
    #[inline]
    pub(crate) fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<NextHop> {
        if to.0 < self.hosts {
            return Some(NextHop::plain(self.port_toward_host(at, to, flow)));
        }
        self.port_toward_switch(self.seat(at), to, flow).map(NextHop::plain)
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
        // Half the hops of a simulation go up, half down, in no order a processor could guess:
        // both ports cost less than one wrong guess.
        select_unpredictable(is_below, down, up)
    }

    /// Toward a switch, digits of its plane can only be set on the way up, so a packet whose plane
    /// is already wrong must first come down: such a way (root to root, say) bends at the bottom
    /// instead of the top. It is the shortest there is, and only control traffic takes it.
    fn port_toward_switch(&self, at: XgftCoordinates, to: NodeId, flow: u32) -> Option<u32> {
        let target = self.seat(to);
        let level = &self.levels[at.level];
        let low = at.level.min(target.level);
        let high = at.level.max(target.level);
        let wrong_plane = self.plane_at(at, low) != self.plane_at(target, low);
        let wrong_subtree = self.subtree_at(at, high) != self.subtree_at(target, high);
        if wrong_plane && self.plane_at(at, 1) != self.plane_at(target, 1) {
            return None; // Only a host joins the two networks, and hosts do not forward.
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

    /// The plane of the switches of a lower level that `seat` is above.
    fn plane_at(&self, seat: XgftCoordinates, level: usize) -> u32 {
        seat.plane / (self.levels[seat.level].planes.value() / self.levels[level].planes.value())
    }

    /// The subtree of a higher level that `seat` belongs to.
    fn subtree_at(&self, seat: XgftCoordinates, level: usize) -> u32 {
        seat.subtree / (self.levels[level].hosts_below.value() / self.levels[seat.level].hosts_below.value())
    }
}
