//! Upper bounds of the ratio: the time with Pleach over the time of the MPI alone.

use super::plan::{HostsMeasure, MpiOperation};
use crate::bench::byte_size::ByteSize;

/// Where no better bound is required, Pleach must not be slower beyond noise.
const NEVER_ABOVE: f64 = 1.05;
const SHORT: ByteSize = ByteSize(4 << 10);
const LONG: ByteSize = ByteSize(64 << 10);

/// Where a measure is taken.
#[derive(Clone, Copy)]
pub(super) struct MeasuredWhere {
    pub(super) hosts: u32,
    pub(super) ranks_per_host: u32,
    pub(super) nodes: u32,
}

/// The bound of a measure.
pub(super) fn bound(measure: HostsMeasure, at: MeasuredWhere) -> f64 {
    use MpiOperation::{Allreduce, Barrier, Bcast};
    let is_short = measure.size.is_none_or(|size| size <= SHORT);
    let is_long = measure.size.is_some_and(|size| size >= LONG);
    match measure.operation {
        _ if at.ranks_per_host > 1 => NEVER_ABOVE,
        Allreduce | Bcast if is_long => 0.8,
        Allreduce | Barrier if is_short && at.hosts <= 8 => 0.8,
        Allreduce | Barrier if is_short && at.nodes > 0 => 0.4,
        _ => NEVER_ABOVE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_depend_on_operation_size_hosts_and_nodes() {
        let of = |operation: MpiOperation, bytes: u64, hosts: u32, nodes: u32| {
            let size = (operation != MpiOperation::Barrier).then_some(ByteSize(bytes));
            bound(HostsMeasure { operation, size }, MeasuredWhere { hosts, ranks_per_host: 1, nodes })
        };
        assert_eq!(of(MpiOperation::Allreduce, 64 << 10, 16, 0), 0.8);
        assert_eq!(of(MpiOperation::Bcast, 16 << 20, 4, 1), 0.8);
        assert_eq!(of(MpiOperation::Barrier, 0, 8, 0), 0.8);
        assert_eq!(of(MpiOperation::Allreduce, 4096, 16, 1), 0.4);
        assert_eq!(of(MpiOperation::Allreduce, 4096, 16, 0), NEVER_ABOVE);
        assert_eq!(of(MpiOperation::Bcast, 8, 2, 0), NEVER_ABOVE);
        assert_eq!(of(MpiOperation::Allgather, 1 << 20, 2, 0), NEVER_ABOVE);
    }
}
