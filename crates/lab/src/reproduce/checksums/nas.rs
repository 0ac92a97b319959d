//! NAS kernels (CK-10): what checksums add to the messages of a run, simulated message by message.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::parameters::{ClusterModel, NasTable};
use super::simulated::{ChecksumScheme, one_way};

/// What checksums add to a run, in percent of its published time; and the four times in seconds, two of which are published.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NasOverhead {
    pub kernel: String,
    /// Bytes that one rank sends.
    pub megabytes: f64,
    /// By Open MPI, which copies and checksums fragments.
    pub outside_percent: f64,
    /// In the pipeline, by a library that copies anyway.
    pub pipelined_percent: f64,
    pub ob1_s: f64,
    pub csum_s: f64,
    pub nmad_s: f64,
    pub fnv_s: f64,
}

/// Simulates every message once. Nothing of a message overlaps with another one or with computation.
pub(super) fn overheads(cluster: &ClusterModel, kernels: &[NasTable]) -> Result<Vec<NasOverhead>> {
    let mut times: BTreeMap<(ChecksumScheme, usize), f64> = BTreeMap::new();
    let mut time = |scheme: ChecksumScheme, bytes: usize| -> Result<f64> {
        if let Some(us) = times.get(&(scheme, bytes)) {
            return Ok(*us);
        }
        let us = one_way(cluster, scheme, bytes)?;
        times.insert((scheme, bytes), us);
        Ok(us)
    };
    let mut found = Vec::new();
    for kernel in kernels {
        let (mut outside_us, mut pipelined_us, mut sent) = (0.0, 0.0, 0.0);
        for (bytes, count) in &kernel.messages {
            let count = f64::from(*count);
            outside_us += count * (time(ChecksumScheme::Csum, *bytes)? - time(ChecksumScheme::Ob1, *bytes)?);
            pipelined_us +=
                count * (time(ChecksumScheme::SubBlocks, *bytes)? - time(ChecksumScheme::Copied, *bytes)?);
            sent += count * *bytes as f64;
        }
        found.push(NasOverhead {
            kernel: kernel.kernel.clone(),
            megabytes: sent / 1e6,
            outside_percent: outside_us / 1e4 / kernel.ob1_s,
            pipelined_percent: pipelined_us / 1e4 / kernel.nmad_s,
            ob1_s: kernel.ob1_s,
            csum_s: kernel.ob1_s + outside_us / 1e6,
            nmad_s: kernel.nmad_s,
            fnv_s: kernel.nmad_s + pipelined_us / 1e6,
        });
    }
    Ok(found)
}
