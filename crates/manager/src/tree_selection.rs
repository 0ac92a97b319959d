//! Selects the tree of a group: the least loaded tree with enough capacity (P-77, P-80).

use super::JobId;
use super::control_error::{ControlError, NodeResource};
use super::group_spec::{GroupRequest, reserved_bytes};
use super::machine::Manager;
use super::records::{NodeLiveness, NodeRecord};
use super::tree_placement::{PlacementNode, SeatSubtree, TreePlacement};

/// Load of a tree with the group in it: the fullest node, then the root, then the number of seats.
type TreeLoad = (u64, u64, usize);

impl Manager {
    /// The least loaded of all trees that fit (P-78, P-80), with the names of the nodes to which its indices refer.
    pub(super) fn choose_tree(
        &self,
        job: JobId,
        asked: &GroupRequest,
    ) -> Result<(SeatSubtree, Vec<String>), ControlError> {
        let is_usable = |(name, record): &(&String, &NodeRecord)| {
            matches!(record.liveness, NodeLiveness::Alive { .. }) && !asked.avoid.contains(name)
        };
        let usable: Vec<(&String, &NodeRecord)> = self.nodes.iter().filter(is_usable).collect();
        let placement_nodes: Vec<PlacementNode> =
            usable.iter().map(|(name, record)| placement_node(name, record)).collect();
        let trees = TreePlacement::new(&placement_nodes, &asked.leaders).trees(self.settings.fanout)?;
        let mut best: Option<(TreeLoad, SeatSubtree)> = None;
        let mut reason = None;
        for tree in trees {
            match self.score(job, asked, &tree, &usable) {
                Ok(score) if best.as_ref().is_none_or(|(least, _)| score < *least) => best = Some((score, tree)),
                Ok(_) => {}
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        let names = usable.iter().map(|(name, _)| (*name).clone()).collect();
        best.map(|(_, tree)| (tree, names)).ok_or_else(|| reason.unwrap_or(ControlError::NoNode))
    }

    fn score(
        &self,
        job: JobId,
        asked: &GroupRequest,
        tree: &SeatSubtree,
        usable: &[(&String, &NodeRecord)],
    ) -> Result<TreeLoad, ControlError> {
        let quota = self.jobs.get(&job).map(|record| record.quota).ok_or(ControlError::WrongTicket)?;
        let seats = tree.seats();
        let mut loads = Vec::with_capacity(seats.len());
        for seat in &seats {
            let (name, record) = usable[seat.node];
            let bytes = reserved_bytes(asked.window, seat.parts.len(), asked.segment_bytes);
            let (room, used) = (record.descriptor.capacity, record.reserved);
            let own = record.reservations.values().filter(|hold| hold.job == job);
            let (own_operations, own_bytes) = own.fold((0u64, 0u64), |(operations, bytes), hold| {
                (operations + u64::from(hold.operations), bytes.saturating_add(hold.bytes))
            });
            let window = u64::from(asked.window);
            let full = |resource, wanted, free| ControlError::NodeFull { node: name.clone(), resource, wanted, free };
            let over =
                |resource, wanted, free| ControlError::QuotaFull { node: name.clone(), resource, wanted, free };
            check_available(1, room.seats.into(), used.seats.into())
                .map_err(|free| full(NodeResource::Groups, 1, free))?;
            check_available(window, room.operations.into(), used.operations.into())
                .map_err(|free| full(NodeResource::Operations, window, free))?;
            check_available(bytes, room.bytes, used.bytes).map_err(|free| full(NodeResource::Bytes, bytes, free))?;
            check_available(window, quota.operations.into(), own_operations)
                .map_err(|free| over(NodeResource::Operations, window, free))?;
            check_available(bytes, quota.bytes, own_bytes).map_err(|free| over(NodeResource::Bytes, bytes, free))?;
            loads.push(load_permille(record, window, bytes));
        }
        Ok((loads.iter().copied().max().unwrap_or(0), loads[0], seats.len()))
    }
}

fn placement_node<'a>(name: &'a str, record: &'a NodeRecord) -> PlacementNode<'a> {
    PlacementNode {
        name,
        parents: &record.descriptor.parents,
        serves: &record.patterns,
        load: load_permille(record, 0, 0),
    }
}

/// Load of a node in thousandths, over its scarcest resource.
fn load_permille(record: &NodeRecord, operations: u64, bytes: u64) -> u64 {
    let part = |used: u64, of: u64| used.saturating_mul(1_000) / of.max(1);
    let (room, used) = (record.descriptor.capacity, record.reserved);
    part(used.seats.into(), room.seats.into())
        .max(part(u64::from(used.operations) + operations, room.operations.into()))
        .max(part(used.bytes.saturating_add(bytes), room.bytes))
}

/// Fails with the free amount if it is too small.
fn check_available(wanted: u64, most: u64, used: u64) -> Result<(), u64> {
    let free = most.saturating_sub(used);
    if wanted <= free { Ok(()) } else { Err(free) }
}
