//! The operator's plan of the tree, from a file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::control_error::ControlError;
use super::host_pattern::HostPattern;
use super::limits::{MAX_HINTS, MAX_NODES, MAX_PATTERNS, MAX_PLANNED_HOSTS};
use super::message::NodeDescriptor;
use super::validate;

/// The planned nodes. For any other node its own registration counts, or the manager arranges it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyPlan {
    /// The nodes.
    #[serde(default, rename = "node")]
    pub nodes: Vec<PlannedNode>,
}

/// A planned node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Its possible parents; several if it may be in several trees.
    #[serde(default)]
    pub parents: Vec<String>,
    /// The hosts that it serves: names, patterns with `*`, addresses or CIDR.
    #[serde(default)]
    pub serves: Vec<String>,
}

impl TopologyPlan {
    /// Checks that the plan is a forest of nodes with valid names.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), ControlError> {
        if self.nodes.len() > MAX_NODES {
            return Err(ControlError::too_many("nodes", MAX_NODES));
        }
        let mut parents: BTreeMap<&str, &[String]> = BTreeMap::new();
        for node in &self.nodes {
            validate::name(&node.name, "node")?;
            if node.parents.len() > MAX_HINTS {
                return Err(ControlError::too_many("parents of a node", MAX_HINTS));
            }
            if node.serves.len() > MAX_PLANNED_HOSTS {
                return Err(ControlError::too_many("served hosts of a node", MAX_PLANNED_HOSTS));
            }
            node.serves.iter().try_for_each(|text| HostPattern::parse(text).map(drop))?;
            if parents.insert(&node.name, &node.parents).is_some() {
                return Err(ControlError::malformed(&format!("node {} is described twice", node.name)));
            }
        }
        for node in &self.nodes {
            if let Some(unknown) = node.parents.iter().find(|parent| !parents.contains_key(parent.as_str())) {
                let what = format!("node {} has a parent {unknown} that is not described", node.name);
                return Err(ControlError::malformed(&what));
            }
        }
        if self.nodes.iter().map(|node| node.serves.len()).sum::<usize>() > MAX_PATTERNS {
            return Err(ControlError::too_many("served hosts of all nodes", MAX_PATTERNS));
        }
        match find_cycle(&parents) {
            Some(name) => Err(ControlError::malformed(&format!("node {name} is its own ancestor"))),
            None => Ok(()),
        }
    }

    /// Applies the plan to a node's registration.
    pub(super) fn place(&self, registered: NodeDescriptor) -> NodeDescriptor {
        match self.nodes.iter().find(|node| node.name == registered.name) {
            Some(node) => NodeDescriptor { parents: node.parents.clone(), serves: node.serves.clone(), ..registered },
            None => registered,
        }
    }
}

/// A node that is its own ancestor, if there is one: removes nodes without parents until none is left, or only cycles are.
pub(super) fn find_cycle<'a>(parents: &BTreeMap<&'a str, &'a [String]>) -> Option<&'a str> {
    let mut left = parents.clone();
    loop {
        let tops: Vec<&str> = left
            .iter()
            .filter(|(_, above)| !above.iter().any(|parent| left.contains_key(parent.as_str())))
            .map(|(name, _)| *name)
            .collect();
        if tops.is_empty() {
            return left.keys().next().copied();
        }
        tops.iter().for_each(|name| {
            left.remove(name);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, parents: &[&str], serves: &[&str]) -> PlannedNode {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        PlannedNode { name: name.to_owned(), parents: owned(parents), serves: owned(serves) }
    }

    #[test]
    fn an_invalid_plan_is_rejected_with_the_reason() {
        let check = |nodes: &[PlannedNode]| TopologyPlan { nodes: nodes.to_vec() }.check();
        let good = [node("top", &[], &[]), node("other", &[], &[]), node("a", &["top", "other"], &["10.0.0.0/8"])];
        assert_eq!(check(&good), Ok(()));
        for (bad, word) in [
            (vec![node("a", &[], &[]), node("a", &[], &[])], "twice"),
            (vec![node("a", &["b"], &[])], "not described"),
            (vec![node("a", &["b"], &[]), node("b", &["a"], &[])], "its own ancestor"),
            (vec![node("a", &[], &["1.2.3.4/99"])], "address/bits"),
            (vec![node("two words", &[], &[])], "printable"),
        ] {
            assert!(check(&bad).unwrap_err().to_string().contains(word), "{word}");
        }
    }
}
