//! An operation on the blocks or prefixes of all ranks: what each stage moves, and this rank's result.
//!
//! In: this rank's contribution and where the ranks are. Out: its result. The stages are those of [`crate::hierarchical_operation`]. Up:
//! the ranks of a host read what they need of each other's bytes in shared memory, or the leader does. Between hosts: the leaders move
//! the blocks of their hosts, in host order. Down: the leader broadcasts what came for its host, and each rank takes its own. If all
//! ranks are on one host, the first stage is all. Rules: P-56, P-102.

mod host_order;
mod piece_exchange;

use std::ops::Range;
use std::sync::Arc;

use engine::network::StreamBuffers;
use hostmem::team::{Team, TeamCall, TeamOperation};
use protocol::collective::{BlockLayout, CollectiveOperation, ScanExtent, ScheduledCollective};
use reduce::ReductionKind;

use crate::communicator_layout::CommunicatorLayout;
use crate::error::Error;
use crate::hierarchical_operation::{StageDriver, buffers_for, host_rank};
use piece_exchange::PieceExchange;

/// An operation and the lengths of its blocks, the same at all ranks. Roots are ranks of the communicator.
#[derive(Clone, Debug)]
pub(crate) struct BlockCall {
    pub collective: CollectiveOperation,
    /// Of a scan, the length of the vector; of an alltoall, that of each block.
    pub lengths: BlockLengths,
}

/// The length of each rank's block in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlockLengths {
    /// All blocks have this length.
    Equal(usize),
    /// One length per rank.
    Each(Arc<[usize]>),
}

impl BlockLengths {
    pub(crate) fn of(&self, rank: u32) -> usize {
        match self {
            Self::Equal(length) => *length,
            Self::Each(lengths) => lengths[rank as usize],
        }
    }

    /// Where a rank's block is in a vector in rank order.
    pub(crate) fn range(&self, rank: u32) -> Range<usize> {
        let start = match self {
            Self::Equal(length) => length * rank as usize,
            Self::Each(lengths) => lengths[..rank as usize].iter().sum(),
        };
        start..start + self.of(rank)
    }

    /// The blocks of all ranks together; none if that is more than a number.
    pub(crate) fn checked_total(&self, ranks: usize) -> Option<usize> {
        match self {
            Self::Equal(length) => length.checked_mul(ranks),
            Self::Each(lengths) => lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length)),
        }
    }

    /// The blocks of all ranks together.
    pub(crate) fn total(&self, ranks: usize) -> usize {
        match self {
            Self::Equal(length) => length.saturating_mul(ranks),
            Self::Each(lengths) => lengths.iter().sum(),
        }
    }
}

/// What happens within the host before the stage between hosts.
enum UpStage {
    Nothing,
    /// Each rank reads its part of all contributions.
    Exchange(PieceExchange),
    /// One call on the whole vector.
    Call(TeamCall),
}

/// How the parts that an exchange reads are put together.
enum Assembly {
    /// One after the other.
    Collect,
    /// Folded in rank order: those of these local ranks.
    Fold(ReductionKind, Range<usize>),
}

/// One operation, as one rank sees it.
pub(crate) struct BlockOperation {
    /// What is moved. A scan over ranks that are not contiguous on their hosts moves all vectors to all.
    collective: CollectiveOperation,
    /// The scan that follows at each rank, if so.
    scan_of_all: Option<(ReductionKind, ScanExtent)>,
    lengths: BlockLengths,
    layout: Arc<CommunicatorLayout>,
    up: UpStage,
    assembly: Assembly,
    /// Where the exchange puts what it reads of each local rank, if it collects that.
    rows: Vec<Range<usize>>,
    /// What the exchange brought; without one, this rank's contribution, which the leader keeps during the stage between hosts of a scan.
    local: Vec<u8>,
    /// What is moved between hosts, and then down.
    vector: Vec<u8>,
    /// The result of a streamed scan between hosts.
    prefix: Vec<u8>,
    result: Vec<u8>,
}

