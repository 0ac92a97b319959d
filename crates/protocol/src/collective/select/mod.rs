//! Selects the method of a collective, with reasons: a pure function of values that all ranks share (P-58).
//!
//! In: a [`SelectionInput`]. Out: a [`MethodChoice`] with its reasons. All ranks must reach the same choice without
//! communication, so all arithmetic is in integers. Times are estimates (`cost_model`) from the costs of a transport class, or of this
//! network if they were measured (`fitted_costs`): good enough to find where one algorithm overtakes another, but not forecasts. Whether aggregation nodes are faster than
//! the hosts depends on the machines, so that is measured when a communicator forms, and agreed (`measured_times`). It
//! decides where the order of operands does not matter; rounded sums follow the estimates, which are the same in every run.

mod block_costs;
mod cost_model;
mod explanation;
mod fitted_costs;
mod measured_times;
mod preference;
#[cfg(test)]
mod tests;

use reduce::{ElementType, Operator, ReductionKind};

use super::{CollectiveAlgorithm, CollectiveOperation};
pub use cost_model::{TransportClass, TransportCosts};
pub use fitted_costs::{LONG_PROBE, NetworkProbe, SHORT_PROBE};
use measured_times::EstimateCorrection;
pub use measured_times::{MEASURED_BYTES, MeasuredTimes, MethodTimes};
pub use preference::{MethodPreferences, MethodPreferencesError, PreferredMethod};

/// Where ranks share processors, point-to-point algorithms are faster for broadcasts up to this length: a root that
/// runs ahead lets the others receive many messages in one wake-up, while a multicasting root is at most a window
/// ahead (docs/decisions/0012).
const OVERSUBSCRIBED_BYTES: u32 = 1 << 10;

/// What all ranks know about an operation before it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectionInput {
    /// The collective.
    pub collective: CollectiveOperation,
    /// Length of the vector in bytes; the blocks of all ranks together, if it has blocks.
    pub bytes: u32,
    /// Ranks in the group.
    pub size: u32,
    /// Ranks on each host that share memory and can combine there first: the largest number if hosts differ; one if
    /// they cannot share memory.
    pub ranks_per_host: u32,
    /// Ranks that share a processor on most hosts; one if each has its own.
    pub ranks_per_processor: u32,
    /// The required order of operands.
    pub operand_order: OperandOrder,
    /// Whether the group has aggregation nodes.
    pub aggregation: AggregationAvailability,
    /// The transport between hosts.
    pub transport: TransportClass,
    /// What it costs on this network, if that was measured; else the costs of its class.
    pub network_costs: Option<TransportCosts>,
    /// Times measured in this group.
    pub measured: Option<MeasuredTimes>,
    /// The user's preference for this collective.
    pub preferred: Option<PreferredMethod>,
}

impl SelectionInput {
    fn costs(&self) -> TransportCosts {
        self.network_costs.unwrap_or(self.transport.costs())
    }
}

/// The required order of operands. In any case the bits are the same at every rank and in every run (P-56).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandOrder {
    /// Any fixed order.
    Any,
    /// Rank order, because the operator does not commute: lower ranks are left operands.
    RankOrder,
    /// The order of the group's aggregation tree: the result of an allreduce or reduce must have its bits.
    TreeOrder,
}

/// Whether the group can use aggregation nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregationAvailability {
    /// The group has a tree.
    Offered(AggregationOffer),
    /// The group has no tree.
    Unavailable(AggregationUnavailable),
}

/// The aggregation tree of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AggregationOffer {
    /// Longest vector that the reserved resources support, in bytes.
    pub max_bytes: u32,
    /// Levels of nodes between hosts and root, including the root.
    pub levels: u8,
    /// Largest number of children of a node.
    pub children: u16,
    /// Whether hosts receive each other's multicasts.
    pub multicast: MulticastSupport,
}

/// Whether all hosts of a group receive its multicasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MulticastSupport {
    /// A test has verified it, or the user asserts it.
    Verified,
    /// Multicast is not used.
    Disabled,
}

/// Why a group has no aggregation tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregationUnavailable {
    /// No manager is configured.
    NoManager,
    /// The manager cannot be reached, or has another secret.
    ManagerUnusable,
    /// The manager rejected the request, for instance because of the job's quota.
    Refused,
    /// The manager has no nodes that serve all hosts of the group.
    NoNodes,
    /// The nodes have too few resources left.
    NoCapacity,
    /// A node of the tree was lost and not replaced.
    NodeLost,
    /// All ranks are on one host.
    SingleHost,
    /// The user disabled aggregation.
    Disabled,
}

