//! Measures whether the aggregation nodes or the hosts among themselves are faster, when a communicator forms.
//!
//! In: a communicator with a tree. Out: the times of short allreduces both ways, the same at all ranks, because all must choose
//! the same method. The trial is as small as it can be: twenty operations, well under a millisecond where ranks do not share
//! processors.

use std::time::Instant;

use protocol::collective::{
    AggregationAvailability, CollectiveOperation, MEASURED_BYTES, MEASURED_KIND, MeasuredTimes, MethodPreferences,
    MethodTimes, PreferredMethod, TransportCosts,
};

use crate::communicator_inner::{CommunicatorInner, SelectionContext};
use crate::error::Error;

/// Operations of each length and method before the timed ones: until all ranks are here, and the code is in the caches.
const WARM_UP_ROUNDS: u32 = 2;
/// Timed operations of each length and method.
const ROUNDS: u32 = 3;
/// The same where ranks share processors: who runs when changes the time of a round several times over.
const OVERSUBSCRIBED_ROUNDS: u32 = 12;
const ALL_REDUCE: CollectiveOperation = CollectiveOperation::AllReduce { kind: MEASURED_KIND };
const METHODS: [PreferredMethod; 2] = [PreferredMethod::Hosts, PreferredMethod::Aggregation];

/// Measures both methods. Collective: all ranks call this.
pub(crate) fn measure(
    communicator: &CommunicatorInner,
    aggregation: AggregationAvailability,
    network_costs: Option<TransportCosts>,
) -> Result<MeasuredTimes, Error> {
    let statistics = communicator.statistics();
    let rounds = if communicator.leaders_per_cpu() > 1 { OVERSUBSCRIBED_ROUNDS } else { ROUNDS };
    let mut times = Vec::new();
    for method in METHODS {
        let preferences = MethodPreferences::for_all(method);
        let reason = "being measured".to_owned();
        communicator.set_selection(SelectionContext {
            aggregation,
            preferences,
            network_costs,
            measured: None,
            reason,
        });
        for bytes in MEASURED_BYTES {
            times.push(mean_ns(communicator, bytes as usize, rounds)?);
        }
    }
    // The slowest rank counts. This runs through the nodes, as the last rounds did.
    let mut agreed: Vec<u8> = times.iter().flat_map(|ns| ns.to_ne_bytes()).collect();
    communicator.run(ALL_REDUCE, &mut agreed)?;
    communicator.set_statistics(statistics);
    let (agreed, _) = agreed.as_chunks::<8>();
    let method_times = |first: usize| MethodTimes { ns: [agreed[first], agreed[first + 1]].map(u64::from_ne_bytes) };
    Ok(MeasuredTimes { point_to_point: method_times(0), aggregation: method_times(MEASURED_BYTES.len()) })
}

/// The mean time of operations that follow each other without a pause, as in a loop of a program. The time of a single one depends
/// on when its rank came.
fn mean_ns(communicator: &CommunicatorInner, bytes: usize, rounds: u32) -> Result<u64, Error> {
    let mut vector = vec![0; bytes];
    for _ in 0..WARM_UP_ROUNDS {
        communicator.run(ALL_REDUCE, &mut vector)?;
    }
    let start = Instant::now();
    for _ in 0..rounds {
        communicator.run(ALL_REDUCE, &mut vector)?;
    }
    Ok(u64::try_from((start.elapsed() / rounds).as_nanos()).unwrap_or(u64::MAX))
}
