//! The parameters: `experiments/sharp/parameters.toml` or a file like it, checked to be in range.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use simulator::collective::{AggregationUnitParameters, Framing};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{Forwarding, HostCosts, LinkParameters, OsNoise};
use units::SimSpan;
use units::limits::{MAX_GROUP_WINDOW, MAX_MTU};

use crate::reproduce::parameter_file::{check_range, nanos, picos, read_parameters};

pub(super) const TEXT: &str = include_str!("../../../experiments/sharp/parameters.toml");

/// All parameters, as in the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharpParameters {
    pub fabric: SharpFabricTable,
    link: LinkTable,
    pub unit: SharpUnitTable,
    host: HostTable,
    native: CallTable,
    mpi: MpiTable,
    mvapich: MvapichTable,
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
    extra_header_bytes: i32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SharpUnitTable {
    port_gigabits: f64,
    pub segment_bytes: u32,
    stage_ns: f64,
    copy_gigabits: f64,
    pub window: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostTable {
    message_ns: f64,
    byte_ns: f64,
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
    over_native_ns: f64,
}

/// The point-to-point software below recursive doubling: MVAPICH-2, Open MPI.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MvapichTable {
    message_ns: f64,
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

/// The caller: the three measurements of the paper differ in the overhead of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BenchmarkCaller {
    /// The native benchmark (Tables I and II).
    Native,
    /// MPI as Table III has it, on top of the native one.
    MpiOverNative,
    /// MPI as Tables IV to VII have it.
    Mpi,
}

/// Operating system noise of the hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SharpHostNoise {
    /// With settings against noise (SH-7).
    Quiet,
    /// With default settings.
    Noisy,
}

impl SharpParameters {
    /// Reads a parameter file, or the shipped one if none is given: its text and what it says.
    pub(super) fn read(file: Option<&Path>) -> Result<(String, Self)> {
        read_parameters(file, ("experiments/sharp/parameters.toml", TEXT), Self::parse)
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let parameters: Self = toml::from_str(text)?;
        parameters.check()?;
        Ok(parameters)
    }

    /// Checks all ranges: a run must end, and its times must fit their type.
    fn check(&self) -> Result<()> {
        let Self { fabric, link, unit, host, native, mpi, mvapich, hosts, noise, application } = self;
        let times = [
            ("link.wire-ns", link.wire_ns),
            ("link.switch-ns", link.switch_ns),
            ("link.adapter-ns", link.adapter_ns),
            ("unit.stage-ns", unit.stage_ns),
            ("host.message-ns", host.message_ns),
            ("host.step-ns", host.step_ns),
            ("native.call-ns", native.call_ns),
            ("mpi.over-native-ns", mpi.over_native_ns),
            ("mvapich.message-ns", mvapich.message_ns),
            ("noise.mean-ns", noise.mean_ns),
            ("application.on-host-ns", application.on_host_ns),
            ("application.core-round-ns", application.core_round_ns),
        ];
        for (name, value) in times {
            check_range(name, value, 0.0..=1e6)?;
        }
        check_range("unit.port-gigabits", unit.port_gigabits, 0.001..=8000.0)?;
        check_range("unit.copy-gigabits", unit.copy_gigabits, 0.001..=8000.0)?;
        check_range("host.byte-ns", host.byte_ns, 0.0..=1e3)?;
        check_range("noise.per-second", noise.per_second, 0.0..=1e6)?;
        // With a larger share calls would hardly progress.
        check_range("the share of time that noise takes", noise.per_second * noise.mean_ns / 1e9, 0.0..=0.5)?;
        let max = f64::from(MAX_MTU);
        check_range("link.mtu-bytes", f64::from(link.mtu_bytes), 1.0..=max)?;
        check_range("link.extra-header-bytes", f64::from(link.extra_header_bytes), -16.0..=256.0)?;
        check_range("unit.segment-bytes", f64::from(unit.segment_bytes), 1.0..=max)?;
        check_range("unit.window", f64::from(unit.window), 1.0..=f64::from(MAX_GROUP_WINDOW))?;
        check_range("fabric.leaves", f64::from(fabric.leaves), 1.0..=32.0)?;
        check_range("hosts.radix", f64::from(hosts.radix), 2.0..=128.0)?;
        check_range("application.cores-per-host", f64::from(application.cores_per_host), 1.0..=28.0)
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

    /// Our headers, or longer ones.
    pub(super) fn framing(&self) -> Framing {
        Framing::FullWith { extra_header_bytes: self.link.extra_header_bytes }
    }

    pub(super) fn mtu(&self) -> u32 {
        self.link.mtu_bytes
    }

    pub(super) fn unit_of_node(&self) -> AggregationUnitParameters {
        let rate = |gigabits: f64| ByteTime::of_megabits((gigabits * 1e3) as u64);
        AggregationUnitParameters {
            port: rate(self.unit.port_gigabits),
            copy: rate(self.unit.copy_gigabits),
            receive: nanos(self.unit.stage_ns),
            fold: nanos(self.unit.stage_ns),
        }
    }

    /// The costs of a host whose MPI matches tagged messages between processes.
    pub(super) fn costs_of_matching(&self) -> HostCosts {
        let costs = self.costs(BenchmarkCaller::Mpi, SharpHostNoise::Quiet);
        let matching = nanos(self.mvapich.message_ns);
        HostCosts { post: costs.post + matching, poll: costs.poll + matching, ..costs }
    }

    pub(super) fn costs(&self, caller: BenchmarkCaller, system: SharpHostNoise) -> HostCosts {
        let host = &self.host;
        let call = match caller {
            BenchmarkCaller::Native => self.native.call_ns,
            BenchmarkCaller::MpiOverNative => self.native.call_ns + self.mpi.over_native_ns,
            // Tables IV to VII are faster than the native loop of Table I: here MPI takes no time beside the messages.
            BenchmarkCaller::Mpi => 0.0,
        };
        let noise = OsNoise { per_second: self.noise.per_second, mean: nanos(self.noise.mean_ns) };
        HostCosts {
            call: nanos(call),
            post: nanos(host.message_ns),
            poll: nanos(host.message_ns),
            send_byte_ps: picos(host.byte_ns),
            datagram: SimSpan::ZERO,
            datagram_byte_ps: picos(host.byte_ns),
            // A whole segment has the step, a smaller one has not.
            step_over_bytes: self.unit.segment_bytes - 1,
            step: nanos(host.step_ns),
            noise: (system == SharpHostNoise::Noisy).then_some(noise),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_out_of_range_are_rejected_by_name() {
        assert!(SharpParameters::parse(TEXT).is_ok());
        let swaps = [
            ("leaves = 8", "leaves = 0", "fabric.leaves: 0 is not between 1 and 32"),
            ("stage-ns = 240.0", "stage-ns = -1.0", "unit.stage-ns: -1 is not"),
            ("stage-ns = 240.0", "stage-ns = nan", "unit.stage-ns: NaN is not"),
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
