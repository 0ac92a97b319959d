//! A diagram of the fabric: levels as rows, links coloured by load, faults in red.
//!
//! In: a fabric of any size and the counters of its links. Out: a few hundred boxes and lines, and a legend. Nothing is
//! sampled: neighbouring nodes share a box, and all cables between two boxes are one line, with the load of the busiest
//! cable and the faults of all.

mod draw;

use std::collections::BTreeMap;

use simulator::collective::LinkReport;
use simulator::fault::FaultPlan;
use topology::{Fabric, FabricKind, NodeId};

use crate::number_format::{group_digits, pluralize};

/// Maximum boxes of a row.
const MAX_ROW_BOXES: u32 = 96;
/// Maximum lines. Lines with faults and the busiest are drawn first.
const MAX_LINES: usize = 2_400;
/// Fabrics with more cables are drawn without idle cables.
const MAX_CABLES_WITH_IDLE: u64 = 1 << 20;

/// A diagram, ready to be drawn.
pub(crate) struct FabricDiagram {
    rows: Vec<DiagramRow>,
    shape: DiagramLayout,
    lines: Vec<(BoxPair, DiagramLine)>,
    omitted_lines: usize,
    cables_inside_boxes: u64,
    names: Vec<String>,
    /// By box: the fault plan kills a node of it.
    killed: Vec<bool>,
    /// By box: packets damaged or lost on cables inside it.
    faults_inside: Vec<u64>,
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

/// The layout of the boxes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiagramLayout {
    /// One row for each level.
    Rows,
    /// Switches of one level on a circle, their hosts outside it.
    Ring,
}

/// The cables between two boxes.
#[derive(Clone, Copy, Default)]
struct DiagramLine {
    cables: u64,
    /// On the busiest direction of the busiest cable.
    packets: u32,
    /// On the same, if the run records bytes.
    bytes: u64,
    damaged: u64,
    lost: u64,
}

impl DiagramLine {
    fn faults(&self) -> u64 {
        self.damaged + self.lost
    }

    fn has_faults(&self) -> bool {
        self.faults() > 0
    }
}

impl DiagramRow {
    fn boxes(&self) -> u32 {
        self.nodes.div_ceil(self.per_box)
    }
}

/// Number of nodes of each level, hosts first.
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
        let mut diagram = Self {
            rows,
            shape,
            lines: Vec::new(),
            omitted_lines: 0,
            cables_inside_boxes: 0,
            names: Vec::new(),
            killed: vec![false; boxes as usize],
            faults_inside: vec![0; boxes as usize],
        };
        diagram.names = (0..boxes).map(|number| diagram.name(number, fabric)).collect();
        for name in plan.rules.iter().filter_map(|rule| rule.node.as_ref()) {
            if let Some(node) = fabric.find(name.get_ref().trim()) {
                let hit = diagram.box_of(node);
                diagram.killed[hit as usize] = true;
            }
        }
        diagram.draw_lines(fabric, links);
        diagram
    }

    fn draw_lines(&mut self, fabric: &Fabric, links: impl Iterator<Item = LinkReport>) {
        let mut lines: BTreeMap<BoxPair, DiagramLine> = BTreeMap::new();
        if fabric.cable_count() <= MAX_CABLES_WITH_IDLE {
            for cable in fabric.cables() {
                match self.ends(cable.a.node, cable.b.node) {
                    Some(ends) => lines.entry(ends).or_default().cables += 1,
                    None => self.cables_inside_boxes += 1,
                }
            }
        }
        for link in links {
            let Some(ends) = self.ends(link.from, link.to) else {
                let inside = self.box_of(link.from);
                self.faults_inside[inside as usize] += link.tally.damaged + link.tally.lost;
                continue;
            };
            let line = lines.entry(ends).or_default();
            line.packets = line.packets.max(link.packets);
            line.bytes = line.bytes.max(link.bytes);
            line.damaged += link.tally.damaged;
            line.lost += link.tally.lost;
        }
        let mut lines: Vec<(BoxPair, DiagramLine)> = lines.into_iter().collect();
        self.omitted_lines = lines.len().saturating_sub(MAX_LINES);
        if self.omitted_lines > 0 {
            lines.sort_by_key(|(ends, line)| (std::cmp::Reverse((line.has_faults(), line.packets)), *ends));
            lines.truncate(MAX_LINES);
        }
        // The last line drawn is on top.
        lines.sort_by_key(|(ends, line)| (line.has_faults(), line.packets, *ends));
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

    /// What a box stands for, and what was omitted.
    pub(super) fn legend(&self) -> String {
        let mut parts = Vec::new();
        for (level, row) in self.rows.iter().enumerate() {
            let what = if level == 0 { "host" } else { "switch" };
            if row.per_box > 1 {
                parts.push(format!("each box of level {level} is {}", pluralize(row.per_box.into(), what)));
            }
        }
        if self.cables_inside_boxes > 0 {
            parts.push(format!(
                "{} inside boxes are not drawn (the box is red if packets were damaged or lost there)",
                pluralize(self.cables_inside_boxes, "cable")
            ));
        }
        if self.omitted_lines > 0 {
            parts.push(format!("{} of the least busy lines are omitted", group_digits(self.omitted_lines as u64)));
        }
        parts.join("; ")
    }
}

