//! Places a tree: checks the request, then uses the formula or the search.
//!
//! In: a fabric and a request, possibly invalid. Out: a tree or a typed error.
//! Rules: the formula places trees in fat trees; the search places them in other shapes, and plain trees in
//! fat trees so damaged that no switch is above all members.

use units::limits::MAX_COPIES;

use super::exclusion_index::ExclusionIndex;
use super::formula::place_by_formula;
use super::search::place_by_search;
use super::{AggregationTree, PlacementError, TreeMembers, TreeRequest};
use crate::fabric::{Fabric, FabricShape};
use crate::parts::NodeId;

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
    let excluded = ExclusionIndex::new(&request.avoid);
    let members = members(fabric, request, &excluded)?;
    let FabricShape::Xgft(xgft) = &fabric.shape else {
        return place_by_search(fabric, &members, request, &excluded);
    };
    let placed = place_by_formula(fabric, xgft, &members, request);
    match placed {
        Err(_) if request.replicas == 1 && !excluded.is_empty() => {
            place_by_search(fabric, &members, request, &excluded)
        }
        _ => placed,
    }
}

/// The members, sorted and without duplicates.
fn members(fabric: &Fabric, request: &TreeRequest, excluded: &ExclusionIndex) -> Result<Vec<NodeId>, PlacementError> {
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
    match excluded.nodes.iter().find(|node| members.binary_search(node).is_ok()) {
        Some(&node) => Err(PlacementError::MemberAvoided(node)),
        None => Ok(members),
    }
}
