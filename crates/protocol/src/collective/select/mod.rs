//! Which way suits a collective, and why: a pure function of values that all ranks share (P-49).
//!
//! In: a [`SelectionInput`]. Out: a [`MethodChoice`] with its reasons. All ranks must come to the same choice without asking each
//! other, so nothing is measured here and all arithmetic is in integers. Times are estimates from the costs of a class of
//! transport (`cost_model`): good enough to find where one algorithm overtakes another, no forecast.

mod cost_model;
mod preference;
#[cfg(test)]
mod tests;

use std::fmt;

use super::{CollectiveAlgorithm, CollectiveOperation};
pub use cost_model::{TransportClass, TransportCosts};
pub use preference::{MethodPreferences, MethodPreferencesError, PreferredMethod};

/// For short vectors, aggregation is taken unless hosts alone are estimated to be this many times quicker. A host then
/// handles one message each way instead of some in every round, and a late host is waited for once instead of in every
/// round. The estimates, which are of hosts that have nothing else to do, know nothing of it. In a broadcast most hosts only
/// receive, and nobody waits for those who are late: there it does not count.
const AGGREGATION_ADVANTAGE: u64 = 4;
/// Where hosts share processors, shorter broadcasts are quicker among them: a root that runs ahead lets the others take many
/// letters in one wake-up, while one that multicasts may be no more than a window ahead (docs/decisions/0012).
const OVERSUBSCRIBED_BYTES: u32 = 1 << 10;
/// Longer vectors are dominated by their bytes, where the estimates stand for themselves.
const SHORT_BYTES: u32 = 16 << 10;

/// What all ranks know of an operation before it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectionInput {
    /// What is to be done.
    pub collective: CollectiveOperation,
    /// Bytes of the vector.
    pub bytes: u32,
    /// Ranks of the group.
    pub size: u32,
    /// Ranks on each host that share memory and can combine there first: the largest number if hosts differ, one if they
    /// cannot.
    pub ranks_per_host: u32,
    /// Ranks that share a processor, where most do; one if each has its own.
    pub per_processor: u32,
    /// What is asked of the order of operands.
    pub operands: OperandOrder,
    /// Whether there are aggregation nodes for the group.
    pub aggregation: AggregationAvailability,
    /// What a message between hosts costs.
    pub transport: TransportClass,
    /// What the user wants for such an operation.
    pub preferred: Option<PreferredMethod>,
}

/// What is asked of the order of operands. The bits are the same at every rank and in every run in any case (P-47).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandOrder {
    /// Any order that is fixed.
    Commute,
    /// The operator does not commute: lower ranks stand to the left.
    InRankOrder,
    /// The bits must be those of the group's aggregation tree, whoever computes them.
    AsInTree,
}

/// Whether the group can use aggregation nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregationAvailability {
    /// It has been given a tree.
    Offered(AggregationOffer),
    /// It has not.
    NotOffered(AggregationUnavailable),
}

/// What a group has been given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AggregationOffer {
    /// Longest vector that the reserved resources carry.
    pub most_bytes: u32,
    /// Levels of nodes between hosts and root, the root included.
    pub levels: u8,
    /// Most children of a node.
    pub children: u16,
    /// Whether the hosts hear each other's multicasts.
    pub multicast: MulticastSupport,
}

/// Whether all hosts of a group hear what is multicast to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MulticastSupport {
    /// A trial has shown it, or the user says so.
    Heard,
    /// Nobody relies on it.
    Unused,
}

/// Why a group has no aggregation tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregationUnavailable {
    /// No manager was named or none answers.
    NoManager,
    /// The manager knows of no nodes that reach all hosts of the group.
    NoNodes,
    /// The resources are taken by others.
    NoRoom,
    /// A node of the tree was lost, and no other tree has taken its place.
    NodeLost,
    /// The user does not want it.
    SwitchedOff,
}

/// Who takes part in what goes between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveParticipants {
    /// Every rank for itself.
    EveryRank,
    /// One for each host; the ranks of a host combine in shared memory before, and share the result after.
    HostLeaders,
}

