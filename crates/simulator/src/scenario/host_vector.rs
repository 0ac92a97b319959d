//! The parameters of a collective among hosts, from the `[collective]` table.

use protocol::collective::CollectiveAlgorithm;
use protocol::connection::{ConnectionPolicy, RetransmitTimer};
use reduce::{ElementType, Operator, ReductionKind};
use units::Span;
use units::limits::MAX_MTU;

use super::error::SpannedError;
use super::field_values::{at, whole};
use super::method::any_kind;
use super::tables::CollectiveTable;
use super::values::policy;
use super::vector::{MAX_VECTOR_BYTES, VectorSettings};
use crate::collective::CollectiveParameters;
use crate::segmented::{HostOperation, SegmentedParameters, SegmentedVector, VectorContents};

/// Vectors of all hosts that together exceed this many bytes are simulated by their digests.
const MAX_REAL_BYTES: u64 = 2 << 30;
/// The most bytes of all digests together.
const MAX_DIGEST_BYTES: u64 = 256 << 20;
/// The least time before a connection between hosts retransmits: several full windows pass a shared link in it.
const TIMEOUT: Span = Span::from_micros(1_000);
/// Packets of a connection in flight: more than a full window of the opposite direction delays acknowledgements.
const CONNECTION_WINDOW: u16 = 256;
/// Segments of a host in progress.
const WINDOW: u32 = 4;

/// The parameters; `common` has the fields that collectives of all kinds share.
pub(super) fn parameters(
    table: &CollectiveTable,
    operation: HostOperation,
    algorithm: CollectiveAlgorithm,
    settings: &VectorSettings,
    common: &CollectiveParameters,
    members: u32,
) -> Result<SegmentedParameters, SpannedError> {
    reject_tree_fields(table)?;
    let (policy, mtu, window) = connections(table)?;
    Ok(SegmentedParameters {
        operation,
        algorithm,
        vector: vector(table, settings, members)?,
        window,
        mtu,
        policy,
        members,
        arrival_skew: common.arrival_skew,
        pace: common.pace,
        hang_timeout: common.hang_timeout.times(100),
    })
}

/// The connections among hosts: their policy, the largest payload of a packet, and the segments of a host in progress.
pub(super) fn connections(table: &CollectiveTable) -> Result<(ConnectionPolicy, u32, u32), SpannedError> {
    let default = ConnectionPolicy {
        timeout: TIMEOUT,
        timer: RetransmitTimer::Measured,
        window: CONNECTION_WINDOW,
        ..ConnectionPolicy::default()
    };
    let window = whole(&table.window, 1..=1024, WINDOW)? as u32;
    let mtu = whole(&table.mtu, 256..=i64::from(MAX_MTU), MAX_MTU)? as u32;
    Ok((policy(table, default)?, mtu, window))
}

/// Rejects fields that only aggregation trees use.
fn reject_tree_fields(table: &CollectiveTable) -> Result<(), SpannedError> {
    let of_trees = [
        at(&table.replication),
        at(&table.copies),
        at(&table.framing),
        at(&table.control),
        at(&table.nak_turnaround_ns),
        at(&table.lane_feeds),
        at(&table.sharing),
        at(&table.resend_width),
        at(&table.resend_copies),
        at(&table.repair_after_us),
        at(&table.radix_limit),
        at(&table.rebuild_us),
    ];
    match of_trees.into_iter().flatten().next() {
        Some(span) => Err(SpannedError::new(span, "collectives among hosts have no aggregation tree")
            .allowing("leave it out, or choose algorithm = \"aggregation\"")),
        None => Ok(()),
    }
}

fn vector(table: &CollectiveTable, settings: &VectorSettings, members: u32) -> Result<SegmentedVector, SpannedError> {
    let kind = settings.kind.unwrap_or_else(any_kind);
    let element = kind.element_size() as u32;
    let most = i64::from(MAX_VECTOR_BYTES);
    let segment_bytes = whole(&table.segment_bytes, i64::from(element)..=most, settings.bytes.max(element))? as u32;
    let together = u64::from(settings.bytes) * u64::from(members);
    if settings.kind.is_none() {
        return Ok(SegmentedVector {
            kind,
            elements: settings.bytes / element,
            segment_elements: (segment_bytes / element).max(1),
            contents: VectorContents::SizeOnly,
        });
    }
    if together <= MAX_REAL_BYTES {
        let (elements, segment_elements) = (settings.bytes / element, (segment_bytes / element).max(1));
        return Ok(SegmentedVector { kind, elements, segment_elements, contents: VectorContents::Elements });
    }
    let scale = together.div_ceil(MAX_DIGEST_BYTES).next_power_of_two() as u32;
    let digest = ReductionKind::new(ElementType::U64, Operator::Sum).expect("the sum of integers is defined");
    Ok(SegmentedVector {
        kind: digest,
        elements: settings.bytes.div_ceil(8 * scale),
        segment_elements: (segment_bytes / (8 * scale)).max(1),
        contents: VectorContents::Digest { scale },
    })
}
