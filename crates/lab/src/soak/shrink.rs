//! Makes a failing case smaller for as long as it fails in the same way.
//!
//! In: a case, and a function that says whether a case still fails. Out: a case from which no fault, group, operation or host can be
//! removed, unless the limit of trials was reached first. Greedy, from large steps to small ones; the same case always gives the same
//! result.

use super::case::{SoakCase, SoakFabric, SoakOperation};

/// The most cases that are tried.
const MAX_TRIALS: u32 = 600;

/// A smaller case, and how many were tried to find it.
pub(super) struct ShrunkCase {
    pub(super) case: SoakCase,
    pub(super) trials: u32,
}

impl ShrunkCase {
    /// Whether more trials might have made it smaller.
    pub(super) fn has_run_out_of_trials(&self) -> bool {
        self.trials >= MAX_TRIALS
    }
}

/// Shrinks a case.
pub(super) fn shrink(case: &SoakCase, mut still_fails: impl FnMut(&SoakCase) -> bool) -> ShrunkCase {
    let mut shrunk = ShrunkCase { case: case.clone(), trials: 0 };
    let steps: [fn(&SoakCase) -> Vec<SoakCase>; 7] = [
        without_groups,
        without_faults,
        without_operations,
        without_hosts,
        with_simpler_fabrics,
        with_simpler_operations,
        with_simpler_settings,
    ];
    loop {
        let before = shrunk.trials;
        let mut has_shrunk = false;
        for step in steps {
            has_shrunk |= apply(&mut shrunk, step, &mut still_fails);
        }
        if !has_shrunk || shrunk.trials == before || shrunk.trials >= MAX_TRIALS {
            return shrunk;
        }
    }
}

/// Takes the first smaller case that still fails, and again from there.
fn apply(
    shrunk: &mut ShrunkCase,
    step: fn(&SoakCase) -> Vec<SoakCase>,
    still_fails: &mut impl FnMut(&SoakCase) -> bool,
) -> bool {
    let mut has_shrunk = false;
    loop {
        let found = step(&shrunk.case).into_iter().find(|smaller| {
            let may_try = shrunk.trials < MAX_TRIALS;
            shrunk.trials += u32::from(may_try);
            may_try && still_fails(smaller)
        });
        match found {
            Some(smaller) => shrunk.case = smaller,
            None => return has_shrunk,
        }
        has_shrunk = true;
    }
}

/// The list without its first half, its second half, and each of its elements; never shorter than `least`.
fn shorter_lists<T: Clone>(list: &[T], least: usize) -> Vec<Vec<T>> {
    let half = list.len() / 2;
    let mut shorter = Vec::new();
    if half > 1 {
        shorter.extend([list[..half].to_vec(), list[half..].to_vec()]);
    }
    for skipped in (0..list.len()).rev() {
        shorter
            .push(list.iter().enumerate().filter(|(at, _)| *at != skipped).map(|(_, item)| item.clone()).collect());
    }
    shorter.retain(|list| list.len() >= least);
    shorter
}

fn without_groups(case: &SoakCase) -> Vec<SoakCase> {
    shorter_lists(&case.groups, 1).into_iter().map(|groups| SoakCase { groups, ..case.clone() }).collect()
}

fn without_faults(case: &SoakCase) -> Vec<SoakCase> {
    let mut smaller = Vec::new();
    if !case.faults.is_empty() {
        smaller.push(SoakCase { faults: Vec::new(), ..case.clone() });
    }
    smaller.extend(shorter_lists(&case.faults, 0).into_iter().map(|faults| SoakCase { faults, ..case.clone() }));
    smaller
}

fn without_operations(case: &SoakCase) -> Vec<SoakCase> {
    let mut smaller = Vec::new();
    for (number, group) in case.groups.iter().enumerate() {
        for operations in shorter_lists(&group.operations, 1) {
            let mut case = case.clone();
            case.groups[number].operations = operations;
            smaller.push(case);
        }
    }
    smaller
}

fn without_hosts(case: &SoakCase) -> Vec<SoakCase> {
    let mut smaller = Vec::new();
    for (number, group) in case.groups.iter().enumerate() {
        for hosts in shorter_lists(&group.hosts, 1) {
            let mut case = case.clone();
            case.groups[number].hosts = hosts;
            smaller.push(case);
        }
    }
    smaller
}