/// How it is done between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterHostMethod {
    /// There is only one party: nothing goes between hosts.
    OneParty,
    /// Through the group's aggregation nodes.
    Aggregation,
    /// One host speaks to all others at once, and the group's nodes combine what they answer: *hbcast* and *hgsync* of the
    /// Quadrics library (QN-9, QN-10). Broadcast and barrier.
    Multicast,
    /// The hosts alone.
    Hosts(CollectiveAlgorithm),
}

/// The decision, with its reasons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MethodChoice {
    /// How it is done between hosts.
    pub method: InterHostMethod,
    /// Who takes part there.
    pub party: CollectiveParticipants,
    /// How many take part there.
    pub parties: u32,
    reasons: Vec<ChoiceReason>,
}

/// One reason for a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChoiceReason {
    /// All ranks are on one host, or there is one rank.
    NobodyElse,
    /// Ranks of a host would combine out of rank order, so they do not.
    KeepsRankOrder,
    /// There is no aggregation tree.
    NotOffered(AggregationUnavailable),
    /// The vector is too long for what was reserved.
    TooLong {
        /// Longest that was reserved.
        most_bytes: u32,
    },
    /// Nodes fold in the order of the fabric, and the operator asks for that of the ranks.
    TreeIsNotInRankOrder,
    /// Aggregation is quicker, or so nearly as quick that what it spares the hosts decides.
    AggregationSuits {
        /// Estimate for aggregation.
        estimate_ns: u64,
        /// Estimate for the best that hosts can do alone.
        hosts_ns: u64,
    },
    /// Nodes take in their children's vectors one after the other, and that would take longer.
    HostsQuicker {
        /// Estimate for aggregation.
        aggregation_ns: u64,
    },
    /// One packet reaches everyone.
    MulticastQuicker {
        /// Estimate for it.
        estimate_ns: u64,
    },
    /// The user wants it so.
    Preferred(PreferredMethod),
    /// The user wants it so, and it cannot be.
    CannotBeHad(PreferredMethod),
    /// The bits must be those of the tree.
    BitsOfTree,
    /// Of the algorithms that may be used, this one has the lowest estimate.
    Cheapest {
        /// Its estimate.
        estimate_ns: u64,
        /// The next best, if there is another.
        next: Option<(CollectiveAlgorithm, u64)>,
    },
}

impl MethodChoice {
    /// Why, in the order in which one would say it.
    pub fn reasons(&self) -> &[ChoiceReason] {
        &self.reasons
    }
}

/// Decides. All ranks that give the same situation get the same choice.
pub fn choose_method(situation: &SelectionInput) -> MethodChoice {
    let mut reasons = Vec::new();
    let (party, parties) = parties(situation, &mut reasons);
    if parties <= 1 {
        reasons.push(ChoiceReason::NobodyElse);
        return MethodChoice { method: InterHostMethod::OneParty, party, parties, reasons };
    }
    if let Some(preferred) = situation.preferred {
        let method = preferred.method(situation);
        let can_be = method.is_some() || preferred == PreferredMethod::Hosts;
        reasons.push(if can_be { ChoiceReason::Preferred(preferred) } else { ChoiceReason::CannotBeHad(preferred) });
        if let Some(method) = method {
            return MethodChoice { method, party, parties, reasons };
        }
    }
    let ranking = rank_algorithms(situation, parties);
    let (best, best_ns) = ranking[0];
    let wants_hosts = situation.preferred == Some(PreferredMethod::Hosts);
    let method = if !wants_hosts && multicast_is_better(situation, best_ns, &mut reasons) {
        InterHostMethod::Multicast
    } else if !wants_hosts && aggregation_is_better(situation, best_ns, &mut reasons) {
        InterHostMethod::Aggregation
    } else {
        if situation.operands == OperandOrder::AsInTree && best.is_ordered() {
            reasons.push(ChoiceReason::BitsOfTree);
        }
        reasons.push(ChoiceReason::Cheapest { estimate_ns: best_ns, next: ranking.get(1).copied() });
        InterHostMethod::Hosts(best)
    };
    MethodChoice { method, party, parties, reasons }
}

