//! Trees in an extended generalised fat tree, by formula.
//!
//! In: sorted members. Out: the tree whose roots are the lowest switches above all members.
//! Rules: a tree is a choice of planes per level, the same in every subtree, so that all leaves
//! agree on their parents and each root folds all members. With k replicas, each chosen plane is
//! continued by k planes of the level above (claim SE-7: k^(levels-1) roots). A host with w1 ports
//! sends on min(k, w1) of them. The first plane has the D-mod-K digits of the first member.

use std::collections::BTreeSet;

use super::builder::TreeBuilder;
use super::{AggregationTree, ChildNode, Downlink, PlacementError, TreeExclusions, TreeIndex, TreeRequest};
use crate::fabric::Fabric;
use crate::parts::{FabricPort, NodeId};
use crate::xgft::{Xgft, XgftCoordinates};

pub(super) fn place_by_formula(
    fabric: &Fabric,
    xgft: &Xgft,
    members: &[NodeId],
    request: &TreeRequest,
) -> Result<AggregationTree, PlacementError> {
    let root = request.root.map(|root| xgft.coordinates(root));
    let subtrees = occupied_subtrees(xgft, members, root)?;
    let top = subtrees.len() - 1;
    let choice = PlaneChoice {
        xgft,
        top,
        replicas: u32::from(request.replicas),
        root,
        first_member: members[0],
        unusable: unusable_planes(xgft, &subtrees, &request.avoid),
    };
    let planes = choice.choose()?;
    if let Some(root) = root
        && planes[top][0] != root.plane
    {
        return Err(PlacementError::RootNotAbove { root: xgft.node(root) });
    }
    let mut builder = TreeBuilder::new(fabric, request.radix_limit);
    let mut below: Vec<TreeIndex> = Vec::new();
    for level in 1..=top {
        below = add_level(xgft, &mut builder, level, &subtrees, &planes, &below);
    }
    Ok(builder.finish())
}

/// Per level, the subtrees that contain members, up to the first level where there is only one, or to
/// the level of the requested root.
fn occupied_subtrees(
    xgft: &Xgft,
    members: &[NodeId],
    root: Option<XgftCoordinates>,
) -> Result<Vec<Vec<u32>>, PlacementError> {
    let mut subtrees: Vec<Vec<u32>> = vec![members.iter().map(|host| host.0).collect()];
    for level in &xgft.levels[1..] {
        let mut tops: Vec<u32> = subtrees[subtrees.len() - 1].iter().map(|below| below / level.children).collect();
        tops.dedup();
        subtrees.push(tops);
        let reached = subtrees.len() - 1;
        let single = subtrees[reached].len() == 1;
        match root {
            None if single => break,
            Some(root) if root.level == reached => {
                if subtrees[reached] != [root.subtree] {
                    return Err(PlacementError::RootNotAbove { root: xgft.node(root) });
                }
                break;
            }
            _ => {}
        }
    }
    Ok(subtrees)
}

/// Planes (level, plane) in which an occupied subtree lacks its switch or the cable to it.
fn unusable_planes(xgft: &Xgft, subtrees: &[Vec<u32>], avoid: &TreeExclusions) -> BTreeSet<(usize, u32)> {
    let occupied = |coordinates: XgftCoordinates| {
        subtrees.get(coordinates.level).is_some_and(|subtrees| subtrees.binary_search(&coordinates.subtree).is_ok())
    };
    let exists = |node: NodeId| node.0 < xgft.nodes;
    let mut unusable = BTreeSet::new();
    for coordinates in avoid.nodes.iter().filter(|&&node| exists(node)).map(|&node| xgft.coordinates(node)) {
        if occupied(coordinates) {
            unusable.insert((coordinates.level, coordinates.plane));
        }
    }
    for cable in avoid.cables.iter().filter(|cable| exists(cable.a.node) && exists(cable.b.node)) {
        let (one, other) = (xgft.coordinates(cable.a.node), xgft.coordinates(cable.b.node));
        let (lower, upper) = if one.level < other.level { (one, other) } else { (other, one) };
        if occupied(lower) {
            unusable.insert((upper.level, upper.plane));
        }
    }
    unusable
}