/// Which ranks communicate between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveParticipants {
    /// Every rank.
    EveryRank,
    /// One rank per host. The ranks of a host combine in shared memory first and share the result afterwards.
    HostLeaders,
}

/// The method of a collective between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterHostMethod {
    /// There is only one participant: no communication between hosts.
    SingleHost,
    /// The group's aggregation nodes.
    Aggregation,
    /// One host multicasts to all others, and the group's nodes combine the answers: *hbcast* and *hgsync* of the
    /// Quadrics library (QN-9, QN-10). Broadcast and barrier.
    Multicast,
    /// Point-to-point messages between hosts.
    PointToPoint(CollectiveAlgorithm),
}

/// The reduction of the measured allreduces.
pub const MEASURED_KIND: ReductionKind = match ReductionKind::new(ElementType::U64, Operator::Max) {
    Ok(kind) => kind,
    Err(_) => unreachable!(),
};

/// Vectors of at least this many bytes are streamed among hosts (P-90): shorter ones fit a few packets, and whole messages of them need
/// fewer acknowledgements and, in an allreduce, fewer rounds.
const MIN_STREAMED_BYTES: u32 = 16 << 10;

impl InterHostMethod {
    /// The algorithm, if a vector of so many bytes is streamed among so many ranks.
    pub fn streamed(self, collective: &CollectiveOperation, ranks: u32, bytes: u32) -> Option<CollectiveAlgorithm> {
        match self {
            Self::PointToPoint(algorithm) if bytes >= MIN_STREAMED_BYTES => {
                algorithm.can_stream(collective, ranks).then_some(algorithm)
            }
            _ => None,
        }
    }
}

/// The chosen method and the reasons for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MethodChoice {
    /// The method between hosts.
    pub method: InterHostMethod,
    /// Which ranks communicate between hosts.
    pub participants: CollectiveParticipants,
    /// How many ranks communicate between hosts.
    pub participant_count: u32,
    reasons: Vec<ChoiceReason>,
}

/// One reason for a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChoiceReason {
    /// All ranks are on one host, or there is one rank.
    SingleHost,
    /// Ranks of a host do not combine first, because that would break the rank order.
    KeepsRankOrder,
    /// The estimates are based on what was measured on this network.
    NetworkCosts(TransportCosts),
    /// There is no aggregation tree.
    NoAggregation(AggregationUnavailable),
    /// Aggregation nodes do not do this collective.
    NotAggregated,
    /// The vector is longer than the reserved resources support.
    TooLong {
        /// Longest supported vector in bytes.
        max_bytes: u32,
    },
    /// Nodes fold in tree order, and the operator needs rank order.
    TreeBreaksRankOrder,
    /// What was measured when the group formed; the estimates follow it.
    Measured {
        /// Length of the vector that was measured.
        bytes: u32,
        /// Through the aggregation nodes.
        aggregation_ns: u64,
        /// Among the hosts.
        point_to_point_ns: u64,
    },
    /// Aggregation is faster.
    AggregationPreferred {
        /// Estimate for aggregation.
        estimate_ns: u64,
        /// Estimate for the best point-to-point algorithm.
        point_to_point_ns: u64,
    },
    /// The way through the nodes takes longer.
    PointToPointFaster {
        /// Estimate for aggregation.
        aggregation_ns: u64,
    },
    /// One packet reaches all hosts.
    MulticastFaster {
        /// Estimate for the multicast.
        estimate_ns: u64,
    },
    /// The user requested it.
    Preferred(PreferredMethod),
    /// The user requested a method that is not available.
    PreferenceUnavailable(PreferredMethod),
    /// The result must have the bits of the aggregation tree.
    TreeBitsRequired,
    /// This algorithm has the lowest estimate of all that are allowed.
    Cheapest {
        /// Its estimate.
        estimate_ns: u64,
        /// The second best and its estimate, if there is another.
        next: Option<(CollectiveAlgorithm, u64)>,
    },
}

impl MethodChoice {
    /// The reasons, in the order of the decision.
    pub fn reasons(&self) -> &[ChoiceReason] {
        &self.reasons
    }
}

