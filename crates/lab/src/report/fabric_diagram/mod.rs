//! The fabric as a picture: levels as rows, links coloured by load, faults in red.
//!
//! In: a fabric of any size and what its links carried. Out: a few hundred boxes and lines, and a sentence on what
//! a box stands for. Nothing is sampled: neighbours are drawn as one box, and all cables between two boxes as one
//! line, with the load of the busiest and the faults of all.

mod draw;

use std::collections::BTreeMap;

use simulator::collective::LinkReport;
use simulator::fault::FaultPlan;
use topology::{Fabric, FabricKind, NodeId};

use crate::number_format::{group_digits, pluralize};

/// Boxes of a row at most.
const ROW: u32 = 96;
/// Lines at most; those with faults and the busiest stay.
const LINES: usize = 2_400;
/// Fabrics with more cables are drawn without those that carried nothing.
const ALL_CABLES: u64 = 1 << 20;

/// A picture, ready to be drawn.
pub(crate) struct FabricDiagram {
    rows: Vec<DiagramRow>,
    shape: DiagramLayout,
    lines: Vec<(BoxPair, DiagramLine)>,
    left_out: usize,
    inside: u64,
    names: Vec<String>,
    /// A node in the box is killed by the plan.
    killed: Vec<bool>,
    /// PacketCounters hurt on cables inside the box.
    hurt_inside: Vec<u64>,
}

/// Two boxes, the lower first.
type BoxPair = (u32, u32);

/// One level of the fabric.
struct DiagramRow {
    first_node: u32,
    nodes: u32,
    per_box: u32,
    first_box: u32,
}

/// How boxes are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiagramLayout {
    /// One row a level.
    Rows,
    /// Switches of one level around a circle, their hosts outside.
    Ring,
}

/// The cables between two boxes.
#[derive(Clone, Copy, Default)]
struct DiagramLine {
    cables: u64,
    /// Of the busiest direction of the busiest cable.
    packets: u32,
    damaged: u64,
    lost: u64,
}

impl DiagramLine {
    fn harm(&self) -> u64 {
        self.damaged + self.lost
    }

    fn is_hurt(&self) -> bool {
        self.harm() > 0
    }
}

impl DiagramRow {
    fn boxes(&self) -> u32 {
        self.nodes.div_ceil(self.per_box)
    }
}

/// How many nodes each level has, hosts first.
pub(crate) fn level_sizes(fabric: &Fabric) -> Vec<u32> {
    let mut sizes = Vec::new();
    for node in 0..fabric.nodes() {
        let level = usize::from(fabric.level(NodeId(node)));
        if sizes.len() <= level {
            sizes.resize(level + 1, 0);
        }
        sizes[level] += 1;
    }
    sizes
}

impl FabricDiagram {
    pub(crate) fn new(fabric: &Fabric, plan: &FaultPlan, links: impl Iterator<Item = LinkReport>) -> Self {
        let shape = if fabric.kind() == FabricKind::Grid { DiagramLayout::Ring } else { DiagramLayout::Rows };
        let rows = rows(&level_sizes(fabric), shape);
        let boxes = rows.last().map_or(0, |row| row.first_box + row.boxes());
        let mut picture = Self {
            rows,
            shape,
            lines: Vec::new(),
            left_out: 0,
            inside: 0,
            names: Vec::new(),
            killed: vec![false; boxes as usize],
            hurt_inside: vec![0; boxes as usize],
        };
        picture.names = (0..boxes).map(|number| picture.name(number, fabric)).collect();
        for name in plan.rules.iter().filter_map(|rule| rule.node.as_ref()) {
            if let Some(node) = fabric.find(name.get_ref().trim()) {
                let hit = picture.box_of(node);
                picture.killed[hit as usize] = true;
            }
        }
        picture.draw_lines(fabric, links);
        picture
    }

    fn draw_lines(&mut self, fabric: &Fabric, links: impl Iterator<Item = LinkReport>) {
        let mut lines: BTreeMap<BoxPair, DiagramLine> = BTreeMap::new();
        if fabric.cable_count() <= ALL_CABLES {
            for cable in fabric.cables() {
                match self.ends(cable.a.node, cable.b.node) {
                    Some(ends) => lines.entry(ends).or_default().cables += 1,
                    None => self.inside += 1,
                }
            }
        }
        for link in links {
            let Some(ends) = self.ends(link.from, link.to) else {
                let inside = self.box_of(link.from);
                self.hurt_inside[inside as usize] += link.tally.damaged + link.tally.lost;
                continue;
            };
            let line = lines.entry(ends).or_default();
            line.packets = line.packets.max(link.packets);
            line.damaged += link.tally.damaged;
            line.lost += link.tally.lost;
        }
        let mut lines: Vec<(BoxPair, DiagramLine)> = lines.into_iter().collect();
        self.left_out = lines.len().saturating_sub(LINES);
        if self.left_out > 0 {
            lines.sort_by_key(|(ends, line)| (std::cmp::Reverse((line.is_hurt(), line.packets)), *ends));
            lines.truncate(LINES);
        }
        // What is drawn last lies on top.
        lines.sort_by_key(|(ends, line)| (line.is_hurt(), line.packets, *ends));
        self.lines = lines;
    }