struct PlaneChoice<'a> {
    xgft: &'a Xgft,
    top: usize,
    replicas: u32,
    root: Option<XgftCoordinates>,
    first_member: NodeId,
    unusable: BTreeSet<(usize, u32)>,
}

impl PlaneChoice<'_> {
    /// Per level, the chosen planes; the planes that continue the p-th plane of a level form a block in
    /// the next level, in the order of p.
    fn choose(&self) -> Result<Vec<Vec<u32>>, PlacementError> {
        let mut planes = vec![Vec::new(); self.top + 1];
        planes[0].push(0);
        self.continue_plane(0, 0, &mut planes)?;
        Ok(planes)
    }

    fn continue_plane(&self, level: usize, plane: u32, planes: &mut [Vec<u32>]) -> Result<(), PlacementError> {
        if level == self.top {
            return Ok(());
        }
        let width = self.xgft.levels[level].parents.value();
        let wanted = continuations(self.replicas, level, width);
        let first = self.first_digit(level, plane);
        let start = lengths(planes);
        let (mut found, mut open) = (0, 0);
        let mut error_above = None;
        for turn in 0..width {
            let above = plane * width + (first + turn) % width;
            if self.unusable.contains(&(level + 1, above)) {
                continue;
            }
            open += 1;
            let before = lengths(planes);
            planes[level + 1].push(above);
            match self.continue_plane(level + 1, above, planes) {
                Ok(()) => found += 1,
                Err(error) => {
                    restore(planes, &before);
                    error_above = Some(error);
                }
            }
            if found == wanted {
                return Ok(());
            }
        }
        restore(planes, &start);
        // Report the level that lacks ports, not the level that could not use them.
        let error_here =
            PlacementError::TooFewParents { level: level as u8, wanted: self.replicas as u8, available: open };
        Err(error_above.filter(|_| open >= wanted).unwrap_or(error_here))
    }

    /// The digit to try first: the requested root's if this plane leads to it, else D-mod-K.
    fn first_digit(&self, level: usize, plane: u32) -> u32 {
        let planes_at = |level: usize| self.xgft.levels[level].planes.value();
        let width = self.xgft.levels[level].parents.value();
        if let Some(root) = self.root {
            let planes_above = planes_at(root.level) / planes_at(level);
            if root.plane / planes_above == plane {
                return root.plane / (planes_at(root.level) / planes_at(level + 1)) % width;
            }
        }
        self.first_member.0 / planes_at(level) % width
    }
}

/// How many planes continue a plane; hosts are limited to the ports they have.
fn continuations(replicas: u32, level: usize, width: u32) -> u32 {
    if level == 0 { replicas.min(width) } else { replicas }
}

fn lengths(planes: &[Vec<u32>]) -> Vec<usize> {
    planes.iter().map(Vec::len).collect()
}

fn restore(planes: &mut [Vec<u32>], lengths: &[usize]) {
    for (plane, &length) in planes.iter_mut().zip(lengths) {
        plane.truncate(length);
    }
}

/// Adds the nodes of a level, subtree by subtree and plane by plane, and returns them in that order.
fn add_level(
    xgft: &Xgft,
    builder: &mut TreeBuilder<'_>,
    level: usize,
    subtrees: &[Vec<u32>],
    planes: &[Vec<u32>],
    below: &[TreeIndex],
) -> Vec<TreeIndex> {
    let width = xgft.levels[level].children;
    let lower_planes = planes[level - 1].len();
    let copies = planes[level].len() / lower_planes;
    let mut added = Vec::with_capacity(subtrees[level].len() * planes[level].len());
    let mut position = 0;
    for occupied in subtrees[level - 1].chunk_by(|a, b| a / width == b / width) {
        let subtree = occupied[0] / width;
        for (turn, &plane) in planes[level].iter().enumerate() {
            let children = occupied.iter().enumerate().map(|(offset, &child)| Downlink {
                node: match level {
                    1 => ChildNode::Host(NodeId(child)),
                    _ => ChildNode::Node(below[(position + offset) * lower_planes + turn / copies]),
                },
                port: Some(FabricPort((child - subtree * width) as u16)),
            });
            let children = children.collect();
            added.push(builder.add(xgft.node(XgftCoordinates { level, subtree, plane }), children));
        }
        position += occupied.len();
    }
    added
}
