//! One message on the simulated clusters of CK-8, with our protocol machines: without a checksum, and with several schemes (CK-4, CK-9).

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use protocol::messaging::{MessageSelector, MessagingSettings};
use serde::Serialize;
use simulator::fault::FaultPlan;
use simulator::link_rate::ByteTime;
use simulator::messaging::{
    CorruptionPoint, MessagingCommand, MessagingCosts, MessagingObserver, MessagingOperation, MessagingRunParameters,
    PacketFraming, SimulatedMessaging,
};
use simulator::queue_pair::LinkNotification;
use simulator::{Forwarding, LinkParameters};
use topology::{Fabric, NodeId};
use units::{Rank, SimSpan, SimTime, Span};

use super::parameters::{ClusterModel, ClusterTable};
use crate::reproduce::parameter_file::nanos;

/// Picoseconds per byte at so many GB/s.
fn byte_ps(gb_per_s: f64) -> u64 {
    (1e3 / gb_per_s).round() as u64
}

/// How the checksum of a message is computed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChecksumScheme {
    /// No checksum; copies are not counted either.
    Plain,
    /// No checksum; chunks are copied through the pipeline, by a receiver that copies each sub-block when it arrives.
    Copied,
    /// Open MPI without checksums: short messages are copied, long ones are not.
    Ob1,
    /// Open MPI with checksums: every message is copied and then checksummed at both ends, a long one by fragments of one size, each
    /// while another is in the network. It never writes to the receiver's buffer directly.
    Csum,
    /// Over the whole message, before it is sent and after it has arrived.
    Naive,
    /// Each chunk is copied, then checksummed.
    CopyThen,
    /// Copied and checksummed in one pass, the message in one chunk.
    Fused,
    /// In one pass, chunk by chunk.
    SuperPipelined,
    /// The same with a receiver that checks each sub-block when it arrives, as the paper's does. Ours checks chunks.
    SubBlocks,
}

impl ChecksumScheme {
    pub(super) const CHECKED: [Self; 5] =
        [Self::Naive, Self::CopyThen, Self::Fused, Self::SuperPipelined, Self::SubBlocks];

    /// Messages of this size and more are announced first.
    fn rendezvous_bytes(self, model: &ClusterModel) -> u32 {
        match self {
            Self::Ob1 | Self::Csum => model.open_mpi.rendezvous_bytes,
            _ => model.nmad.rendezvous_bytes,
        }
    }

    fn costs(self, model: &ClusterModel, bytes: usize) -> MessagingCosts {
        let cluster = &model.speeds;
        let sub_block = model.nmad.sub_block_bytes as usize;
        let is_eager = bytes < self.rendezvous_bytes(model) as usize;
        let (checksum, copy) = (byte_ps(cluster.checksum), byte_ps(cluster.memory_copy));
        let cached = byte_ps(cluster.pipeline_copy);
        let costs = MessagingCosts {
            copy_ps_per_byte: 0,
            gap: gap(cluster).into(),
            separate_pass_ps_per_byte: 0,
            uncopied_bytes: usize::MAX,
        };
        match self {
            Self::Plain => costs,
            Self::Copied => MessagingCosts { copy_ps_per_byte: cached, uncopied_bytes: sub_block, ..costs },
            Self::Ob1 if is_eager => MessagingCosts { copy_ps_per_byte: cached, ..costs },
            Self::Ob1 => costs,
            Self::Csum => {
                // A short message stays in the cache.
                let copy = if is_eager { cached } else { copy };
                MessagingCosts { copy_ps_per_byte: copy + byte_ps(cluster.outside), ..costs }
            }
            Self::Naive => MessagingCosts { separate_pass_ps_per_byte: checksum, ..costs },
            Self::CopyThen => MessagingCosts { copy_ps_per_byte: copy + checksum, ..costs },
            Self::Fused | Self::SuperPipelined => MessagingCosts { copy_ps_per_byte: checksum, ..costs },
            Self::SubBlocks => MessagingCosts { copy_ps_per_byte: checksum, uncopied_bytes: sub_block, ..costs },
        }
    }

