//! What a tree must avoid, indexed for lookup.

use std::collections::BTreeSet;

use super::TreeExclusions;
use crate::parts::{NodeId, NodePort};

/// What the tree must avoid, for lookup.
pub(super) struct ExclusionIndex {
    pub(super) nodes: BTreeSet<NodeId>,
    ends: BTreeSet<NodePort>,
}

impl ExclusionIndex {
    pub(super) fn new(avoid: &TreeExclusions) -> Self {
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