fn parties(situation: &SelectionInput, reasons: &mut Vec<ChoiceReason>) -> (CollectiveParticipants, u32) {
    let SelectionInput { size, ranks_per_host, operands, .. } = *situation;
    match ranks_per_host {
        0 | 1 => (CollectiveParticipants::EveryRank, size),
        _ if operands == OperandOrder::InRankOrder && size > ranks_per_host => {
            reasons.push(ChoiceReason::KeepsRankOrder);
            (CollectiveParticipants::EveryRank, size)
        }
        _ => (CollectiveParticipants::HostLeaders, size.div_ceil(ranks_per_host)),
    }
}

/// The algorithms that may be used, quickest first; of equals, the one that is named first. There is always one.
fn rank_algorithms(situation: &SelectionInput, parties: u32) -> Vec<(CollectiveAlgorithm, u64)> {
    let costs = situation.transport.costs();
    let elements = situation.bytes / situation.collective.kind().map_or(1, |kind| kind.element_size() as u32);
    let may_use = |algorithm: &CollectiveAlgorithm| match situation.operands {
        _ if algorithm.cuts() && elements < parties => false, // Most blocks would be empty.
        _ if situation.collective.kind().is_none() => !algorithm.is_ordered(),
        OperandOrder::Commute => !algorithm.is_ordered(),
        OperandOrder::InRankOrder => !algorithm.is_ordered() && *algorithm != CollectiveAlgorithm::Ring,
        OperandOrder::AsInTree => algorithm.is_ordered(),
    };
    let suiting = cost_model::CANDIDATES.into_iter().filter(|algorithm| algorithm.suits(&situation.collective));
    let mut ranking: Vec<_> = suiting
        .filter(may_use)
        .map(|algorithm| {
            let idle_ns = costs.hosts_ns(algorithm, &situation.collective, parties, situation.bytes);
            let messages = cost_model::messages(algorithm, &situation.collective, parties);
            (algorithm, costs.crowded_ns(idle_ns, messages, situation.per_processor))
        })
        .collect();
    ranking.sort_by_key(|(_, estimate_ns)| *estimate_ns);
    ranking
}

/// Whether one host should speak to all at once. A barrier that is tested asks all before they answer, where one through the
/// nodes lets them speak when they come: so it is never quicker, and is there for whoever wants it.
fn multicast_is_better(situation: &SelectionInput, hosts_ns: u64, reasons: &mut Vec<ChoiceReason>) -> bool {
    let AggregationAvailability::Offered(offer) = situation.aggregation else { return false };
    let is_broadcast = matches!(situation.collective, CollectiveOperation::Broadcast { .. });
    if !is_broadcast || offer.multicast != MulticastSupport::Heard || situation.bytes > offer.most_bytes {
        return false;
    }
    if situation.per_processor > 1 && situation.bytes <= OVERSUBSCRIBED_BYTES {
        return false;
    }
    let estimate_ns = situation.transport.costs().multicast_ns(situation.bytes);
    let is_better = estimate_ns < hosts_ns;
    if is_better {
        reasons.push(ChoiceReason::MulticastQuicker { estimate_ns });
    }
    is_better
}

