//! Which way the calls on one communicator are done: Pleach, or the native MPI where that is faster.
//!
//! One cell for each operation and size class: the way, and how many calls to do like that. A call reads and writes one cell. When
//! the calls of a cell are used up, its trial says how to continue (`trial.rs`). All cells are the same on all ranks of the communicator.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::collective_call::MpiCollective;
use crate::configuration::ChoiceMode;
use crate::size_class::{SIZE_CLASSES, SizeClass};
use crate::trial::{ExchangeCost, Settlement, Trial, Way};

const COLLECTIVES: usize = MpiCollective::NUMBER;
const CELLS: usize = COLLECTIVES * SIZE_CLASSES;
/// The way of a cell; the other bits are the calls that are left.
const NATIVE: u32 = 1 << 31;

/// An operation and a size class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ChoiceKey {
    collective: MpiCollective,
    class: SizeClass,
}

impl ChoiceKey {
    #[inline]
    pub(crate) fn of(collective: MpiCollective, bytes: usize) -> Self {
        Self { collective, class: SizeClass::of(bytes) }
    }

    #[inline]
    fn cell(self) -> usize {
        self.collective as usize * SIZE_CLASSES + self.class.index()
    }

    /// The cells of the next shorter classes, the nearest first.
    fn shorter(self) -> impl Iterator<Item = usize> {
        (self.collective as usize * SIZE_CLASSES..self.cell()).rev()
    }
}

/// How to do a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextCall {
    Settled(Way),
    /// The trial says.
    Tried,
}

/// The number of ranks and of hosts: on communicators of one layout both ways take about as long.
pub(crate) type RanksAndHosts = (u32, u32);

/// What was settled on a communicator, for others of the same layout.
#[derive(Clone, Default, Hash)]
pub(crate) struct LearnedChoices(BTreeMap<usize, (Trial, Settlement)>);

impl LearnedChoices {
    /// The same on two ranks only if they have learned the same. Never negative.
    pub(crate) fn digest(&self) -> i64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        (hasher.finish() >> 2) as i64
    }
}

/// Layouts of which the last choices are kept.
const MAX_LAYOUTS: usize = 64;
static LEARNED: Mutex<BTreeMap<RanksAndHosts, LearnedChoices>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this rank has learned on communicators of a layout.
pub(crate) fn learned(layout: RanksAndHosts) -> LearnedChoices {
    locked(&LEARNED).get(&layout).cloned().unwrap_or_default()
}

pub(crate) struct ChoiceTable {
    mode: ChoiceMode,
    layout: RanksAndHosts,
    cells: [AtomicU32; CELLS],
    trials: Mutex<BTreeMap<usize, CellTrial>>,
    /// The duration of the last exchange at this rank, and the agreed one of the exchange before.
    own_exchange_ns: AtomicU64,
    exchange_ns: AtomicU64,
}

struct CellTrial {
    trial: Trial,
    /// Calls that were left to the native MPI, and those of them that needed an exchange before.
    native: u64,
    guarded: u64,
}

impl ChoiceTable {
    pub(crate) fn new(mode: ChoiceMode, layout: RanksAndHosts) -> Self {
        let calls = if mode == ChoiceMode::Measure { 0 } else { NATIVE - 1 };
        let cells = [const { AtomicU32::new(0) }; CELLS];
        cells.iter().for_each(|cell| cell.store(calls, Relaxed));
        if mode == ChoiceMode::Measure {
            let copies = MpiCollective::COPIES.into_iter();
            let keys =
                copies.flat_map(|collective| SizeClass::all().map(move |class| ChoiceKey { collective, class }));
            keys.for_each(|key| cells[key.cell()].store(NATIVE, Relaxed));
        }
        let [own_exchange_ns, exchange_ns] = [const { AtomicU64::new(0) }; 2];
        Self { mode, layout, cells, trials: Mutex::default(), own_exchange_ns, exchange_ns }
    }