impl BlockOperation {
    pub(crate) fn new(call: BlockCall, layout: Arc<CommunicatorLayout>, input: Vec<u8>) -> Self {
        let purpose = purpose(&call);
        let BlockCall { mut collective, lengths } = call;
        let mut scan_of_all = None;
        if let CollectiveOperation::Scan { kind, extent } = collective
            && !layout.is_contiguous()
        {
            (collective, scan_of_all) = (CollectiveOperation::AllGather, Some((kind, extent)));
        }
        let assembly = assembly(&collective, &layout);
        let [local, vector, prefix, result] = [const { Vec::new() }; 4];
        let (up, rows) = (UpStage::Nothing, Vec::new());
        let mut operation =
            Self { collective, scan_of_all, lengths, layout, up, assembly, rows, local, vector, prefix, result };
        operation.prepare(input, purpose);
        operation
    }

    fn is_one_host(&self) -> bool {
        self.layout.hosts.len() == 1
    }

    fn is_leader(&self) -> bool {
        self.layout.local_rank == 0
    }

    fn local_ranks(&self) -> &[u32] {
        &self.layout.hosts[self.layout.host]
    }

    fn total(&self) -> usize {
        self.lengths.total(self.layout.ranks.len())
    }

    /// The host and the local rank of the root; zeroes without one.
    fn root(&self) -> (usize, u16) {
        let root = self.collective.root().unwrap_or_default().0;
        let hosts = self.layout.hosts.iter().enumerate();
        let mut found = hosts.filter_map(|(host, ranks)| {
            ranks.iter().position(|rank| *rank == root).map(|local| (host, local as u16))
        });
        found.next().unwrap_or_default()
    }

    /// Sets up the first stage.
    fn prepare(&mut self, mut input: Vec<u8>, purpose: u16) {
        let shares = self.local_ranks().len() > 1;
        match self.collective {
            CollectiveOperation::Scatter { .. } => {
                let (host, local) = self.root();
                if host == self.layout.host {
                    // Only the root has passed it.
                    input.resize(self.total(), 0);
                    self.vector = input;
                    self.up =
                        if shares { UpStage::Call(TeamCall::Broadcast { root: local }) } else { UpStage::Nothing };
                }
            }
            CollectiveOperation::ReduceScatter { kind } if !self.is_one_host() => {
                self.vector = self.layout.to_host_order(input, &self.lengths);
                self.up = if shares { UpStage::Call(TeamCall::Reduce { root: 0, kind }) } else { UpStage::Nothing };
            }
            _ if !shares => self.local = input,
            _ => {
                let part = self.part(&mut input);
                let element = self.collective.kind().map_or(1, |kind| kind.element_size());
                self.rows = self.rows_of(part.len());
                self.local = match self.assembly {
                    Assembly::Collect => vec![0; self.rows.last().map_or(0, |row| row.end)],
                    Assembly::Fold(..) => vec![0; part.len()],
                };
                self.up = UpStage::Exchange(PieceExchange::new(input, part, element, purpose));
            }
        }
    }

    /// The part of every local rank's input that this rank reads. Makes the input as long as those of the others.
    fn part(&self, input: &mut Vec<u8>) -> Range<usize> {
        let everything = |reads: bool, length: usize| if reads { 0..length } else { 0..0 };
        match self.collective {
            CollectiveOperation::AllGather | CollectiveOperation::Gather { .. } => {
                let longest = self.local_ranks().iter().map(|rank| self.lengths.of(*rank)).max().unwrap_or(0);
                input.resize(longest, 0);
                let is_root = self.collective.root().is_none_or(|root| root.0 == self.layout.rank);
                everything(if self.is_one_host() { is_root } else { self.is_leader() }, longest)
            }
            CollectiveOperation::AllToAll if !self.is_one_host() => everything(self.is_leader(), input.len()),
            CollectiveOperation::AllToAll | CollectiveOperation::ReduceScatter { .. } => {
                self.lengths.range(self.layout.rank)
            }
            _ => everything(true, input.len()),
        }
    }

    /// A row for each local rank of which this rank reads so many bytes. What made short blocks as long as the others is left out.
    fn rows_of(&self, part_bytes: usize) -> Vec<Range<usize>> {
        let mut end = 0;
        let row = |rank: &u32| {
            let length = match self.collective {
                CollectiveOperation::AllGather | CollectiveOperation::Gather { .. } => self.lengths.of(*rank),
                _ => part_bytes,
            };
            let start = end;
            end += length.min(part_bytes);
            start..end
        };
        self.local_ranks().iter().map(row).collect()
    }

