//! The protocols of the team under a model checker: every order in which ranks may run and see each other's words.
//!
//! The model checker (loom) has its own words and cells: it tries all values that each load may return under the orderings used,
//! and fails if two ranks access a cell at once. These run with the other tests; `LOOM_LOG=trace` shows a failing order, and
//! `LOOM_MAX_PREEMPTIONS` makes the search deeper than the two or three preemptions that each test asks for.

use std::array;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::block_claims::{BlockClaims, CopySide};
use super::descriptor::{CallSignature, OperationDescriptor, SignatureRecord, TeamVerb};
use super::pipeline::ChunkPipeline;
use super::shared_result;
use super::team_memory::TeamMemory;
use super::window::{ComparisonEffort, OperationWindow, SignatureScope};
use crate::shared_word::SharedWord;

impl SharedWord for AtomicU64 {
    fn observe(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn read(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    fn write(&self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }

    fn exchange(&self, expected: u64, value: u64) -> Result<(), u64> {
        self.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }
}

const CHANNELS: usize = 1;
/// Polls before a rank gives up.
const PATIENCE: usize = 3;

/// Two or three ranks with one or two channels each, and payload whose accesses the checker watches.
#[derive(Default)]
struct ModelMemory {
    signature_records: [[SignatureRecord<AtomicU64>; 2]; 3],
    descriptors: [[OperationDescriptor<AtomicU64>; 2]; 3],
    common: OperationDescriptor<AtomicU64>,
    settled: [AtomicU64; 3],
    filled: [AtomicU64; 3],
    folded: [AtomicU64; 3],
    drained: [AtomicU64; 3],
    block_claims: [BlockClaims<AtomicU64>; 3],
    leaves: [UnsafeCell<u64>; 3],
    /// By owner, chunk and slice.
    chunks: [[[UnsafeCell<u64>; 2]; 2]; 2],
}

impl TeamMemory for ModelMemory {
    type Word = AtomicU64;
    const RESULT_SLOTS: usize = 1;

    fn signature_record(&self, rank: usize, channel: usize) -> &SignatureRecord<AtomicU64> {
        &self.signature_records[rank][channel]
    }

    fn descriptor(&self, rank: usize, channel: usize) -> &OperationDescriptor<AtomicU64> {
        &self.descriptors[rank][channel]
    }

    fn shared_descriptor(&self, _place: usize) -> &OperationDescriptor<AtomicU64> {
        &self.common
    }

    fn settled(&self, rank: usize) -> &AtomicU64 {
        &self.settled[rank]
    }

    fn filled(&self, rank: usize) -> &AtomicU64 {
        &self.filled[rank]
    }

    fn folded(&self, rank: usize) -> &AtomicU64 {
        &self.folded[rank]
    }

    fn drained(&self, rank: usize) -> &AtomicU64 {
        &self.drained[rank]
    }

    fn block_claims(&self, rank: usize) -> &BlockClaims<AtomicU64> {
        &self.block_claims[rank]
    }
}

fn read(cell: &UnsafeCell<u64>) -> u64 {
    // SAFETY: the checker knows who else accesses the cell, and fails the test if another rank writes it.
    cell.with(|value| unsafe { *value })
}

fn write(cell: &UnsafeCell<u64>, value: u64) {
    // SAFETY: the checker knows who else accesses the cell, and fails the test then.
    cell.with_mut(|place| unsafe { *place = value });
}

/// Runs `body` as every rank, in every order. A rank that has waited in vain gives up: the number of orders must be finite.
fn explore(ranks: usize, preemptions: usize, body: fn(usize, &ModelMemory) -> Option<()>) {
    let finished = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = finished.clone();
    let mut model = loom::model::Builder::new();
    model.max_branches = 10_000;
    model.preemption_bound = model.preemption_bound.or(Some(preemptions));
    model.check(move || {
        let memory = Arc::new(ModelMemory::default());
        let others: Vec<_> = (1..ranks)
            .map(|rank| {
                let memory = memory.clone();
                thread::spawn(move || body(rank, &memory))
            })
            .collect();
        let mut all = body(0, &memory).is_some();
        for other in others {
            all &= other.join().expect("the rank did not panic").is_some();
        }
        count.fetch_add(all.into(), std::sync::atomic::Ordering::Relaxed);
    });
    assert!(finished.load(std::sync::atomic::Ordering::Relaxed) > 0, "no order ran to the end");
}

fn await_until(mut is_so: impl FnMut() -> bool) -> Option<()> {
    for _ in 0..PATIENCE {
        if is_so() {
            return Some(());
        }
        thread::yield_now();
    }
    None
}

fn value(rank: usize, number: u64) -> u64 {
    number * 10 + rank as u64
}

/// Every rank contributes to every operation and reads the contributions of all others.
fn exchange(rank: usize, ranks: usize, operations: u64, memory: &ModelMemory) -> Option<()> {
    let mut window = OperationWindow::new(rank, ranks, CHANNELS);
    let signature = CallSignature::new(TeamVerb::AllReduce, 0, None, 8);
    for _ in 0..operations {
        let number = window.start();
        await_until(|| window.may_post(memory, number).is_ok())?;
        write(&memory.leaves[rank], value(rank, number));
        let _ = window.post(memory, number, signature, Some(&value(rank, number).to_le_bytes()));
        for other in (0..ranks).filter(|&other| other != rank) {
            await_until(|| window.observe(memory, other, number) == Some(signature))?;
            assert_eq!(read(&memory.leaves[other]), value(other, number));
            assert_eq!(memory.descriptors[other][0].payload()[..8], value(other, number).to_le_bytes());
        }
        window.settle(memory, number);
    }
    Some(())
}

#[test]
fn two_ranks_read_what_was_posted_before_it_is_overwritten() {
    explore(2, 3, |rank, memory| exchange(rank, 2, 3, memory));
}

/// Broadcasts from rank 0, which does not wait for the others; they only record their signature.
fn broadcasts(rank: usize, ranks: usize, operations: u64, memory: &ModelMemory) -> Option<()> {
    let mut window = OperationWindow::new(rank, ranks, CHANNELS);
    let signature = CallSignature::new(TeamVerb::Broadcast, 0, None, 8);
    for _ in 0..operations {
        let number = window.start();
        await_until(|| {
            let _ = window.compare_unchecked(memory, ComparisonEffort::Each).expect("equal signatures");
            window.may_post(memory, number).is_ok()
        })?;
        if rank == 0 {
            write(&memory.leaves[0], value(0, number));
            let _ = window.post(memory, number, signature, Some(&[]));
            window.defer_comparison(number, signature, SignatureScope::AllRanks);
        } else {
            let _ = window.post(memory, number, signature, None);
            await_until(|| window.observe(memory, 0, number) == Some(signature))?;
            assert_eq!(read(&memory.leaves[0]), value(0, number));
            window.settle(memory, number);
        }
    }
    Some(())
}

#[test]
fn a_root_that_does_not_wait_overwrites_nothing_that_is_still_read() {
    explore(2, 3, |rank, memory| broadcasts(rank, 2, 3, memory));
}

#[test]
fn a_root_waits_until_both_others_have_read() {
    explore(3, 1, |rank, memory| broadcasts(rank, 3, 2, memory));
}

/// Rank 1 contributes to rank 0, and compares the signature of rank 0 later.
#[test]
fn a_contribution_stays_until_the_root_has_read_it() {
    explore(2, 3, |rank, memory| {
        let mut window = OperationWindow::new(rank, 2, CHANNELS);
        let signature = CallSignature::new(TeamVerb::Reduce, 0, None, 8);
        for _ in 0..3 {
            let number = window.start();
            await_until(|| {
                let _ = window.compare_unchecked(memory, ComparisonEffort::Each).expect("equal signatures");
                window.may_post(memory, number).is_ok()
            })?;
            if rank == 0 {
                let _ = window.post(memory, number, signature, None);
                await_until(|| window.observe(memory, 1, number) == Some(signature))?;
                assert_eq!(read(&memory.leaves[1]), value(1, number));
                window.settle(memory, number);
            } else {
                write(&memory.leaves[1], value(1, number));
                let _ = window.post(memory, number, signature, Some(&[]));
                window.defer_comparison(number, signature, SignatureScope::Rank(0));
            }
        }
        Some(())
    });
}

/// Ranks 0 and 1 broadcast together, rank 2 is the root of another broadcast. No record is overwritten
/// before all ranks know, not even that of rank 1, which agreed with its root and continued.
#[test]
fn a_rank_that_has_continued_learns_of_the_mismatch_too() {
    explore(3, 2, |rank, memory| {
        let mut window = OperationWindow::new(rank, 3, CHANNELS);
        let root = if rank == 2 { 2 } else { 0 };
        let signature = CallSignature::new(TeamVerb::Broadcast, root, None, 8);
        let number = window.start();
        if rank == 1 {
            let _ = window.post(memory, number, signature, None);
            await_until(|| window.observe(memory, 0, number) == Some(signature))?;
            window.settle(memory, number);
            await_until(|| {
                assert_eq!(
                    window.may_post(memory, number + 1),
                    Err(if memory.settled[0].observe() == 0 { 0 } else { 2 })
                );
                window.audit(memory) == Err(number)
            })
        } else {
            let _ = window.post(memory, number, signature, Some(&[]));
            window.defer_comparison(number, signature, SignatureScope::AllRanks);
            await_until(|| window.compare_unchecked(memory, ComparisonEffort::Each) == Err(number))
        }
    });
}

/// Whether a rank publishes its result only where the place is free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotCheck {
    Taken,
    Dropped,
}

/// Two allreduces at a time, of which every result goes through one result slot of the rank that folds first.
fn exchange_shared_results(rank: usize, care: SlotCheck, memory: &ModelMemory) -> Option<()> {
    let mut window = OperationWindow::new(rank, 2, 2);
    let signature = CallSignature::new(TeamVerb::AllReduce, 0, None, 8);
    for number in 1..=2 {
        assert_eq!(window.start(), number);
        assert!(window.may_post(memory, number).is_ok());
        let _ = window.post(memory, number, signature, Some(&value(rank, number).to_le_bytes()));
    }
    for number in 1..=2 {
        await_until(|| {
            take_or_leave(memory, &mut window, (rank, number, signature), |window| {
                care == SlotCheck::Dropped || shared_result::is_free::<ModelMemory>(window, number)
            })
        })?;
        window.settle(memory, number);
    }
    Some(())
}

/// Takes the sum that the other rank has published, or publishes it if the place is free. False if neither is possible yet.
fn take_or_leave(
    memory: &ModelMemory,
    window: &mut OperationWindow,
    (rank, number, signature): (usize, u64, CallSignature),
    is_free: impl Fn(&OperationWindow) -> bool,
) -> bool {
    let sum = value(0, number) + value(1, number);
    if let Some(post) = shared_result::find(memory, number, signature) {
        assert_eq!(read(&memory.chunks[post.first_word() as usize][0][0]), sum);
        return true;
    }
    if window.observe(memory, 1 - rank, number) != Some(signature) {
        return false;
    }
    if is_free(window) {
        write(&memory.chunks[rank][0][0], sum);
        shared_result::leave(memory, number, signature, &(rank as u64).to_le_bytes(), 0);
    }
    true
}

#[test]
fn a_published_result_is_not_overwritten_before_it_was_taken() {
    explore(2, 3, |rank, memory| exchange_shared_results(rank, SlotCheck::Taken, memory));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_overwrites_a_result_in_use_is_caught() {
    explore(2, 3, |rank, memory| exchange_shared_results(rank, SlotCheck::Dropped, memory));
}

/// One allreduce after the other: the place is always free by then.
#[test]
fn results_are_published_and_taken_one_after_the_other() {
    explore(2, 2, |rank, memory| {
        let mut window = OperationWindow::new(rank, 2, CHANNELS);
        let signature = CallSignature::new(TeamVerb::AllReduce, 0, None, 8);
        for _ in 0..3 {
            let number = window.start();
            await_until(|| window.may_post(memory, number).is_ok())?;
            let _ = window.post(memory, number, signature, Some(&[]));
            await_until(|| {
                take_or_leave(memory, &mut window, (rank, number, signature), |window| {
                    assert!(shared_result::is_free::<ModelMemory>(window, number));
                    true
                })
            })?;
            window.settle(memory, number);
        }
        Some(())
    });
}

#[test]
fn slices_are_folded_in_place_and_fetched_by_one_rank_at_a_time() {
    explore(2, 2, |rank, memory| {
        let other = 1 - rank;
        let mut pipeline = ChunkPipeline::new(rank, 2, 1);
        for operation in 1..=2 {
            let place = pipeline.enqueue();
            assert!(pipeline.is_turn_of(place));
            await_until(|| pipeline.undrained(memory, 0, 0).is_none())?;
            // The operand of the other rank's fold, where the fold will be.
            write(&memory.chunks[rank][0][other], value(rank, operation));
            pipeline.set_filled(memory, 1);
            await_until(|| pipeline.unfilled(memory, 0, 0).is_none())?;
            let sum = read(&memory.chunks[other][0][rank]) + value(rank, operation);
            write(&memory.chunks[other][0][rank], sum);
            pipeline.set_folded(memory, 1);
            await_until(|| pipeline.unfolded(memory, 0, 0).is_none())?;
            let fetched = read(&memory.chunks[rank][0][other]);
            assert_eq!([sum, fetched], [value(0, operation) + value(1, operation); 2]);
            pipeline.set_drained(memory, 1);
            pipeline.finish(memory, 1);
        }
        Some(())
    });
}

#[test]
fn a_root_runs_ahead_by_the_depth_of_the_pipeline_and_no_further() {
    explore(2, 2, |rank, memory| {
        let mut pipeline = ChunkPipeline::new(rank, 2, 2);
        let place = pipeline.enqueue();
        assert!(pipeline.is_turn_of(place));
        for step in 0..4 {
            let cell = &memory.chunks[0][pipeline.chunk(step)][0];
            if rank == 0 {
                await_until(|| pipeline.undrained(memory, step, 0).is_none())?;
                write(cell, step);
                pipeline.set_filled(memory, step + 1);
            } else {
                await_until(|| pipeline.has_filled(memory, step, 0))?;
                assert_eq!(read(cell), step);
            }
            pipeline.set_drained(memory, step + 1);
        }
        pipeline.finish(memory, 4);
        Some(())
    });
}

/// Rank 0 is the root, with cells `chunks[0][0]`; rank 1 receives into `chunks[1][0]`.
fn push_and_pull(rank: usize, memory: &ModelMemory) -> Option<()> {
    let (block_claims, number) = (&memory.block_claims[1], 7);
    let [source, target] = [&memory.chunks[0][0], &memory.chunks[1][0]];
    if rank == 0 {
        for (place, cell) in source.iter().enumerate() {
            write(cell, value(0, place as u64));
        }
        memory.filled[0].publish(1); // As the descriptor does.
        await_until(|| memory.filled[1].observe() == 1)?;
        let mut done = 0;
        while let Some(place) = block_claims.claim(number, 2, CopySide::Root) {
            write(&target[place as usize], read(&source[place as usize]));
            done += 1;
            block_claims.set_done(number, done);
        }
        await_until(|| block_claims.has_taken(number))?;
        source.iter().for_each(|cell| write(cell, 0));
        return Some(());
    }
    block_claims.open(number);
    memory.filled[1].publish(1);
    await_until(|| memory.filled[0].observe() == 1)?;
    while let Some(place) = block_claims.claim(number, 2, CopySide::Receiver) {
        write(&target[place as usize], read(&source[place as usize]));
    }
    await_until(|| block_claims.is_root_done(number, 2))?;
    for (place, cell) in target.iter().enumerate() {
        assert_eq!(read(cell), value(0, place as u64));
    }
    block_claims.take(number);
    Some(())
}

#[test]
fn blocks_are_pushed_or_pulled_and_never_both() {
    explore(2, 3, push_and_pull);
}

#[test]
fn a_receiver_that_abandons_is_not_written_to_any_more() {
    explore(2, 3, |rank, memory| {
        let (block_claims, number) = (&memory.block_claims[1], 7);
        let target = &memory.chunks[1][0];
        if rank == 0 {
            await_until(|| memory.filled[1].observe() == 1)?;
            let mut done = 0;
            while let Some(place) = block_claims.claim(number, 2, CopySide::Root) {
                write(&target[place as usize], 1);
                done += 1;
                block_claims.set_done(number, done);
            }
            return Some(());
        }
        block_claims.open(number);
        memory.filled[1].publish(1);
        thread::yield_now();
        assert!(block_claims.close(number));
        await_until(|| block_claims.is_root_done(number, 2))?;
        target.iter().for_each(|cell| write(cell, 2));
        Some(())
    });
}

/// The checker must find a rank that breaks the protocol.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_does_not_wait_to_post_is_caught() {
    explore(2, 3, |rank, memory| {
        let signature = CallSignature::new(TeamVerb::AllReduce, 0, None, 8);
        for number in 1..=2 {
            let mut window = OperationWindow::new(rank, 2, CHANNELS);
            let [first, second] = array::from_fn(|_| window.start());
            let mine = if number == 1 { first } else { second };
            write(&memory.leaves[rank], value(rank, mine));
            memory.descriptors[rank][0].publish(mine, 1, signature, &[], 0);
            await_until(|| memory.descriptors[1 - rank][0].observe(mine).is_some_and(|(seen, _)| seen == signature))?;
            let _ = read(&memory.leaves[1 - rank]);
        }
        Some(())
    });
}
