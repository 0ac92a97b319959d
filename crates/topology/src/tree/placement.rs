//! Places a tree: checks the request, then takes the formula or the search.
//!
//! In: a fabric and a request, possibly nonsense. Out: a tree or a typed refusal.
//! Rules: fat trees are placed by formula; other shapes, and plain trees in fat trees so damaged that
//! no switch is above all members any more, by search.

use std::collections::BTreeSet;

use units::limits::MAX_COPIES;

use super::formula::place_by_formula;
use super::search::place_by_search;
use super::{AggregationTree, PlacementError, TreeExclusions, TreeMembers, TreeRequest};
use crate::fabric::{Fabric, FabricShape};
use crate::parts::{NodeId, NodePort};

/// Places an aggregation tree over the members.
pub fn place_tree(fabric: &Fabric, request: &TreeRequest) -> Result<AggregationTree, PlacementError> {
    if !(1..=MAX_COPIES).contains(&request.replicas) {
        return Err(PlacementError::ReplicasOutOfRange(request.replicas));
    }
    if let Some(limit) = request.radix_limit.filter(|&limit| limit < 2) {
        return Err(PlacementError::RadixTooSmall(limit));
    }
    if let Some(root) = request.root.filter(|&root| root.0 >= fabric.nodes() || fabric.is_host(root)) {
        return Err(PlacementError::NotASwitch(root));
    }
    let barred = ExclusionIndex::new(&request.avoid);
    let members = members(fabric, request, &barred)?;
    let FabricShape::Xgft(xgft) = &fabric.shape else {
        return place_by_search(fabric, &members, request, &barred);
    };
    let placed = place_by_formula(fabric, xgft, &members, request);
    match placed {
        Err(_) if request.replicas == 1 && !barred.is_empty() => place_by_search(fabric, &members, request, &barred),
        _ => placed,
    }
}

/// The members, sorted and each once.
fn members(fabric: &Fabric, request: &TreeRequest, barred: &ExclusionIndex) -> Result<Vec<NodeId>, PlacementError> {
    let members: Vec<NodeId> = match &request.members {
        TreeMembers::All => (0..fabric.hosts()).map(NodeId).collect(),
        TreeMembers::Listed(listed) => {
            let mut sorted = listed.clone();
            sorted.sort_unstable();
            sorted.dedup();
            sorted
        }
    };
    let last = *members.last().ok_or(PlacementError::NoMembers)?;
    if last.0 >= fabric.hosts() {
        return Err(PlacementError::NotAHost(last));
    }
    match barred.nodes.iter().find(|node| members.binary_search(node).is_ok()) {
        Some(&node) => Err(PlacementError::MemberAvoided(node)),
        None => Ok(members),
    }
}

/// What is to be avoided, ready for lookup.
pub(super) struct ExclusionIndex {
    nodes: BTreeSet<NodeId>,
    ends: BTreeSet<NodePort>,
}

impl ExclusionIndex {
    fn new(avoid: &TreeExclusions) -> Self {
        Self {
            nodes: avoid.nodes.iter().copied().collect(),
            ends: avoid.cables.iter().flat_map(|cable| [cable.a, cable.b]).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.ends.is_empty()
    }

    pub(super) fn has_node(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    pub(super) fn has_cable(&self, end: NodePort) -> bool {
        self.ends.contains(&end)
    }
}
