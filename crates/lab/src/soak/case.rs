//! A case of the soak: everything on which a run depends, as data that can be drawn, shrunk, written to a file and read again.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use faults::FaultRule;
use serde::{Deserialize, Serialize};
use topology::{DragonflyShape, Fabric};
use units::{SimSpan, SimTime};

/// A run of several groups in one fabric, with faults.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SoakCase {
    /// Determines contributions, late entries and the random numbers of faults.
    pub seed: u64,
    /// Timeouts in a row after which a peer counts as lost.
    pub retry_limit: u8,
    /// An acknowledgement is requested with every n-th packet.
    pub acknowledge_every: u16,
    /// The fabric.
    pub fabric: SoakFabric,
    /// Its links.
    pub link: SoakLink,
    /// The groups, all at work at the same time.
    #[serde(rename = "group")]
    pub groups: Vec<SoakGroup>,
    /// The faults.
    #[serde(rename = "fault", default)]
    pub faults: Vec<FaultRule>,
}

/// The shape of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum SoakFabric {
    /// A fat tree, level by level.
    Xgft {
        /// Children of a switch.
        children: Vec<u32>,
        /// Parents of a node.
        parents: Vec<u32>,
    },
    /// A fat tree with k ports up and down.
    KAryNTree {
        /// Ports.
        k: u32,
        /// Levels.
        n: u32,
    },
    /// Groups of leaves and spines.
    DragonflyPlus {
        /// Groups.
        groups: u32,
        /// Leaves of a group.
        leaves_per_group: u32,
        /// Spines of a group.
        spines_per_group: u32,
        /// Hosts of a leaf.
        hosts_per_leaf: u32,
        /// Cables from a spine to other groups.
        global_ports_per_spine: u32,
    },
    /// A hypercube.
    Hypercube {
        /// Dimensions.
        dimensions: u32,
        /// Hosts of a switch.
        hosts_per_switch: u32,
    },
    /// A torus.
    Torus {
        /// Switches in each dimension.
        sizes: Vec<u32>,
        /// Hosts of a switch.
        hosts_per_switch: u32,
    },
    /// A mesh.
    Mesh {
        /// Switches in each dimension.
        sizes: Vec<u32>,
        /// Hosts of a switch.
        hosts_per_switch: u32,
    },
}

/// Links and switches, as in a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SoakLink {
    /// Such as `EDR`; four lanes.
    pub rate: String,
    /// Time of flight of a cable.
    pub wire_ns: u64,
    /// Delay of a switch.
    pub switch_delay_ns: u64,
    /// Delay of an adapter.
    pub adapter_delay_ns: u64,
    /// `cut-through` or `store-and-forward`.
    pub forwarding: String,
    /// Virtual lanes.
    pub virtual_lanes: u8,
    /// Input buffer of each virtual lane.
    pub buffer_bytes: u32,
}

/// A group of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SoakGroup {
    /// The job to which it belongs.
    pub job: u32,
    /// Its hosts, in ascending order.
    pub hosts: Vec<u32>,
    /// Operations or segments in flight at once.
    pub window: u32,
    /// Copies of each packet in a row.
    pub copies: u8,
    /// Members enter an operation up to this much later than the first.
    pub late_ns: u64,
    /// How results go down the tree: `multicast`, `connections` or `both`.
    pub results: String,
    /// Most children of a node of the tree.
    pub radix_limit: Option<u16>,
    /// Whether edges of the tree move to another route if the fabric has one.
    pub alternate_paths: bool,
    /// The operations, one after another.
    #[serde(rename = "operation")]
    pub operations: Vec<SoakOperation>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SoakOperation {
    /// `barrier`, `broadcast`, `reduce` or `allreduce`.
    pub operation: String,
    /// `aggregation`, `multicast`, or an algorithm among hosts.
    pub algorithm: String,
    /// The element type.
    pub element: String,
    /// The operator.
    pub operator: String,
    /// Elements of each vector.
    pub count: u32,
    /// Bytes of a segment, rounded down to whole elements.
    pub segment_bytes: u32,
    /// It starts only when no fault applies any more, and must complete.
    #[serde(default)]
    pub after_faults: bool,
    /// It does not start before this time.
    #[serde(default)]
    pub start_ms: u64,
}

