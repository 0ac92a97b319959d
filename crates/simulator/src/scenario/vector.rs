//! The vector of each host: its contents, its length, and its segments in the aggregation tree.

use reduce::{ElementType, Operator, ReductionKind};
use units::limits::MAX_MTU;

use super::error::SpannedError;
use super::field_values::{at, choice, optional, whole};
use super::tables::CollectiveTable;
use crate::collective::{CollectiveMethod, ContributionContents, LongVector, SimulatedOperation};
use crate::segmented::HostOperation;

/// The longest vector.
pub(super) const MAX_VECTOR_BYTES: u32 = 1 << 30;

/// The vector of each host.
pub(super) struct VectorSettings {
    /// Element type and operator; none if only the size is simulated.
    pub kind: Option<ReductionKind>,
    pub bytes: u32,
}

/// Rejects fields without effect: a barrier carries nothing, and a broadcast reduces nothing.
fn check_unused_fields(table: &CollectiveTable, operation: HostOperation) -> Result<(), SpannedError> {
    let (fields, message) = match operation {
        HostOperation::AllReduce | HostOperation::Reduce | HostOperation::ReduceScatter => return Ok(()),
        HostOperation::Broadcast => (vec![at(&table.operator)], "a broadcast reduces nothing"),
        HostOperation::AllGather => (vec![at(&table.operator)], "an allgather reduces nothing"),
        HostOperation::AllToAll => (vec![at(&table.operator)], "an alltoall reduces nothing"),
        HostOperation::Barrier => (
            vec![
                at(&table.element),
                at(&table.operator),
                at(&table.count),
                at(&table.bytes),
                at(&table.size_only_bytes),
                at(&table.segment_bytes),
            ],
            "a barrier carries nothing",
        ),
    };
    match fields.into_iter().flatten().next() {
        Some(span) => Err(SpannedError::new(span, message).allowing("leave it out")),
        None => Ok(()),
    }
}

/// The vector of each host.
pub(super) fn vector(table: &CollectiveTable, operation: HostOperation) -> Result<VectorSettings, SpannedError> {
    check_unused_fields(table, operation)?;
    if operation == HostOperation::Barrier {
        return Ok(VectorSettings { kind: None, bytes: 0 });
    }
    let real = [at(&table.element), at(&table.operator), at(&table.count), at(&table.bytes)];
    if let Some(bytes) = optional(&table.size_only_bytes, 0..=i64::from(MAX_VECTOR_BYTES))? {
        return match real.into_iter().flatten().next() {
            Some(span) => {
                Err(SpannedError::new(span, "real contents and size-only-bytes exclude each other: keep one"))
            }
            None => Ok(VectorSettings { kind: None, bytes: bytes as u32 }),
        };
    }
    let elements = ElementType::ALL.map(|element| (element.name(), element));
    let operators = Operator::ALL.map(|operator| (operator.name(), operator));
    let element = choice(&table.element, &elements, ElementType::F64)?;
    let usual = match operation {
        // All elements have a maximum; nothing is reduced.
        HostOperation::Broadcast | HostOperation::AllGather | HostOperation::AllToAll => Operator::Max,
        HostOperation::AllReduce | HostOperation::Reduce | HostOperation::ReduceScatter | HostOperation::Barrier => {
            Operator::Sum
        }
    };
    let operator = choice(&table.operator, &operators, usual)?;
    let kind = ReductionKind::new(element, operator).map_err(|error| {
        let span = at(&table.operator).or(at(&table.element)).unwrap_or(0..0);
        SpannedError::new(span, error.to_string())
    })?;
    Ok(VectorSettings { kind: Some(kind), bytes: real_bytes(table, kind.element_size() as u32)? })
}

/// Bytes of a real vector: from `count` or `bytes`.
fn real_bytes(table: &CollectiveTable, element: u32) -> Result<u32, SpannedError> {
    let most = i64::from(MAX_VECTOR_BYTES / element);
    match (&table.count, &table.bytes) {
        (Some(_), Some(bytes)) => {
            Err(SpannedError::new(bytes.span(), "count and bytes exclude each other: keep one"))
        }
        (None, Some(bytes)) if *bytes.get_ref() < 1 || *bytes.get_ref() > i64::from(MAX_VECTOR_BYTES) => {
            Err(SpannedError::new(bytes.span(), format!("{} is out of range", bytes.get_ref())))
        }
        (None, Some(bytes)) if bytes.get_ref() % i64::from(element) != 0 => {
            let message = format!("{} is not a whole number of elements of {element} bytes", bytes.get_ref());
            Err(SpannedError::new(bytes.span(), message).allowing(format!("a multiple of {element}")))
        }
        (None, Some(bytes)) => Ok(*bytes.get_ref() as u32),
        (Some(field), None) if !(1..=most).contains(field.get_ref()) => {
            let message = format!("{} is out of range", field.get_ref());
            let allowed = format!("from 1 to {most}: {element} bytes each, together at most {MAX_VECTOR_BYTES}");
            Err(SpannedError::new(field.span(), message).allowing(allowed))
        }
        (Some(field), None) => Ok(*field.get_ref() as u32 * element),
        (None, None) => Ok((MAX_MTU / element).min(32) * element),
    }
}

/// Cuts a vector into packets for the aggregation tree.
pub(super) fn tree_vector(
    table: &CollectiveTable,
    operation: SimulatedOperation,
    vector: &VectorSettings,
) -> Result<(ContributionContents, Option<LongVector>), SpannedError> {
    let element = vector.kind.map_or(1, |kind| kind.element_size() as u32);
    let mtu = whole(&table.mtu, 256..=i64::from(MAX_MTU), MAX_MTU)? as u32;
    let usual = mtu / element * element;
    let segment = whole(&table.segment_bytes, i64::from(element)..=i64::from(mtu), usual)? as u32;
    let segment = (segment / element * element).min(vector.bytes);
    let segments = vector.bytes.div_ceil(segment.max(1)).max(1);
    let by_multicast = matches!(
        operation,
        SimulatedOperation::Broadcast(CollectiveMethod::Multicast)
            | SimulatedOperation::Barrier(CollectiveMethod::Multicast)
    );
    if by_multicast && segments > 1 {
        let span = at(&table.count).or(at(&table.bytes)).or(at(&table.size_only_bytes)).unwrap_or(0..0);
        return Err(SpannedError::new(span, format!("a multicast is one packet of at most {segment} bytes"))
            .allowing(format!("together at most {segment} bytes, or another algorithm")));
    }
    let contents = match vector.kind {
        Some(kind) => ContributionContents::Real { kind, count: (segment / element) as u16 },
        None => ContributionContents::SizeOnly { bytes: segment },
    };
    let last_bytes = vector.bytes - (segments - 1) * segment;
    Ok((contents, (segments > 1).then_some(LongVector { segments, last_bytes })))
}
