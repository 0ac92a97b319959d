//! What the experiments assume: `experiments/quadrics/parameters.toml` or a file like it, as values within reason.

use std::path::Path;

use anyhow::{Result, ensure};
use protocol::collective::quadrics::PollBackoff;
use quadrics::{
    ElanBackground, ElanCosts, MAX_DIMENSION, MulticastRule, QsnetParameters, SaturationPattern, SwitchFoldCosts,
};
use serde::{Deserialize, Serialize};
use simulator::OsNoise;
use simulator::link_rate::ByteTime;
use units::Span;

const TEXT: &str = include_str!("../../../../../experiments/quadrics/parameters.toml");

/// All of it, as the file has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuadricsParameters {
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

/// Whether the hosts' operating systems take their share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QuadricsHostNoise {
    Noisy,
    Quiet,
}

impl QuadricsParameters {
    /// Those of a file; of the one that is shipped, if none is named.
    pub(super) fn read(file: Option<&Path>) -> Result<Self> {
        crate::reproduce::parameter_file::read_parameters(
            file,
            ("experiments/quadrics/parameters.toml", TEXT),
            Self::parse,
        )
    }

    fn parse(text: &str) -> Result<Self> {
        let parameters: Self = toml::from_str(text)?;
        parameters.check()?;
        Ok(parameters)
    }

    /// Every number within reason, so that nothing below has to wonder.
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
            within(name, value, 0.0, 1e6)?;
        }
        within("fabric.dimension", f64::from(fabric.dimension), 3.0, f64::from(MAX_DIMENSION))?;
        within("fabric.link-megabytes", fabric.link_megabytes, 1.0, 1e6)?;
        within("fabric.channels", f64::from(fabric.channels), 1.0, 4.0)?;
        within("fabric.ageing-us", fabric.ageing_us, 0.0, 1e6)?;
        within("elan.slice-us", elan.slice_us, 1.0, 1e6)?;
        within("elan.pci-megabytes", f64::from(elan.pci_megabytes), 1.0, 1e5)?;
        within("elan.memory-megabytes", f64::from(elan.memory_megabytes), 1.0, 1e6)?;
        within("elan.fifo-bytes", f64::from(elan.fifo_bytes), 1.0, 1e9)?;
        within("host.copy-megabytes", f64::from(host.copy_megabytes), 1.0, 1e6)?;
        within("host.noise-per-second", host.noise_per_second, 0.0, 1e5)?;
        within("host.noise-mean-us", host.noise_mean_us, 0.0, 1e5)?;
        // Above, hosts would do nothing else.
        within("the share of time that noise takes", host.noise_per_second * host.noise_mean_us / 1e6, 0.0, 0.5)?;
        within("tree.arity", f64::from(tree.arity), 1.0, 1e6)?;
        within("tree.back-off-first-us", tree.back_off_first_us, 0.01, 1e6)?;
        within("tree.back-off-most-us", tree.back_off_most_us, tree.back_off_first_us, 1e6)?;
        within("background.message-bytes", f64::from(background.message_bytes), 1.0, 1e9)
    }

    /// The testbed's network, or one with as many dimensions as wanted.
    pub(super) fn fabric(&self, dimension: Option<u32>) -> QsnetParameters {
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

    pub(super) fn costs(&self, hosts: QuadricsHostNoise) -> ElanCosts {
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
            noise: (hosts == QuadricsHostNoise::Noisy).then_some(noise),
        }
    }

    pub(super) fn arity(&self) -> u32 {
        self.tree.arity
    }

    pub(super) fn back_off(&self) -> PollBackoff {
        PollBackoff { first: nanos(self.tree.back_off_first_us * 1e3), most: nanos(self.tree.back_off_most_us * 1e3) }
    }

    pub(super) fn background(&self, pattern: SaturationPattern) -> ElanBackground {
        ElanBackground { pattern, message_bytes: self.background.message_bytes }
    }

    pub(super) fn fold(&self) -> SwitchFoldCosts {
        SwitchFoldCosts { receive: nanos(self.fold.receive_ns), fold: nanos(self.fold.fold_ns) }
    }

    pub(super) fn nodes(&self) -> u32 {
        4u32.pow(self.fabric.dimension)
    }
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<()> {
    ensure!((least..=most).contains(&value), "{name}: {value} is not between {least} and {most}");
    Ok(())
}

fn nanos(nanos: f64) -> Span {
    Span::from_picos((nanos * 1e3).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_reason_are_refused_by_name() {
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
