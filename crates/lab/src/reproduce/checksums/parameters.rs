//! The parameters: `experiments/checksums/parameters.toml`, checked to be in range.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::reproduce::parameter_file::check_range;

pub(super) const TEXT: &str = include_str!("../../../experiments/checksums/parameters.toml");

/// All parameters, as in the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ChecksumParameters {
    pub jack: ClusterTable,
    pub graphene: ClusterTable,
    pub nmad: NmadTable,
    pub open_mpi: OpenMpiTable,
    pub fabric: FabricTable,
    pub nas: Vec<NasTable>,
}

/// NewMadeleine.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NmadTable {
    /// Messages of this size and more are announced first.
    pub rendezvous_bytes: u32,
    /// What the paper's receiver has left to check when the last byte of a chunk arrives.
    pub sub_block_bytes: u32,
}

/// Open MPI.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct OpenMpiTable {
    /// Messages of this size and more are announced first.
    pub rendezvous_bytes: u32,
    /// A fragment of a message with a checksum.
    pub fragment_bytes: u32,
}

/// The simulated network: two wires and a switch. The adapters take the rest of the latency.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FabricTable {
    pub wire_ns: f64,
    pub switch_ns: f64,
}

impl FabricTable {
    pub(super) fn latency_us(self) -> f64 {
        (2.0 * self.wire_ns + self.switch_ns) / 1e3
    }
}

/// A cluster with everything that the simulation of a message needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterModel {
    pub speeds: ClusterTable,
    pub nmad: NmadTable,
    pub open_mpi: OpenMpiTable,
    pub fabric: FabricTable,
}

/// A cluster of the paper. Bandwidths in GB/s.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClusterTable {
    /// One-way latency without payload.
    pub latency_us: f64,
    pub network: f64,
    /// A checksum, alone or fused with the copy: the paper uses one number for both.
    pub checksum: f64,
    /// A copy in memory.
    pub memory_copy: f64,
    /// The copy without a checksum in the pipeline.
    pub pipeline_copy: f64,
    /// A checksum outside any pipeline.
    pub outside: f64,
    /// Gap between two packets (the g of LogP).
    pub gap_us: f64,
    /// Time that the checksum adds to the first sub-block of the pipeline, as published.
    pub sub_block_us: f64,
}

/// A NAS kernel: what one rank sends, and how long a run takes without checksums.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NasTable {
    pub kernel: String,
    pub ob1_s: f64,
    pub nmad_s: f64,
    /// Bytes and number of messages.
    pub messages: Vec<(usize, u32)>,
}

impl ChecksumParameters {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let parameters: Self = toml::from_str(text)?;
        let Self { nmad, open_mpi, fabric, .. } = parameters;
        for (name, value) in [("fabric.wire-ns", fabric.wire_ns), ("fabric.switch-ns", fabric.switch_ns)] {
            check_range(name, value, 0.0..=1e6)?;
        }
        for (name, bytes) in [
            ("nmad.rendezvous-bytes", nmad.rendezvous_bytes),
            ("nmad.sub-block-bytes", nmad.sub_block_bytes),
            ("open-mpi.rendezvous-bytes", open_mpi.rendezvous_bytes),
        ] {
            check_range(name, f64::from(bytes), 1.0..=1e6)?;
        }
        let least = f64::from(open_mpi.rendezvous_bytes);
        check_range("open-mpi.fragment-bytes", f64::from(open_mpi.fragment_bytes), least..=1e6)?;
        for (name, cluster) in [("jack", &parameters.jack), ("graphene", &parameters.graphene)] {
            let ClusterTable { network, checksum, memory_copy, pipeline_copy, outside, .. } = *cluster;
            check_range(&format!("{name}.latency-us"), cluster.latency_us, fabric.latency_us()..=1e3)?;
            check_range(&format!("{name}.gap-us"), cluster.gap_us, 0.0..=1e3)?;
            check_range(&format!("{name}.sub-block-us"), cluster.sub_block_us, 0.0..=1e3)?;
            for bandwidth in [network, checksum, memory_copy, pipeline_copy, outside] {
                check_range(&format!("a bandwidth of {name}"), bandwidth, 0.01..=1e3)?;
            }
        }
        for kernel in &parameters.nas {
            check_range("the run time of a kernel", kernel.ob1_s.min(kernel.nmad_s), 1e-3..=1e6)?;
            let valid = kernel.messages.iter().all(|(bytes, _)| (1..=16 << 20).contains(bytes));
            ensure!(valid, "{}: a message has 1 byte to 16 MiB", kernel.kernel);
        }
        Ok(parameters)
    }

    pub(super) fn jack(&self) -> ClusterModel {
        self.model(self.jack)
    }

    pub(super) fn graphene(&self) -> ClusterModel {
        self.model(self.graphene)
    }

    fn model(&self, speeds: ClusterTable) -> ClusterModel {
        ClusterModel { speeds, nmad: self.nmad, open_mpi: self.open_mpi, fabric: self.fabric }
    }
}
