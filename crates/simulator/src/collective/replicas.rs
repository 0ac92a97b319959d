//! Which nodes of a tree are replicas of each other ([`super::ReplicaSharing::AboveLevelOne`]).

use std::collections::BTreeMap;

use topology::AggregationTree;

use crate::packet_body::ParticipantIndex;

/// For each node above level 1, its replicas: other nodes of the same level that reduce the same hosts in the same order, and so
/// number their children alike.
pub(super) fn replicas(tree: &AggregationTree) -> Vec<Vec<ParticipantIndex>> {
    let shapes = tree.shapes();
    let mut replicas: BTreeMap<(u8, u32), Vec<ParticipantIndex>> = BTreeMap::new();
    for (index, node) in tree.nodes.iter().enumerate() {
        replicas.entry((node.level, shapes[index])).or_default().push(index as ParticipantIndex);
    }
    let others = |index: usize| -> Vec<ParticipantIndex> {
        let level = tree.nodes[index].level;
        if level < 2 {
            return Vec::new();
        }
        replicas[&(level, shapes[index])].iter().copied().filter(|other| *other as usize != index).collect()
    };
    (0..tree.nodes.len()).map(others).collect()
}
