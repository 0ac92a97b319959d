//! The parameters: `experiments/path-migration/parameters.toml`, checked to be in range.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::reproduce::parameter_file::check_range;

pub(in super::super) const TEXT: &str = include_str!("../../../../experiments/path-migration/parameters.toml");

/// All parameters, as in the file.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct MigrationParameters {
    pub link: MigrationLinkTable,
    pub kernels: KernelsTable,
    pub adapter: AdapterTable,
    pub mpi: MpiTable,
    pub nas: NasProgramsTable,
}

/// The paper's adapter and driver.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct AdapterTable {
    pub load_us: f64,
    pub switch_by_load: f64,
    pub command_us: f64,
    pub event_us: f64,
    pub handover_by_load: f64,
    pub give_up_ms: f64,
}

/// The paper's MPI.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct MpiTable {
    pub local_ns: f64,
    pub eager_bytes: u32,
}

/// The paper's programs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct NasProgramsTable {
    /// Of two ranks on different hosts.
    pub queue_pairs: u32,
    pub sort_key_ns: f64,
    /// Whole runs.
    pub fourier_s: f64,
    pub wavefront_s: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct MigrationLinkTable {
    pub wire_ns: f64,
    pub switch_ns: f64,
    pub adapter_ns: f64,
    pub buffer_bytes: u32,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct KernelsTable {
    /// Computing of a rank per iteration.
    pub is_us: f64,
    pub ft_us: f64,
    pub lu_us: f64,
    /// Maximum variation of a compute time.
    pub variation: f64,
    /// How many times as large class B of IS is as class A.
    pub class_b_by_a: f64,
}

impl MigrationParameters {
    pub(in super::super) fn parse(text: &str) -> Result<Self> {
        let parameters: Self = toml::from_str(text)?;
        let MigrationParameters { link, kernels, adapter, mpi, nas } = parameters;
        let times = [
            ("link.wire-ns", link.wire_ns),
            ("link.switch-ns", link.switch_ns),
            ("link.adapter-ns", link.adapter_ns),
            ("kernels.is-us", kernels.is_us),
            ("kernels.ft-us", kernels.ft_us),
            ("kernels.lu-us", kernels.lu_us),
            ("adapter.load-us", adapter.load_us),
            ("adapter.switch-by-load", adapter.switch_by_load),
            ("adapter.command-us", adapter.command_us),
            ("adapter.event-us", adapter.event_us),
            ("adapter.handover-by-load", adapter.handover_by_load),
            ("adapter.give-up-ms", adapter.give_up_ms),
            ("mpi.local-ns", mpi.local_ns),
            ("nas.sort-key-ns", nas.sort_key_ns),
            ("nas.fourier-s", nas.fourier_s),
            ("nas.wavefront-s", nas.wavefront_s),
        ];
        for (name, value) in times {
            check_range(name, value, 0.0..=1e6)?;
        }
        // A packet of the largest MTU fits.
        check_range("link.buffer-bytes", f64::from(link.buffer_bytes), 8192.0..=1e9)?;
        check_range("kernels.variation", kernels.variation, 0.0..=0.5)?;
        check_range("mpi.eager-bytes", f64::from(mpi.eager_bytes), 0.0..=1e9)?;
        check_range("nas.queue-pairs", f64::from(nas.queue_pairs), 1.0..=512.0)?;
        check_range("kernels.class-b-by-a", kernels.class_b_by_a, 1.0..=8.0)?;
        Ok(parameters)
    }
}
