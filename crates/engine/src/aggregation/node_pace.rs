//! How fast the operations of a node proceed, and which neighbours they wait for: what the seats measured, by name.
//!
//! In: the machines of all seats, and those of seats that are removed. Out: the parts of a report. A neighbour has one
//! entry, however many seats share it; of removed seats only the worst are kept. A report has few places, and they go to
//! those for which operations waited of late: what was slow last week must not hide what is slow now.

use std::borrow::Cow;
use std::collections::BTreeMap;

use manager::limits::MAX_LATE_CHILDREN;
use manager::message::LateChild;
use protocol::aggregation::{AggregationNode, ChildLateness, OperationTimes};
use units::{Span, Time};

/// Neighbours of removed seats that are remembered.
const MAX_REMEMBERED: usize = 256;
/// Waiting that is this old counts half.
const HALF_LIFE: Span = Span::from_micros(10_000_000);

/// The totals of removed seats, and what operations waited of late.
#[derive(Default)]
pub(super) struct NodePace {
    past_times: OperationTimes,
    past_late: BTreeMap<String, NeighbourLateness>,
    /// By the names of neighbours that were ever late.
    recent: BTreeMap<String, RecentWaiting>,
    reported_at: Time,
}

#[derive(Clone, Copy, Default)]
struct NeighbourLateness {
    operations: u64,
    late: ChildLateness,
}

/// How long operations waited for a neighbour; the older, the less it counts.
#[derive(Clone, Copy, Default)]
struct RecentWaiting {
    nanos: f64,
    /// The total of the last report.
    counted: Span,
}

impl NeighbourLateness {
    fn add(&mut self, operations: u64, late: ChildLateness) {
        self.operations += operations;
        self.late.times_last += late.times_last;
        self.late.waited = self.late.waited + late.waited;
        self.late.longest = self.late.longest.max(late.longest);
    }

    fn was_late(&self) -> bool {
        self.late.times_last > 0 || self.late.waited > Span::ZERO
    }
}

impl NodePace {
    /// Keeps the measurements of a seat that is about to be removed.
    pub(super) fn keep(&mut self, node: &AggregationNode, names: &BTreeMap<u32, String>) {
        self.past_times.add(&node.operation_times());
        for (name, neighbour) in of_seat(node, names).filter(|(_, neighbour)| neighbour.was_late()) {
            let kept = self.past_late.entry(name.into_owned()).or_default();
            kept.add(neighbour.operations, neighbour.late);
        }
        while self.past_late.len() > MAX_REMEMBERED {
            let recent = |name: &String| self.recent.get(name).map_or(0.0, |recent| recent.nanos);
            let least = self
                .past_late
                .iter()
                .min_by(|(a, x), (b, y)| recent(a).total_cmp(&recent(b)).then(x.late.waited.cmp(&y.late.waited)));
            let Some(name) = least.map(|(name, _)| name.clone()) else { return };
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

    /// The neighbours for which operations waited longest of late, the worst first.
    pub(super) fn late<'a>(
        &mut self,
        now: Time,
        seats: impl Iterator<Item = (&'a AggregationNode, &'a BTreeMap<u32, String>)>,
    ) -> Vec<LateChild> {
        let past = std::mem::take(&mut self.past_late);
        let mut all: BTreeMap<Cow<'_, str>, NeighbourLateness> =
            past.iter().map(|(name, neighbour)| (Cow::Borrowed(name.as_str()), *neighbour)).collect();
        for (name, neighbour) in seats.flat_map(|(node, names)| of_seat(node, names)) {
            all.entry(name).or_default().add(neighbour.operations, neighbour.late);
        }
        all.retain(|_, neighbour| neighbour.was_late());
        let chosen = self.worst(now, all);
        self.past_late = past;
        chosen
    }

    /// Only those that are chosen get a name of their own: there may be thousands of others.
    fn worst(&mut self, now: Time, all: BTreeMap<Cow<'_, str>, NeighbourLateness>) -> Vec<LateChild> {
        let age = now.since(self.reported_at).as_nanos_f64() / HALF_LIFE.as_nanos_f64();
        let still_counts = 0.5f64.powf(age);
        self.reported_at = now;
        self.recent.retain(|name, _| all.contains_key(name.as_str()));
        let mut ranked = Vec::with_capacity(all.len());
        for (name, neighbour) in all {
            let waited = neighbour.late.waited;
            if !self.recent.contains_key(name.as_ref()) {
                self.recent.insert(name.clone().into_owned(), RecentWaiting::default());
            }
            let Some(recent) = self.recent.get_mut(name.as_ref()) else { continue };
            recent.nanos = recent.nanos * still_counts + (waited - recent.counted).as_nanos_f64();
            recent.counted = waited;
            ranked.push((recent.nanos, name, neighbour));
        }
        ranked.sort_by(|(recent_a, a, x), (recent_b, b, y)| {
            recent_b.total_cmp(recent_a).then(y.late.waited.cmp(&x.late.waited)).then_with(|| a.cmp(b))
        });
        let entry = |(_, name, neighbour): (f64, Cow<'_, str>, NeighbourLateness)| LateChild {
            name: name.into_owned(),
            times_last: neighbour.late.times_last,
            operations: neighbour.operations,
            waited_us: neighbour.late.waited.as_nanos() / 1_000,
            longest_us: neighbour.late.longest.as_nanos() / 1_000,
        };
        ranked.into_iter().take(MAX_LATE_CHILDREN).map(entry).collect()
    }
}

/// All children of a seat: also those that were never late take part in its operations.
fn of_seat<'a>(
    node: &'a AggregationNode,
    names: &'a BTreeMap<u32, String>,
) -> impl Iterator<Item = (Cow<'a, str>, NeighbourLateness)> {
    let operations = node.collected();
    node.children().map(move |(peer, late)| {
        let name =
            names.get(&peer).map_or_else(|| Cow::Owned(format!("rank {peer}")), |name| Cow::from(name.as_str()));
        (name, NeighbourLateness { operations, late })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(pace: &mut NodePace, second: u64, waited: &[(String, u64)]) -> Vec<String> {
        let lateness =
            |micros| ChildLateness { times_last: 1, waited: Span::from_micros(micros), longest: Span::ZERO };
        let neighbour = |micros| NeighbourLateness { operations: 1, late: lateness(micros) };
        let all = waited.iter().map(|(name, micros)| (Cow::from(name.as_str()), neighbour(*micros))).collect();
        let chosen = pace.worst(Time::from_nanos(second * 1_000_000_000), all);
        chosen.into_iter().map(|late| late.name).collect()
    }

    #[test]
    fn who_is_late_now_gets_a_place_before_those_who_were_once() {
        let mut pace = NodePace::default();
        // Hosts that were slow for hours, a week ago.
        let mut waited: Vec<_> = (0..20u64).map(|at| (format!("old{at}"), 10_000_000_000 + at)).collect();
        let first = report(&mut pace, 0, &waited);
        assert_eq!((first.len(), first[0].as_str()), (MAX_LATE_CHILDREN, "old19"));
        waited.push(("new".to_owned(), 0));
        report(&mut pace, 600_000, &waited);
        waited[20].1 = 50_000;
        assert_eq!(report(&mut pace, 600_001, &waited)[0], "new", "50 ms in the last second");
        waited[3].1 += 500_000;
        assert_eq!(report(&mut pace, 600_002, &waited)[..2], ["old3", "new"]);
        assert_eq!(pace.recent.len(), 21);
        report(&mut pace, 600_003, &waited[..2]);
        assert_eq!(pace.recent.len(), 2, "those that are gone are forgotten");
    }
}