    /// True if stages of this operation follow that must start before any stage of a later one.
    pub(crate) fn has_more_pieces(&self) -> bool {
        matches!(&self.up, UpStage::Exchange(exchange) if exchange.has_more_pieces())
    }

    /// Advances the stage before the one between hosts. True if it is complete.
    pub(crate) fn drive_up<D: StageDriver>(
        &mut self,
        team: Option<&mut Team>,
        operation: &mut Option<TeamOperation>,
        driver: &mut D,
    ) -> Result<bool, Error> {
        let Some(team) = team else { return Ok(true) };
        match &mut self.up {
            UpStage::Nothing => Ok(true),
            UpStage::Call(call) => {
                let mut buffers = buffers_for(*call, self.layout.local_rank, &mut self.vector);
                driver.drive_team(team, operation, *call, &mut buffers)
            }
            UpStage::Exchange(exchange) => {
                let (rows, local, assembly) = (&self.rows, &mut self.local, &self.assembly);
                exchange.drive(team, operation, driver, |rank, offset, bytes| match assembly {
                    Assembly::Collect => {
                        let row = &mut local[rows[rank].clone()];
                        let place = row.get_mut(offset..).unwrap_or_default();
                        let length = place.len().min(bytes.len());
                        place[..length].copy_from_slice(&bytes[..length]);
                    }
                    Assembly::Fold(_, ranks) if !ranks.contains(&rank) => {}
                    Assembly::Fold(kind, ranks) => {
                        let sum = &mut local[offset..][..bytes.len()];
                        if rank == ranks.start { sum.copy_from_slice(bytes) } else { fold(*kind, sum, bytes) }
                    }
                })
            }
        }
    }

    /// The first stage is complete: sets up the one between hosts, or the result.
    pub(crate) fn finish_up(&mut self) {
        if let CollectiveOperation::Scatter { .. } = self.collective
            && self.root().0 == self.layout.host
        {
            self.result = self.vector[self.lengths.range(self.layout.rank)].to_vec();
        }
        if self.is_one_host() {
            self.finish_on_one_host();
        } else if self.is_leader() {
            self.prepare_inter_host();
        }
    }

    fn finish_on_one_host(&mut self) {
        let (local, rank) = (std::mem::take(&mut self.local), self.layout.rank);
        self.result = match self.collective {
            CollectiveOperation::Scatter { .. } => return,
            CollectiveOperation::Gather { root } if root.0 != rank => Vec::new(),
            CollectiveOperation::Scan { extent: ScanExtent::Exclusive, .. } if rank == 0 => Vec::new(),
            _ => local,
        };
    }

    fn prepare_inter_host(&mut self) {
        let local = std::mem::take(&mut self.local);
        match self.collective {
            CollectiveOperation::AllGather | CollectiveOperation::Gather { .. } => {
                self.vector = vec![0; self.total()];
                let place = self.layout.own_host_range(&self.lengths);
                self.vector[place].copy_from_slice(&local);
            }
            CollectiveOperation::AllToAll => self.vector = self.layout.to_host_pairs(&local, self.lengths.of(0)),
            CollectiveOperation::Scan { .. } => {
                self.local = match &mut self.up {
                    UpStage::Exchange(exchange) => std::mem::take(&mut exchange.input),
                    _ => local.clone(),
                };
                self.vector = local;
            }
            CollectiveOperation::Scatter { .. } => {
                let mut vector = std::mem::take(&mut self.vector);
                vector.resize(self.total(), 0);
                self.vector = self.layout.to_host_order(vector, &self.lengths);
            }
            _ => {}
        }
    }

