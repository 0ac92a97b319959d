//! One message on the simulated clusters of CK-8, with our machines: without a checksum, and with one in five ways (CK-4, CK-9).

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
    SimulatedMessaging,
};
use simulator::queue_pair::LinkNotification;
use simulator::{Forwarding, LinkParameters};
use topology::{Fabric, NodeId};
use units::{Rank, Span, Time};

/// A cluster of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChecksumCluster {
    /// The network's speed.
    megabits: u64,
    /// Picoseconds of a byte: a checksum, alone or with the copy; and a copy of memory.
    checksum: u64,
    copy: u64,
}

/// 3 GB/s, 6 GB/s, 4.53 GB/s (CK-4 to CK-6).
pub(super) const JACK: ChecksumCluster = ChecksumCluster { megabits: 24_000, checksum: 167, copy: 221 };
/// The paper names its parts and prints no speeds (CK-8). Assumed: the data rate of InfiniBand DDR, and jack's processor at a clock of
/// 2.53 instead of 2.67 GHz.
pub(super) const GRAPHENE: ChecksumCluster = ChecksumCluster { megabits: 16_000, checksum: 176, copy: 233 };
/// What a receiver of the paper has left to look at when the last byte of a chunk has come (CK-7).
const SUB_BLOCK: usize = 4 << 10;
/// Between two parcels (CK-7).
const GAP: Span = Span::from_nanos(300);

/// How a message is covered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChecksumScheme {
    /// Not at all; copies are not counted either.
    Plain,
    /// The whole message is looked at before it is sent and after it has come.
    Naive,
    /// Each chunk is copied, then looked at.
    CopyThen,
    /// Copied and looked at in one pass, but the message in one chunk.
    Fused,
    /// In one pass, chunk by chunk.
    SuperPipelined,
    /// The same, with a receiver that looks at each sub-block when it comes, as the paper's does. Ours looks at chunks.
    SubBlocks,
}

impl ChecksumScheme {
    pub(super) const COVERED: [Self; 5] =
        [Self::Naive, Self::CopyThen, Self::Fused, Self::SuperPipelined, Self::SubBlocks];

    fn costs(self, cluster: &ChecksumCluster) -> MessagingCosts {
        let ChecksumCluster { checksum, copy, .. } = *cluster;
        let costs = MessagingCosts { copy_picos: 0, gap: GAP, apart_picos: 0, left_bytes: usize::MAX };
        match self {
            Self::Plain => costs,
            Self::Naive => MessagingCosts { apart_picos: checksum, ..costs },
            Self::CopyThen => MessagingCosts { copy_picos: copy + checksum, ..costs },
            Self::Fused | Self::SuperPipelined => MessagingCosts { copy_picos: checksum, ..costs },
            Self::SubBlocks => MessagingCosts { copy_picos: checksum, left_bytes: SUB_BLOCK, ..costs },
        }
    }

    fn settings(self, cluster: &ChecksumCluster, bytes: usize) -> MessagingSettings {
        let ChecksumCluster { checksum, copy, .. } = *cluster;
        let base = MessagingSettings {
            // Above the tables of our own codes nothing depends on which is used: only its time counts here.
            copy_speed: 1_000_000 / if self == Self::CopyThen { copy + checksum } else { checksum },
            parcel_cost: GAP,
            first_round_trip: Span::from_nanos(2_800),
            eager_bytes: (16 << 10) - 1,
            piece_bytes: 1 << 20,
            depth: 2,
            ..MessagingSettings::default()
        };
        match self {
            Self::Fused => {
                let whole = (bytes as u32).next_multiple_of(base.sub_block).max(base.eager_bytes);
                // The first chunk is all there is.
                let piece_bytes = whole.next_multiple_of(base.sub_block);
                MessagingSettings { piece_bytes, sub_block: piece_bytes, ..base }
            }
            _ => base,
        }
    }
}

/// What a size costs.
#[derive(Clone, Serialize)]
pub(super) struct ChecksumLossPoint {
    pub(super) bytes: usize,
    /// One way without a checksum, in microseconds.
    pub(super) plain_us: f64,
    /// Per cent of the bandwidth lost, in the order of [`ChecksumScheme::COVERED`].
    pub(super) lost_percent: Vec<f64>,
}

impl ChecksumLossPoint {
    pub(super) fn lost(&self, manner: ChecksumScheme) -> f64 {
        let place = ChecksumScheme::COVERED.iter().position(|other| *other == manner);
        place.map_or(0.0, |place| self.lost_percent[place])
    }
}

