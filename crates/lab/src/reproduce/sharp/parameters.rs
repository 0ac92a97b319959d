//! What the experiments assume: `experiments/sharp/parameters.toml` or a file like it, as values within reason.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use simulator::collective::AggregationUnitParameters;
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{Forwarding, HostCosts, LinkParameters, OsNoise};
use units::Span;
use units::limits::{MAX_GROUP_WINDOW, MAX_MTU};

const TEXT: &str = include_str!("../../../../../experiments/sharp/parameters.toml");

/// All of it, as the file has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharpParameters {
    pub fabric: SharpFabricTable,
    link: LinkTable,
    pub unit: SharpUnitTable,
    host: HostTable,
    native: CallTable,
    mpi: MpiTable,
    pub hosts: SharpHostsTable,
    noise: NoiseTable,
    pub application: ApplicationTable,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharpFabricTable {
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
pub(super) struct SharpUnitTable {
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
pub(super) struct SharpHostsTable {
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
pub(super) enum BenchmarkCaller {
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
pub(super) enum SharpHostNoise {
    /// With the settings against noise (SH-7).
    Quiet,
    /// Without.
    Noisy,
}

impl SharpParameters {
    /// Those of a file; of the one that is shipped, if none is named.
    pub(super) fn read(file: Option<&Path>) -> Result<Self> {
        crate::reproduce::parameter_file::read_parameters(
            file,
            ("experiments/sharp/parameters.toml", TEXT),
            Self::parse,
        )
    }

    fn parse(text: &str) -> Result<Self> {
        let parameters: Self = toml::from_str(text)?;
        parameters.check()?;
        Ok(parameters)
    }

    /// Whether every number is within reason: a run must end, and its times must fit their type.
    fn check(&self) -> Result<()> {
        let Self { fabric, link, unit, host, native, mpi, hosts, noise, application } = self;
        let time = 0.0..=1e6;
        within("link.wire-ns", link.wire_ns, &time)?;
        within("link.switch-ns", link.switch_ns, &time)?;
        within("link.adapter-ns", link.adapter_ns, &time)?;
        within("unit.receive-ns", unit.receive_ns, &time)?;
        within("unit.fold-ns", unit.fold_ns, &time)?;
        within("unit.port-gigabits", unit.port_gigabits, &(0.001..=8000.0))?;
        within("unit.copy-gigabits", unit.copy_gigabits, &(0.001..=8000.0))?;
        within("host.post-ns", host.post_ns, &time)?;
        within("host.poll-ns", host.poll_ns, &time)?;
        within("host.send-byte-ns", host.send_byte_ns, &(0.0..=1e3))?;
        within("host.datagram-byte-ns", host.datagram_byte_ns, &(0.0..=1e3))?;
        within("host.datagram-ns", host.datagram_ns, &time)?;
        within("host.step-ns", host.step_ns, &time)?;
        within("native.call-ns", native.call_ns, &time)?;
        within("mpi.call-ns", mpi.call_ns, &time)?;
        within("mpi.over-native-ns", mpi.over_native_ns, &time)?;
        within("noise.per-second", noise.per_second, &(0.0..=1e6))?;
        within("noise.mean-ns", noise.mean_ns, &time)?;
        // A system that is always elsewhere never comes back to the call.
        within("the share of time that noise takes", noise.per_second * noise.mean_ns / 1e9, &(0.0..=0.5))?;
        within("application.on-host-ns", application.on_host_ns, &time)?;
        within("application.core-round-ns", application.core_round_ns, &time)?;
        let most = f64::from(MAX_MTU);
        within("link.mtu-bytes", f64::from(link.mtu_bytes), &(1.0..=most))?;
        within("unit.segment-bytes", f64::from(unit.segment_bytes), &(1.0..=most))?;
        within("unit.window", f64::from(unit.window), &(1.0..=f64::from(MAX_GROUP_WINDOW)))?;
        within("fabric.leaves", f64::from(fabric.leaves), &(1.0..=32.0))?;
        within("hosts.radix", f64::from(hosts.radix), &(2.0..=128.0))?;
        within("application.cores-per-host", f64::from(application.cores_per_host), &(1.0..=28.0))
    }

    pub(super) fn link(&self) -> LinkParameters {
        LinkParameters {
            byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Edr),
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

    pub(super) fn unit_of_node(&self) -> AggregationUnitParameters {
        let rate = |gigabits: f64| ByteTime::of_megabits((gigabits * 1e3) as u64);
        AggregationUnitParameters {
            port: rate(self.unit.port_gigabits),
            copy: rate(self.unit.copy_gigabits),
            receive: nanos(self.unit.receive_ns),
            fold: nanos(self.unit.fold_ns),
        }
    }

    pub(super) fn costs(&self, caller: BenchmarkCaller, system: SharpHostNoise) -> HostCosts {
        let host = &self.host;
        let call = match caller {
            BenchmarkCaller::Native => self.native.call_ns,
            BenchmarkCaller::MpiOverNative => self.native.call_ns + self.mpi.over_native_ns,
            BenchmarkCaller::Mpi => self.mpi.call_ns,
        };
        let noise = OsNoise { per_second: self.noise.per_second, mean: nanos(self.noise.mean_ns) };
        HostCosts {
            call: nanos(call),
            post: nanos(host.post_ns),
            poll: nanos(host.poll_ns),
            send_byte_ps: picos(host.send_byte_ns),
            datagram: nanos(host.datagram_ns),
            datagram_byte_ps: picos(host.datagram_byte_ns),
            step_over_bytes: host.step_over_bytes,
            step: nanos(host.step_ns),
            noise: (system == SharpHostNoise::Noisy).then_some(noise),
        }
    }
}

fn within(name: &str, value: f64, range: &RangeInclusive<f64>) -> Result<()> {
    ensure!(range.contains(&value), "{name}: {value} is not between {} and {}", range.start(), range.end());
    Ok(())
}

fn picos(nanos: f64) -> u64 {
    (nanos * 1e3).round() as u64
}

fn nanos(nanos: f64) -> Span {
    Span::from_picos(picos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_reason_are_refused_by_name() {
        assert!(SharpParameters::parse(TEXT).is_ok());
        let swaps = [
            ("leaves = 8", "leaves = 0", "fabric.leaves: 0 is not between 1 and 32"),
            ("fold-ns = 240.0", "fold-ns = -1.0", "unit.fold-ns: -1 is not"),
            ("fold-ns = 240.0", "fold-ns = nan", "unit.fold-ns: NaN is not"),
            ("window = 64", "window = 4000000000", "unit.window: 4000000000 is not"),
            ("mean-ns = 2000.0", "mean-ns = 600000.0", "the share of time that noise takes: 0.6 is not"),
            ("window = 64", "windows = 64", "unknown field `windows`"),
        ];
        for (from, to, complaint) in swaps {
            assert!(TEXT.contains(from), "{from}");
            let error = SharpParameters::parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(complaint), "{to}: {error}");
        }
    }
}