    /// The operation between the leaders of the hosts.
    pub(crate) fn between_hosts(&self) -> Result<ScheduledCollective, Error> {
        let layout = &self.layout;
        let root = host_rank(self.root().0);
        let operation = match self.collective {
            CollectiveOperation::Gather { .. } => CollectiveOperation::Gather { root },
            CollectiveOperation::Scatter { .. } => CollectiveOperation::Scatter { root },
            // The leader includes its own host.
            CollectiveOperation::Scan { kind, .. } => {
                let extent = ScanExtent::Exclusive;
                return Ok(CollectiveOperation::Scan { kind, extent }.into());
            }
            other => other,
        };
        let bytes = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let blocks = if operation == CollectiveOperation::AllToAll {
            let members: Vec<u32> = layout.hosts.iter().map(|host| host.len() as u32).collect();
            BlockLayout::of_pairs(&members, layout.host as u32, bytes(self.lengths.of(0)))
        } else {
            let hosts = 0..layout.hosts.len();
            BlockLayout::from_lengths(hosts.map(|host| bytes(layout.host_bytes(host, &self.lengths))))
        };
        let blocks = blocks.map_err(|error| Error::invalid(error.to_string()))?;
        Ok(ScheduledCollective { operation, blocks: Some(Arc::new(blocks)) })
    }

    /// The length on which the choice of a method depends: the same at all ranks (P-58).
    pub(crate) fn bytes_between_hosts(&self) -> usize {
        match self.collective {
            CollectiveOperation::Scan { .. } => self.lengths.of(0),
            _ => self.total(),
        }
    }

    /// The longest vector that a leader moves between hosts.
    pub(crate) fn max_bytes_between_hosts(&self) -> usize {
        let most_ranks = self.layout.hosts.iter().map(Vec::len).max().unwrap_or(1);
        let factor = if self.collective == CollectiveOperation::AllToAll { most_ranks } else { 1 };
        self.bytes_between_hosts().saturating_mul(factor)
    }

