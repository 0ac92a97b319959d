//! The graph that an `ibnetdiscover` text describes.
//!
//! In: blocks. Out: numbered nodes, their ports, levels and names.
//! Rules: a cable may be described at one end or at both, but not inconsistently.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use super::ibnetdiscover::{DeviceBlock, DeviceKind, PortLine};
use super::{ImportError, ImportProblem};
use crate::parts::{FabricPort, NodeId, NodePort};

#[derive(Debug)]
pub(super) struct ImportedGraph {
    pub(super) hosts: u32,
    pub(super) cables: u64,
    /// Per node, the index of its first port in `peers`; one more entry at the end.
    starts: Vec<u32>,
    peers: Vec<Option<NodePort>>,
    pub(super) levels: Vec<u8>,
    pub(super) descriptions: Vec<String>,
    /// Nodes ordered by description.
    by_description: Vec<NodeId>,
}

impl ImportedGraph {
    pub(super) fn build(blocks: &[DeviceBlock<'_>]) -> Result<Self, ImportError> {
        let port_map = PortMap::read(blocks)?;
        let order = port_map.numbering(blocks);
        let hosts = blocks.iter().filter(|block| block.kind == DeviceKind::Host).count();
        if hosts == 0 {
            return Err(ImportError { line: 0, problem: ImportProblem::NoHosts });
        }
        let mut number_of = vec![NodeId(0); blocks.len()];
        for (number, &(_, block)) in order.iter().enumerate() {
            number_of[block] = NodeId(number as u32);
        }
        let mut starts = vec![0];
        let mut peers = Vec::new();
        for &(_, block) in &order {
            let ends = port_map.ports[block].iter();
            peers.extend(ends.map(|end| end.map(|(peer, port)| NodePort::new(number_of[peer], FabricPort(port)))));
            starts.push(peers.len() as u32);
        }
        let descriptions: Vec<String> =
            order.iter().map(|&(_, block)| blocks[block].description.to_owned()).collect();
        let mut by_description: Vec<NodeId> = (0..descriptions.len() as u32).map(NodeId).collect();
        by_description.sort_by_key(|node| (&descriptions[node.index()], *node));
        Ok(Self {
            hosts: hosts as u32,
            cables: peers.iter().flatten().count() as u64 / 2,
            starts,
            peers,
            levels: order.iter().map(|&(level, _)| level).collect(),
            descriptions,
            by_description,
        })
    }

    pub(super) fn nodes(&self) -> u32 {
        self.levels.len() as u32
    }

    pub(super) fn switches(&self) -> usize {
        self.levels.len() - self.hosts as usize
    }

    pub(super) fn ports(&self, node: NodeId) -> &[Option<NodePort>] {
        &self.peers[self.starts[node.index()] as usize..self.starts[node.index() + 1] as usize]
    }

    /// The cabled ports of a node.
    pub(super) fn cabled(&self, node: NodeId) -> impl Iterator<Item = (FabricPort, NodePort)> + '_ {
        (0..).map(FabricPort).zip(self.ports(node)).filter_map(|(port, peer)| peer.map(|peer| (port, peer)))
    }

    /// The switches next to a switch, numbered from the first switch.
    pub(super) fn switch_neighbours(&self, switch: usize) -> impl Iterator<Item = (FabricPort, usize)> + '_ {
        let hosts = self.hosts;
        self.cabled(NodeId(hosts + switch as u32))
            .filter(move |(_, peer)| peer.node.0 >= hosts)
            .map(move |(port, peer)| (port, (peer.node.0 - hosts) as usize))
    }

    pub(super) fn find(&self, description: &str) -> Option<NodeId> {
        let name_of = |node: &NodeId| self.descriptions[node.index()].as_str();
        let at = self.by_description.partition_point(|node| name_of(node) < description);
        self.by_description.get(at).copied().filter(|node| name_of(node) == description)
    }
}

/// The peer of every port, by block.
struct PortMap {
    ports: Vec<Vec<Option<(usize, u16)>>>,
}

impl PortMap {
    fn read(blocks: &[DeviceBlock<'_>]) -> Result<Self, ImportError> {
        let mut index_of = BTreeMap::new();
        for (index, block) in blocks.iter().enumerate() {
            if index_of.insert(block.id, index).is_some() {
                let problem = ImportProblem::DuplicateNode(block.id.to_owned());
                return Err(ImportError { line: block.line, problem });
            }
        }
        let mut port_map = Self { ports: blocks.iter().map(|block| vec![None; usize::from(block.ports)]).collect() };
        for (index, block) in blocks.iter().enumerate() {
            for link in &block.links {
                port_map
                    .connect(blocks, &index_of, index, link)
                    .map_err(|problem| ImportError { line: link.line, problem })?;
            }
        }
        Ok(port_map)
    }

    fn connect(
        &mut self,
        blocks: &[DeviceBlock<'_>],
        index_of: &BTreeMap<&str, usize>,
        block: usize,
        link: &PortLine<'_>,
    ) -> Result<(), ImportProblem> {
        let peer = *index_of.get(link.peer).ok_or_else(|| ImportProblem::UnknownPeer(link.peer.to_owned()))?;
        if [blocks[block].kind, blocks[peer].kind].contains(&DeviceKind::AggregationNode) {
            return Ok(());
        }
        let ports = blocks[peer].ports;
        if !(1..=ports).contains(&link.peer_port) {
            return Err(ImportProblem::PortOutOfRange { port: link.peer_port, ports });
        }
        let (here, there) = ((block, link.port - 1), (peer, link.peer_port - 1));
        for (end, other) in [(here, there), (there, here)] {
            let slot = &mut self.ports[end.0][usize::from(end.1)];
            let is_free = slot.is_none_or(|known| known == other);
            if !is_free || here == there {
                let node = blocks[end.0].id.to_owned();
                return Err(ImportProblem::CabledTwice { node, port: end.1 + 1 });
            }
            *slot = Some(other);
        }
        Ok(())
    }

    /// Blocks with their levels, in the order of their numbers.
    fn numbering(&self, blocks: &[DeviceBlock<'_>]) -> Vec<(u8, usize)> {
        let levels = self.levels(blocks);
        let kept = (0..blocks.len()).filter(|&block| blocks[block].kind != DeviceKind::AggregationNode);
        let mut order: Vec<(u8, usize)> = kept.map(|block| (levels[block], block)).collect();
        order.sort_unstable();
        order
    }

    /// The distance from the nearest host; switches that no host reaches count as leaves.
    fn levels(&self, blocks: &[DeviceBlock<'_>]) -> Vec<u8> {
        let mut levels: Vec<Option<u8>> =
            blocks.iter().map(|block| (block.kind == DeviceKind::Host).then_some(0)).collect();
        let mut queue: VecDeque<(usize, u8)> =
            (0..blocks.len()).filter(|&block| levels[block].is_some()).map(|block| (block, 0)).collect();
        while let Some((block, level)) = queue.pop_front() {
            for &(peer, _) in self.ports[block].iter().flatten() {
                if levels[peer].is_none() {
                    let above = level.saturating_add(1);
                    levels[peer] = Some(above);
                    queue.push_back((peer, above));
                }
            }
        }
        levels.into_iter().map(|level| level.unwrap_or(1)).collect()
    }
}
