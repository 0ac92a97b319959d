//! The ring protocol under a model checker (loom): every order in which its two ends may run and see each other's words.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::spsc_ring::{CACHE_LINE_BYTES, RingMemory, RingReader, RingWriter, SLOT_BYTES};

const SLOTS: usize = 2;
/// Lines of the slots and of the bytes behind them.
const LINES: usize = SLOTS * SLOT_BYTES / CACHE_LINE_BYTES as usize + 8;
/// Polls before an end gives up: the number of orders must be finite.
const PATIENCE: usize = 3;

/// Two slots, each with a word, and eight lines for long packets; a cell for what else is in a line.
struct Ring {
    words: [AtomicU64; SLOTS],
    cells: [UnsafeCell<u64>; LINES],
    taken: AtomicU64,
    read: AtomicU64,
}

impl RingMemory for Ring {
    type Word = AtomicU64;
    const SLOTS: u64 = SLOTS as u64;
    const BYTES: u64 = (LINES as u64 - 4) * CACHE_LINE_BYTES;

    fn slot(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    fn taken(&self) -> &AtomicU64 {
        &self.taken
    }

    fn read(&self) -> &AtomicU64 {
        &self.read
    }
}

impl Ring {
    /// The cells of an entry.
    fn cells(&self, at: usize, length: usize) -> impl Iterator<Item = &UnsafeCell<u64>> {
        let lines = at / CACHE_LINE_BYTES as usize..=(at + length - 1) / CACHE_LINE_BYTES as usize;
        lines.map(|line| &self.cells[line])
    }
}

/// Bytes of the packets. The third long one would cross the end, and waits for space at the front; the fifth, a short one, uses
/// the slot of the first.
const LENGTHS: [usize; 5] = [180, 180, 40, 180, 120];

fn write_all(ring: &Ring) -> usize {
    let mut writer = RingWriter::default();
    for (number, length) in LENGTHS.into_iter().enumerate() {
        let claimed = (0..PATIENCE).find_map(|_| {
            let claimed = writer.claim(ring, length);
            if claimed.is_none() {
                thread::yield_now();
            }
            claimed
        });
        let Some(entry) = claimed else { return number };
        // SAFETY: the checker knows who else accesses the cell, and fails the test then.
        ring.cells(entry.at, length).for_each(|cell| cell.with_mut(|place| unsafe { *place = number as u64 + 1 }));
        writer.publish(ring, entry);
    }
    LENGTHS.len()
}

fn read_all(ring: &Ring) -> usize {
    let mut reader = RingReader::default();
    let mut looks = 0;
    let mut taken = 0;
    while taken < LENGTHS.len() && looks < PATIENCE * LENGTHS.len() {
        looks += 1;
        match reader.next(ring).expect("the writer follows the protocol") {
            None => thread::yield_now(),
            Some(entry) => {
                assert_eq!(entry.length, LENGTHS[taken]);
                for cell in ring.cells(entry.at, entry.length) {
                    // SAFETY: as above.
                    assert_eq!(cell.with(|value| unsafe { *value }), taken as u64 + 1, "another packet's bytes");
                }
                reader.finish(ring, entry);
                taken += 1;
            }
        }
    }
    taken
}

/// Every packet is taken once, whole and in order; none is overwritten while it is read, in any order of events.
#[test]
fn packets_arrive_whole_and_in_order() {
    let most = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = most.clone();
    let mut model = loom::model::Builder::new();
    model.max_branches = 10_000;
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(move || {
        let ring = Arc::new(Ring {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            taken: AtomicU64::new(0),
            cells: std::array::from_fn(|_| UnsafeCell::new(0)),
            read: AtomicU64::new(0),
        });
        let other = ring.clone();
        let writer = thread::spawn(move || write_all(&other));
        let taken = read_all(&ring);
        let written = writer.join().expect("the writer did not panic");
        assert!(taken <= written);
        seen.fetch_max(taken, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(most.load(std::sync::atomic::Ordering::Relaxed), LENGTHS.len(), "no order ran to the end");
}
