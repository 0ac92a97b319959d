//! A manager, nodes with seats that are only remembered, and jobs, on loopback.

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

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

pub(crate) fn secret() -> ClusterSecret {
    ClusterSecret::new("correct horse battery staple").expect("long enough")
}

/// Something that runs in a thread until it is dropped.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
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

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(outcome, Some(Ok(()))), "it panicked");
        }
    }
}

pub(crate) fn settings() -> ManagerSettings {
    let millis = |millis: u64| Span::from_micros(millis * 1_000);
    ManagerSettings {
        beat: millis(50),
        job_grace: millis(3_000),
        patience: millis(3_000),
        ..ManagerSettings::default()
    }
}

/// Where a party of the town is reached, and where it shows its metrics.
#[derive(Clone, Copy)]
pub(crate) struct Doors {
    pub(crate) control: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

pub(crate) fn manager(at: SocketAddr, secret: Option<ClusterSecret>) -> (Doors, Running) {
    let mut daemon = ManagerDaemon::bind(at, settings(), secret, AccessPolicy::Guarded).expect("a free port");
    let metrics = daemon.show_metrics(loopback()).expect("a free port");
    let doors = Doors { control: daemon.address(), metrics };
    let running = Running::start(move || daemon.turn(Duration::from_millis(20)).expect("the daemon goes on"));
    (doors, running)
}

/// Seats that are only remembered.
#[derive(Clone, Default)]
pub(crate) struct Remembered {
    pub(crate) seats: Arc<Mutex<BTreeMap<GroupKey, SeatSpec>>>,
    pub(crate) troubles: Arc<Mutex<Vec<SeatFailure>>>,
    pub(crate) refuses: bool,
}

impl Remembered {
    pub(crate) fn count(&self) -> usize {
        self.seats.lock().expect("nobody panicked").len()
    }
}

impl DataPlane for Remembered {
    fn install(&mut self, spec: &SeatSpec) -> Result<(), ControlError> {
        if self.refuses {
            return Err(ControlError::NodeFailed { node: spec.name.clone(), why: "it does not want to".to_owned() });
        }
        self.seats.lock().expect("nobody panicked").insert(spec.key_of_group(), spec.clone());
        Ok(())
    }

    fn remove(&mut self, group: GroupKey) {
        self.seats.lock().expect("nobody panicked").remove(&group);
    }

    fn operations(&self, _: GroupKey) -> u64 {
        42
    }

    fn report(&self) -> NodeReport {
        let dropped = [("corrupt", 3), ("forged", 4)].map(|(cause, count)| (cause.to_owned(), count)).into();
        NodeReport { uptime_ms: 1_500, operations: 42, in_flight: 2, bytes: 128, dropped, ..NodeReport::default() }
    }

    fn next_trouble(&mut self) -> Option<SeatFailure> {
        self.troubles.lock().expect("nobody panicked").pop()
    }
}

pub(crate) fn node(
    manager: SocketAddr,
    secret: Option<ClusterSecret>,
    name: &str,
    parents: &[&str],
    seats: &Remembered,
) -> (Doors, Running) {
    let card = NodeDescriptor {
        name: name.to_owned(),
        addresses: vec!["127.0.0.1:4791".parse().expect("an address")],
        control: loopback(),
        parents: parents.iter().map(|parent| (*parent).to_owned()).collect(),
        serves: Vec::new(),
        capacity: Capacity { seats: 100, operations: 10_000, bytes: 1 << 30 },
    };
    let mut control =
        NodeControl::bind(card, manager, loopback(), secret, AccessPolicy::Guarded).expect("a free port");
    let metrics = control.show_metrics(loopback()).expect("a free port");
    let doors = Doors { control: control.address(), metrics };
    let mut seats = seats.clone();
    let running = Running::start(move || {
        control.turn(&mut seats);
        let wait = control.patience().min(Duration::from_millis(20)).as_millis() as u16;
        poll(&mut control.poll_fds(), PollTimeout::from(wait)).expect("it polls");
    });
    (doors, running)
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

/// Waits until something holds, but not for ever.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) struct Town {
    pub(crate) doors: Doors,
    pub(crate) manager: Option<Running>,
    pub(crate) node_doors: Vec<Doors>,
    pub(crate) nodes: Vec<Option<Running>>,
    pub(crate) seats: Vec<Remembered>,
    pub(crate) client: ManagerClient,
}

/// A manager, a root with two leaves, and a client.
pub(crate) fn town(secret: Option<ClusterSecret>) -> Town {
    let (doors, manager) = manager(loopback(), secret.clone());
    let address = doors.control;
    let seats: Vec<Remembered> = (0..3).map(|_| Remembered::default()).collect();
    let places = [("top", &[][..]), ("left", &["top"][..]), ("right", &["top"][..])];
    let each = places.iter().zip(&seats);
    let started = each.map(|((name, parents), seats)| node(address, secret.clone(), name, parents, seats));
    let (node_doors, nodes) = started.map(|(doors, running)| (doors, Some(running))).unzip();
    let mut client = ManagerClient::connect(address, secret, PATIENCE).expect("the manager is there");
    until("all nodes are there", || alive(&mut client) == 3);
    Town { doors, manager: Some(manager), node_doors, nodes, seats, client }
}

pub(crate) fn alive(client: &mut ManagerClient) -> usize {
    client.status().map_or(0, |status| status.nodes.iter().filter(|node| node.alive).count())
}