/// Small fabrics, with the hosts of the case numbered from zero. Faults that name a part which the fabric lacks make a case invalid,
/// which does not fail.
fn with_simpler_fabrics(case: &SoakCase) -> Vec<SoakCase> {
    let mut used: Vec<u32> = case.groups.iter().flat_map(|group| group.hosts.iter().copied()).collect();
    used.sort_unstable();
    used.dedup();
    let xgft = |children: &[u32], parents: &[u32]| SoakFabric::Xgft {
        children: children.to_vec(),
        parents: parents.to_vec(),
    };
    let hosts = used.len() as u32;
    let shapes = [
        xgft(&[hosts.max(2)], &[1]),
        xgft(&[2, 2], &[1, 1]),
        xgft(&[2, 2], &[1, 2]),
        xgft(&[4, 2], &[1, 2]),
        xgft(&[4, 4], &[1, 2]),
    ];
    // Only towards simpler shapes, so that this ends.
    let place = shapes.iter().position(|shape| *shape == case.fabric).unwrap_or(shapes.len());
    let mut smaller = Vec::new();
    for shape in shapes.into_iter().take(place) {
        if shape.build().is_ok_and(|fabric| fabric.hosts() >= hosts) {
            let mut case = SoakCase { fabric: shape, ..case.clone() };
            for host in case.groups.iter_mut().flat_map(|group| &mut group.hosts) {
                *host = used.binary_search(host).map_or(*host, |position| position as u32);
            }
            smaller.push(case);
        }
    }
    smaller
}

fn with_simpler_operations(case: &SoakCase) -> Vec<SoakCase> {
    let mut smaller = Vec::new();
    for (group, operations) in case.groups.iter().enumerate() {
        for (number, operation) in operations.operations.iter().enumerate() {
            for simpler in simpler_operations(operation) {
                let mut case = case.clone();
                case.groups[group].operations[number] = simpler;
                smaller.push(case);
            }
        }
    }
    smaller
}

/// Shorter vectors, a plain sum of integers, and no waiting for the end of faults or for a time.
fn simpler_operations(operation: &SoakOperation) -> Vec<SoakOperation> {
    let counts = [0, 1, operation.count / 2];
    let shorter = counts.into_iter().filter(|count| *count < operation.count);
    let mut simpler: Vec<SoakOperation> = shorter.map(|count| SoakOperation { count, ..operation.clone() }).collect();
    if (operation.element.as_str(), operation.operator.as_str()) != ("u64", "sum") {
        let (element, operator) = ("u64".to_owned(), "sum".to_owned());
        simpler.push(SoakOperation { element, operator, ..operation.clone() });
    }
    if operation.start_ms > 0 {
        simpler.push(SoakOperation { start_ms: 0, ..operation.clone() });
    }
    if operation.after_faults {
        simpler.push(SoakOperation { after_faults: false, ..operation.clone() });
    }
    simpler
}

fn with_simpler_settings(case: &SoakCase) -> Vec<SoakCase> {
    let mut smaller = Vec::new();
    let mut offer = |change: &dyn Fn(&mut SoakCase) -> bool| {
        let mut simpler = case.clone();
        if change(&mut simpler) {
            smaller.push(simpler);
        }
    };
    offer(&|case| std::mem::replace(&mut case.link.virtual_lanes, 1) != 1);
    offer(&|case| std::mem::replace(&mut case.acknowledge_every, 16) != 16);
    for number in 0..case.groups.len() {
        offer(&|case| std::mem::replace(&mut case.groups[number].copies, 1) != 1);
        offer(&|case| std::mem::take(&mut case.groups[number].late_ns) != 0);
        offer(&|case| case.groups[number].radix_limit.take().is_some());
        offer(&|case| std::mem::take(&mut case.groups[number].alternate_paths));
        offer(&|case| std::mem::take(&mut case.groups[number].job) != 0);
    }
    smaller
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a group with two hosts or more does an allreduce while a fault applies.
    fn fails(case: &SoakCase) -> bool {
        let is_guilty = |operation: &SoakOperation| operation.operation == "allreduce";
        !case.faults.is_empty()
            && case.groups.iter().any(|group| group.hosts.len() >= 2 && group.operations.iter().any(is_guilty))
    }

    #[test]
    fn nothing_is_left_that_can_be_removed() {
        let seed = (0..).find(|seed| {
            let case = SoakCase::draw(*seed);
            fails(&case) && case.groups.len() > 2 && case.faults.len() > 1
        });
        let case = SoakCase::draw(seed.expect("many cases have several groups and faults"));
        let shrunk = shrink(&case, fails).case;
        assert_eq!((shrunk.groups.len(), shrunk.faults.len()), (1, 1));
        let group = &shrunk.groups[0];
        assert_eq!((group.hosts.len(), group.operations.len(), group.operations[0].count), (2, 1, 0));
        assert_eq!(shrunk.fabric, SoakFabric::Xgft { children: vec![2], parents: vec![1] });
        assert_eq!(shrink(&case, fails).case.to_text(), shrunk.to_text());
    }

    #[test]
    fn a_case_that_cannot_be_made_smaller_stays_as_it_is() {
        let case = SoakCase::draw(1);
        let only = case.to_text();
        assert_eq!(shrink(&case, |case| case.to_text() == only).case.to_text(), only);
    }
}
