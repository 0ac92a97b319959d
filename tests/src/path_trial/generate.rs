//! Random fabrics, connections, messages and transient faults.

use protocol::connection::path::{AlternateLoading, MigrationRole, PathPolicy};
use protocol::connection::{CongestionControl, ConnectionPolicy, LossRecovery, RetransmitTimer};
use simulator::fault::{FaultKind, FaultRule};
use simulator::queue_pair::{ConnectionEndPlan, ConnectionPlan, MessagePlan, MessageVerb};
use topology::{Cable, Fabric, NodeId};
use units::{Psn, Span};

use super::at;
use crate::test_rng::TestRng;

/// Two to eight hosts with several ports, or with one port and a choice of routes.
pub(super) fn small_fabric(rng: &mut TestRng) -> Fabric {
    let shapes: [(&[u32], &[u32]); 10] = [
        (&[2], &[2]),
        (&[4], &[2]),
        (&[8], &[2]),
        (&[3], &[3]),
        (&[2], &[4]),
        (&[2, 2], &[2, 2]),
        (&[4, 2], &[1, 2]),
        (&[2, 2], &[1, 4]),
        (&[2, 4], &[2, 1]),
        (&[2, 2, 2], &[1, 2, 2]),
    ];
    let (children, parents) = rng.pick(&shapes);
    Fabric::xgft(children, parents).expect("the shape is within the bounds")
}

pub(super) fn connection(rng: &mut TestRng, fabric: &Fabric, connections: u64) -> ConnectionPlan {
    let hosts = u64::from(fabric.hosts());
    let one = rng.below(hosts);
    let other = (one + 1 + rng.below(hosts - 1)) % hosts;
    let mtu = rng.pick(&[256, 512, 1_024, 4_096]);
    let policy = policy(rng, mtu, connections);
    let leader = rng.below(2);
    let wraps = rng.below(4) == 0;
    let mut end = |host: u64, number: u64| ConnectionEndPlan {
        host: NodeId(host as u32),
        role: if number == leader { MigrationRole::Leader } else { MigrationRole::Follower },
        first_psn: Psn::new(if wraps { 0xff_ffff - rng.below(40) as u32 } else { rng.below(1 << 24) as u32 }),
        messages: messages(rng, mtu),
        sends_at_once: rng.pick(&[1, 2, 16]),
        receives: rng.pick(&[1, 2, 8, 64]),
        repost_after: Span::from_nanos(rng.pick(&[0, 0, 0, 1_000, 50_000])).into(),
    };
    let ends = [end(one, 0), end(other, 1)];
    let path_policy = PathPolicy {
        probe_every: Span::from_micros(rng.pick(&[100, 300, 1_000])),
        probe_timeout: Span::from_micros(rng.pick(&[20, 50, 100])),
        misses: rng.pick(&[1, 2, 3]),
        failback_after: Span::from_micros(rng.pick(&[100, 500, 2_000])),
        damage_limit: rng.pick(&[None, Some(10), Some(50)]),
        loading: AlternateLoading::Automatic,
    };
    ConnectionPlan { ends, paths: 2 + rng.below(3) as u8, policy, path_policy, mtu }
}

fn policy(rng: &mut TestRng, mtu: u32, connections: u64) -> ConnectionPolicy {
    let window = rng.pick(&[2, 4, 16, 64]);
    // The most that can be queued before a packet, at one byte per nanosecond, in both directions.
    let queues = Span::from_nanos(2 * connections * u64::from(window) * u64::from(mtu));
    ConnectionPolicy {
        window,
        congestion_control: rng.pick(&[CongestionControl::Off, CongestionControl::Adaptive]),
        acknowledge_every: rng.pick(&[1, 4, 16]),
        timeout: queues.min(Span::from_micros(400)) + Span::from_micros(rng.pick(&[20, 60, 150])),
        timer: rng.pick(&[RetransmitTimer::Fixed, RetransmitTimer::Measured]),
        retry_limit: 255,
        path_retries: rng.pick(&[1, 2, 3]),
        refusal_limit: u16::MAX,
        loss_recovery: rng.pick(&[LossRecovery::GoBackN, LossRecovery::Selective]),
        ..ConnectionPolicy::datagram()
    }
}

fn messages(rng: &mut TestRng, mtu: u32) -> Vec<MessagePlan> {
    let mut bytes = 0;
    let count = 1 + rng.below(16);
    let spread = rng.pick(&[1, 500, 2_500]);
    let mut times: Vec<u64> = (0..count).map(|_| rng.below(spread)).collect();
    times.sort_unstable();
    let message = |not_before: u64| {
        let longest = if bytes > 150_000 { 2_000 } else { 100_000 };
        let length = match rng.below(8) {
            0 => 0,
            1 => mtu * (1 + rng.below(3) as u32),
            2 => (mtu * (1 + rng.below(3) as u32)).saturating_add_signed(rng.below(3) as i32 - 1),
            3 => rng.below(longest) as u32,
            4 | 5 => rng.below(64) as u32,
            _ => rng.below(5_000) as u32,
        };
        bytes += u64::from(length);
        let kind = rng.pick(&[MessageVerb::Send, MessageVerb::NumberedSend, MessageVerb::Write]);
        MessagePlan { not_before: at(not_before), length, kind }
    };
    times.into_iter().map(message).collect()
}

pub(super) fn soft_rule(rng: &mut TestRng, fabric: &Fabric) -> FaultRule {
    let kind = rng.pick(&FaultKind::PACKET_FAULTS);
    let mut rule = FaultRule::new(kind);
    if rng.below(3) == 0 {
        let cables: Vec<Cable> = fabric.cables().collect();
        let cable = cables[rng.below(cables.len() as u64) as usize];
        rule = rule.on(format!("{}>{}", fabric.name(cable.a.node), fabric.name(cable.b.node)));
    }
    if kind == FaultKind::Delay {
        rule = rule.up_to_ns(rng.pick(&[1_000.0, 10_000.0, 50_000.0]));
    }
    match rng.below(4) {
        0 => rule.nth(1 + rng.below(20)),
        _ => rule.with_probability(rng.pick(&[0.001, 0.01, 0.05])),
    }
}
