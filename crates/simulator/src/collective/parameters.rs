//! The assumptions of a simulated collective, by name. Defaults are what the papers describe or, where they are silent, what
//! InfiniBand does; the presets of `pleach reproduce` are sets of these and nothing else.

use protocol::aggregation::DownwardDelivery;
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use units::{SimSpan, Span};

use super::aggregation_unit::AggregationUnitParameters;
use super::operation::SimulatedOperation;
use crate::processor::HostCosts;
use crate::queue_pair::LinkNotification;

/// How packets are replicated against soft errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replication {
    /// One copy of each packet.
    None,
    /// Each packet `copies` times in a row on the same port, in both phases (SE-9).
    Temporal {
        /// The number of copies.
        copies: u8,
    },
    /// Each packet on `copies` ports, to as many parents; adapters split into as many channels (SE-7, SE-8).
    Spatial {
        /// The number of ports.
        copies: u8,
    },
}

/// What counts as the size of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// All headers and CRCs, as on a real link.
    Full,
    /// The same with headers of another length, by so many bytes: another protocol than ours.
    FullWith {
        /// Fewer if negative.
        extra_header_bytes: i32,
    },
    /// The payload alone; control packets take no time. SE-11 counts 256 B, one MTU.
    PayloadOnly,
}

/// How acknowledgements and NAKs travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlPath {
    /// As packets on the links, in competition with all others.
    InBand,
    /// Without the links: a fixed time from the detection of damage to the start of the retransmission.
    Fixed {
        /// The NAK turnaround.
        turnaround: SimSpan,
    },
}

/// Which planes of a level-1 switch the lanes of a split adapter feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneFeeds {
    /// Lane `j` feeds plane `j` only: the switch reduces each plane separately.
    OwnPlane,
    /// The first lane that arrives feeds all planes.
    AnyPlane,
}

/// Whether replicas above level 1 share contributions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaSharing {
    /// A switch has only the contributions that reached it.
    OwnPlane,
    /// An intact contribution that reached one replica serves all others immediately. No wire does this; the paper's statement that
    /// two errors at one level cost nothing more implies it.
    AboveLevelOne,
}

/// The width of a retransmission of a split adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResendWidth {
    /// The lane that failed.
    Lane,
    /// All lanes of the port.
    Port,
}

/// When the next collective starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationPacing {
    /// When the last one is complete on every host and nothing of it is in flight.
    Drained,
    /// On each host as soon as it has the result of the last.
    BackToBack,
}

/// The contributions of the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContributionContents {
    /// Real bytes; every bit of the result can be checked.
    Real {
        /// Element type and operator.
        kind: reduce::ReductionKind,
        /// Number of elements.
        count: u16,
    },
    /// Only a size, for large fabrics.
    SizeOnly {
        /// Bytes.
        bytes: u32,
    },
}

impl ContributionContents {
    /// Bytes of one contribution.
    pub fn bytes(&self) -> u32 {
        match self {
            Self::Real { kind, count } => kind.element_size() as u32 * u32::from(*count),
            Self::SizeOnly { bytes } => *bytes,
        }
    }
}

/// A vector that is longer than a packet: its segments are operations of the machines, several of them in flight at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongVector {
    /// Segments; all but the last have the size of [`CollectiveParameters::contents`].
    pub segments: u32,
    /// Bytes of the last one.
    pub last_bytes: u32,
}

/// Alternate paths for the edges of the tree (P-15 to P-25).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlternatePathParameters {
    /// How paths are probed and chosen.
    pub policy: PathPolicy,
    /// Whether machines are notified about the cables of their own ports.
    pub notice: LinkNotification,
}

/// The parameters of a collective.
#[derive(Clone, Debug)]
pub struct CollectiveParameters {
    /// See [`SimulatedOperation`].
    pub operation: SimulatedOperation,
    /// Members enter an operation at random, up to this much later than the first.
    pub arrival_skew: SimSpan,
    /// See [`Replication`].
    pub replication: Replication,
    /// See [`ContributionContents`].
    pub contents: ContributionContents,
    /// More than one segment of these contents; not for operations by multicast.
    pub long_vector: Option<LongVector>,
    /// See [`Framing`].
    pub framing: Framing,
    /// See [`ControlPath`].
    pub control: ControlPath,
    /// See [`LaneFeeds`].
    pub lane_feeds: LaneFeeds,
    /// See [`ReplicaSharing`].
    pub sharing: ReplicaSharing,
    /// See [`ResendWidth`].
    pub resend_width: ResendWidth,
    /// See [`OperationPacing`].
    pub pace: OperationPacing,
    /// The timers, windows and limits of the connections; `replication` sets the copies.
    pub policy: ConnectionPolicy,
    /// A member requests a repair of a result that is late by this much.
    pub repair_after: Span,
    /// Operations of the group in flight at once.
    pub window: u32,
    /// After a failure, the time until the tree is rebuilt on what is left; never if none.
    pub rebuild_after: Option<SimSpan>,
    /// Most children of an aggregation node.
    pub radix_limit: Option<u16>,
    /// Participating hosts, from host 0 on; all hosts if none.
    pub members: Option<u32>,
    /// A collective that has not ended after this much virtual time counts as hung.
    pub hang_timeout: SimSpan,
    /// Allow more spatial copies than the adapter has lanes: such an adapter could not be built.
    pub what_if_lanes: bool,
    /// Alternate paths for the edges of the tree, where the fabric has them.
    pub alternate_paths: Option<AlternatePathParameters>,
    /// How results are distributed.
    pub distribution: DownwardDelivery,
    /// Nodes are behind an internal port of their switch; if none, they receive immediately what reaches it.
    pub unit: Option<AggregationUnitParameters>,
    /// The host model of [`super::SimulatedCollective::measure`].
    pub host: Option<HostCosts>,
}

impl CollectiveParameters {
    /// A collective over all hosts without replication; everything else has its documented default.
    pub fn new(contents: ContributionContents) -> Self {
        Self {
            operation: SimulatedOperation::AllReduce,
            arrival_skew: SimSpan::ZERO,
            replication: Replication::None,
            contents,
            long_vector: None,
            framing: Framing::Full,
            control: ControlPath::InBand,
            lane_feeds: LaneFeeds::OwnPlane,
            sharing: ReplicaSharing::OwnPlane,
            resend_width: ResendWidth::Lane,
            pace: OperationPacing::Drained,
            policy: ConnectionPolicy::default(),
            repair_after: Span::from_micros(100),
            window: 2,
            rebuild_after: None,
            radix_limit: None,
            members: None,
            hang_timeout: SimSpan::from_micros(1_000_000),
            what_if_lanes: false,
            alternate_paths: None,
            distribution: DownwardDelivery::Multicast,
            unit: None,
            host: None,
        }
    }

    /// Segments of a vector.
    pub fn segments(&self) -> u32 {
        self.long_vector.map_or(1, |long| long.segments)
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self, segment: u32) -> u32 {
        match self.long_vector {
            Some(long) if segment + 1 == long.segments => long.last_bytes,
            _ => self.contents.bytes(),
        }
    }

    /// Copies in temporal replication.
    pub fn temporal_copies(&self) -> u8 {
        if let Replication::Temporal { copies } = self.replication { copies } else { 1 }
    }

    /// Copies in spatial replication: parents of a node, and lanes of an adapter.
    pub fn spatial_copies(&self) -> u8 {
        if let Replication::Spatial { copies } = self.replication { copies } else { 1 }
    }
}
