//! Everything that a simulated collective assumes, by name. Defaults are what the papers describe or, where they are
//! silent, what InfiniBand does; the presets of `pleach reproduce` are sets of these and nothing else.

use protocol::aggregation::DownwardDelivery;
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use units::SimSpan;

use super::aggregation_unit::AggregationUnitParameters;
use super::operation::SimulatedOperation;
use crate::processor::HostCosts;
use crate::queue_pair::LinkNotification;

/// How packets are replicated against soft errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replication {
    /// Each packet once.
    None,
    /// Each packet `copies` times in a row on the same port, in both phases (SE-9).
    Temporal {
        /// How many times.
        copies: u8,
    },
    /// Each packet on `copies` ports, to as many parents; adapters split into as many channels (SE-7, SE-8).
    Spatial {
        /// How many ports.
        copies: u8,
    },
}

/// What counts as the size of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// All headers and codes, as on a real link.
    Full,
    /// The payload alone; control packets last no time. SE-11 counts 256 B, one MTU.
    PayloadOnly,
}

/// How acknowledgements and NAKs travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlPath {
    /// As packets on the links, in competition with all others.
    InBand,
    /// Beside the links: from the discovery of the damage to the start of the resend takes so long.
    Fixed {
        /// NAK turn-round.
        turnaround: SimSpan,
    },
}

/// Which of a level-1 switch's planes the lanes of a split adapter serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneFeeds {
    /// Lane `j` feeds plane `j` only: the switch folds each plane by itself.
    OwnPlane,
    /// Whichever lane comes first feeds all planes.
    AnyPlane,
}

/// Whether replicas above level 1 help each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaSharing {
    /// A switch has only what reached it.
    OwnPlane,
    /// A good contribution that reached one replica serves all others at once. No wire does this; the paper's
    /// statement that two errors at one level cost nothing more implies it.
    AboveLevelOne,
}

/// How wide a resend of a split adapter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResendWidth {
    /// On the lane that failed.
    Lane,
    /// Spread over all lanes of the port.
    Port,
}

/// When the next collective starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationPacing {
    /// When the last one is complete everywhere and nothing of it is under way.
    Drained,
    /// Each host as soon as it has the result of the last.
    BackToBack,
}

/// What members contribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContributionContents {
    /// Real bytes of this kind; every result bit can be checked.
    Real {
        /// Type and operator.
        kind: reduce::ReductionKind,
        /// Elements.
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

/// Second paths for the edges of the tree (P-31 to P-38).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlternatePathParameters {
    /// How they are watched and chosen.
    pub policy: PathPolicy,
    /// Whether machines hear of the cables in their own ports.
    pub notice: LinkNotification,
}

/// What a collective assumes.
#[derive(Clone, Debug)]
pub struct CollectiveParameters {
    /// See [`SimulatedOperation`].
    pub task: SimulatedOperation,
    /// Members come to an operation at random up to so much later than the first.
    pub late: SimSpan,
    /// See [`Replication`].
    pub replication: Replication,
    /// See [`ContributionContents`].
    pub contents: ContributionContents,
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
    /// The connections' timers, windows and limits; its copies are set by `replication`.
    pub policy: ConnectionPolicy,
    /// A member asks for a result that is late by so much.
    pub repair_after: SimSpan,
    /// Operations of the group in flight at once.
    pub window: u32,
    /// Most children of an aggregation node.
    pub radix_limit: Option<u16>,
    /// Hosts that take part, from host 0 on; all if not said.
    pub members: Option<u32>,
    /// A collective that has not settled after so much virtual time counts as hung, and the run goes on without it.
    pub patience: SimSpan,
    /// Allow more spatial copies than the adapter has lanes: it could not be built.
    pub what_if_lanes: bool,
    /// Second paths for the edges of the tree, where the fabric has them; none if not said.
    pub alternates: Option<AlternatePathParameters>,
    /// How results go down.
    pub distribution: DownwardDelivery,
    /// Nodes sit behind an internal port of their switch; none: they have at once what reaches it.
    pub unit: Option<AggregationUnitParameters>,
    /// What hosts take in [`super::SimulatedCollective::measure`].
    pub host: Option<HostCosts>,
}

impl CollectiveParameters {
    /// A collective over all hosts without replication, everything else as documented.
    pub fn new(contents: ContributionContents) -> Self {
        Self {
            task: SimulatedOperation::AllReduce,
            late: SimSpan::ZERO,
            replication: Replication::None,
            contents,
            framing: Framing::Full,
            control: ControlPath::InBand,
            lane_feeds: LaneFeeds::OwnPlane,
            sharing: ReplicaSharing::OwnPlane,
            resend_width: ResendWidth::Lane,
            pace: OperationPacing::Drained,
            policy: ConnectionPolicy::default(),
            repair_after: SimSpan::from_micros(100),
            window: 2,
            radix_limit: None,
            members: None,
            patience: SimSpan::from_micros(1_000_000),
            what_if_lanes: false,
            alternates: None,
            distribution: DownwardDelivery::Multicast,
            unit: None,
            host: None,
        }
    }

    /// Copies of the temporal kind.
    pub fn temporal_copies(&self) -> u8 {
        if let Replication::Temporal { copies } = self.replication { copies } else { 1 }
    }

    /// Copies of the spatial kind: parents of a node, and lanes of an adapter.
    pub fn spatial_copies(&self) -> u8 {
        if let Replication::Spatial { copies } = self.replication { copies } else { 1 }
    }
}