pub(super) const SIZES: [usize; 9] =
    [1 << 10, 4 << 10, 8 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

pub(super) fn points(cluster: &ChecksumCluster) -> Result<Vec<ChecksumLossPoint>> {
    SIZES.into_iter().map(|bytes| point(cluster, bytes)).collect()
}

fn point(cluster: &ChecksumCluster, bytes: usize) -> Result<ChecksumLossPoint> {
    let plain = one_way(cluster, ChecksumScheme::Plain, bytes)?;
    let lost = |manner: ChecksumScheme| Ok(100.0 * (1.0 - plain / one_way(cluster, manner, bytes)?));
    let lost_percent = ChecksumScheme::COVERED.into_iter().map(lost).collect::<Result<_>>()?;
    Ok(ChecksumLossPoint { bytes, plain_us: plain, lost_percent })
}

#[derive(Default)]
struct ArrivalRecorder {
    arrived: Option<Time>,
    is_whole: bool,
    sent: Vec<u8>,
}

impl MessagingObserver for ArrivalRecorder {
    fn sent(&mut self, _: Rank, _: Rank, _: u64, message: &[u8]) {
        self.sent = message.to_vec();
    }

    fn received(&mut self, now: Time, _: Rank, _: u64, _: Rank, _: u64, message: &[u8]) {
        self.arrived = Some(now);
        self.is_whole = message == self.sent;
    }

    fn failed(&mut self, _: Rank, _: &str) {}
}

/// Microseconds from the order to send until the receiver has the message.
fn one_way(cluster: &ChecksumCluster, manner: ChecksumScheme, bytes: usize) -> Result<f64> {
    let fabric = Arc::new(Fabric::xgft(&[2], &[1]).map_err(|error| anyhow::anyhow!("{error:?}"))?);
    // Together 1.4 us with two wires (CK-6).
    let link = LinkParameters {
        byte_time: ByteTime::of_megabits(cluster.megabits),
        wire: Span::from_nanos(100),
        switch_delay: Span::from_nanos(200),
        adapter_delay: Span::from_nanos(1_000),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 64 << 10,
        adapter_lanes: 1,
    };
    let begins = Time::ZERO + Span::from_micros(1);
    let receive = MessagingOperation::Receive { wanted: MessageSelector::from(Rank(0), 1), room: bytes };
    let send = MessagingOperation::Send { to: Rank(1), tag: 1, length: bytes, spoil: CorruptionPoint::Nowhere };
    let parameters = MessagingRunParameters {
        hosts: vec![NodeId(0), NodeId(1)],
        rails: 1,
        paths: 1,
        // InfiniBand loses nothing by itself: a long timeout, no congestion window.
        policy: ConnectionPolicy { window: 256, timeout: Span::from_micros(100_000), ..ConnectionPolicy::default() },
        path_policy: PathPolicy::default(),
        mtu: 4_096,
        settings: manner.settings(cluster, bytes),
        notice: LinkNotification::Silent,
        costs: Some(manner.costs(cluster)),
        orders: vec![
            MessagingCommand { at: Time::ZERO, rank: Rank(1), action: receive },
            MessagingCommand { at: begins, rank: Rank(0), action: send },
        ],
    };
    let mut talk =
        SimulatedMessaging::new(fabric, link, &parameters, &FaultPlan::default(), 1, ArrivalRecorder::default())?;
    ensure!(talk.run(Span::from_micros(10_000_000)), "a message of {bytes} bytes did not come");
    let clock = talk.into_witness();
    ensure!(clock.is_whole, "a message of {bytes} bytes came with other bytes");
    Ok(clock.arrived.context("nothing came")?.since(begins).as_nanos_f64() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_message_takes_what_the_network_takes() {
        // 1.4 us, a gap, and 4,096 bytes at 3 GB/s with their headers.
        let micros = one_way(&JACK, ChecksumScheme::Plain, 4_096).expect("it comes");
        assert!((3.0..3.4).contains(&micros), "{micros}");
    }

    #[test]
    fn the_manners_keep_their_order_for_long_messages() {
        let point = point(&JACK, 1 << 20).expect("it comes");
        let lost: Vec<f64> = ChecksumScheme::COVERED.map(|manner| point.lost(manner)).to_vec();
        assert!(lost[0] > 45.0 && lost[3] < 2.0 && lost[3] < lost[2], "{lost:?}");
    }
}