    fn settings(self, model: &ClusterModel, bytes: usize) -> MessagingSettings {
        let cluster = &model.speeds;
        let checksum = byte_ps(cluster.checksum);
        let base = MessagingSettings {
            // Only the time of the checksum matters here, not its algorithm.
            copy_bytes_per_us: 1_000_000
                / match self {
                    Self::CopyThen => byte_ps(cluster.memory_copy) + checksum,
                    Self::Copied => byte_ps(cluster.pipeline_copy),
                    _ => checksum,
                },
            packet_cost: gap(cluster),
            initial_rtt: Span::from_nanos((2e3 * cluster.latency_us) as u64),
            eager_bytes: self.rendezvous_bytes(model) - 1,
            fragment_bytes: 1 << 20,
            depth: 2,
            ..MessagingSettings::default()
        };
        match self {
            Self::Fused => {
                let whole = (bytes as u32).next_multiple_of(base.min_fragment_bytes).max(base.eager_bytes);
                // The first chunk is the whole message.
                let fragment_bytes = whole.next_multiple_of(base.min_fragment_bytes);
                MessagingSettings { fragment_bytes, min_fragment_bytes: fragment_bytes, ..base }
            }
            Self::Csum => {
                let copy_bytes_per_us = 1_000_000 / (byte_ps(cluster.memory_copy) + byte_ps(cluster.outside));
                let fragment_bytes = model.open_mpi.fragment_bytes;
                MessagingSettings { fragment_bytes, min_fragment_bytes: fragment_bytes, copy_bytes_per_us, ..base }
            }
            _ => base,
        }
    }
}

fn gap(cluster: &ClusterTable) -> Span {
    Span::from_nanos((1e3 * cluster.gap_us).round() as u64)
}

/// The loss at one message size.
#[derive(Clone, Serialize)]
pub(super) struct ChecksumLossPoint {
    pub(super) bytes: usize,
    /// One-way time without a checksum, in microseconds: without copies, and with them.
    pub(super) plain_us: f64,
    pub(super) copied_us: f64,
    /// Percent of the bandwidth that a checksum costs the super-pipeline that copies, both with sub-blocks.
    pub(super) lost_over_copies_percent: f64,
    /// Percent that Open MPI loses by its checksums.
    pub(super) outside_percent: f64,
    /// Percent of the bandwidth lost, in the order of [`ChecksumScheme::CHECKED`].
    pub(super) lost_percent: Vec<f64>,
}

impl ChecksumLossPoint {
    pub(super) fn lost(&self, scheme: ChecksumScheme) -> f64 {
        let place = ChecksumScheme::CHECKED.iter().position(|other| *other == scheme);
        place.map_or(0.0, |place| self.lost_percent[place])
    }
}

