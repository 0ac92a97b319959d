//! Upper bounds of ratios: with Pleach over the MPI alone, in time and in processor time.

use super::plan::{HostsMeasure, MpiOperation};
use crate::bench::byte_size::ByteSize;
use crate::bench::mpi_installation::PreloadChoice;

/// Where no better bound is required, Pleach must not be slower beyond noise.
const NEVER_ABOVE: f64 = 1.05;
const SHORT: ByteSize = ByteSize(4 << 10);
const LONG: ByteSize = ByteSize(64 << 10);

/// Where a measure is taken, and what does its calls.
#[derive(Clone, Copy)]
pub(super) struct MeasuredWhere {
    pub(super) hosts: u32,
    pub(super) ranks_per_host: u32,
    pub(super) nodes: u32,
    pub(super) choice: PreloadChoice,
}

/// The bound of the time of a measure.
pub(super) fn bound(measure: HostsMeasure, at: MeasuredWhere) -> f64 {
    use MpiOperation::{Allreduce, Barrier, Bcast};
    let is_short = measure.size.is_none_or(|size| size <= SHORT);
    match measure.operation {
        // Where the MPI is faster, the calls are its own, and cannot become faster.
        _ if at.choice == PreloadChoice::Measure || at.ranks_per_host > 1 => NEVER_ABOVE,
        Allreduce | Bcast if is_long(measure) => 0.8,
        Allreduce | Barrier if is_short && at.hosts <= 8 => 0.8,
        Allreduce | Barrier if is_short && at.nodes > 0 => 0.4,
        _ => NEVER_ABOVE,
    }
}

/// The bound of the processor time of all ranks and nodes, if the measure has one: that of long allreduces by Pleach.
pub(super) fn cpu_bound(measure: HostsMeasure, at: MeasuredWhere) -> Option<f64> {
    let is_judged = measure.operation == MpiOperation::Allreduce && at.choice == PreloadChoice::Pleach;
    (is_judged && is_long(measure)).then_some(1.0)
}

/// Whether the time is also judged against the MPI that is fastest alone. Calls that are left to an MPI cannot be faster than it.
pub(super) fn is_judged_against_best(at: MeasuredWhere) -> bool {
    at.choice == PreloadChoice::Pleach
}

fn is_long(measure: HostsMeasure) -> bool {
    measure.size.is_some_and(|size| size >= LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: MeasuredWhere = MeasuredWhere { hosts: 4, ranks_per_host: 1, nodes: 0, choice: PreloadChoice::Pleach };
    const MEASURED: MeasuredWhere = MeasuredWhere { choice: PreloadChoice::Measure, ..AT };

    fn measure(operation: MpiOperation, bytes: u64) -> HostsMeasure {
        HostsMeasure { operation, size: (operation != MpiOperation::Barrier).then_some(ByteSize(bytes)) }
    }

    #[test]
    fn bounds_depend_on_operation_size_hosts_and_nodes() {
        let of = |operation: MpiOperation, bytes: u64, hosts: u32, nodes: u32| {
            bound(measure(operation, bytes), MeasuredWhere { hosts, nodes, ..AT })
        };
        assert_eq!(of(MpiOperation::Allreduce, 64 << 10, 16, 0), 0.8);
        assert_eq!(of(MpiOperation::Bcast, 16 << 20, 4, 1), 0.8);
        assert_eq!(of(MpiOperation::Barrier, 0, 8, 0), 0.8);
        assert_eq!(of(MpiOperation::Allreduce, 4096, 16, 1), 0.4);
        assert_eq!(of(MpiOperation::Allreduce, 4096, 16, 0), NEVER_ABOVE);
        assert_eq!(of(MpiOperation::Bcast, 8, 2, 0), NEVER_ABOVE);
        assert_eq!(of(MpiOperation::Allgather, 1 << 20, 2, 0), NEVER_ABOVE);
    }

    #[test]
    fn what_exec_does_by_default_is_never_slower_and_no_more_is_required() {
        for bytes in [8, 1 << 20] {
            assert_eq!(bound(measure(MpiOperation::Allreduce, bytes), MEASURED), NEVER_ABOVE);
        }
        assert_eq!(bound(measure(MpiOperation::Barrier, 0), MeasuredWhere { nodes: 1, ..MEASURED }), NEVER_ABOVE);
        assert!(is_judged_against_best(AT) && !is_judged_against_best(MEASURED));
    }

    #[test]
    fn processor_time_is_judged_for_long_allreduces_by_pleach() {
        let of = |operation, bytes, at| cpu_bound(measure(operation, bytes), at);
        assert_eq!(of(MpiOperation::Allreduce, 64 << 10, AT), Some(1.0));
        assert_eq!(of(MpiOperation::Allreduce, 16 << 20, MeasuredWhere { nodes: 1, ..AT }), Some(1.0));
        assert_eq!(of(MpiOperation::Allreduce, 4 << 10, AT), None);
        assert_eq!(of(MpiOperation::Bcast, 1 << 20, AT), None);
        assert_eq!(of(MpiOperation::Allreduce, 1 << 20, MEASURED), None);
    }
}
