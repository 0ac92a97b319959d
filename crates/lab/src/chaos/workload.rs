//! What the ranks of a round do: operations, lengths, inputs and pauses, each a function of the seed and of its number.
//!
//! Ranks and judge both read it. The judge computes results from the inputs with the plain arithmetic of this file, which shares
//! nothing with the product: no operator, no order of operands, no layout. Every result is exact, whatever the order.

use units::{GOLDEN_GAMMA, mix64};

/// The longest vector of a rank, or the longest result.
const MAX_BYTES: usize = 1 << 20;
/// In one operation of so many, rank 0 tells all whether to stop.
const STOP_POLL_INTERVAL: u64 = 8;
/// The longest pause between two operations.
const MAX_PAUSE_MICROS: u64 = 4_000;

/// An operation, named by its communicator and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct OperationName {
    pub seed: u64,
    /// 0 is the communicator of all ranks; each `shrink` makes the next one.
    pub generation: u32,
    pub index: u64,
}

/// A collective operation of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChaosCollective {
    Barrier,
    Broadcast {
        root: usize,
    },
    Reduce {
        root: usize,
    },
    AllReduce,
    Scan,
    ReduceScatter,
    AllGather,
    AllToAll,
    /// A broadcast from the first rank: has the end of the round come?
    StopPoll,
}

/// Element type and operator of a reduction. Sums of floats are sums of small integers, so that they are exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChaosReduction {
    SumU64,
    XorU64,
    MinI64,
    SumF64,
    SumI32,
    MaxU32,
}

/// What one operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChaosOperation {
    pub collective: ChaosCollective,
    pub reduction: ChaosReduction,
    /// Elements in each vector; in each block of operations that move blocks.
    pub elements: usize,
}

impl OperationName {
    fn draw(self, purpose: u64) -> u64 {
        let name = mix64(self.seed.wrapping_add(GOLDEN_GAMMA)) ^ (u64::from(self.generation) << 40) ^ self.index;
        mix64(mix64(name) ^ purpose.wrapping_mul(GOLDEN_GAMMA))
    }

    /// The operation, in a communicator of so many ranks.
    pub(super) fn operation(self, ranks: usize) -> ChaosOperation {
        let root = (self.draw(1) % ranks as u64) as usize;
        let collective = match self.draw(2) % 16 {
            _ if self.index % STOP_POLL_INTERVAL == STOP_POLL_INTERVAL - 1 => ChaosCollective::StopPoll,
            0 => ChaosCollective::Barrier,
            1..=2 => ChaosCollective::Broadcast { root },
            3..=4 => ChaosCollective::Reduce { root },
            5 => ChaosCollective::Scan,
            6 => ChaosCollective::ReduceScatter,
            7..=8 => ChaosCollective::AllGather,
            9 => ChaosCollective::AllToAll,
            _ => ChaosCollective::AllReduce,
        };
        let reductions = [
            ChaosReduction::SumU64,
            ChaosReduction::XorU64,
            ChaosReduction::MinI64,
            ChaosReduction::SumF64,
            ChaosReduction::SumI32,
            ChaosReduction::MaxU32,
        ];
        let reduction = reductions[(self.draw(3) % reductions.len() as u64) as usize];
        let max_elements = MAX_BYTES / reduction.element_bytes() / collective.blocks(ranks);
        ChaosOperation { collective, reduction, elements: self.elements(collective, max_elements) }
    }

    /// Every power of two is equally likely, up to the longest; one vector in eight is empty.
    fn elements(self, collective: ChaosCollective, max_elements: usize) -> usize {
        match collective {
            ChaosCollective::Barrier => 0,
            ChaosCollective::StopPoll => 1,
            _ if self.draw(4).is_multiple_of(8) => 0,
            _ => {
                let scale = self.draw(5) % (u64::from(max_elements.ilog2()) + 1);
                ((1 << scale) + (self.draw(6) % (1 << scale)) as usize).min(max_elements)
            }
        }
    }

    /// How long a rank waits before the operation: half of the time not at all.
    pub(super) fn pause_micros(self, rank: u32) -> u64 {
        let drawn = self.draw(0x1000 + u64::from(rank));
        if drawn.is_multiple_of(2) { 0 } else { (drawn >> 8) % MAX_PAUSE_MICROS }
    }

