//! Places a tree: checks the request, then takes the formula or the search.
//!
//! In: a fabric and a request, possibly nonsense. Out: a tree or a typed refusal.
//! Rules: fat trees are placed by formula; other shapes, and plain trees in fat trees so damaged that
//! no switch is above all members any more, by search.

use std::collections::BTreeSet;

use units::limits::MAX_COPIES;

use super::regular::place_by_formula;
use super::search::place_by_search;
use super::{AggregationTree, Avoid, Members, PlaceError, TreeRequest};
use crate::fabric::{Fabric, Shape};
use crate::parts::{Endpoint, NodeId};

/// Places an aggregation tree over the members.
pub fn place(fabric: &Fabric, request: &TreeRequest) -> Result<AggregationTree, PlaceError> {
    if !(1..=MAX_COPIES).contains(&request.replicas) {
        return Err(PlaceError::ReplicasOutOfRange(request.replicas));
    }
    if let Some(limit) = request.radix_limit.filter(|&limit| limit < 2) {
        return Err(PlaceError::RadixTooSmall(limit));
    }
    if let Some(root) = request.root.filter(|&root| root.0 >= fabric.nodes() || fabric.is_host(root)) {
        return Err(PlaceError::NotASwitch(root));
    }
    let barred = Barred::new(&request.avoid);
    let members = members(fabric, request, &barred)?;
    let Shape::Xgft(xgft) = &fabric.shape else {
        return place_by_search(fabric, &members, request, &barred);
    };
    let placed = place_by_formula(fabric, xgft, &members, request);
    match placed {
        Err(_) if request.replicas == 1 && !barred.is_empty() => place_by_search(fabric, &members, request, &barred),
        _ => placed,
    }
}

/// The members, sorted and each once.
fn members(fabric: &Fabric, request: &TreeRequest, barred: &Barred) -> Result<Vec<NodeId>, PlaceError> {
    let members: Vec<NodeId> = match &request.members {
        Members::All => (0..fabric.hosts()).map(NodeId).collect(),
        Members::Listed(listed) => {
            let mut sorted = listed.clone();
            sorted.sort_unstable();
            sorted.dedup();
            sorted
        }
    };
    let last = *members.last().ok_or(PlaceError::NoMembers)?;
    if last.0 >= fabric.hosts() {
        return Err(PlaceError::NotAHost(last));
    }
    match barred.nodes.iter().find(|node| members.binary_search(node).is_ok()) {
        Some(&node) => Err(PlaceError::MemberAvoided(node)),
        None => Ok(members),
    }
}

/// What is to be avoided, ready for lookup.
pub(super) struct Barred {
    nodes: BTreeSet<NodeId>,
    ends: BTreeSet<Endpoint>,
}

impl Barred {
    fn new(avoid: &Avoid) -> Self {
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

    pub(super) fn has_cable(&self, end: Endpoint) -> bool {
        self.ends.contains(&end)
    }
}