    /// The contribution to the stage between hosts.
    pub(crate) fn take_vector(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.vector)
    }

    /// The memory in which the stage between hosts streams: this operation's own, which stays where it is.
    pub(crate) fn stream_buffers(&mut self) -> StreamBuffers {
        let (input, bytes) = (self.vector.as_ptr(), self.vector.len());
        let output = match self.collective {
            CollectiveOperation::Scan { .. } => {
                self.prefix = vec![0; bytes];
                self.prefix.as_mut_ptr()
            }
            _ => self.vector.as_mut_ptr(),
        };
        // SAFETY: both vectors belong to this operation and are neither changed nor dropped before the stage is complete; whoever drives
        // the operation cancels the stream before dropping it early (`BlockingDriver`, `CommunicatorInner::fail` and its drop).
        unsafe { StreamBuffers::new(input, output, bytes) }
    }

    /// The stage between hosts is complete. `data` is its result, unless it was streamed.
    pub(crate) fn finish_inter_host(&mut self, data: Option<Vec<u8>>) {
        let range = self.layout.own_host_range(&self.lengths);
        self.vector = match (data, self.collective) {
            (Some(data), _) => data,
            (None, CollectiveOperation::Scan { .. }) => std::mem::take(&mut self.prefix),
            (None, CollectiveOperation::ReduceScatter { .. } | CollectiveOperation::Scatter { .. }) => {
                self.vector[range].to_vec()
            }
            (None, _) => std::mem::take(&mut self.vector),
        };
        if self.collective == CollectiveOperation::AllToAll {
            self.vector = self.layout.to_local_rows(&self.vector, self.lengths.of(0));
        }
    }

    /// True if the leader broadcasts within the host what came from other hosts.
    pub(crate) fn goes_down(&self) -> bool {
        let (host, local) = self.root();
        let here = host == self.layout.host;
        let needs = match self.collective {
            CollectiveOperation::Gather { .. } => here && local != 0,
            CollectiveOperation::Scatter { .. } => !here,
            CollectiveOperation::Scan { .. } => self.layout.host > 0,
            _ => true,
        };
        needs && !self.is_one_host() && self.local_ranks().len() > 1
    }

    /// The bytes that the leader broadcasts.
    pub(crate) fn down_bytes(&mut self) -> &mut [u8] {
        let length = match self.collective {
            CollectiveOperation::AllGather | CollectiveOperation::Gather { .. } => self.total(),
            CollectiveOperation::AllToAll => self.total() * self.local_ranks().len(),
            CollectiveOperation::Scan { .. } => self.lengths.of(0),
            _ => self.layout.host_bytes(self.layout.host, &self.lengths),
        };
        if !self.is_leader() {
            self.vector.resize(length, 0);
        }
        &mut self.vector
    }

    /// All stages are complete; this rank's result.
    pub(crate) fn finish(&mut self) {
        if !self.is_one_host() {
            self.finish_between_hosts();
        }
        if let Some((kind, extent)) = self.scan_of_all {
            let own = usize::from(extent == ScanExtent::Inclusive);
            let (length, operands) = (self.lengths.of(0), self.layout.rank as usize + own);
            self.result = match (operands, length) {
                (0, _) | (_, 0) => Vec::new(),
                _ => {
                    let vectors = self.result.chunks_exact(length).take(operands);
                    kind.fold_all(vectors).expect("whole elements and at least one vector")
                }
            };
        }
    }

    fn finish_between_hosts(&mut self) {
        let (vector, rank) = (std::mem::take(&mut self.vector), self.layout.rank);
        self.result = match self.collective {
            CollectiveOperation::AllGather => self.layout.to_rank_order(vector, &self.lengths),
            CollectiveOperation::Gather { root } if root.0 == rank => {
                self.layout.to_rank_order(vector, &self.lengths)
            }
            CollectiveOperation::Gather { .. } => Vec::new(),
            CollectiveOperation::Scatter { .. } if self.root().0 == self.layout.host => return,
            CollectiveOperation::AllToAll => {
                let row = self.total();
                vector[usize::from(self.layout.local_rank) * row..][..row].to_vec()
            }
            CollectiveOperation::Scan { kind, extent } => self.joined_prefix(kind, extent, vector),
            _ => vector[self.layout.own_range_in_host(&self.lengths)].to_vec(),
        };
    }

    /// The fold of the hosts before this one, and of the ranks before this one on its host.
    fn joined_prefix(&mut self, kind: ReductionKind, extent: ScanExtent, before: Vec<u8>) -> Vec<u8> {
        let on_host = std::mem::take(&mut self.local);
        let is_first = self.layout.local_rank == 0 && extent == ScanExtent::Exclusive;
        match (self.layout.host, is_first) {
            (0, true) => Vec::new(),
            (0, false) => on_host,
            (_, true) => before,
            (_, false) => {
                let mut sum = before;
                fold(kind, &mut sum, &on_host);
                sum
            }
        }
    }

    /// The result, once.
    pub(crate) fn take_result(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.result)
    }
}

/// How the parts that this rank reads in an exchange are put together.
fn assembly(collective: &CollectiveOperation, layout: &CommunicatorLayout) -> Assembly {
    let (local_rank, ranks) = (usize::from(layout.local_rank), layout.hosts[layout.host].len());
    match *collective {
        CollectiveOperation::ReduceScatter { kind } => Assembly::Fold(kind, 0..ranks),
        // The leader needs the fold of its host for those after it.
        CollectiveOperation::Scan { kind, .. } if local_rank == 0 && layout.hosts.len() > 1 => {
            Assembly::Fold(kind, 0..ranks)
        }
        CollectiveOperation::Scan { kind, extent: ScanExtent::Inclusive } => Assembly::Fold(kind, 0..local_rank + 1),
        CollectiveOperation::Scan { kind, extent: ScanExtent::Exclusive } => Assembly::Fold(kind, 0..local_rank),
        _ => Assembly::Collect,
    }
}

/// Tells exchanges for different calls apart.
fn purpose(call: &BlockCall) -> u16 {
    let lengths: Vec<u8> = match &call.lengths {
        BlockLengths::Equal(length) => length.to_le_bytes().to_vec(),
        BlockLengths::Each(lengths) => lengths.iter().flat_map(|length| length.to_le_bytes()).collect(),
    };
    let digest = checksum::crc32c(&[call.collective.to_string().as_bytes(), &lengths]);
    (digest ^ digest >> 16) as u16
}

fn fold(kind: ReductionKind, sum: &mut [u8], operand: &[u8]) {
    kind.fold(sum, operand).expect("the lengths are equal, and pieces end between elements");
}
