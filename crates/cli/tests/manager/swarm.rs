//! A thousand nodes without packets: connections to a manager that register, install what they are told, and send heartbeats.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use manager::SeatSpec;
use manager::message::{
    Capacity, FromManager, GroupKey, LateChild, NodeCommand, NodeDescriptor, NodeReply, NodeReport, RequestId,
    SeatHeartbeat, ToManager,
};

/// Children of each node above the leaves.
const FANOUT: usize = 32;
/// As many as a node reports at most.
const LATE_CHILDREN: u64 = 8;
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub(crate) struct Swarm {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swarm {
    /// Registers nodes with a manager that has no secret. The first is the root of a tree with the others.
    pub(crate) fn start(manager: SocketAddr, nodes: usize) -> Self {
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let thread = std::thread::spawn(move || {
            let mut members = SwarmMembers::register(manager, nodes);
            let mut heartbeat_at = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                members.answer_commands();
                if Instant::now() >= heartbeat_at {
                    heartbeat_at += HEARTBEAT_INTERVAL;
                    members.send_heartbeats();
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self { is_ended, thread: Some(thread) }
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct SwarmMember {
    stream: TcpStream,
    received: Vec<u8>,
    seats: BTreeMap<GroupKey, u64>,
    /// What the manager asked for when the node registered.
    heartbeats_per_report: u64,
}

struct SwarmMembers {
    members: Vec<SwarmMember>,
    began: Instant,
    round: u64,
}

fn name(at: usize) -> String {
    format!("rack{at:04}")
}

fn send(stream: &mut TcpStream, message: &impl serde::Serialize) {
    let text = serde_json::to_vec(message).expect("JSON");
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend(text);
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(_) => return, // The manager has ended.
        }
    }
}

impl SwarmMembers {
    fn register(manager: SocketAddr, nodes: usize) -> Self {
        let member = |at: usize| {
            let mut stream = TcpStream::connect(manager).expect("it listens");
            stream.set_nonblocking(true).expect("a socket");
            send(&mut stream, &serde_json::json!({"hello": {"pleach": 3, "secret": false}}));
            let node = NodeDescriptor {
                name: name(at),
                addresses: vec![SocketAddr::from(([127, 0, 0, 1], 9))],
                control: SocketAddr::from(([10, 0, (at / 250) as u8, (at % 250) as u8], 4800)),
                parents: if at == 0 { Vec::new() } else { vec![name((at - 1) / FANOUT)] },
                serves: Vec::new(),
                capacity: Capacity { seats: 1024, operations: 1 << 20, bytes: 1 << 40 },
            };
            send(&mut stream, &ToManager::Register { request: RequestId(1), node, version: "0.2.0".to_owned() });
            let mut member =
                SwarmMember { stream, received: Vec::new(), seats: BTreeMap::new(), heartbeats_per_report: 0 };
            // One after another: the manager drops the oldest of many connections whose handshake is not done. The first answer is its
            // hello, the second says that the node is registered.
            let mut next_message = || {
                loop {
                    if let Some(message) = member.next_message() {
                        return message;
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            };
            next_message();
            let registered = next_message();
            let Ok(FromManager::Registered { heartbeats_per_report, .. }) = serde_json::from_slice(&registered)
            else {
                panic!("not registered: {}", String::from_utf8_lossy(&registered))
            };
            SwarmMember { heartbeats_per_report: heartbeats_per_report.into(), ..member }
        };
        Self { members: (0..nodes).map(member).collect(), began: Instant::now(), round: 0 }
    }

    fn answer_commands(&mut self) {
        let mut installed = Vec::new();
        for member in &mut self.members {
            while let Some(message) = member.next_message() {
                let Ok(FromManager::Command(command)) = serde_json::from_slice(&message) else { continue };
                let reply = match command {
                    NodeCommand::Install { spec, .. } => {
                        let group = spec.group_key();
                        collect(&spec, &mut installed);
                        NodeReply::Installed { group }
                    }
                    NodeCommand::Remove { group, .. } => {
                        member.seats.remove(&group);
                        NodeReply::Removed { group, leftover: Vec::new() }
                    }
                };
                send(&mut member.stream, &ToManager::Reply(reply));
            }
        }
        for (node, group) in installed {
            let at: usize = node.trim_start_matches("rack").parse().expect("a number");
            self.members[at].seats.insert(group, 0);
        }
    }

    fn send_heartbeats(&mut self) {
        self.round += 1;
        let uptime_ms = self.began.elapsed().as_millis() as u64;
        for (at, member) in self.members.iter_mut().enumerate() {
            let folded = 100 + (at as u64 * 7919 + self.round * 31) % 400;
            member.seats.values_mut().for_each(|operations| *operations += folded);
            let seats = member.seats.iter();
            let seats = seats.map(|(group, operations)| SeatHeartbeat { group: *group, operations: *operations });
            let late = |child: u64| LateChild {
                name: format!("host{at}-{child}"),
                times_last: self.round * folded / (2 + child),
                operations: self.round * folded,
                waited_us: self.round * folded * (at as u64 % 50) / (1 + child),
                longest_us: 5_000 + at as u64,
            };
            let report = NodeReport {
                uptime_ms,
                operations: self.round * 250 + folded,
                in_flight: (folded % 17) as u32,
                bytes: folded * 64,
                sent: self.round * 1_000 + folded,
                received: self.round * 1_000,
                repeated: self.round / 3,
                migrations: 0,
                dropped: ["damaged", "duplicate", "foreign", "malformed"].map(|cause| (cause.to_owned(), 0)).into(),
                times: vec![0, 0, 0, 0, self.round * 20, self.round * 200, self.round * 30, self.round],
                late: (0..LATE_CHILDREN).map(late).collect(),
            };
            let report = (self.round - 1).is_multiple_of(member.heartbeats_per_report).then_some(report);
            send(&mut member.stream, &ToManager::Heartbeat { seats: seats.collect(), report });
        }
    }
}

fn collect(spec: &SeatSpec, into: &mut Vec<(String, GroupKey)>) {
    into.push((spec.name.clone(), spec.group_key()));
    spec.seats_below().for_each(|(_, below)| collect(below, into));
}

impl SwarmMember {
    fn next_message(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = self.stream.read(&mut buffer) {
            self.received.extend_from_slice(&buffer[..count]);
        }
        let length = u32::from_le_bytes(self.received.get(..4)?.try_into().ok()?) as usize;
        let message = self.received.get(4..4 + length)?.to_vec();
        self.received.drain(..4 + length);
        Some(message)
    }
}
