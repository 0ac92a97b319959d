//! Aggregation nodes that were lost lately: a new tree is requested without them, rank 0 says so once, and explanations name them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manager::CONNECTION_BROKE;

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

/// What happened to a tree that the manager has revoked.
pub(crate) fn describe_loss(node: Option<(&str, Option<SocketAddr>)>, why: &str) -> String {
    match node {
        Some((name, Some(address))) => format!("aggregation node {name} ({address}) is lost: {why}"),
        Some((name, None)) => format!("aggregation node {name} is lost: {why}"),
        None => format!("an aggregation tree has failed: {why}"),
    }
}

/// Losses of which the user was told lately.
pub(crate) struct LossReport {
    told: LostNodes,
    /// What started the nodes for this job tells the user when one ends.
    are_nodes_supervised: bool,
}

impl LossReport {
    pub(crate) fn new(are_nodes_supervised: bool) -> Self {
        Self { told: LostNodes::default(), are_nodes_supervised }
    }

    /// The line for a tree that the manager has revoked; none if the user knows of that node, or of a tree without a lost node, already.
    pub(crate) fn line(
        &mut self,
        now: Instant,
        node: Option<(&str, Option<SocketAddr>)>,
        why: &str,
    ) -> Option<String> {
        // A connection breaks at once only if its process ends; a node that does not answer, nobody else reports.
        if self.are_nodes_supervised && node.is_some() && why == CONNECTION_BROKE {
            return None;
        }
        let (name, what) = (node.map_or("", |(name, _)| name), describe_loss(node, why));
        let is_known = self.told.to_avoid(now).iter().any(|known| known == name);
        self.told.add(now, name.to_owned());
        (!is_known).then(|| format!("pleach: warning: {what}; the job continues without it\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_reported_once_with_name_and_address() {
        let (mut report, now) = (LossReport::new(false), Instant::now());
        let address = Some(SocketAddr::from(([10, 0, 0, 9], 4800)));
        let line = report.line(now, Some(("rack3", address)), "no heartbeat").expect("it is new");
        let expected = "pleach: warning: aggregation node rack3 (10.0.0.9:4800) is lost: no heartbeat; the job continues without it\n";
        assert_eq!(line, expected);
        assert_eq!(
            report.line(now, Some(("rack3", address)), "its connection broke"),
            None,
            "another group of the same node"
        );
        assert!(report.line(now, Some(("rack4", None)), "no heartbeat").is_some_and(|line| line.contains("rack4")));
        let line = report.line(now, None, "node left: rank 3 on host3 does not answer").expect("it is new");
        assert!(
            line.contains("an aggregation tree has failed: node left: rank 3 on host3 does not answer;"),
            "{line}"
        );
        assert!(
            report.line(now + AVOIDED_FOR, Some(("rack3", address)), "no heartbeat").is_some(),
            "it was lost again"
        );
    }

    #[test]
    fn a_node_that_ended_is_left_to_who_started_it() {
        let (mut report, now) = (LossReport::new(true), Instant::now());
        assert_eq!(report.line(now, Some(("leaf1", None)), CONNECTION_BROKE), None);
        assert!(report.line(now, Some(("leaf1", None)), "no heartbeat").is_some(), "it still runs");
        assert!(report.line(now, None, CONNECTION_BROKE).is_some(), "of no node");
    }

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