fn aggregation_is_better(situation: &SelectionInput, hosts_ns: u64, reasons: &mut Vec<ChoiceReason>) -> bool {
    let offer = match situation.aggregation {
        AggregationAvailability::NotOffered(why) => {
            reasons.push(ChoiceReason::NotOffered(why));
            return false;
        }
        AggregationAvailability::Offered(offer) => offer,
    };
    if situation.bytes > offer.most_bytes {
        reasons.push(ChoiceReason::TooLong { most_bytes: offer.most_bytes });
        return false;
    }
    if situation.operands == OperandOrder::InRankOrder && situation.collective.kind().is_some() {
        reasons.push(ChoiceReason::TreeIsNotInRankOrder);
        return false;
    }
    let costs = situation.transport.costs();
    let estimate_ns = costs.aggregation_ns(&offer, situation.bytes);
    let estimate_ns = costs.crowded_ns(estimate_ns, 2, situation.per_processor); // One up, one down.
    let gathers = !matches!(situation.collective, CollectiveOperation::Broadcast { .. });
    let advantage = if gathers && situation.bytes <= SHORT_BYTES { AGGREGATION_ADVANTAGE } else { 1 };
    let is_better = estimate_ns <= hosts_ns.saturating_mul(advantage);
    reasons.push(if is_better {
        ChoiceReason::AggregationSuits { estimate_ns, hosts_ns }
    } else {
        ChoiceReason::HostsQuicker { aggregation_ns: estimate_ns }
    });
    is_better
}

impl fmt::Display for MethodChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method {
            InterHostMethod::OneParty => f.write_str("nothing between hosts")?,
            InterHostMethod::Aggregation => write!(f, "aggregation nodes, for {} {}", self.parties, self.party)?,
            InterHostMethod::Multicast => write!(f, "multicast, among {} {}", self.parties, self.party)?,
            InterHostMethod::Hosts(algorithm) => write!(f, "{algorithm}, among {} {}", self.parties, self.party)?,
        }
        for (position, reason) in self.reasons.iter().enumerate() {
            write!(f, "{} {reason}", if position == 0 { ":" } else { ";" })?;
        }
        f.write_str(".")
    }
}

impl fmt::Display for CollectiveParticipants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EveryRank => "ranks",
            Self::HostLeaders => "hosts",
        })
    }
}

impl fmt::Display for AggregationUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoManager => "there is no manager",
            Self::NoNodes => "no aggregation nodes reach all hosts of the group",
            Self::NoRoom => "other jobs hold the aggregation nodes' resources",
            Self::NodeLost => "an aggregation node of the group was lost",
            Self::SwitchedOff => "aggregation is switched off",
        })
    }
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |ns: &u64| *ns as f64 / 1000.0;
        match self {
            Self::NobodyElse => f.write_str("all ranks share one host's memory"),
            Self::KeepsRankOrder => f.write_str("ranks of a host do not combine first, which could break rank order"),
            Self::NotOffered(why) => write!(f, "{why}"),
            Self::TooLong { most_bytes } => write!(f, "aggregation was granted for at most {most_bytes} bytes"),
            Self::TreeIsNotInRankOrder => f.write_str("aggregation nodes do not fold in rank order"),
            Self::AggregationSuits { estimate_ns, hosts_ns } => {
                let (estimate, hosts) = (micros(estimate_ns), micros(hosts_ns));
                write!(f, "estimated at {estimate:.1} us, hosts alone at {hosts:.1} us")?;
                if estimate_ns > hosts_ns {
                    f.write_str(" if they had nothing else to do; a host sends and receives only one message")?;
                }
                Ok(())
            }
            Self::HostsQuicker { aggregation_ns } => {
                write!(f, "aggregation nodes would be the bottleneck, at {:.1} us", micros(aggregation_ns))
            }
            Self::MulticastQuicker { estimate_ns } => {
                write!(f, "one packet reaches everyone, estimated at {:.1} us", micros(estimate_ns))
            }
            Self::Preferred(preferred) => write!(f, "the user wants {preferred}"),
            Self::CannotBeHad(preferred) => write!(f, "the user wants {preferred}, which cannot be had here"),
            Self::BitsOfTree => f.write_str("the bits must be those of the aggregation tree"),
            Self::Cheapest { estimate_ns, next: None } => write!(f, "estimated at {:.1} us", micros(estimate_ns)),
            Self::Cheapest { estimate_ns, next: Some((other, other_ns)) } => {
                write!(f, "estimated at {:.1} us, {other} at {:.1} us", micros(estimate_ns), micros(other_ns))
            }
        }
    }
}
