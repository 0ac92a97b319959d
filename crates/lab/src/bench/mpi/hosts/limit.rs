//! The limit of each measure: UDP sockets without a protocol that move the bytes of the operation between the same hosts.
//!
//! A thread for each host polls connected sockets and moves what a good algorithm must move: short vectors whole, to partners at
//! distances 1, 2, 4 (dissemination); long ones in shares around a ring, or along a chain from the root. Nothing is added up, checked,
//! acknowledged or repeated. It runs twice: with the bytes alone, and with a header in every datagram, as any protocol needs that
//! repairs single packets.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use namespaces::NamespaceNetwork;

use super::plan::{HostsMeasure, MpiOperation};
use crate::bench::bare_socket::{BareSocket, DatagramLayout, PollMode};
use crate::bench::samples::SampleBudget;

/// Up to this size a vector goes whole.
const SHORT_BYTES: usize = 16 << 10;

/// Microseconds of every measure, in their order.
///
/// # Errors
/// If sockets cannot be opened, or a datagram is lost.
pub(super) fn run(
    network: &NamespaceNetwork,
    (hosts, mtu_bytes): (u32, u32),
    measures: &[HostsMeasure],
    layout: DatagramLayout,
    budget: SampleBudget,
) -> Result<Vec<f64>> {
    let hosts = hosts as usize;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let poll = if hosts <= processors { PollMode::Spin } else { PollMode::Yield };
    let movements: Vec<Movement> = measures.iter().map(|measure| Movement::of(*measure, hosts)).collect();
    let mut all = connect_all(network, &distances(&movements, hosts), mtu_bytes as usize, layout, poll)?;
    let turn = Turn { meet: Barrier::new(hosts), iterations: AtomicU32::new(0), failure: Mutex::new(None) };
    let times = std::thread::scope(|scope| {
        let mut ends = all.drain(..).enumerate();
        let first = ends.next().map(|(_, sockets)| sockets);
        for (host, sockets) in ends {
            let (turn, movements) = (&turn, &movements);
            scope.spawn(move || LimitHost::new(host, sockets, movements).follow(movements, turn));
        }
        let mut leader = LimitHost::new(0, first.unwrap_or_default(), &movements);
        movements.iter().map(|movement| leader.lead(movement, budget, &turn)).collect()
    });
    let failure = turn.failure.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
    failure.map_or(Ok(times), Err).context("the bare loop of sockets failed")
}

/// The sockets of each host, by peer.
type PeerSockets = Vec<Option<BareSocket>>;

fn connect_all(
    network: &NamespaceNetwork,
    distances: &[bool],
    mtu_bytes: usize,
    layout: DatagramLayout,
    poll: PollMode,
) -> Result<Vec<PeerSockets>> {
    let mut all: Vec<PeerSockets> = Vec::new();
    let hosts = distances.len();
    for index in 0..hosts {
        let host = network.host(index);
        let at = SocketAddr::from((host.address(), 0));
        let is_used = |peer: usize| distances[(peer + hosts - index) % hosts];
        let open = |peer| is_used(peer).then(|| BareSocket::open(at, mtu_bytes, layout, poll)).transpose();
        all.push(host.inside(|| (0..hosts).map(open).collect::<Result<_>>())??);
    }
    for (index, sockets) in all.iter().enumerate() {
        for (peer, socket) in sockets.iter().enumerate() {
            if let (Some(socket), Some(other)) = (socket, &all[peer][index]) {
                socket.connect(other.address()?)?;
            }
        }
    }
    Ok(all)
}

/// For each distance between two hosts, whether any of them sends or receives over it.
fn distances(movements: &[Movement], hosts: usize) -> Vec<bool> {
    let mut used = vec![false; hosts];
    for movement in movements {
        let of_movement = match movement {
            Movement::Exchange { steps } => steps.iter().map(|step| step.distance).collect(),
            Movement::Chain { .. } => vec![1],
        };
        for distance in of_movement {
            used[distance] = true;
            used[hosts - distance] = true;
        }
    }
    used
}

