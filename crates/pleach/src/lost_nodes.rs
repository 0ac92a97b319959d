//! Aggregation nodes that were lost lately: a new tree is requested without them.

use std::time::{Duration, Instant};

/// A node that has come back for this long may be used again.
const AVOIDED_FOR: Duration = Duration::from_secs(30);
/// Nodes that are remembered, the last ones.
const MAX_NODES: usize = 64;

#[derive(Default)]
pub(crate) struct LostNodes(Vec<(String, Instant)>);

impl LostNodes {
    /// The manager reports that a node is lost.
    pub(crate) fn add(&mut self, now: Instant, node: String) {
        self.0.retain(|(known, _)| *known != node);
        self.0.push((node, now));
        if self.0.len() > MAX_NODES {
            self.0.remove(0);
        }
    }

    /// The nodes that a new tree should do without.
    pub(crate) fn to_avoid(&self, now: Instant) -> Vec<String> {
        let is_recent = |lost: &Instant| now.saturating_duration_since(*lost) < AVOIDED_FOR;
        self.0.iter().filter(|(_, lost)| is_recent(lost)).map(|(node, _)| node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_node_is_avoided_for_a_while() {
        let (mut nodes, now) = (LostNodes::default(), Instant::now());
        nodes.add(now, "leaf1".to_owned());
        nodes.add(now + AVOIDED_FOR / 2, "leaf2".to_owned());
        assert_eq!(nodes.to_avoid(now + AVOIDED_FOR / 2), ["leaf1", "leaf2"]);
        assert_eq!(nodes.to_avoid(now + AVOIDED_FOR), ["leaf2"]);
        nodes.add(now + AVOIDED_FOR, "leaf1".to_owned());
        assert_eq!(nodes.to_avoid(now + AVOIDED_FOR), ["leaf2", "leaf1"], "it was lost again");
        (0..1000).for_each(|number| nodes.add(now, number.to_string()));
        assert_eq!(nodes.to_avoid(now).len(), MAX_NODES);
    }
}