impl SoakFabric {
    /// Builds the fabric.
    ///
    /// # Errors
    /// If the shape is out of bounds.
    pub fn build(&self) -> Result<Arc<Fabric>> {
        let fabric = match self {
            Self::Xgft { children, parents } => Fabric::xgft(children, parents),
            Self::KAryNTree { k, n } => Fabric::kary_ntree(*k, *n),
            Self::DragonflyPlus {
                groups,
                leaves_per_group,
                spines_per_group,
                hosts_per_leaf,
                global_ports_per_spine,
            } => Fabric::dragonfly_plus(DragonflyShape {
                groups: *groups,
                leaves_per_group: *leaves_per_group,
                spines_per_group: *spines_per_group,
                hosts_per_leaf: *hosts_per_leaf,
                global_ports_per_spine: *global_ports_per_spine,
            }),
            Self::Hypercube { dimensions, hosts_per_switch } => Fabric::hypercube(*dimensions, *hosts_per_switch),
            Self::Torus { sizes, hosts_per_switch } => Fabric::torus(sizes, *hosts_per_switch),
            Self::Mesh { sizes, hosts_per_switch } => Fabric::mesh(sizes, *hosts_per_switch),
        };
        let fabric = fabric.with_context(|| format!("the fabric {self:?}"))?;
        ensure!(fabric.hosts() <= MAX_HOSTS, "the fabric has {} hosts; at most {MAX_HOSTS}", fabric.hosts());
        Ok(Arc::new(fabric))
    }
}

/// How long it takes at most until a machine whose peer was out of reach has given up, or has noticed that it is back.
const GIVING_UP: SimSpan = SimSpan::from_micros(500_000);
/// The most hosts of a case: more would take minutes.
const MAX_HOSTS: u32 = 4096;
/// The most bytes of a case's text.
const MAX_TEXT_BYTES: u64 = 1 << 20;

impl SoakCase {
    /// Reads a case from a file.
    ///
    /// # Errors
    /// If the file cannot be read or is not a case.
    pub fn read(path: &std::path::Path) -> Result<Self> {
        let text = crate::text_file::read_text(path, MAX_TEXT_BYTES)?;
        toml::from_str(&text).with_context(|| format!("{} is not a case of the soak", path.display()))
    }

    /// The text of a file that [`Self::read`] reads.
    ///
    /// # Panics
    /// Never: every case can be written.
    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("tables and scalars")
    }

    /// When the effects of the last fault are over that ends at all.
    pub(super) fn healed_at(&self) -> SimTime {
        let ends = self.faults.iter().filter_map(|rule| {
            let start = rule.at_us.as_ref().map_or(0.0, |at| *at.get_ref());
            rule.for_us.as_ref().map(|length| start + *length.get_ref())
        });
        let end = SimTime::from_picos((ends.fold(0.0, f64::max) * 1e6) as u64);
        if self.may_fail() { end + GIVING_UP } else { end }
    }

    /// Whether a fault never ends that affects this group: of a killed host, only its own groups.
    pub(super) fn has_permanent_fault(&self, group: usize) -> bool {
        let hosts = &self.groups[group].hosts;
        self.faults.iter().filter(|rule| rule.for_us.is_none()).any(|rule| {
            let host = rule.node.as_ref().and_then(|name| name.get_ref().strip_prefix('H')?.parse().ok());
            host.is_none_or(|host: u32| hosts.contains(&host))
        })
    }

    /// Whether operations may fail while there are faults: cables go down, or machines give up early.
    pub(super) fn may_fail(&self) -> bool {
        let is_hard = |rule: &FaultRule| !rule.kind.get_ref().is_of_packets();
        self.retry_limit < u8::MAX || self.faults.iter().any(is_hard)
    }

    /// Rejects what the simulator cannot run.
    pub(super) fn check(&self, fabric: &Fabric) -> Result<()> {
        ensure!(!self.groups.is_empty(), "a case needs a group");
        for (number, group) in self.groups.iter().enumerate() {
            let is_ascending = group.hosts.windows(2).all(|pair| pair[0] < pair[1]);
            let Some(last) = group.hosts.last().filter(|_| is_ascending) else {
                bail!("group {number}: hosts must be a list of ascending numbers");
            };
            ensure!(*last < fabric.hosts(), "group {number}: there is no host {last}");
            ensure!(!group.operations.is_empty(), "group {number} has no operation");
            ensure!((1..=16).contains(&group.copies), "group {number}: copies must be from 1 to 16");
            ensure!((1..=1024).contains(&group.window), "group {number}: window must be from 1 to 1024");
            let has_branches = group.radix_limit.is_none_or(|limit| limit >= 2);
            ensure!(has_branches, "group {number}: radix-limit must be at least 2");
        }
        Ok(())
    }
}