pub(super) const SIZES: [usize; 9] =
    [1 << 10, 4 << 10, 8 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

pub(super) fn points(cluster: &ClusterModel) -> Result<Vec<ChecksumLossPoint>> {
    SIZES.into_iter().map(|bytes| point(cluster, bytes)).collect()
}

fn point(cluster: &ClusterModel, bytes: usize) -> Result<ChecksumLossPoint> {
    let plain = one_way(cluster, ChecksumScheme::Plain, bytes)?;
    let copied = one_way(cluster, ChecksumScheme::Copied, bytes)?;
    let lost_against =
        |baseline: f64, scheme: ChecksumScheme| Ok(100.0 * (1.0 - baseline / one_way(cluster, scheme, bytes)?));
    let lost = |scheme: ChecksumScheme| lost_against(plain, scheme);
    let lost_percent = ChecksumScheme::CHECKED.into_iter().map(lost).collect::<Result<_>>()?;
    Ok(ChecksumLossPoint {
        bytes,
        plain_us: plain,
        copied_us: copied,
        lost_over_copies_percent: lost_against(copied, ChecksumScheme::SubBlocks)?,
        outside_percent: lost_against(one_way(cluster, ChecksumScheme::Ob1, bytes)?, ChecksumScheme::Csum)?,
        lost_percent,
    })
}

#[derive(Default)]
struct ArrivalRecorder {
    arrived: Option<SimTime>,
    is_whole: bool,
    sent: Vec<u8>,
}

impl MessagingObserver for ArrivalRecorder {
    fn sent(&mut self, _: Rank, _: Rank, _: u64, message: &[u8]) {
        self.sent = message.to_vec();
    }

    fn received(&mut self, now: SimTime, _: Rank, _: u64, _: Rank, _: u64, message: &[u8]) {
        self.arrived = Some(now);
        self.is_whole = message == self.sent;
    }

    fn failed(&mut self, _: Rank, _: &str) {}
}

/// Microseconds from posting the send until the receiver has the message.
pub(super) fn one_way(model: &ClusterModel, scheme: ChecksumScheme, bytes: usize) -> Result<f64> {
    let (cluster, network) = (&model.speeds, model.fabric);
    let fabric = Arc::new(Fabric::xgft(&[2], &[1])?);
    let link = LinkParameters {
        byte_time: ByteTime::of_megabits((8e3 * cluster.network).round() as u64),
        wire: nanos(network.wire_ns),
        switch_delay: nanos(network.switch_ns),
        adapter_delay: nanos(1e3 * (cluster.latency_us - network.latency_us())),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 64 << 10,
        adapter_lanes: 1,
    };
    let begins = SimTime::ZERO + SimSpan::from_micros(1);
    let receive = MessagingOperation::Receive { wanted: MessageSelector::exact(Rank(0), 1), room: bytes };
    let send = MessagingOperation::Send { to: Rank(1), tag: 1, length: bytes, corruption: CorruptionPoint::None };
    let parameters = MessagingRunParameters {
        hosts: vec![NodeId(0), NodeId(1)],
        rails: 1,
        paths: 1,
        // InfiniBand is lossless: a long timeout, no congestion window.
        policy: ConnectionPolicy { window: 256, timeout: Span::from_micros(100_000), ..ConnectionPolicy::default() },
        path_policy: PathPolicy::default(),
        mtu: 4_096,
        framing: PacketFraming::InfiniBand,
        settings: scheme.settings(model, bytes),
        notice: LinkNotification::Silent,
        costs: Some(scheme.costs(model, bytes)),
        orders: vec![
            MessagingCommand { at: SimTime::ZERO, rank: Rank(1), action: receive },
            MessagingCommand { at: begins, rank: Rank(0), action: send },
        ],
    };
    let mut talk =
        SimulatedMessaging::new(fabric, link, &parameters, &FaultPlan::default(), 1, ArrivalRecorder::default())?;
    ensure!(talk.run(SimSpan::from_micros(10_000_000)), "a message of {bytes} bytes did not arrive");
    let clock = talk.into_observer();
    ensure!(clock.is_whole, "a message of {bytes} bytes arrived altered");
    Ok(clock.arrived.context("no message arrived")?.since(begins).as_nanos_f64() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::parameters::{ChecksumParameters, TEXT};
    use super::*;

    fn jack() -> ClusterModel {
        ChecksumParameters::parse(TEXT).expect("the shipped file is valid").jack()
    }

    #[test]
    fn a_plain_message_takes_what_the_network_takes() {
        // 1.4 us, a gap, and 4,096 bytes at 3 GB/s with their headers.
        let micros = one_way(&jack(), ChecksumScheme::Plain, 4_096).expect("the message arrives");
        assert!((3.0..3.4).contains(&micros), "{micros}");
    }

    #[test]
    fn the_schemes_keep_their_order_for_long_messages() {
        let point = point(&jack(), 1 << 20).expect("the message arrives");
        let lost: Vec<f64> = ChecksumScheme::CHECKED.map(|scheme| point.lost(scheme)).to_vec();
        assert!(lost[0] > 45.0 && lost[3] < 2.0 && lost[3] < lost[2], "{lost:?}");
    }
}
