//! The text of a choice and its reasons.

use std::fmt;

use super::{AggregationUnavailable, ChoiceReason, CollectiveParticipants, InterHostMethod, MethodChoice};

impl fmt::Display for MethodChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method {
            InterHostMethod::SingleHost => f.write_str("no communication between hosts")?,
            InterHostMethod::Aggregation => {
                write!(f, "aggregation nodes, for {} {}", self.participant_count, self.participants)?
            }
            InterHostMethod::Multicast => {
                write!(f, "multicast, among {} {}", self.participant_count, self.participants)?
            }
            InterHostMethod::PointToPoint(algorithm) => {
                write!(f, "{algorithm}, among {} {}", self.participant_count, self.participants)?
            }
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
            Self::NoManager => "no aggregation manager is configured",
            Self::ManagerUnusable => "the aggregation manager could not be used",
            Self::Refused => "the aggregation manager refused a tree",
            Self::NoNodes => "no aggregation nodes serve all hosts of the group",
            Self::NoCapacity => "the aggregation nodes have too few resources left",
            Self::NodeLost => "an aggregation node of the group was lost",
            Self::SingleHost => "a single host needs no aggregation nodes",
            Self::Disabled => "aggregation is disabled",
        })
    }
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |ns: &u64| *ns as f64 / 1000.0;
        match self {
            Self::SingleHost => f.write_str("all ranks are on one host"),
            Self::KeepsRankOrder => f.write_str("ranks of a host do not combine first, to keep the rank order"),
            Self::NetworkCosts(costs) => {
                let gigabytes = 1000.0 / costs.byte_ps.max(1) as f64;
                write!(
                    f,
                    "measured on this network: {:.1} us per message, {gigabytes:.2} GB/s",
                    micros(&costs.message_ns)
                )
            }
            Self::NoAggregation(why) => write!(f, "{why}"),
            Self::NotAggregated => f.write_str("aggregation nodes do not do it"),
            Self::TooLong { max_bytes } => write!(f, "aggregation is reserved for at most {max_bytes} bytes"),
            Self::TreeBreaksRankOrder => f.write_str("aggregation nodes do not fold in rank order"),
            Self::AggregationPreferred { estimate_ns, point_to_point_ns } => {
                let (estimate, hosts) = (micros(estimate_ns), micros(point_to_point_ns));
                write!(f, "estimated at {estimate:.1} us, point-to-point at {hosts:.1} us")
            }
            Self::Measured { bytes, aggregation_ns, point_to_point_ns } => {
                let (nodes, hosts) = (micros(aggregation_ns), micros(point_to_point_ns));
                write!(
                    f,
                    "measured for an allreduce of {bytes} bytes: aggregation nodes {nodes:.1} us, hosts {hosts:.1} us"
                )
            }
            Self::PointToPointFaster { aggregation_ns } => {
                write!(f, "aggregation nodes would take {:.1} us", micros(aggregation_ns))
            }
            Self::MulticastFaster { estimate_ns } => {
                write!(f, "one packet reaches all hosts, estimated at {:.1} us", micros(estimate_ns))
            }
            Self::Preferred(preferred) => write!(f, "the user requested {preferred}"),
            Self::PreferenceUnavailable(preferred) => {
                write!(f, "the user requested {preferred}, which is not available here")
            }
            Self::TreeBitsRequired => f.write_str("the result must have the bits of the aggregation tree"),
            Self::Cheapest { estimate_ns, next: None } => write!(f, "estimated at {:.1} us", micros(estimate_ns)),
            Self::Cheapest { estimate_ns, next: Some((other, other_ns)) } => {
                write!(f, "estimated at {:.1} us, {other} at {:.1} us", micros(estimate_ns), micros(other_ns))
            }
        }
    }
}
