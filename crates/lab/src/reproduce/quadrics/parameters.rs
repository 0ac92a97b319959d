//! The parameters: `experiments/quadrics/parameters.toml` or a file like it, checked to be in range.

use std::path::Path;

use anyhow::Result;
use protocol::collective::quadrics::PollBackoff;
use quadrics::{
    CircuitPriority, ElanBackground, ElanCosts, MAX_DIMENSION, MulticastRule, QsnetParameters, SaturationPattern,
    SwitchFoldCosts,
};
use serde::{Deserialize, Serialize};
use simulator::OsNoise;
use simulator::link_rate::ByteTime;

use crate::reproduce::parameter_file::{check_range, nanos, read_parameters};

pub(super) const TEXT: &str = include_str!("../../../experiments/quadrics/parameters.toml");

/// All parameters, as in the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuadricsParameters {
    fabric: FabricTable,
    elan: ElanTable,
    host: HostTable,
    tree: TreeTable,
    background: BackgroundTable,
    fold: FoldTable,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FabricTable {
    dimension: u32,
    link_megabytes: f64,
    switch_ns: f64,
    wire_ns: f64,
    channels: u32,
    ageing_us: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ElanTable {
    command_ns: f64,
    dma_start_ns: f64,
    input_ns: f64,
    notify_ns: f64,
    thread_ns: f64,
    matching_ns: f64,
    event_ns: f64,
    broadcast_start_ns: f64,
    slice_us: f64,
    pci_megabytes: u32,
    memory_megabytes: u32,
    fifo_bytes: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostTable {
    call_ns: f64,
    copy_megabytes: u32,
    flag_ns: f64,
    noise_per_second: f64,
    noise_mean_us: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TreeTable {
    arity: u32,
    back_off_first_us: f64,
    back_off_most_us: f64,
    poll_priority: PollPriority,
}

/// The priority of the polls of a hardware barrier. The paper says that there are two, not what uses them.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum PollPriority {
    Low,
    High,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BackgroundTable {
    message_bytes: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FoldTable {
    receive_ns: f64,
    fold_ns: f64,
}

/// Operating system noise of the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuadricsHostNoise {
    Noisy,
    Quiet,
}

impl QuadricsParameters {
    /// Reads a parameter file, or the shipped one if none is given: its text and what it says.
    pub(crate) fn read(file: Option<&Path>) -> Result<(String, Self)> {
        read_parameters(file, ("experiments/quadrics/parameters.toml", TEXT), Self::parse)
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let parameters: Self = toml::from_str(text)?;
        parameters.check()?;
        Ok(parameters)
    }

    /// Checks all ranges.
    fn check(&self) -> Result<()> {
        let Self { fabric, elan, host, tree, background, fold } = self;
        let times = [
            ("fabric.switch-ns", fabric.switch_ns),
            ("fabric.wire-ns", fabric.wire_ns),
            ("elan.command-ns", elan.command_ns),
            ("elan.dma-start-ns", elan.dma_start_ns),
            ("elan.input-ns", elan.input_ns),
            ("elan.notify-ns", elan.notify_ns),
            ("elan.thread-ns", elan.thread_ns),
            ("elan.matching-ns", elan.matching_ns),
            ("elan.event-ns", elan.event_ns),
            ("elan.broadcast-start-ns", elan.broadcast_start_ns),
            ("host.call-ns", host.call_ns),
            ("host.flag-ns", host.flag_ns),
            ("fold.receive-ns", fold.receive_ns),
            ("fold.fold-ns", fold.fold_ns),
        ];
        for (name, value) in times {
            check_range(name, value, 0.0..=1e6)?;
        }
        check_range("fabric.dimension", f64::from(fabric.dimension), 3.0..=f64::from(MAX_DIMENSION))?;
        check_range("fabric.link-megabytes", fabric.link_megabytes, 1.0..=1e6)?;
        check_range("fabric.channels", f64::from(fabric.channels), 1.0..=4.0)?;
        check_range("fabric.ageing-us", fabric.ageing_us, 0.0..=1e6)?;
        check_range("elan.slice-us", elan.slice_us, 1.0..=1e6)?;
        check_range("elan.pci-megabytes", f64::from(elan.pci_megabytes), 1.0..=1e5)?;
        check_range("elan.memory-megabytes", f64::from(elan.memory_megabytes), 1.0..=1e6)?;
        check_range("elan.fifo-bytes", f64::from(elan.fifo_bytes), 1.0..=1e9)?;
        check_range("host.copy-megabytes", f64::from(host.copy_megabytes), 1.0..=1e6)?;
        check_range("host.noise-per-second", host.noise_per_second, 0.0..=1e5)?;
        check_range("host.noise-mean-us", host.noise_mean_us, 0.0..=1e5)?;
        // With a larger share hosts would do nothing else.
        check_range(
            "the share of time that noise takes",
            host.noise_per_second * host.noise_mean_us / 1e6,
            0.0..=0.5,
        )?;
        check_range("tree.arity", f64::from(tree.arity), 1.0..=1e6)?;
        check_range("tree.back-off-first-us", tree.back_off_first_us, 0.01..=1e6)?;
        check_range("tree.back-off-most-us", tree.back_off_most_us, tree.back_off_first_us..=1e6)?;
        check_range("background.message-bytes", f64::from(background.message_bytes), 1.0..=1e9)
    }

    /// The testbed's network, or one with the given dimension.
    pub(crate) fn fabric(&self, dimension: Option<u32>) -> QsnetParameters {
        QsnetParameters {
            dimension: dimension.unwrap_or(self.fabric.dimension),
            byte_time: ByteTime::of_megabits((self.fabric.link_megabytes * 8.0).round() as u64),
            switch_delay: nanos(self.fabric.switch_ns),
            wire: nanos(self.fabric.wire_ns),
            channels: self.fabric.channels,
            ageing: nanos(self.fabric.ageing_us * 1e3),
            rule: MulticastRule::Serialised { roots: 1 },
            damage: 0.0,
        }
    }

    pub(crate) fn costs(&self, hosts: QuadricsHostNoise) -> ElanCosts {
        let Self { elan, host, .. } = self;
        let noise = OsNoise { per_second: host.noise_per_second, mean: nanos(host.noise_mean_us * 1e3) };
        ElanCosts {
            command: nanos(elan.command_ns),
            dma_start: nanos(elan.dma_start_ns),
            broadcast_start: nanos(elan.broadcast_start_ns),
            input: nanos(elan.input_ns),
            thread: nanos(elan.thread_ns),
            matching: nanos(elan.matching_ns),
            notify: nanos(elan.notify_ns),
            event: nanos(elan.event_ns),
            call: nanos(host.call_ns),
            slice: nanos(elan.slice_us * 1e3),
            pci_megabytes: elan.pci_megabytes,
            memory_megabytes: elan.memory_megabytes,
            copy_megabytes: host.copy_megabytes,
            flag: nanos(host.flag_ns),
            fifo_bytes: elan.fifo_bytes,
            poll_priority: match self.tree.poll_priority {
                PollPriority::Low => CircuitPriority::Low,
                PollPriority::High => CircuitPriority::High,
            },
            noise: (hosts == QuadricsHostNoise::Noisy).then_some(noise),
        }
    }

    pub(super) fn arity(&self) -> u32 {
        self.tree.arity
    }

    pub(crate) fn back_off(&self) -> PollBackoff {
        let micros = |micros: f64| units::Span::from_nanos((micros * 1e3).round() as u64);
        PollBackoff { first: micros(self.tree.back_off_first_us), max: micros(self.tree.back_off_most_us) }
    }

    /// The background traffic, with messages of the given size or of the assumed one.
    pub(super) fn background(&self, pattern: SaturationPattern, message_bytes: Option<u32>) -> ElanBackground {
        ElanBackground { pattern, message_bytes: message_bytes.unwrap_or(self.background.message_bytes) }
    }

    pub(super) fn fold(&self) -> SwitchFoldCosts {
        SwitchFoldCosts { receive: nanos(self.fold.receive_ns), fold: nanos(self.fold.fold_ns) }
    }

    pub(super) fn nodes(&self) -> u32 {
        4u32.pow(self.fabric.dimension)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_out_of_range_are_rejected_by_name() {
        assert!(QuadricsParameters::parse(TEXT).is_ok());
        let swaps = [
            ("dimension = 3", "dimension = 2", "fabric.dimension: 2 is not between 3 and 8"),
            ("switch-ns = 35.0", "switch-ns = nan", "fabric.switch-ns: NaN is not"),
            ("noise-per-second = 250.0", "noise-per-second = 90000.0", "the share of time that noise takes"),
            ("arity = 4", "arity = 0", "tree.arity: 0 is not"),
            ("slice-us", "slices-us", "unknown field `slices-us`"),
        ];
        for (from, to, complaint) in swaps {
            assert!(TEXT.contains(from), "{from}");
            let error = QuadricsParameters::parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(complaint), "{to}: {error}");
        }
    }
}