    /// Starts with what was learned before. All ranks must have learned the same.
    pub(crate) fn inherit(&self, learned: LearnedChoices) {
        for (cell, (trial, settlement)) in learned.0 {
            self.store(cell, settlement);
            locked(&self.trials).insert(cell, CellTrial { trial, native: 0, guarded: 0 });
        }
    }

    /// How to do the next call of this kind; counts it.
    #[inline]
    pub(crate) fn next(&self, key: ChoiceKey) -> NextCall {
        let cell = &self.cells[key.cell()];
        let word = cell.load(Relaxed);
        if word & !NATIVE == 0 {
            return NextCall::Tried;
        }
        // Calls on one communicator follow each other, so no other thread counts at the same time.
        cell.store(word - 1, Relaxed);
        NextCall::Settled(way_of(word))
    }

    /// The way of calls of this kind, for calls that are not counted.
    #[inline]
    pub(crate) fn way(&self, key: ChoiceKey) -> Way {
        way_of(self.cells[key.cell()].load(Relaxed))
    }

    /// The trial of a kind of calls. Before the first round, such calls are done like those of the next shorter class. If there is none, Pleach
    /// does them, but the native MPI copies blocks: within a host it is mostly faster at that.
    pub(crate) fn trial(&self, key: ChoiceKey) -> Trial {
        let trials = locked(&self.trials);
        trials.get(&key.cell()).map_or_else(
            || {
                let way = key.shorter().find_map(|cell| Some(trials.get(&cell)?.trial.way()));
                let first = if key.collective.copies_blocks() { Way::Native } else { Way::Pleach };
                Trial::new(key.class, way.unwrap_or(first))
            },
            |known| known.trial.clone(),
        )
    }

    /// Puts a trial back that continues with the next call.
    pub(crate) fn keep(&self, key: ChoiceKey, trial: Trial) {
        let mut trials = locked(&self.trials);
        match trials.get_mut(&key.cell()) {
            Some(known) => known.trial = trial,
            None => drop(trials.insert(key.cell(), CellTrial { trial, native: 0, guarded: 0 })),
        }
    }

    /// Puts a trial back whose outcome holds for a while.
    pub(crate) fn settle(&self, key: ChoiceKey, trial: Trial, settlement: Settlement) {
        self.store(key.cell(), settlement);
        self.keep(key, trial.clone());
        let mut learned = locked(&LEARNED);
        if learned.len() < MAX_LAYOUTS || learned.contains_key(&self.layout) {
            learned.entry(self.layout).or_default().0.insert(key.cell(), (trial, settlement));
        }
    }

    /// Without trials: Pleach goes on with calls of this kind. False if there are trials.
    pub(crate) fn renew_if_fixed(&self, key: ChoiceKey) -> bool {
        let is_fixed = self.mode != ChoiceMode::Measure;
        if is_fixed {
            self.cells[key.cell()].store(NATIVE - 1, Relaxed);
        }
        is_fixed
    }

    fn store(&self, cell: usize, settlement: Settlement) {
        let way = if settlement.way == Way::Native { NATIVE } else { 0 };
        self.cells[cell].store(way | settlement.calls.clamp(1, NATIVE - 1), Relaxed);
    }

    /// Counts a call that was left to the native MPI, with the exchanges that it needed.
    pub(crate) fn count_native(&self, key: ChoiceKey, exchanges: u64) {
        if let Some(known) = locked(&self.trials).get_mut(&key.cell()) {
            known.native += 1;
            known.guarded += exchanges;
        }
    }

    /// What exchanges cost calls of this kind.
    pub(crate) fn cost(&self, key: ChoiceKey) -> ExchangeCost {
        let trials = locked(&self.trials);
        let percent = |known: &CellTrial| (known.guarded * 100).checked_div(known.native).unwrap_or(0);
        let guarded_percent = trials.get(&key.cell()).map_or(0, percent);
        ExchangeCost { exchange_ns: self.exchange_ns.load(Relaxed), guarded_percent }
    }

