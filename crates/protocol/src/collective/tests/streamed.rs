//! Streamed schedules: parts of any length in any order of ranks give the same bits as whole messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use faults::RandomStream;
use units::Rank;

use super::harness::{
    DeliveryModel, block_schedules, contributions, order_sensitive_sum, reduction_of, run_collective, schedules,
};
use crate::collective::{
    BlockLayout, CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, CombineMode, RangeSource, ScanExtent,
    StreamedSchedule, StreamedSend,
};

/// A rank with its buffers, as a driver holds them.
struct StreamingRank {
    streamed: StreamedSchedule,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Messages, and how much of each was sent.
    sends: Vec<(StreamedSend, u32)>,
}

/// A part of a message under way.
struct Part {
    from: u32,
    to: Rank,
    round: u32,
    bytes: Vec<u8>,
}

impl StreamingRank {
    /// The next part of the first message that may be sent, of at most `max` bytes.
    fn send(&mut self, rank: u32, max: u32) -> Option<Part> {
        while let Some(send) = self.streamed.next_send() {
            self.sends.push((send, 0));
        }
        for (send, sent) in &mut self.sends {
            let bytes = self.streamed.available(send).saturating_sub(*sent).min(max);
            if bytes > 0 {
                let start = (send.step.part.start + *sent) as usize;
                let buffer = match send.source {
                    RangeSource::Input => &self.input,
                    RangeSource::Output => &self.output,
                };
                *sent += bytes;
                let bytes = buffer[start..start + bytes as usize].to_vec();
                return Some(Part { from: rank, to: send.step.to, round: send.round, bytes });
            }
        }
        None
    }

    /// Combines a part with the vector if it continues the present message.
    fn receive(&mut self, part: &Part, received: &mut u32) -> bool {
        let Some(receive) = self.streamed.receive() else { return false };
        if (receive.round, receive.step.from.0) != (part.round, part.from) {
            return false;
        }
        let start = (receive.step.part.start + *received) as usize;
        let range = start..start + part.bytes.len();
        let mine = match receive.operand {
            RangeSource::Input => self.input[range.clone()].to_vec(),
            RangeSource::Output => self.output[range.clone()].to_vec(),
        };
        let kind = self.streamed.schedule().kind();
        let folded = match (receive.step.apply, kind) {
            (CombineMode::FoldLeft, Some(kind)) => {
                kind.fold_all([&part.bytes[..], &mine[..]].into_iter()).expect("whole elements")
            }
            (CombineMode::FoldRight, Some(kind)) => {
                kind.fold_all([&mine[..], &part.bytes[..]].into_iter()).expect("whole elements")
            }
            _ => part.bytes.clone(),
        };
        self.output[range].copy_from_slice(&folded);
        *received += part.bytes.len() as u32;
        if self.streamed.note_received(*received) {
            *received = 0;
        }
        true
    }
}

/// Runs all ranks with parts of random length, in random order; returns their result buffers.
fn run_streamed(mut ranks: Vec<StreamingRank>, seed: u64) -> Vec<StreamingRank> {
    let random = RandomStream::new(seed, 2);
    let mut draws = 0;
    let mut draw = |bound: usize| {
        draws += 1;
        random.below(draws, bound as u64) as usize
    };
    let mut received = vec![0_u32; ranks.len()];
    let mut in_flight: Vec<Part> = Vec::new();
    for _ in 0..200_000 {
        for _ in 0..ranks.len() {
            let rank = draw(ranks.len());
            let max = 4 * (1 + draw(40)) as u32;
            in_flight.extend(ranks[rank].send(rank as u32, max));
        }
        // Parts of one message arrive in order; everything else may overtake.
        let (mut index, mut held) = (0, BTreeSet::new());
        while index < in_flight.len() {
            let Part { from, to, round, .. } = in_flight[index];
            let is_held = held.contains(&(from, to, round)) || draw(3) == 0;
            if !is_held && ranks[to.index()].receive(&in_flight[index], &mut received[to.index()]) {
                in_flight.remove(index);
            } else {
                held.insert((from, to, round));
                index += 1;
            }
        }
        let is_over = ranks.iter().all(|rank| rank.streamed.is_received());
        if is_over && in_flight.is_empty() {
            return ranks;
        }
    }
    panic!("seed {seed}: the ranks wait for each other");
}

fn check(algorithm: CollectiveAlgorithm, collective: CollectiveOperation, size: u32, count: usize, seed: u64) {
    let schedules = schedules(algorithm, collective, size, order_sensitive_sum(count).bytes());
    check_schedules(schedules, count, seed);
}

