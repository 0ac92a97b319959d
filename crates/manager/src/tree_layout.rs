//! Turns a tree into the seat specification for the nodes and the group descriptor for the leaders (P-78, P-79).

use units::{ChildIndex, QpNumber};

use super::control_error::ControlError;
use super::group_spec::{
    ChildSpec, GroupDescriptor, GroupRequest, LeaderAttachment, ParentSpec, SeatAddress, SeatChild, SeatSpec,
};
use super::limits::{MAX_EDGE_NUMBER, MAX_MESSAGE_BYTES};
use super::machine::Manager;
use super::message::GroupKey;
use super::tree_placement::{PlacementSubtree, SeatSubtree};
use super::{AuthKey, JobTicket};

impl Manager {
    /// Allocates edge numbers and makes the root's seat specification and the group descriptor.
    pub(super) fn lay_out(
        &mut self,
        ticket: JobTicket,
        group: GroupKey,
        key: AuthKey,
        asked: &GroupRequest,
        tree: &SeatSubtree,
        names: &[String],
    ) -> Result<(SeatSpec, GroupDescriptor), ControlError> {
        let edges = asked.leaders.len() + tree.seats().len() - 1;
        let numbers = self
            .numbers
            .take(edges, group)
            .ok_or_else(|| ControlError::too_many("edges", MAX_EDGE_NUMBER as usize))?;
        let place = LeaderAttachment { seat: 0, edge: QpNumber(0), child: ChildIndex(0) };
        let reply = GroupDescriptor {
            group: group.group,
            epoch: group.epoch,
            key,
            window: asked.window,
            segment_bytes: asked.segment_bytes,
            distribution: asked.distribution,
            seats: Vec::new(),
            leaders: vec![place; asked.leaders.len()],
            fold: tree.fold(),
        };
        let mut layout = Layout { manager: self, ticket, asked, names, numbers: numbers.into_iter(), reply };
        let mut spec = layout.seat(tree, None);
        let reply = layout.reply;
        let room = MAX_MESSAGE_BYTES - MAX_MESSAGE_BYTES / 8;
        if spec.max_encoded_bytes() > room {
            spec.remove_hosts();
        }
        // The descriptor has no more names, addresses and numbers than the specification, so one check covers both.
        if spec.max_encoded_bytes() > room {
            self.numbers.free(group);
            return Err(ControlError::too_many("leaders and addresses for one message: bytes", MAX_MESSAGE_BYTES));
        }
        Ok((spec, reply))
    }
}

/// Walks the tree and fills both results.
struct Layout<'a> {
    manager: &'a Manager,
    ticket: JobTicket,
    asked: &'a GroupRequest,
    names: &'a [String],
    numbers: std::vec::IntoIter<u32>,
    reply: GroupDescriptor,
}

impl Layout<'_> {
    fn seat(&mut self, branch: &SeatSubtree, parent: Option<ParentSpec>) -> SeatSpec {
        let name = &self.names[branch.node];
        let record = &self.manager.nodes[name];
        let (node, addresses) = (record.number, record.descriptor.addresses.clone());
        let seat = self.reply.seats.len() as u32;
        self.reply.seats.push(SeatAddress { node, name: name.clone(), addresses: addresses.clone() });
        let mut children = Vec::with_capacity(branch.parts.len());
        for (position, part) in branch.parts.iter().enumerate() {
            let edge = QpNumber(self.numbers.next().expect("every edge has an allocated number"));
            let child = ChildIndex::from_position(position);
            children.push(match part {
                PlacementSubtree::Leader(leader) => {
                    let index = *leader as usize;
                    self.reply.leaders[index] = LeaderAttachment { seat, edge, child };
                    let asked = &self.asked.leaders[index];
                    let who = SeatChild::Member { leader: *leader, rank: asked.rank, host: asked.host.clone() };
                    ChildSpec { edge, addresses: asked.addresses.clone(), who }
                }
                PlacementSubtree::Seat(below) => {
                    let up = ParentSpec { edge, child, node, name: name.clone(), addresses: addresses.clone() };
                    let node_below = &self.manager.nodes[&self.names[below.node]].descriptor;
                    let who =
                        SeatChild::Seat { control: node_below.control, spec: Box::new(self.seat(below, Some(up))) };
                    ChildSpec { edge, addresses: node_below.addresses.clone(), who }
                }
            });
        }
        SeatSpec {
            ticket: self.ticket,
            group: self.reply.group,
            epoch: self.reply.epoch,
            key: self.reply.key,
            node,
            name: name.clone(),
            window: self.asked.window,
            segment_bytes: self.asked.segment_bytes,
            distribution: self.asked.distribution,
            parent,
            children,
        }
    }
}
