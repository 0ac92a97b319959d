//! What the experiments assume: `experiments/sharp/parameters.toml`, as values.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use simulator::collective::UnitParameters;
use simulator::technology::{ByteTime, Rate, Width};
use simulator::{Forwarding, HostCosts, LinkParameters, Noise};
use units::Span;

const TEXT: &str = include_str!("../../../../../experiments/sharp/parameters.toml");

/// All of it, as the file has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    pub fabric: FabricTable,
    link: LinkTable,
    pub unit: UnitTable,
    host: HostTable,
    native: CallTable,
    mpi: MpiTable,
    pub hosts: HostsTable,
    noise: NoiseTable,
    pub application: ApplicationTable,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FabricTable {
    pub leaves: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LinkTable {
    wire_ns: f64,
    switch_ns: f64,
    adapter_ns: f64,
    mtu_bytes: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct UnitTable {
    port_gigabits: f64,
    pub segment_bytes: u32,
    receive_ns: f64,
    fold_ns: f64,
    copy_gigabits: f64,
    pub window: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostTable {
    post_ns: f64,
    poll_ns: f64,
    send_byte_ns: f64,
    datagram_byte_ns: f64,
    datagram_ns: f64,
    step_over_bytes: u32,
    step_ns: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CallTable {
    call_ns: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MpiTable {
    call_ns: f64,
    over_native_ns: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostsTable {
    pub radix: u16,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NoiseTable {
    per_second: f64,
    mean_ns: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ApplicationTable {
    pub cores_per_host: u32,
    pub on_host_ns: f64,
    pub core_round_ns: f64,
}

/// Who calls: the three measurements of the paper differ in what a call takes beside the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Caller {
    /// The native benchmark (Tables I and II).
    Native,
    /// MPI as Table III has it, on top of the native one.
    MpiOverNative,
    /// MPI as Tables IV to VII have it.
    Mpi,
}

/// Whether the system runs with its default settings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum System {
    /// With the settings against noise (SH-7).
    Quiet,
    /// Without.
    Noisy,
}

impl Parameters {
    /// Those of the file.
    pub(super) fn read() -> Result<Self> {
        let parameters: Self = toml::from_str(TEXT).context("experiments/sharp/parameters.toml")?;
        ensure!(parameters.fabric.leaves > 0 && parameters.unit.segment_bytes > 0, "leaves and segments: from 1 on");
        for gigabits in [parameters.unit.port_gigabits, parameters.unit.copy_gigabits] {
            ensure!((0.001..=8000.0).contains(&gigabits), "{gigabits} Gb/s is no rate");
        }
        Ok(parameters)
    }

    pub(super) fn link(&self) -> LinkParameters {
        LinkParameters {
            byte_time: ByteTime::of(Width::X4, Rate::Edr),
            wire: nanos(self.link.wire_ns),
            switch_delay: nanos(self.link.switch_ns),
            adapter_delay: nanos(self.link.adapter_ns),
            forwarding: Forwarding::CutThrough,
            virtual_lanes: 1,
            buffer_bytes: 16 * 1024,
            adapter_lanes: 1,
        }
    }

    pub(super) fn mtu(&self) -> u32 {
        self.link.mtu_bytes
    }

    pub(super) fn unit_of_node(&self) -> UnitParameters {
        let rate = |gigabits: f64| ByteTime::of_megabits((gigabits * 1e3) as u64);
        UnitParameters {
            port: rate(self.unit.port_gigabits),
            copy: rate(self.unit.copy_gigabits),
            receive: nanos(self.unit.receive_ns),
            fold: nanos(self.unit.fold_ns),
        }
    }

    pub(super) fn costs(&self, caller: Caller, system: System) -> HostCosts {
        let host = &self.host;
        let call = match caller {
            Caller::Native => self.native.call_ns,
            Caller::MpiOverNative => self.native.call_ns + self.mpi.over_native_ns,
            Caller::Mpi => self.mpi.call_ns,
        };
        let noise = Noise { per_second: self.noise.per_second, mean: nanos(self.noise.mean_ns) };
        HostCosts {
            call: nanos(call),
            post: nanos(host.post_ns),
            poll: nanos(host.poll_ns),
            send_byte_ps: picos(host.send_byte_ns),
            datagram: nanos(host.datagram_ns),
            datagram_byte_ps: picos(host.datagram_byte_ns),
            step_over_bytes: host.step_over_bytes,
            step: nanos(host.step_ns),
            noise: (system == System::Noisy).then_some(noise),
        }
    }
}

fn picos(nanos: f64) -> u64 {
    (nanos * 1e3).round() as u64
}

fn nanos(nanos: f64) -> Span {
    Span::from_picos(picos(nanos))
}
