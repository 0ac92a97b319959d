//! The fabric of all simulated figures, and runs of programs on it.

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
use units::{Psn, SimSpan, SimTime};

use super::parameters::MigrationLinkTable;
use crate::nas_kernels::RANKS;
use crate::reproduce::parameter_file::nanos;

/// A run that takes longer in virtual time has hung.
const TIMEOUT: SimSpan = SimSpan::from_micros(60_000_000);
/// Posted receives of an end, and its maximum number of sends in flight.
const POSTED: u32 = 64;

/// The cable of a host's first port is cut for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedCut {
    pub host: usize,
    pub at: SimTime,
    pub notice: LinkNotification,
}

/// Connections between pairs of hosts, in this order, and the programs of the hosts.
pub(super) struct SimulatedTestbed {
    pub connections: Vec<[usize; 2]>,
    pub paths: u8,
    pub loading: AlternateLoading,
    pub programs: Vec<HostProgram>,
    pub link: MigrationLinkTable,
}

impl SimulatedTestbed {
    /// Runs all programs to their end.
    ///
    /// # Errors
    /// If they do not end, a connection fails, or a message arrives altered or out of order.
    pub(super) fn run(&self, cut: Option<SimulatedCut>) -> Result<Vec<ProgramReport>> {
        // Two switches; each host has a port at both: path 0 and path 1.
        let fabric = Arc::new(Fabric::xgft(&[RANKS as u32], &[2])?);
        let plan = FaultPlan { seed: None, rules: cut.iter().map(|cut| rule(&fabric, cut)).collect() };
        let parameters = QueuePairRunParameters {
            connections: self.connections.iter().map(|hosts| self.connection(*hosts)).collect(),
            notice: cut.map_or(LinkNotification::Silent, |cut| cut.notice),
            programs: self.programs.clone(),
        };
        let checker =
            DeliveryChecker { expected: vec![Default::default(); 2 * parameters.connections.len()], error: None };
        let mut exchange = SimulatedQueuePairs::new(fabric, link(&self.link), &parameters, &plan, 1, checker)?;
        ensure!(exchange.run_until_finished(TIMEOUT), "not every message arrived within {TIMEOUT}");
        let reports = exchange.programs().cloned().collect();
        let error = exchange.into_observer().error;
        ensure!(error.is_none(), "{}", error.unwrap_or_default());
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
            repost_after: SimSpan::ZERO,
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

/// PM-4: 4X SDR. The paper does not give the delays of adapters and switches.
fn link(table: &MigrationLinkTable) -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Sdr),
        wire: nanos(table.wire_ns),
        switch_delay: nanos(table.switch_ns),
        adapter_delay: nanos(table.adapter_ns),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: table.buffer_bytes,
        adapter_lanes: 1,
    }
}

fn rule(fabric: &Fabric, cut: &SimulatedCut) -> FaultRule {
    let host = NodeId(cut.host as u32);
    let switch = fabric.name(NodeId(RANKS as u32));
    let at_us = cut.at.since(SimTime::ZERO).as_picos() as f64 / 1e6;
    FaultRule::new(FaultKind::Down).on(format!("{}-{switch}", fabric.name(host))).lasting(at_us, None)
}

/// Checks that every message arrives once, in order and unaltered.
struct DeliveryChecker {
    expected: Vec<std::collections::VecDeque<Vec<u8>>>,
    error: Option<String>,
}

impl QueuePairObserver for DeliveryChecker {
    fn sent(&mut self, stream: StreamId, message: &[u8]) {
        self.expected[stream.index()].push_back(message.to_vec());
    }

    fn delivered(&mut self, stream: StreamId, message: &[u8]) {
        if self.expected[stream.index()].pop_front().as_deref() != Some(message) {
            self.error.get_or_insert(format!("{stream:?}: a message arrived altered or out of order"));
        }
    }

    fn failed(&mut self, stream: StreamId, cause: &str) {
        self.error.get_or_insert(format!("{stream:?}: {cause}"));
    }
}

/// In microseconds.
pub(super) fn micros(span: SimSpan) -> f64 {
    span.as_picos() as f64 / 1e6
}