/// Chooses the method of a collective. Equal inputs give equal choices at all ranks.
pub fn choose_method(input: &SelectionInput) -> MethodChoice {
    let mut reasons = Vec::new();
    let (participants, participant_count) = participants(input, &mut reasons);
    if participant_count <= 1 {
        reasons.push(ChoiceReason::SingleHost);
        return MethodChoice { method: InterHostMethod::SingleHost, participants, participant_count, reasons };
    }
    if let Some(preferred) = input.preferred {
        let method = preferred.method(input);
        let is_available = method.is_some() || preferred == PreferredMethod::Hosts;
        reasons.push(if is_available {
            ChoiceReason::Preferred(preferred)
        } else {
            ChoiceReason::PreferenceUnavailable(preferred)
        });
        if let Some(method) = method {
            return MethodChoice { method, participants, participant_count, reasons };
        }
    }
    reasons.extend(input.network_costs.map(ChoiceReason::NetworkCosts));
    let ranking = rank_algorithms(input, participant_count);
    let correction = Corrections::of(input, participant_count);
    let ranking: Vec<_> = ranking
        .into_iter()
        .map(|(algorithm, ns)| (algorithm, correction.as_ref().map_or(ns, |found| found.point_to_point.apply(ns))))
        .collect();
    let (best, best_ns) = ranking[0];
    let requests_hosts = input.preferred == Some(PreferredMethod::Hosts);
    let method = if !requests_hosts && multicast_is_better(input, best_ns, &mut reasons) {
        InterHostMethod::Multicast
    } else if !requests_hosts && aggregation_is_better(input, best_ns, correction.as_ref(), &mut reasons) {
        InterHostMethod::Aggregation
    } else {
        if input.operand_order == OperandOrder::TreeOrder && best.is_ordered() {
            reasons.push(ChoiceReason::TreeBitsRequired);
        }
        reasons.push(ChoiceReason::Cheapest { estimate_ns: best_ns, next: ranking.get(1).copied() });
        InterHostMethod::PointToPoint(best)
    };
    MethodChoice { method, participants, participant_count, reasons }
}

fn participants(input: &SelectionInput, reasons: &mut Vec<ChoiceReason>) -> (CollectiveParticipants, u32) {
    let SelectionInput { size, ranks_per_host, operand_order, .. } = *input;
    match ranks_per_host {
        0 | 1 => (CollectiveParticipants::EveryRank, size),
        _ if operand_order == OperandOrder::RankOrder && size > ranks_per_host => {
            reasons.push(ChoiceReason::KeepsRankOrder);
            (CollectiveParticipants::EveryRank, size)
        }
        _ => (CollectiveParticipants::HostLeaders, size.div_ceil(ranks_per_host)),
    }
}

/// The allowed algorithms, fastest first; ties keep the order of the candidates. There is always one.
fn rank_algorithms(input: &SelectionInput, participants: u32) -> Vec<(CollectiveAlgorithm, u64)> {
    let costs = input.costs();
    let elements = input.bytes / input.collective.kind().map_or(1, |kind| kind.element_size() as u32);
    let collective = &input.collective;
    let splits_evenly = |algorithm: &CollectiveAlgorithm| algorithm.splits_vector() && !collective.has_blocks();
    let is_long = input.transport == TransportClass::Datagrams && input.bytes >= MIN_STREAMED_BYTES;
    // Messages of an alltoall go in pairs at once: nothing is sent on.
    let streams = is_long && *collective != CollectiveOperation::AllToAll;
    let may_use = |algorithm: &CollectiveAlgorithm| match input.operand_order {
        _ if splits_evenly(algorithm) && elements < participants => false, // Most blocks would be empty.
        OperandOrder::Any if streams => algorithm.can_stream(collective, participants),
        _ if *algorithm == CollectiveAlgorithm::Chain => false, // Only a stream makes up for its many rounds.
        _ if collective.kind().is_none() => !algorithm.is_ordered(),
        OperandOrder::Any => !algorithm.is_ordered(),
        OperandOrder::RankOrder => !algorithm.is_ordered() && algorithm.keeps_rank_order(),
        OperandOrder::TreeOrder => algorithm.is_ordered() || !collective.can_aggregate(),
    };
    let suiting = cost_model::CANDIDATES.into_iter().filter(|algorithm| algorithm.supports(collective));
    let mut ranking: Vec<_> = suiting
        .filter(may_use)
        .map(|algorithm| {
            let idle_ns = costs.point_to_point_ns(algorithm, collective, participants, input.bytes);
            let messages = cost_model::messages(algorithm, collective, participants);
            (algorithm, costs.oversubscribed_ns(idle_ns, messages, input.ranks_per_processor))
        })
        .collect();
    ranking.sort_by_key(|(_, estimate_ns)| *estimate_ns);
    ranking
}