    /// How long this rank's last exchange took.
    pub(crate) fn own_exchange_ns(&self) -> u64 {
        self.own_exchange_ns.load(Relaxed)
    }

    /// An exchange took so long here, and the ranks agreed how long the one before it took.
    pub(crate) fn set_exchange_ns(&self, own_ns: u64, agreed_ns: u64) {
        self.own_exchange_ns.store(own_ns, Relaxed);
        self.exchange_ns.store(agreed_ns, Relaxed);
    }

    /// Adds the measured choices to numbers for the report: see [`CHOICE_NUMBERS`].
    pub(crate) fn add_to(&self, numbers: &mut [i64]) {
        for (cell, known) in &*locked(&self.trials) {
            if let Some(medians) = known.trial.medians() {
                let row = &mut numbers[(cell * 2 + known.trial.way() as usize) * ROW..][..ROW];
                row[0] += 1;
                row[1] += medians.pleach_ns as i64;
                row[2] += medians.native_ns as i64;
            }
        }
    }
}

#[inline]
fn way_of(word: u32) -> Way {
    if word & NATIVE == 0 { Way::Pleach } else { Way::Native }
}

/// Numbers of a row: communicators, and the sums of both medians in nanoseconds.
const ROW: usize = 3;
/// Numbers for the report: a row for each operation, size class and way.
pub(crate) const CHOICE_NUMBERS: usize = CELLS * 2 * ROW;

/// A row of the report.
pub(crate) struct ChoiceNumbers {
    pub(crate) collective: usize,
    pub(crate) class: SizeClass,
    pub(crate) way: Way,
    pub(crate) communicators: i64,
    pub(crate) pleach_ns: i64,
    pub(crate) native_ns: i64,
}

