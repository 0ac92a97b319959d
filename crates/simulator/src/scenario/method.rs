//! Which machines carry out an operation: aggregation nodes, a multicast from a member, or the hosts alone.
//!
//! In: the fields `operation`, `algorithm` and `radix`, the vector and the fabric. Out: a [`ScenarioMethod`]. With
//! `algorithm = "choose"` the selector of the product decides ([`choose_method`]), and its reasons go into the report.

use protocol::collective::{
    AggregationAvailability, AggregationOffer, AggregationUnavailable, CollectiveAlgorithm, CollectiveOperation,
    InterHostMethod, MAX_RADIX, MulticastSupport, OperandOrder, SelectionInput, TransportClass, choose_method,
};
use reduce::{ElementType, Operator, ReductionKind};
use topology::{Fabric, TreeRequest};
use units::Rank;
use units::limits::MAX_MTU;

use super::error::SpannedError;
use super::field_values::{at, choice, whole};
use super::names::{HOST_ALGORITHMS, OPERATIONS};
use super::tables::CollectiveTable;
use super::vector::{MAX_VECTOR_BYTES, VectorSettings};
use crate::collective::{CollectiveMethod, SimulatedOperation};
use crate::segmented::HostOperation;

/// The most members of an alltoall. Each pair has a connection, whose two ends take about half a kilobyte.
const MAX_PAIRED_MEMBERS: u32 = 2048;

/// Who carries out the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScenarioMethod {
    /// The aggregation tree, or a multicast over it.
    Tree(SimulatedOperation),
    /// The hosts.
    Hosts(CollectiveAlgorithm),
}

/// The operation; allreduce if the field is absent.
pub(super) fn operation(table: &CollectiveTable) -> Result<HostOperation, SpannedError> {
    let names = OPERATIONS.map(|(name, operation, _)| (name, operation));
    choice(&table.operation, &names, HostOperation::AllReduce)
}

/// The method, and the selector's reasons if it was asked.
pub(super) fn method(
    table: &CollectiveTable,
    operation: HostOperation,
    vector: &VectorSettings,
    place: (&Fabric, &TreeRequest),
    members: u32,
) -> Result<(ScenarioMethod, Option<String>), SpannedError> {
    let by_tree = OPERATIONS.iter().find(|(_, of, _)| *of == operation).map_or(&[][..], |(_, _, by_tree)| by_tree);
    let radix = radix(table)?;
    let name = table.algorithm.as_ref().map(|field| field.get_ref().as_str());
    check_pairs(table, operation, members)?;
    let (method, reasons) = match name {
        Some("choose") => choose(operation, vector, place, members),
        None => match by_tree.first() {
            Some((_, method)) => (ScenarioMethod::Tree(*method), None),
            None => (ScenarioMethod::Hosts(usual_algorithm(operation, radix)), None),
        },
        Some(name) => match by_tree.iter().find(|(known, _)| *known == name) {
            Some((_, method)) => (ScenarioMethod::Tree(*method), None),
            None => (ScenarioMethod::Hosts(host_algorithm(table, operation, radix)?), None),
        },
    };
    check_radix(table, method)?;
    let is_placed = table.placement.as_ref().filter(|field| field.get_ref() != "packed");
    if let (Some(field), ScenarioMethod::Tree(_)) = (is_placed, method) {
        return Err(SpannedError::new(field.span(), "an aggregation tree joins the hosts from H0 on")
            .allowing("with an algorithm among hosts"));
    }
    Ok((method, reasons))
}

/// The algorithm of hosts where the scenario names none and nodes cannot do the operation.
fn usual_algorithm(operation: HostOperation, radix: u16) -> CollectiveAlgorithm {
    match operation {
        HostOperation::Barrier | HostOperation::Broadcast | HostOperation::Reduce | HostOperation::AllReduce => {
            CollectiveAlgorithm::Tree { radix }
        }
        HostOperation::ReduceScatter | HostOperation::AllGather => CollectiveAlgorithm::Ring,
        HostOperation::AllToAll => CollectiveAlgorithm::Direct,
    }
}

/// In an alltoall any two hosts have a connection.
fn check_pairs(table: &CollectiveTable, operation: HostOperation, members: u32) -> Result<(), SpannedError> {
    if operation != HostOperation::AllToAll || members <= MAX_PAIRED_MEMBERS {
        return Ok(());
    }
    let span = at(&table.members).or(at(&table.operation)).unwrap_or(0..0);
    let message = format!("an alltoall of {members} hosts needs a connection between any two of them");
    Err(SpannedError::new(span, message).allowing(format!("members to {MAX_PAIRED_MEMBERS}")))
}

fn radix(table: &CollectiveTable) -> Result<u16, SpannedError> {
    Ok(whole(&table.radix, 2..=i64::from(MAX_RADIX), 2)? as u16)
}

