//! A manager, nodes with a recording data plane, and a client, on loopback.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::{AccessPolicy, ClusterSecret, DataPlane, ManagerClient, ManagerDaemon, NodeControl, SeatFailure};
use manager::message::{Capacity, GroupKey, NodeDescriptor, NodeReport};
use manager::{ControlError, GroupLeader, GroupRequest, ManagerSettings, SeatSpec};
use nix::poll::{PollTimeout, poll};
use units::{Rank, Span};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("valid")
}

pub(crate) fn secret() -> ClusterSecret {
    ClusterSecret::new("correct horse battery staple").expect("long enough")
}

/// A loop in a thread that runs until this is dropped.
pub(crate) struct BackgroundThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    pub(crate) fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                turn();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(outcome, Some(Ok(()))), "it panicked");
        }
    }
}

pub(crate) fn test_settings() -> ManagerSettings {
    let millis = |millis: u64| Span::from_micros(millis * 1_000);
    ManagerSettings {
        heartbeat_interval: millis(50),
        job_grace: millis(3_000),
        setup_timeout: millis(3_000),
        ..ManagerSettings::default()
    }
}

/// Control and metrics addresses of a manager or a node.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) control: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

pub(crate) fn manager(at: SocketAddr, secret: Option<ClusterSecret>) -> (Addresses, BackgroundThread) {
    let mut daemon =
        ManagerDaemon::bind(at, test_settings(), secret, AccessPolicy::LoopbackOnly).expect("a free port");
    let metrics = daemon.serve_metrics(loopback()).expect("a free port");
    let addresses = Addresses { control: daemon.address(), metrics };
    let running = BackgroundThread::start(move || daemon.turn(Duration::from_millis(20)).expect("the daemon runs"));
    (addresses, running)
}

/// A data plane that only records its seats.
#[derive(Clone, Default)]
pub(crate) struct RecordingDataPlane {
    pub(crate) seats: Arc<Mutex<BTreeMap<GroupKey, SeatSpec>>>,
    pub(crate) failures: Arc<Mutex<Vec<SeatFailure>>>,
    pub(crate) rejects: bool,
}

impl RecordingDataPlane {
    pub(crate) fn count(&self) -> usize {
        self.seats.lock().expect("not poisoned").len()
    }
}

impl DataPlane for RecordingDataPlane {
    fn install(&mut self, spec: &SeatSpec) -> Result<(), ControlError> {
        if self.rejects {
            return Err(ControlError::NodeFailed { node: spec.name.clone(), why: "rejected by the test".to_owned() });
        }
        self.seats.lock().expect("not poisoned").insert(spec.group_key(), spec.clone());
        Ok(())
    }

    fn remove(&mut self, group: GroupKey) {
        self.seats.lock().expect("not poisoned").remove(&group);
    }

    fn operations(&self, _: GroupKey) -> u64 {
        42
    }

    fn report(&mut self) -> NodeReport {
        let dropped = [("corrupt", 3), ("forged", 4)].map(|(cause, count)| (cause.to_owned(), count)).into();
        NodeReport { uptime_ms: 1_500, operations: 42, in_flight: 2, bytes: 128, dropped, ..NodeReport::default() }
    }

    fn next_failure(&mut self) -> Option<SeatFailure> {
        self.failures.lock().expect("not poisoned").pop()
    }
}

pub(crate) fn node(
    manager: SocketAddr,
    secret: Option<ClusterSecret>,
    name: &str,
    parents: &[&str],
    seats: &RecordingDataPlane,
) -> (Addresses, BackgroundThread) {
    let descriptor = NodeDescriptor {
        name: name.to_owned(),
        addresses: vec!["127.0.0.1:4791".parse().expect("valid")],
        control: loopback(),
        parents: parents.iter().map(|parent| (*parent).to_owned()).collect(),
        serves: Vec::new(),
        capacity: Capacity { seats: 100, operations: 10_000, bytes: 1 << 30 },
    };
    let mut control =
        NodeControl::bind(descriptor, manager, loopback(), secret, AccessPolicy::LoopbackOnly).expect("a free port");
    let metrics = control.serve_metrics(loopback()).expect("a free port");
    let addresses = Addresses { control: control.address(), metrics };
    let mut seats = seats.clone();
    let running = BackgroundThread::start(move || {
        control.turn(&mut seats);
        let wait = control.patience().min(Duration::from_millis(20)).as_millis() as u16;
        poll(&mut control.poll_fds(), PollTimeout::from(wait)).expect("it polls");
    });
    (addresses, running)
}

pub(crate) fn request(leaders: usize) -> GroupRequest {
    let leader = |rank: usize| GroupLeader {
        rank: Rank(rank as u32),
        host: format!("host{rank}"),
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 20_000 + rank as u16))],
    };
    GroupRequest {
        leaders: (0..leaders).map(leader).collect(),
        window: 8,
        segment_bytes: 256,
        distribution: Default::default(),
        avoid: Vec::new(),
    }
}

/// Waits until a condition holds; fails after the timeout.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) struct TestCluster {
    pub(crate) addresses: Addresses,
    pub(crate) manager: Option<BackgroundThread>,
    pub(crate) node_addresses: Vec<Addresses>,
    pub(crate) nodes: Vec<Option<BackgroundThread>>,
    pub(crate) seats: Vec<RecordingDataPlane>,
    pub(crate) client: ManagerClient,
}

/// A manager, a root with two leaves, and a client.
pub(crate) fn start_cluster(secret: Option<ClusterSecret>) -> TestCluster {
    let (addresses, manager) = manager(loopback(), secret.clone());
    let address = addresses.control;
    let seats: Vec<RecordingDataPlane> = (0..3).map(|_| RecordingDataPlane::default()).collect();
    let places = [("top", &[][..]), ("left", &["top"][..]), ("right", &["top"][..])];
    let each = places.iter().zip(&seats);
    let started = each.map(|((name, parents), seats)| node(address, secret.clone(), name, parents, seats));
    let (node_addresses, nodes) = started.map(|(addresses, running)| (addresses, Some(running))).unzip();
    let mut client = ManagerClient::connect(address, secret, TIMEOUT).expect("the manager runs");
    until("all nodes are registered", || alive(&mut client) == 3);
    TestCluster { addresses, manager: Some(manager), node_addresses, nodes, seats, client }
}

pub(crate) fn alive(client: &mut ManagerClient) -> usize {
    client.status().map_or(0, |status| status.nodes.iter().filter(|node| node.alive).count())
}