/// True if one host should multicast to all. A polled barrier asks all ranks before they answer, while the nodes'
/// barrier lets them contribute when they enter; so the polled one is never faster and is used only on request.
fn multicast_is_better(input: &SelectionInput, point_to_point_ns: u64, reasons: &mut Vec<ChoiceReason>) -> bool {
    let AggregationAvailability::Offered(offer) = input.aggregation else { return false };
    let is_broadcast = matches!(input.collective, CollectiveOperation::Broadcast { .. });
    if !is_broadcast || offer.multicast != MulticastSupport::Verified || input.bytes > offer.max_bytes {
        return false;
    }
    if input.ranks_per_processor > 1 && input.bytes <= OVERSUBSCRIBED_BYTES {
        return false;
    }
    if input.transport == TransportClass::Datagrams && input.bytes >= MIN_STREAMED_BYTES {
        return false; // Segments by multicast take two to four times as long as a stream from host to host.
    }
    let estimate_ns = input.costs().multicast_ns(input.bytes);
    let is_better = estimate_ns < point_to_point_ns;
    if is_better {
        reasons.push(ChoiceReason::MulticastFaster { estimate_ns });
    }
    is_better
}

fn aggregation_is_better(
    input: &SelectionInput,
    point_to_point_ns: u64,
    corrections: Option<&Corrections>,
    reasons: &mut Vec<ChoiceReason>,
) -> bool {
    if !input.collective.can_aggregate() {
        reasons.push(ChoiceReason::NotAggregated);
        return false;
    }
    let offer = match input.aggregation {
        AggregationAvailability::Unavailable(why) => {
            reasons.push(ChoiceReason::NoAggregation(why));
            return false;
        }
        AggregationAvailability::Offered(offer) => offer,
    };
    if input.bytes > offer.max_bytes {
        reasons.push(ChoiceReason::TooLong { max_bytes: offer.max_bytes });
        return false;
    }
    if input.operand_order == OperandOrder::RankOrder && input.collective.kind().is_some() {
        reasons.push(ChoiceReason::TreeBreaksRankOrder);
        return false;
    }
    let mut estimate_ns = aggregation_ns(input, &offer);
    if let Some(Corrections { bytes, point_to_point, aggregation }) = corrections {
        estimate_ns = aggregation.apply(estimate_ns);
        let (aggregation_ns, point_to_point_ns) = (aggregation.measured_ns, point_to_point.measured_ns);
        reasons.push(ChoiceReason::Measured { bytes: *bytes, aggregation_ns, point_to_point_ns });
    }
    let is_better = estimate_ns <= point_to_point_ns;
    reasons.push(if is_better {
        ChoiceReason::AggregationPreferred { estimate_ns, point_to_point_ns }
    } else {
        ChoiceReason::PointToPointFaster { aggregation_ns: estimate_ns }
    });
    is_better
}

/// Estimate for aggregation, not corrected.
fn aggregation_ns(input: &SelectionInput, offer: &AggregationOffer) -> u64 {
    let costs = input.costs();
    // One message up, one down.
    costs.oversubscribed_ns(costs.aggregation_ns(offer, input.bytes), 2, input.ranks_per_processor)
}

/// What the measurements say about the estimates for vectors of about this length.
struct Corrections {
    /// The length that was measured.
    bytes: u32,
    point_to_point: EstimateCorrection,
    aggregation: EstimateCorrection,
}

impl Corrections {
    /// None if nothing was measured that resembles the operation: in a broadcast most hosts only receive, and the bytes
    /// themselves take most of the time of a long vector. None either where the order of operands matters: nodes and hosts
    /// fold in different orders, and a sum must have the same bits in every run, however long a trial took (P-56).
    fn of(input: &SelectionInput, participant_count: u32) -> Option<Self> {
        let AggregationAvailability::Offered(offer) = input.aggregation else { return None };
        let may_choose = match input.collective {
            CollectiveOperation::Broadcast { .. } => false,
            other if !other.can_aggregate() => false,
            other => other.kind().is_none_or(|kind| !kind.depends_on_order()),
        };
        let measured = input.measured.filter(|_| may_choose && input.bytes < MIN_STREAMED_BYTES)?;
        let index = measured_times::nearest_measurement(input.bytes);
        let bytes = MEASURED_BYTES[index];
        let probe =
            SelectionInput { collective: CollectiveOperation::AllReduce { kind: MEASURED_KIND }, bytes, ..*input };
        let (_, point_to_point_ns) = rank_algorithms(&probe, participant_count)[0];
        let correction =
            |times: MethodTimes, estimate_ns| EstimateCorrection { measured_ns: times.ns[index], estimate_ns };
        Some(Self {
            bytes,
            point_to_point: correction(measured.point_to_point, point_to_point_ns),
            aggregation: correction(measured.aggregation, aggregation_ns(&probe, &offer)),
        })
    }
}