/// Divides every level into boxes.
fn rows(sizes: &[u32], shape: DiagramLayout) -> Vec<DiagramRow> {
    let leaves = sizes.get(1).copied().unwrap_or(1).max(1);
    let switches_per_box = boxed(leaves, 1);
    let (mut first_node, mut first_box) = (0, 0);
    let mut rows = Vec::new();
    for (level, nodes) in sizes.iter().enumerate() {
        let per_box = match level {
            // Hosts of one switch share a box if all switches have the same number.
            0 if nodes % leaves == 0 && shape == DiagramLayout::Ring => switches_per_box * (nodes / leaves),
            0 if *nodes > MAX_ROW_BOXES && nodes % leaves == 0 => boxed(*nodes, nodes / leaves),
            _ => boxed(*nodes, 1),
        };
        let row = DiagramRow { first_node, nodes: *nodes, per_box, first_box };
        first_node += nodes;
        first_box += row.boxes();
        rows.push(row);
    }
    rows
}

/// Nodes of one box: a multiple of `unit`, if possible one for which all boxes are equal.
fn boxed(nodes: u32, unit: u32) -> u32 {
    let least = nodes.div_ceil(MAX_ROW_BOXES * unit).max(1);
    let even = (least..=2 * least).find(|units| (nodes / unit).is_multiple_of(*units));
    even.unwrap_or(least) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagram(fabric: &Fabric) -> FabricDiagram {
        FabricDiagram::new(fabric, &FaultPlan::default(), std::iter::empty())
    }

    #[test]
    fn the_papers_fabric_has_a_box_for_every_switch_and_one_for_the_hosts_of_each_leaf() {
        let fabric = Fabric::xgft(&[24, 12, 6], &[1, 12, 6]).expect("SE-11");
        let diagram = diagram(&fabric);
        let boxes: Vec<u32> = diagram.rows.iter().map(DiagramRow::boxes).collect();
        assert_eq!(boxes, [72, 72, 72, 72]);
        assert_eq!(diagram.lines.len(), 72 + 864 + 432);
        assert_eq!(diagram.names[0], "H0 to H23");
        assert_eq!(diagram.legend(), "each box of level 0 is 24 hosts");
    }

    #[test]
    fn every_fabric_has_a_diagram_of_bounded_size() {
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
            let diagram = diagram(&fabric);
            assert!(
                diagram.rows.iter().all(|row| row.boxes() <= MAX_ROW_BOXES) && diagram.lines.len() <= MAX_LINES,
                "{fabric}"
            );
            assert!(diagram.svg().ends_with("</svg>\n") && !diagram.svg().contains("NaN"));
        }
    }

    #[test]
    fn every_cable_is_in_a_line_or_in_a_box() {
        let fabric = Fabric::torus(&[16, 16], 2).expect("a torus");
        let diagram = diagram(&fabric);
        let drawn: u64 = diagram.lines.iter().map(|(_, line)| line.cables).sum();
        assert_eq!(drawn + diagram.cables_inside_boxes, fabric.cable_count());
    }
}