    fn row_of(&self, node: NodeId) -> &DiagramRow {
        let row = self.rows.partition_point(|row| row.first_node <= node.0);
        &self.rows[row - 1]
    }

    fn box_of(&self, node: NodeId) -> u32 {
        let row = self.row_of(node);
        row.first_box + (node.0 - row.first_node) / row.per_box
    }

    fn ends(&self, a: NodeId, b: NodeId) -> Option<BoxPair> {
        let (a, b) = (self.box_of(a), self.box_of(b));
        (a != b).then_some((a.min(b), a.max(b)))
    }

    fn name(&self, number: u32, fabric: &Fabric) -> String {
        let row = self.rows.iter().rev().find(|row| row.first_box <= number).expect("boxes belong to rows");
        let first = row.first_node + (number - row.first_box) * row.per_box;
        let last = (first + row.per_box - 1).min(row.first_node + row.nodes - 1);
        let name = |node: u32| fabric.name(NodeId(node));
        if first == last { name(first) } else { format!("{} to {}", name(first), name(last)) }
    }

    /// What a box and a colour stand for, and what was left out.
    pub(super) fn legend(&self) -> String {
        let mut parts = Vec::new();
        for (level, row) in self.rows.iter().enumerate() {
            let what = if level == 0 { "host" } else { "switch" };
            if row.per_box > 1 {
                parts.push(format!("each box of level {level} is {}", pluralize(row.per_box.into(), what)));
            }
        }
        if self.inside > 0 {
            parts.push(format!(
                "{} inside boxes are not drawn (the box is red if they did harm)",
                pluralize(self.inside, "cable")
            ));
        }
        if self.left_out > 0 {
            parts.push(format!("{} of the quietest lines are left out", group_digits(self.left_out as u64)));
        }
        parts.join("; ")
    }
}

/// Cuts every level into boxes.
fn rows(sizes: &[u32], shape: DiagramLayout) -> Vec<DiagramRow> {
    let leaves = sizes.get(1).copied().unwrap_or(1).max(1);
    let switches_per_box = boxed(leaves, 1);
    let (mut first_node, mut first_box) = (0, 0);
    let mut rows = Vec::new();
    for (level, nodes) in sizes.iter().enumerate() {
        let per_box = match level {
            // Hosts of one switch stay together if they are as many everywhere.
            0 if nodes % leaves == 0 && shape == DiagramLayout::Ring => switches_per_box * (nodes / leaves),
            0 if *nodes > ROW && nodes % leaves == 0 => boxed(*nodes, nodes / leaves),
            _ => boxed(*nodes, 1),
        };
        let row = DiagramRow { first_node, nodes: *nodes, per_box, first_box };
        first_node += nodes;
        first_box += row.boxes();
        rows.push(row);
    }
    rows
}

/// How many nodes make a box: a multiple of `unit`, if possible one that leaves no smaller last box.
fn boxed(nodes: u32, unit: u32) -> u32 {
    let least = nodes.div_ceil(ROW * unit).max(1);
    let even = (least..=2 * least).find(|units| (nodes / unit).is_multiple_of(*units));
    even.unwrap_or(least) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(fabric: &Fabric) -> FabricDiagram {
        FabricDiagram::new(fabric, &FaultPlan::default(), std::iter::empty())
    }

    #[test]
    fn the_papers_fabric_has_a_box_for_every_switch_and_one_for_the_hosts_of_each_leaf() {
        let fabric = Fabric::xgft(&[24, 12, 6], &[1, 12, 6]).expect("SE-11");
        let picture = picture(&fabric);
        let boxes: Vec<u32> = picture.rows.iter().map(DiagramRow::boxes).collect();
        assert_eq!(boxes, [72, 72, 72, 72]);
        assert_eq!(picture.lines.len(), 72 + 864 + 432);
        assert_eq!(picture.names[0], "H0 to H23");
        assert_eq!(picture.legend(), "each box of level 0 is 24 hosts");
    }

    #[test]
    fn no_fabric_is_too_large_or_too_odd_for_a_picture() {
        let fabrics = [
            Fabric::kary_ntree(32, 4),
            Fabric::torus(&[7, 13, 11], 3),
            Fabric::hypercube(10, 1),
            Fabric::mesh(&[1], 1),
            Fabric::xgft(&[1], &[1]),
            Fabric::xgft(&[97, 3], &[1, 97]),
        ];
        for fabric in fabrics {
            let fabric = fabric.expect("a fabric");
            let picture = picture(&fabric);
            assert!(picture.rows.iter().all(|row| row.boxes() <= ROW) && picture.lines.len() <= LINES, "{fabric}");
            assert!(picture.svg().ends_with("</svg>\n") && !picture.svg().contains("NaN"));
        }
    }

    #[test]
    fn every_cable_is_in_a_line_or_in_a_box() {
        let fabric = Fabric::torus(&[16, 16], 2).expect("a torus");
        let picture = picture(&fabric);
        let drawn: u64 = picture.lines.iter().map(|(_, line)| line.cables).sum();
        assert_eq!(drawn + picture.inside, fabric.cable_count());
    }
}