/// The host algorithm of a name, if it supports the operation.
fn host_algorithm(
    table: &CollectiveTable,
    operation: HostOperation,
    radix: u16,
) -> Result<CollectiveAlgorithm, SpannedError> {
    let algorithm =
        |name: &str| HOST_ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, of_radix)| of_radix(radix));
    let suits = |algorithm: &CollectiveAlgorithm| algorithm.supports(&machine_operation(operation, any_kind()));
    let field = table.algorithm.as_ref().expect("the caller found a name");
    algorithm(field.get_ref()).filter(suits).ok_or_else(|| {
        let by_tree = OPERATIONS.iter().filter(|(_, of, _)| *of == operation).flat_map(|(_, _, by_tree)| *by_tree);
        let hosts = HOST_ALGORITHMS.iter().filter(|(_, of_radix)| suits(&of_radix(2))).map(|(name, _)| *name);
        let allowed: Vec<String> =
            by_tree.map(|(name, _)| *name).chain(hosts).chain(["choose"]).map(|name| format!("\"{name}\"")).collect();
        SpannedError::new(field.span(), format!("{:?} is not an algorithm of this operation", field.get_ref()))
            .allowing(allowed.join(", "))
    })
}

fn check_radix(table: &CollectiveTable, method: ScenarioMethod) -> Result<(), SpannedError> {
    let takes_radix = matches!(
        method,
        ScenarioMethod::Hosts(
            CollectiveAlgorithm::Tree { .. }
                | CollectiveAlgorithm::RecursiveKing { .. }
                | CollectiveAlgorithm::Dissemination { .. }
        )
    );
    match at(&table.radix) {
        Some(span) if !takes_radix => Err(SpannedError::new(span, "this algorithm has no radix")
            .allowing("with algorithm = \"tree\", \"recursive-k-ing\" or \"dissemination\"")),
        _ => Ok(()),
    }
}

/// Asks the selector of the product.
fn choose(
    operation: HostOperation,
    vector: &VectorSettings,
    place: (&Fabric, &TreeRequest),
    members: u32,
) -> (ScenarioMethod, Option<String>) {
    let collective = machine_operation(operation, vector.kind.unwrap_or_else(any_kind));
    let choice = choose_method(&SelectionInput {
        collective,
        bytes: vector.bytes,
        size: members,
        ranks_per_host: 1,
        ranks_per_processor: 1,
        operand_order: OperandOrder::Any,
        aggregation: offer(operation, vector.bytes, place),
        transport: TransportClass::Fabric,
        network_costs: None,
        measured: None,
        preferred: None,
    });
    let by_tree = |method| match operation {
        HostOperation::Broadcast => ScenarioMethod::Tree(SimulatedOperation::Broadcast(method)),
        HostOperation::Barrier => ScenarioMethod::Tree(SimulatedOperation::Barrier(method)),
        // The selector offers nodes to no other operation.
        HostOperation::AllReduce
        | HostOperation::Reduce
        | HostOperation::ReduceScatter
        | HostOperation::AllGather
        | HostOperation::AllToAll => ScenarioMethod::Tree(SimulatedOperation::AllReduce),
    };
    let method = match choice.method {
        InterHostMethod::SingleHost => ScenarioMethod::Hosts(usual_algorithm(operation, 2)),
        InterHostMethod::Aggregation => by_tree(CollectiveMethod::Aggregation),
        InterHostMethod::Multicast => by_tree(CollectiveMethod::Multicast),
        InterHostMethod::PointToPoint(algorithm) => ScenarioMethod::Hosts(algorithm),
    };
    (method, Some(choice.to_string()))
}

/// The aggregation tree that the simulated fabric offers.
fn offer(
    operation: HostOperation,
    bytes: u32,
    (fabric, request): (&Fabric, &TreeRequest),
) -> AggregationAvailability {
    let tree = match topology::place_tree(fabric, request) {
        Ok(tree) if operation != HostOperation::Reduce && !operation.has_blocks() => tree,
        _ => return AggregationAvailability::Unavailable(AggregationUnavailable::NoNodes),
    };
    AggregationAvailability::Offered(AggregationOffer {
        max_bytes: MAX_VECTOR_BYTES,
        levels: tree.nodes.iter().map(|node| node.level).max().unwrap_or(1),
        children: tree.nodes.iter().map(|node| node.children.len()).max().unwrap_or(1).min(u16::MAX.into()) as u16,
        // A simulated multicast is one packet.
        multicast: if bytes > MAX_MTU { MulticastSupport::Disabled } else { MulticastSupport::Verified },
    })
}

/// The operation as the machines know it.
fn machine_operation(operation: HostOperation, kind: ReductionKind) -> CollectiveOperation {
    match operation {
        HostOperation::Barrier => CollectiveOperation::Barrier,
        HostOperation::Broadcast => CollectiveOperation::Broadcast { root: Rank(0) },
        HostOperation::Reduce => CollectiveOperation::Reduce { root: Rank(0), kind },
        HostOperation::AllReduce => CollectiveOperation::AllReduce { kind },
        HostOperation::ReduceScatter => CollectiveOperation::ReduceScatter { kind },
        HostOperation::AllGather => CollectiveOperation::AllGather,
        HostOperation::AllToAll => CollectiveOperation::AllToAll,
    }
}

/// A reduction for vectors without contents.
pub(super) fn any_kind() -> ReductionKind {
    ReductionKind::new(ElementType::U8, Operator::Max).expect("the maximum of bytes is defined")
}