fn check_schedules(schedules: Vec<CollectiveSchedule>, count: usize, seed: u64) {
    let operation = order_sensitive_sum(count);
    let (algorithm, collective, size) = (schedules[0].algorithm(), schedules[0].collective(), schedules[0].size());
    let contributions = contributions(seed, size, &operation);
    let ranks = schedules.iter().zip(&contributions).map(|(schedule, contribution)| {
        let input = contribution.bytes().expect("real bytes").to_vec();
        // What a rank already has, nobody sends to it.
        let has_own = matches!(collective, CollectiveOperation::AllGather | CollectiveOperation::Gather { .. });
        let output = if has_own { input.clone() } else { vec![0xee; operation.bytes()] };
        let streamed = StreamedSchedule::new(schedule.clone()).expect("it can run as a stream");
        StreamingRank { streamed, input, output, sends: Vec::new() }
    });
    let streamed = run_streamed(ranks.collect(), seed);
    let ranges: Vec<_> = schedules.iter().map(CollectiveSchedule::result_range).collect();
    let whole = run_collective(schedules, contributions, DeliveryModel::Once, seed);
    for (rank, (streamed, whole)) in streamed.iter().zip(&whole.results).enumerate() {
        let expected = whole.bytes().unwrap_or_default();
        let root = Rank(rank as u32);
        let is_source = [CollectiveOperation::Broadcast { root }, CollectiveOperation::Scatter { root }]
            .contains(&collective)
            || matches!(collective, CollectiveOperation::Scan { extent: ScanExtent::Inclusive, .. }) && rank == 0;
        if !expected.is_empty() && !is_source && size > 1 {
            let what = format!("{algorithm}, {collective}, {count} elements, rank {rank} of {size}");
            assert!(streamed.output[ranges[rank].range()] == *expected, "{what}");
        }
    }
}

#[test]
fn blocks_and_prefixes_stream_with_the_same_bits() {
    let kind = reduction_of(&order_sensitive_sum(1));
    for size in (1..=9).chain([16, 17]) {
        for (seed, block) in [(1, 0), (2, 1), (3, 7), (4, 40)] {
            let root = Rank(seed as u32 % size);
            let uneven = (0..size).map(|rank| (rank + block) % (block + 1) * 4);
            let layout = Arc::new(BlockLayout::from_lengths(uneven).expect("few and short"));
            let count = layout.bytes() as usize / 4;
            for (algorithm, collective) in [
                (CollectiveAlgorithm::Ring, CollectiveOperation::ReduceScatter { kind }),
                (CollectiveAlgorithm::RecursiveHalving, CollectiveOperation::ReduceScatter { kind }),
                (CollectiveAlgorithm::Ring, CollectiveOperation::AllGather),
                (CollectiveAlgorithm::Direct, CollectiveOperation::Gather { root }),
                (CollectiveAlgorithm::Direct, CollectiveOperation::Scatter { root }),
            ] {
                check_schedules(block_schedules(algorithm, collective, &layout), count, seed);
            }
            for extent in [ScanExtent::Inclusive, ScanExtent::Exclusive] {
                let scan = CollectiveOperation::Scan { kind, extent };
                check(CollectiveAlgorithm::Chain, scan, size, 11 * block as usize, seed);
            }
        }
    }
}

#[test]
fn a_stream_gives_the_same_bits_as_whole_messages() {
    let kind = reduction_of(&order_sensitive_sum(1));
    for size in (1..=9).chain([16, 17]) {
        for (seed, count) in [(1, 0), (2, 1), (3, 7), (4, 64), (5, 300), (6, 1000)] {
            let root = Rank(seed as u32 % size);
            for algorithm in [CollectiveAlgorithm::Rabenseifner, CollectiveAlgorithm::Ring] {
                check(algorithm, CollectiveOperation::AllReduce { kind }, size, count, seed);
                check(algorithm, CollectiveOperation::Reduce { kind, root }, size, count, seed);
            }
            if size == 2 {
                let doubling = CollectiveAlgorithm::RecursiveDoubling;
                check(doubling, CollectiveOperation::AllReduce { kind }, size, count, seed);
            }
            let tree = CollectiveAlgorithm::Tree { radix: 2 };
            check(tree, CollectiveOperation::Reduce { kind, root }, size, count, seed);
            for algorithm in [CollectiveAlgorithm::Chain, CollectiveAlgorithm::ScatterAllgather, tree] {
                check(algorithm, CollectiveOperation::Broadcast { root }, size, count, seed);
            }
        }
    }
}

#[test]
fn a_chain_forwards_before_it_has_received_everything() {
    let schedules = schedules(CollectiveAlgorithm::Chain, CollectiveOperation::Broadcast { root: Rank(0) }, 3, 4096);
    let mut streamed = StreamedSchedule::new(schedules[1].clone()).expect("it can run as a stream");
    let send = streamed.next_send().expect("it forwards to rank 2");
    assert_eq!((streamed.available(&send), send.source), (0, RangeSource::Output));
    assert!(!streamed.note_received(1000));
    assert_eq!(streamed.available(&send), 1000);
    assert!(streamed.note_received(4096) && streamed.is_received());
    assert_eq!(streamed.available(&send), 4096);
}

#[test]
fn more_than_two_ranks_that_exchange_whole_vectors_do_not_stream() {
    let collective = CollectiveOperation::AllReduce { kind: reduction_of(&order_sensitive_sum(1)) };
    for size in [3, 4, 5] {
        let schedules = schedules(CollectiveAlgorithm::RecursiveDoubling, collective, size, 64);
        assert!(StreamedSchedule::new(schedules[0].clone()).is_none());
    }
}