    /// The vector of a rank, `blocks` times as long as the operation says.
    pub(super) fn input(self, rank: u32, operation: ChaosOperation, blocks: usize) -> Vec<u8> {
        let key = self.draw(0x2000_0000 + u64::from(rank));
        let raw = |element: usize| mix64(key.wrapping_add((element as u64).wrapping_mul(GOLDEN_GAMMA)));
        let count = operation.elements * blocks;
        let mut bytes = Vec::with_capacity(count * operation.reduction.element_bytes());
        for element in 0..count {
            operation.reduction.store(raw(element), &mut bytes);
        }
        bytes
    }

    /// The bytes that the member at `position` must have after the operation. `members` are the ranks of the communicator, by the
    /// numbers that they had in the first one.
    pub(super) fn expected(self, operation: ChaosOperation, members: &[u32], position: usize) -> Vec<u8> {
        let block = operation.elements * operation.reduction.element_bytes();
        let blocks = operation.collective.blocks(members.len());
        let input = |member: usize, blocks: usize| self.input(members[member], operation, blocks);
        let folded = |count: usize, blocks: usize| {
            let mut result = input(0, blocks);
            (1..count).for_each(|member| operation.reduction.fold(&mut result, &input(member, blocks)));
            result
        };
        match operation.collective {
            ChaosCollective::Barrier | ChaosCollective::StopPoll => Vec::new(),
            ChaosCollective::Broadcast { root } => input(root, 1),
            ChaosCollective::Reduce { root } if root != position => input(position, 1),
            ChaosCollective::Reduce { .. } | ChaosCollective::AllReduce => folded(members.len(), 1),
            ChaosCollective::Scan => folded(position + 1, 1),
            ChaosCollective::ReduceScatter => {
                folded(members.len(), blocks)[position * block..(position + 1) * block].to_vec()
            }
            ChaosCollective::AllGather => (0..members.len()).flat_map(|member| input(member, 1)).collect(),
            ChaosCollective::AllToAll => {
                let sent = |member| input(member, blocks)[position * block..(position + 1) * block].to_vec();
                (0..members.len()).flat_map(sent).collect()
            }
        }
    }
}

impl ChaosCollective {
    /// Blocks in the longest vector that a rank has.
    fn blocks(self, ranks: usize) -> usize {
        match self {
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => ranks,
            _ => 1,
        }
    }

    /// True if all ranks have the same result.
    pub(super) fn has_one_result(self) -> bool {
        matches!(self, Self::Barrier | Self::Broadcast { .. } | Self::AllReduce | Self::AllGather | Self::StopPoll)
    }
}

impl ChaosReduction {
    pub(super) fn element_bytes(self) -> usize {
        match self {
            Self::SumU64 | Self::XorU64 | Self::MinI64 | Self::SumF64 => 8,
            Self::SumI32 | Self::MaxU32 => 4,
        }
    }

    fn store(self, raw: u64, bytes: &mut Vec<u8>) {
        match self {
            Self::SumU64 | Self::XorU64 | Self::MinI64 => bytes.extend(raw.to_le_bytes()),
            // 2^20 times any number of ranks is far below 2^53.
            Self::SumF64 => bytes.extend(((raw % (1 << 20)) as f64 - 500_000.0).to_le_bytes()),
            Self::SumI32 | Self::MaxU32 => bytes.extend((raw as u32).to_le_bytes()),
        }
    }

    fn fold(self, result: &mut [u8], operand: &[u8]) {
        let width = self.element_bytes();
        for (left, right) in result.chunks_exact_mut(width).zip(operand.chunks_exact(width)) {
            let wide = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let narrow = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            match self {
                Self::SumU64 => left.copy_from_slice(&wide(left).wrapping_add(wide(right)).to_le_bytes()),
                Self::XorU64 => left.copy_from_slice(&(wide(left) ^ wide(right)).to_le_bytes()),
                Self::MinI64 => {
                    let least = (wide(left) as i64).min(wide(right) as i64);
                    left.copy_from_slice(&least.to_le_bytes());
                }
                Self::SumF64 => {
                    let sum = f64::from_bits(wide(left)) + f64::from_bits(wide(right));
                    left.copy_from_slice(&sum.to_le_bytes());
                }
                Self::SumI32 => left.copy_from_slice(&narrow(left).wrapping_add(narrow(right)).to_le_bytes()),
                Self::MaxU32 => left.copy_from_slice(&narrow(left).max(narrow(right)).to_le_bytes()),
            }
        }
    }
}

