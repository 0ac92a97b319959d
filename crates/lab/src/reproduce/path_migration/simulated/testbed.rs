//! The fabric of all simulated figures, and runs on it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::{AlternateLoading, MigrationRole, PathPolicy};
use simulator::fault::{FaultKind, FaultPlan, FaultRule};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::queue_pair::{
    ConnectionEndPlan, ConnectionPlan, HostProgram, LinkNotification, ProgramReport, QueuePairObserver,
    QueuePairRunParameters, SimulatedQueuePairs, StreamId,
};
use simulator::{Forwarding, LinkParameters};
use topology::{Fabric, NodeId};
use units::{Psn, Span, Time};

use crate::nas_kernels::RANKS;

/// Nothing here takes longer in virtual time.
const PATIENCE: Span = Span::from_micros(60_000_000);
/// Receives that an end keeps posted, and sends that it has under way at most.
const POSTED: u32 = 64;

/// A cable that is pulled: that of a host's first port, for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedCut {
    pub host: usize,
    pub at: Time,
    pub notice: LinkNotification,
}

/// Connections of two hosts each, numbered as given, and what the hosts do.
pub(super) struct SimulatedTestbed {
    pub connections: Vec<[usize; 2]>,
    pub paths: u8,
    pub loading: AlternateLoading,
    pub programs: Vec<HostProgram>,
}

impl SimulatedTestbed {
    /// Runs all programs to their end.
    ///
    /// # Errors
    /// If they do not end, or an end fails, or a message comes altered or out of turn.
    pub(super) fn run(&self, pull: Option<SimulatedCut>) -> Result<Vec<ProgramReport>> {
        // Two switches, each host with a port at both: path 0 and path 1.
        let fabric = Arc::new(Fabric::xgft(&[RANKS as u32], &[2])?);
        let plan = FaultPlan { seed: None, rules: pull.iter().map(|pull| rule(&fabric, pull)).collect() };
        let parameters = QueuePairRunParameters {
            connections: self.connections.iter().map(|hosts| self.connection(*hosts)).collect(),
            notice: pull.map_or(LinkNotification::Silent, |pull| pull.notice),
            programs: self.programs.clone(),
        };
        let judge =
            DeliveryChecker { expected: vec![Default::default(); 2 * parameters.connections.len()], wrong: None };
        let mut exchange = SimulatedQueuePairs::new(fabric, link(), &parameters, &plan, 1, judge)?;
        ensure!(exchange.run_until_finished(PATIENCE), "not every message came within {PATIENCE}");
        let reports = exchange.programs().cloned().collect();
        let wrong = exchange.into_witness().wrong;
        ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        Ok(reports)
    }

    fn connection(&self, hosts: [usize; 2]) -> ConnectionPlan {
        let end = |host: usize, role| ConnectionEndPlan {
            host: NodeId(host as u32),
            role,
            first_psn: Psn::new(0),
            messages: Vec::new(),
            sends_at_once: POSTED as usize,
            receives: POSTED,
            repost_after: Span::ZERO,
        };
        ConnectionPlan {
            ends: [end(hosts[0], MigrationRole::Leader), end(hosts[1], MigrationRole::Follower)],
            paths: self.paths,
            policy: ConnectionPolicy::datagram(),
            path_policy: PathPolicy { loading: self.loading, ..PathPolicy::default() },
            mtu: 4096,
        }
    }
}

/// PM-4: 4X SDR. How long adapters and switches of the time took is not printed; these are guesses of the right order.
fn link() -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Sdr),
        wire: Span::from_nanos(10),
        switch_delay: Span::from_nanos(200),
        adapter_delay: Span::from_nanos(2_000),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 16_384,
        adapter_lanes: 1,
    }
}

fn rule(fabric: &Fabric, pull: &SimulatedCut) -> FaultRule {
    let host = NodeId(pull.host as u32);
    let switch = fabric.name(NodeId(RANKS as u32));
    let at_us = pull.at.since(Time::ZERO).as_picos() as f64 / 1e6;
    FaultRule::new(FaultKind::Down).on(format!("{}-{switch}", fabric.name(host))).lasting(at_us, None)
}

/// Every message must come once, in order and unaltered.
struct DeliveryChecker {
    expected: Vec<std::collections::VecDeque<Vec<u8>>>,
    wrong: Option<String>,
}

impl QueuePairObserver for DeliveryChecker {
    fn sent(&mut self, stream: StreamId, message: &[u8]) {
        self.expected[stream.index()].push_back(message.to_vec());
    }

    fn delivered(&mut self, stream: StreamId, message: &[u8]) {
        if self.expected[stream.index()].pop_front().as_deref() != Some(message) {
            self.wrong.get_or_insert(format!("{stream:?}: a message came altered or out of turn"));
        }
    }

    fn failed(&mut self, stream: StreamId, cause: &str) {
        self.wrong.get_or_insert(format!("{stream:?}: {cause}"));
    }
}

/// In microseconds.
pub(super) fn micros(span: Span) -> f64 {
    span.as_picos() as f64 / 1e6
}