/// The rows of summed numbers that are not empty.
pub(crate) fn rows(numbers: &[i64]) -> Vec<ChoiceNumbers> {
    let of = |way: Way| {
        (0..COLLECTIVES).flat_map(move |collective| SizeClass::all().map(move |class| (collective, class, way)))
    };
    let rows = of(Way::Pleach).chain(of(Way::Native)).filter_map(|(collective, class, way)| {
        let cell = collective * SIZE_CLASSES + class.index();
        let row = &numbers[(cell * 2 + way as usize) * ROW..][..ROW];
        let communicators = row[0];
        (communicators > 0).then(|| {
            let (pleach_ns, native_ns) = (row[1] / communicators, row[2] / communicators);
            ChoiceNumbers { collective, class, way, communicators, pleach_ns, native_ns }
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::RoundProgress;

    const KEY: fn(usize) -> ChoiceKey = |bytes| ChoiceKey::of(MpiCollective::AllReduce, bytes);

    fn settled(way: Way, calls: u32) -> Settlement {
        Settlement { way, calls, lost_ns: 0 }
    }

    #[test]
    fn calls_are_counted_until_the_trial_has_its_turn() {
        let table = ChoiceTable::new(ChoiceMode::Measure, (2, 1));
        assert_eq!(table.next(KEY(8)), NextCall::Tried);
        table.settle(KEY(8), table.trial(KEY(8)), settled(Way::Native, 2));
        let next: Vec<NextCall> = (0..3).map(|_| table.next(KEY(5))).collect();
        let native = NextCall::Settled(Way::Native);
        assert_eq!((next, table.way(KEY(8))), (vec![native, native, NextCall::Tried], Way::Native));
        assert_eq!(table.next(KEY(9)), NextCall::Tried);
        assert_eq!(table.next(ChoiceKey::of(MpiCollective::Scan, 8)), NextCall::Tried);
    }

    #[test]
    fn without_trials_pleach_does_all_calls() {
        let table = ChoiceTable::new(ChoiceMode::Pleach, (2, 1));
        assert_eq!(table.next(KEY(8)), NextCall::Settled(Way::Pleach));
        assert!(table.renew_if_fixed(KEY(8)));
        assert!(!ChoiceTable::new(ChoiceMode::Measure, (2, 1)).renew_if_fixed(KEY(8)));
    }

    #[test]
    fn a_new_class_begins_like_the_next_shorter_one_of_the_same_operation() {
        let table = ChoiceTable::new(ChoiceMode::Measure, (2, 1));
        table.keep(KEY(1000), Trial::new(KEY(1000).class, Way::Native));
        assert_eq!(table.trial(KEY(100_000)).way(), Way::Native);
        assert_eq!(table.trial(KEY(8)).way(), Way::Pleach);
        assert_eq!(table.trial(ChoiceKey::of(MpiCollective::Reduce, 100_000)).way(), Way::Pleach);
    }

    #[test]
    fn the_native_mpi_copies_blocks_until_a_round_says_otherwise() {
        let key = ChoiceKey::of(MpiCollective::AllGather, 8);
        let table = ChoiceTable::new(ChoiceMode::Measure, (2, 1));
        assert_eq!((table.next(key), table.way(key)), (NextCall::Tried, Way::Native));
        assert_eq!((table.trial(key).way(), table.way(KEY(8))), (Way::Native, Way::Pleach));
        let fixed = ChoiceTable::new(ChoiceMode::Pleach, (2, 1));
        assert_eq!((fixed.next(key), fixed.way(key)), (NextCall::Settled(Way::Pleach), Way::Pleach));
        assert!(MpiCollective::COPIES.into_iter().all(MpiCollective::copies_blocks));
    }

    #[test]
    fn a_communicator_of_the_same_layout_inherits_the_choices() {
        let layout = (77, 7);
        let table = ChoiceTable::new(ChoiceMode::Measure, layout);
        let before = learned(layout).digest();
        table.settle(KEY(8), table.trial(KEY(8)), settled(Way::Native, 5));
        assert_ne!(learned(layout).digest(), before);
        assert!(learned(layout).digest() >= 0 && learned((77, 8)).0.is_empty());
        let other = ChoiceTable::new(ChoiceMode::Measure, layout);
        other.inherit(learned(layout));
        assert_eq!(other.next(KEY(8)), NextCall::Settled(Way::Native));
        assert_eq!(other.next(KEY(64)), NextCall::Tried);
    }

    #[test]
    fn the_report_has_the_medians_of_each_choice() {
        let table = ChoiceTable::new(ChoiceMode::Measure, (2, 1));
        let mut trial = table.trial(KEY(8));
        let budget = crate::trial::AgreedBudget { elapsed_ns: u64::MAX, lost_ns: 0 };
        trial.begin(budget, ExchangeCost::default()).expect("the budget is large");
        while trial.record(1) == RoundProgress::More {}
        let settlement = trial.conclude(&[9000, 8000, 4000, 3000], ExchangeCost::default());
        table.settle(KEY(8), trial, settlement);
        let mut numbers = vec![0; CHOICE_NUMBERS];
        (0..2).for_each(|_| table.add_to(&mut numbers));
        let rows = rows(&numbers);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].collective, rows[0].way), (MpiCollective::AllReduce as usize, Way::Native));
        assert_eq!((rows[0].communicators, rows[0].pleach_ns, rows[0].native_ns), (2, 8000, 3000));
    }

    #[test]
    fn calls_with_exchanges_are_a_share_of_those_left_to_the_native_mpi() {
        let table = ChoiceTable::new(ChoiceMode::Measure, (2, 2));
        table.keep(KEY(8), table.trial(KEY(8)));
        (0..4).for_each(|call| table.count_native(KEY(8), u64::from(call == 0)));
        table.set_exchange_ns(99, 30);
        assert_eq!(table.cost(KEY(8)), ExchangeCost { exchange_ns: 30, guarded_percent: 25 });
    }
}