/// A digest of bytes: ranks report it instead of a megabyte.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let start = mix64(bytes.len() as u64 ^ GOLDEN_GAMMA);
    let fold = |digest: u64, word: u64| (digest ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(29);
    let whole = words
        .by_ref()
        .fold(start, |digest, word| fold(digest, u64::from_le_bytes(word.try_into().expect("eight bytes"))));
    mix64(words.remainder().iter().fold(whole, |digest, byte| fold(digest, u64::from(*byte) + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: OperationName = OperationName { seed: 7, generation: 0, index: 3 };

    fn operation(collective: ChaosCollective, reduction: ChaosReduction) -> ChaosOperation {
        ChaosOperation { collective, reduction, elements: 2 }
    }

    fn words(bytes: &[u8]) -> Vec<u64> {
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
    }

    #[test]
    fn an_allreduce_adds_the_inputs_of_all_members_and_a_scan_those_up_to_the_member() {
        let sum = operation(ChaosCollective::AllReduce, ChaosReduction::SumU64);
        let inputs: Vec<Vec<u64>> = [0, 2, 5].iter().map(|rank| words(&NAME.input(*rank, sum, 1))).collect();
        let added = |members: usize, element: usize| {
            inputs[..members].iter().fold(0u64, |sum, input| sum.wrapping_add(input[element]))
        };
        let expected = words(&NAME.expected(sum, &[0, 2, 5], 1));
        assert_eq!(expected, [added(3, 0), added(3, 1)]);
        let scan = operation(ChaosCollective::Scan, ChaosReduction::SumU64);
        assert_eq!(words(&NAME.expected(scan, &[0, 2, 5], 1)), [added(2, 0), added(2, 1)]);
    }

    #[test]
    fn only_the_root_of_a_reduce_gets_another_vector() {
        let reduce = operation(ChaosCollective::Reduce { root: 1 }, ChaosReduction::XorU64);
        assert_eq!(NAME.expected(reduce, &[0, 1], 0), NAME.input(0, reduce, 1));
        assert_ne!(NAME.expected(reduce, &[0, 1], 1), NAME.input(1, reduce, 1));
    }

    #[test]
    fn blocks_go_to_their_members() {
        let exchange = operation(ChaosCollective::AllToAll, ChaosReduction::SumI32);
        let [first, second] = [0, 1].map(|position| NAME.expected(exchange, &[4, 9], position));
        let (four, nine) = (NAME.input(4, exchange, 2), NAME.input(9, exchange, 2));
        assert_eq!(first, [&four[..8], &nine[..8]].concat());
        assert_eq!(second, [&four[8..], &nine[8..]].concat());
        let scatter = operation(ChaosCollective::ReduceScatter, ChaosReduction::MaxU32);
        let all: Vec<u8> = (0..2).flat_map(|position| NAME.expected(scatter, &[4, 9], position)).collect();
        let mut folded = NAME.input(4, scatter, 2);
        scatter.reduction.fold(&mut folded, &NAME.input(9, scatter, 2));
        assert_eq!(all, folded);
    }

    #[test]
    fn lengths_are_from_nothing_to_a_mebibyte() {
        let sizes: Vec<usize> = (0..20_000)
            .map(|index| {
                let operation = OperationName { index, ..NAME }.operation(6);
                let blocks = operation.collective.blocks(6);
                operation.elements * operation.reduction.element_bytes() * blocks
            })
            .collect();
        assert!(sizes.contains(&0) && sizes.iter().all(|size| *size <= MAX_BYTES));
        assert!(sizes.iter().any(|size| *size > MAX_BYTES / 2));
    }

    #[test]
    fn a_digest_depends_on_every_byte_and_on_the_length() {
        let bytes: Vec<u8> = (0..19).collect();
        for byte in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[byte] ^= 1;
            assert_ne!(digest(&changed), digest(&bytes), "byte {byte}");
        }
        assert_ne!(digest(&[0; 8]), digest(&[0; 16]));
        assert_ne!(digest(&[]), digest(&[0]));
    }
}
