//! How fast the operations of a node proceed, and which neighbours they wait for: what the seats measured, by name.
//!
//! In: the machines of all seats, and those of seats that are removed. Out: the parts of a report. A neighbour has one
//! entry, however many seats share it; of removed seats only the worst are kept.

use std::collections::BTreeMap;

use manager::limits::MAX_LATE_CHILDREN;
use manager::message::LateChild;
use protocol::aggregation::{AggregationNode, ChildLateness, OperationTimes};

/// Neighbours of removed seats that are remembered.
const MAX_REMEMBERED: usize = 256;

/// The totals of removed seats.
#[derive(Default)]
pub(super) struct NodePace {
    past_times: OperationTimes,
    past_late: BTreeMap<String, NeighbourLateness>,
}

#[derive(Clone, Copy, Default)]
struct NeighbourLateness {
    operations: u64,
    late: ChildLateness,
}

impl NeighbourLateness {
    fn add(&mut self, operations: u64, late: ChildLateness) {
        self.operations += operations;
        self.late.times_last += late.times_last;
        self.late.waited = self.late.waited + late.waited;
        self.late.longest = self.late.longest.max(late.longest);
    }
}

impl NodePace {
    /// Keeps the measurements of a seat that is about to be removed.
    pub(super) fn keep(&mut self, node: &AggregationNode, names: &BTreeMap<u32, String>) {
        self.past_times.add(&node.operation_times());
        add_seat(&mut self.past_late, node, names);
        while self.past_late.len() > MAX_REMEMBERED {
            let least = self.past_late.iter().min_by_key(|(_, kept)| kept.late.waited).map(|(name, _)| name.clone());
            let Some(name) = least else { return };
            self.past_late.remove(&name);
        }
    }

    /// The counts of operations by their time, without zeros at the end.
    pub(super) fn times<'a>(&self, seats: impl Iterator<Item = &'a AggregationNode>) -> Vec<u64> {
        let mut times = self.past_times;
        seats.for_each(|node| times.add(&node.operation_times()));
        let classes = times.classes();
        let used = classes.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        classes[..used].to_vec()
    }

    /// The neighbours for which operations waited longest, the worst first.
    pub(super) fn late<'a>(
        &self,
        seats: impl Iterator<Item = (&'a AggregationNode, &'a BTreeMap<u32, String>)>,
    ) -> Vec<LateChild> {
        let mut all = self.past_late.clone();
        seats.for_each(|(node, names)| add_seat(&mut all, node, names));
        let mut all: Vec<(String, NeighbourLateness)> = all.into_iter().collect();
        all.sort_by(|(a, x), (b, y)| y.late.waited.cmp(&x.late.waited).then_with(|| a.cmp(b)));
        let entry = |(name, neighbour): (String, NeighbourLateness)| LateChild {
            name,
            times_last: neighbour.late.times_last,
            operations: neighbour.operations,
            waited_us: neighbour.late.waited.as_nanos() / 1_000,
            longest_us: neighbour.late.longest.as_nanos() / 1_000,
        };
        all.into_iter().take(MAX_LATE_CHILDREN).map(entry).collect()
    }
}

fn add_seat(into: &mut BTreeMap<String, NeighbourLateness>, node: &AggregationNode, names: &BTreeMap<u32, String>) {
    for (peer, late) in node.late_children() {
        let name = names.get(&peer).cloned().unwrap_or_else(|| format!("rank {peer}"));
        into.entry(name).or_default().add(node.folded(), late);
    }
}
