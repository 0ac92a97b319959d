//! The cluster as its users see it: runs pings and workloads, and reports durations and counters.

use std::collections::BTreeMap;

use faults::RandomStream;
use simulator::fault::LinkFaults;
use simulator::processor::HostProcessors;
use simulator::slab::Slab;
use simulator::{FabricCounters, LinkErrorCounters};
use units::{Rank, SimSpan, SimTime};

use super::super::packet::{CircuitDestination, QsnetParameters};
use super::super::wormhole::{LinkTraffic, WormholeCounters, WormholeNetwork};
use super::collective_program::RunningCollective;
use super::dma::{DmaCompletion, DmaDescriptor};
use super::{
    AdapterEvent, ElanAdapters, ElanBackground, ElanCluster, ElanCollective, ElanCosts, ElanNode, ElanTransport,
    ElanWorkload, MemoryLocation, NONE, PING_PORT, PING_TAG, RetryPolicy, TportEnvelope, TportQueue, TportReceive,
    folded_barrier,
};

impl ElanCluster {
    /// All nodes idle except for the background traffic; none if the parameters are invalid.
    pub fn new(
        fabric: QsnetParameters,
        costs: ElanCosts,
        background: Option<ElanBackground>,
        seed: u64,
    ) -> Option<Self> {
        let network = WormholeNetwork::new(fabric, seed)?;
        let nodes = network.nodes();
        let elans = ElanAdapters::new(costs, background, nodes, seed);
        let mut cluster = Self { network, elans, seed };
        cluster.start_background();
        Some(cluster)
    }

    fn start_background(&mut self) {
        if self.elans.background.is_some() {
            for node in 0..self.network.nodes() {
                self.elans.send_background(&mut self.network, node);
            }
        }
    }

    /// Applies a fault plan, and sets when sources give up.
    pub fn set_faults(&mut self, faults: LinkFaults, retry: RetryPolicy) {
        self.network.set_faults(faults);
        self.elans.retry = retry;
    }

    /// All adapters forget what they were doing, as after a failed job; time, faults and counters go on.
    pub(crate) fn reset(&mut self) {
        let elans = &self.elans;
        let mut fresh = ElanAdapters::new(elans.costs, elans.background, self.network.nodes(), self.seed);
        (fresh.retry, fresh.messages) = (elans.retry, elans.messages);
        self.elans = fresh;
        self.network.reset(self.seed);
        self.start_background();
    }

    /// Advances virtual time.
    pub fn pass(&mut self, span: SimSpan) {
        let until = self.network.now() + span;
        // An event at that time stops the run there.
        self.elans.schedule(&mut self.network, until, AdapterEvent::Nothing);
        self.network.run(&mut self.elans, |_, network| network.now() >= until);
    }

    /// The time from posting a DMA until the destination's host sees all data.
    pub fn ping(
        &mut self,
        from: u32,
        to: u32,
        bytes: u32,
        memory: MemoryLocation,
        via: ElanTransport,
    ) -> Option<SimSpan> {
        if from.max(to) >= self.network.nodes() {
            return None;
        }
        let begun = self.network.now();
        self.elans.pinged = None;
        let destination_event = match via {
            ElanTransport::Rdma => DmaCompletion::Ping,
            ElanTransport::Tports => {
                let mut port = TportQueue::new(1);
                let _ = port.post(TportReceive { from: Some(from), tag: Some(PING_TAG), number: 0 });
                self.elans.ports.insert(PING_PORT, port);
                DmaCompletion::Message { owner: PING_PORT, envelope: TportEnvelope { from, tag: PING_TAG, bytes } }
            }
        };
        let to = CircuitDestination::Node(to);
        let dma = DmaDescriptor { from, to, bytes, memory, source_event: DmaCompletion::Nothing, destination_event };
        let ready = self.elans.command(from, begun);
        self.elans.start_dma(&mut self.network, dma, ready);
        self.network.run(&mut self.elans, |elans, _| elans.pinged.is_some());
        Some(self.elans.pinged?.since(begun))
    }

    /// The duration of each call at the root of the group; none if the calls do not end, or the group does not fit the network.
    pub fn run(&mut self, task: &ElanWorkload) -> Option<Vec<SimSpan>> {
        self.prepare(task)?;
        let (size, now) = (task.members.size(), self.network.now());
        for rank in (0..size).map(Rank) {
            self.elans.call(&mut self.network, rank);
        }
        let end = now + task.patience;
        self.network.run(&mut self.elans, |elans, network| {
            network.now() >= end || elans.job.as_ref().is_none_or(|job| job.finished >= size || job.lost.is_some())
        });
        self.elans.ranks.fill(NONE);
        let job = self.elans.job.take()?;
        (job.finished >= size).then_some(job.took)
    }

    /// Installs a workload; none if the group does not fit the network.
    pub(super) fn prepare(&mut self, task: &ElanWorkload) -> Option<()> {
        let size = task.members.size();
        let nodes = (0..size).map(|rank| task.members.node(Rank(rank)));
        if !nodes.clone().all(|node| node.is_some_and(|node| node < self.network.nodes())) {
            return None;
        }
        if task.processes == 0 || task.multicast_root >= self.network.parameters().rule.roots() {
            return None;
        }
        for (rank, node) in nodes.enumerate() {
            self.elans.ranks[node? as usize] = rank as u32;
        }
        self.elans.job = Some(RunningCollective::new(task)?);
        self.elans.fold = match task.operation {
            ElanCollective::FoldedBarrier(costs) if size == self.network.nodes() => {
                Some(folded_barrier::FoldedBarrier::new(costs, self.network.tree().switches()))
            }
            ElanCollective::FoldedBarrier(_) => return None,
            _ => None,
        };
        Some(())
    }

    /// The counters of the network.
    pub fn counters(&self) -> WormholeCounters {
        self.network.counters
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> SimSpan {
        self.network.now().since(SimTime::ZERO)
    }

    /// Background messages that have been acknowledged completely.
    pub fn background_messages(&self) -> u64 {
        self.elans.messages
    }

    /// Bytes of the network's state.
    pub(crate) fn memory(&self) -> usize {
        self.network.memory()
    }

    /// Errors and losses of the links, if there is a fault plan.
    pub(crate) fn errors(&self) -> Option<&FabricCounters> {
        self.network.errors()
    }

    /// The traffic of a link and its errors, if there is a fault plan.
    pub(crate) fn link_record(&self, link: u32) -> Option<(LinkTraffic, LinkErrorCounters)> {
        self.network.link_record(link)
    }

    /// The digest of all events.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }
}

impl ElanAdapters {
    /// Adapters without work.
    fn new(costs: ElanCosts, background: Option<ElanBackground>, nodes: u32, seed: u64) -> Self {
        Self {
            costs,
            nodes: std::iter::repeat_with(ElanNode::default).take(nodes as usize).collect(),
            processors: HostProcessors::new(nodes, costs.noise, seed),
            dmas: Slab::default(),
            packets: Slab::default(),
            payloads: BTreeMap::new(),
            steps: Slab::default(),
            atomics: Slab::default(),
            words: BTreeMap::new(),
            fetched: None,
            flooded: None,
            background,
            retry: RetryPolicy::USUAL,
            late_stream: RandomStream::new(seed, 0x1a7e),
            stream: RandomStream::new(seed, 0xbac4),
            messages: 0,
            turns: vec![0; nodes as usize],
            job: None,
            ranks: vec![NONE; nodes as usize],
            actions: Vec::new(),
            fold: None,
            ports: BTreeMap::new(),
            received: Vec::new(),
            pinged: None,
        }
    }
}