/// What the hosts do in one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Movement {
    /// In each step, every host sends so many bytes to the host this far ahead, and receives as many from the one this far behind.
    Exchange { steps: Vec<ExchangeStep> },
    /// The root, another one each time, sends so many bytes; each host passes them on to the next.
    Chain { bytes: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExchangeStep {
    distance: usize,
    bytes: usize,
}

impl Movement {
    fn of(measure: HostsMeasure, hosts: usize) -> Self {
        let bytes = measure.size.map_or(1, |size| size.0 as usize);
        let around = |rounds: usize| {
            let step = ExchangeStep { distance: 1, bytes: bytes.div_ceil(hosts) };
            Self::Exchange { steps: vec![step; rounds * (hosts - 1)] }
        };
        match measure.operation {
            MpiOperation::Barrier | MpiOperation::Allreduce if bytes <= SHORT_BYTES => {
                let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
                let steps = distances.take_while(|distance| *distance < hosts);
                Self::Exchange { steps: steps.map(|distance| ExchangeStep { distance, bytes }).collect() }
            }
            MpiOperation::Barrier | MpiOperation::Allreduce => around(2),
            MpiOperation::Bcast => Self::Chain { bytes },
            MpiOperation::ReduceScatter | MpiOperation::Allgather => around(1),
        }
    }

    /// The most bytes that a host holds.
    fn buffer_bytes(&self) -> usize {
        match self {
            Self::Exchange { steps } => steps.iter().map(|step| step.bytes).max().unwrap_or(0),
            Self::Chain { bytes } => *bytes,
        }
    }
}

/// What the threads share.
struct Turn {
    meet: Barrier,
    /// Operations of the next batch; none ends the measure.
    iterations: AtomicU32,
    /// The first failure. Whoever failed goes on meeting the others, and moves nothing.
    failure: Mutex<Option<anyhow::Error>>,
}

/// One host.
struct LimitHost {
    index: usize,
    sockets: PeerSockets,
    buffer: Vec<u8>,
}

impl LimitHost {
    fn new(index: usize, sockets: PeerSockets, movements: &[Movement]) -> Self {
        let bytes = movements.iter().map(Movement::buffer_bytes).max().unwrap_or(0);
        Self { index, sockets, buffer: vec![1; bytes + BareSocket::SPARE_BYTES] }
    }

    /// Microseconds of one operation: the median of some batches.
    fn lead(&mut self, movement: &Movement, budget: SampleBudget, turn: &Turn) -> f64 {
        let warm_up = self.lead_batch(movement, 3, turn);
        let iterations = ((budget.seconds * 1e6 / warm_up.max(1.0)) as u32).max(3);
        let mut times: Vec<f64> = (0..budget.batches).map(|_| self.lead_batch(movement, iterations, turn)).collect();
        turn.iterations.store(0, Ordering::Release);
        turn.meet.wait();
        // All have read it before the next measure writes it.
        turn.meet.wait();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    fn lead_batch(&mut self, movement: &Movement, iterations: u32, turn: &Turn) -> f64 {
        turn.iterations.store(iterations, Ordering::Release);
        turn.meet.wait();
        let began = Instant::now();
        self.batch(movement, iterations, turn);
        let micros = began.elapsed().as_secs_f64() * 1e6;
        turn.meet.wait();
        micros / f64::from(iterations)
    }

    fn follow(mut self, movements: &[Movement], turn: &Turn) {
        for movement in movements {
            loop {
                turn.meet.wait();
                let iterations = turn.iterations.load(Ordering::Acquire);
                self.batch(movement, iterations, turn);
                turn.meet.wait();
                if iterations == 0 {
                    break;
                }
            }
        }
    }

    fn batch(&mut self, movement: &Movement, iterations: u32, turn: &Turn) {
        let is_sound = turn.failure.lock().is_ok_and(|failure| failure.is_none());
        let moved =
            (0..iterations as usize).take_while(|_| is_sound).try_for_each(|round| self.once(movement, round));
        if let (Err(error), Ok(mut failure)) = (moved, turn.failure.lock()) {
            failure.get_or_insert(error);
        }
    }

    fn once(&mut self, movement: &Movement, round: usize) -> Result<()> {
        let (hosts, index) = (self.sockets.len(), self.index);
        let ahead = |distance: usize| (index + distance) % hosts;
        match movement {
            Movement::Exchange { steps } => {
                for ExchangeStep { distance, bytes } in steps.clone() {
                    self.pass_on(Some(ahead(distance)), Some(ahead(hosts - distance)), bytes, PassOrder::SendFirst)?;
                }
                Ok(())
            }
            Movement::Chain { bytes } => {
                let position = ahead(hosts - round % hosts);
                let next = (position + 1 < hosts).then_some(ahead(1));
                let previous = (position > 0).then_some(ahead(hosts - 1));
                self.pass_on(next, previous, *bytes, PassOrder::ReceiveFirst)
            }
        }
    }

    /// Sends a vector to one host while it receives one from another, in turns of one system call, so that the bytes stay in the cache.
    fn pass_on(&mut self, to: Option<usize>, from: Option<usize>, bytes: usize, order: PassOrder) -> Result<()> {
        let in_turn = to.or(from).and_then(|peer| self.sockets[peer].as_ref()).map_or(bytes, BareSocket::call_bytes);
        for start in (0..bytes).step_by(in_turn) {
            let part = start..(start + in_turn).min(bytes);
            if order == PassOrder::SendFirst {
                self.send(to, part.clone())?;
            }
            self.receive(from, part.clone())?;
            if order == PassOrder::ReceiveFirst {
                self.send(to, part)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, to: Option<usize>, part: Range<usize>) -> Result<()> {
        let socket = to.and_then(|peer| self.sockets[peer].as_mut());
        socket.map_or(Ok(()), |socket| socket.send(&self.buffer[part]))
    }

    fn receive(&mut self, from: Option<usize>, part: Range<usize>) -> Result<()> {
        let socket = from.and_then(|peer| self.sockets[peer].as_mut());
        socket.map_or(Ok(()), |socket| socket.receive(part.len(), &mut self.buffer[part.start..]))
    }
}

/// Whether a host needs the bytes that it receives for those that it sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PassOrder {
    SendFirst,
    ReceiveFirst,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::byte_size::ByteSize;

    fn movement(operation: MpiOperation, bytes: u64, hosts: usize) -> Movement {
        Movement::of(HostsMeasure { operation, size: Some(ByteSize(bytes)) }, hosts)
    }

    #[test]
    fn hosts_move_what_a_good_algorithm_moves() {
        let of = |distance, bytes| ExchangeStep { distance, bytes };
        assert_eq!(
            movement(MpiOperation::Allreduce, 8, 5),
            Movement::Exchange { steps: vec![of(1, 8), of(2, 8), of(4, 8)] }
        );
        let long = 1 << 20;
        assert_eq!(movement(MpiOperation::Allreduce, long, 4), Movement::Exchange { steps: vec![of(1, 1 << 18); 6] });
        assert_eq!(movement(MpiOperation::Allgather, long, 4), Movement::Exchange { steps: vec![of(1, 1 << 18); 3] });
        assert_eq!(movement(MpiOperation::Bcast, long, 4), Movement::Chain { bytes: 1 << 20 });
        let barrier = Movement::of(HostsMeasure { operation: MpiOperation::Barrier, size: None }, 2);
        assert_eq!(barrier, Movement::Exchange { steps: vec![of(1, 1)] });
    }
    #[test]
    fn bytes_move_between_hosts_in_every_pattern() {
        const HOSTS: u32 = 3;
        let network = match NamespaceNetwork::with_mtu(HOSTS as usize, 1500) {
            Ok(network) => network,
            Err(error) => return namespaces::skip_test(error),
        };
        let operations =
            [MpiOperation::Barrier, MpiOperation::Allreduce, MpiOperation::Bcast, MpiOperation::Allgather];
        let measures: Vec<HostsMeasure> = [8, 100_000]
            .into_iter()
            .flat_map(|bytes| operations.map(|operation| HostsMeasure { operation, size: Some(ByteSize(bytes)) }))
            .collect();
        for layout in [DatagramLayout::BytesOnly, DatagramLayout::WithHeaders] {
            let budget = SampleBudget { batches: 3, seconds: 0.002 };
            let times = run(&network, (HOSTS, 1500), &measures, layout, budget).expect("no datagram is lost");
            assert!(times.len() == measures.len() && times.iter().all(|micros| *micros > 0.0), "{times:?}");
        }
    }
}
