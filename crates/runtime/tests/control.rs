//! The control plane over real TCP connections on loopback: manager, nodes with seats that are only remembered, jobs,
//! and peers who mean no good.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use protocol::manager::message::{Capacity, GroupKey, NodeCard, NodeReport};
use protocol::manager::{GroupRequest, Leader, Refusal, SeatSpec, Settings};
use runtime::control::{
    ClientError, ManagerClient, ManagerDaemon, NodeControl, Notice, Openness, SeatTrouble, Seats, Secret,
};
use units::{Rank, Span};

const PATIENCE: Duration = Duration::from_secs(10);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn secret() -> Secret {
    Secret::new("correct horse battery staple").expect("long enough")
}

/// Something that runs in a thread until it is dropped.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
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

fn settings() -> Settings {
    let millis = |millis: u64| Span::from_micros(millis * 1_000);
    Settings { beat: millis(50), job_grace: millis(3_000), patience: millis(3_000), ..Settings::default() }
}

fn manager(at: SocketAddr, secret: Option<Secret>) -> (SocketAddr, Running) {
    let mut daemon = ManagerDaemon::bind(at, settings(), secret, Openness::Guarded).expect("a free port");
    let address = daemon.address();
    let running = Running::start(move || {
        daemon.turn(Duration::from_millis(20)).expect("the daemon goes on");
    });
    (address, running)
}

/// Seats that are only remembered.
#[derive(Clone, Default)]
struct Remembered {
    seats: Arc<Mutex<BTreeMap<GroupKey, SeatSpec>>>,
    troubles: Arc<Mutex<Vec<SeatTrouble>>>,
    refuses: bool,
}

impl Remembered {
    fn count(&self) -> usize {
        self.seats.lock().expect("nobody panicked").len()
    }
}

impl Seats for Remembered {
    fn install(&mut self, spec: &SeatSpec) -> Result<(), Refusal> {
        if self.refuses {
            return Err(Refusal::NodeFailed { node: spec.name.clone(), why: "it does not want to".to_owned() });
        }
        self.seats.lock().expect("nobody panicked").insert(spec.key_of_group(), spec.clone());
        Ok(())
    }

    fn remove(&mut self, group: GroupKey) {
        self.seats.lock().expect("nobody panicked").remove(&group);
    }

    fn report(&self) -> NodeReport {
        NodeReport { operations: 42, ..NodeReport::default() }
    }

    fn next_trouble(&mut self) -> Option<SeatTrouble> {
        self.troubles.lock().expect("nobody panicked").pop()
    }
}

fn node(manager: SocketAddr, secret: Option<Secret>, name: &str, parents: &[&str], seats: &Remembered) -> Running {
    let card = NodeCard {
        name: name.to_owned(),
        addresses: vec!["127.0.0.1:4791".parse().expect("an address")],
        control: loopback(),
        parents: parents.iter().map(|parent| (*parent).to_owned()).collect(),
        serves: Vec::new(),
        capacity: Capacity { seats: 100, operations: 10_000, bytes: 1 << 30 },
    };
    let mut control = NodeControl::bind(card, manager, loopback(), secret, Openness::Guarded).expect("a free port");
    let mut seats = seats.clone();
    Running::start(move || {
        control.turn(&mut seats);
        let wait = control.patience().min(Duration::from_millis(20)).as_millis() as u16;
        poll(&mut control.poll_fds(), PollTimeout::from(wait)).expect("it polls");
    })
}

fn request(leaders: usize) -> GroupRequest {
    let leader = |rank: usize| Leader {
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
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Town {
    address: SocketAddr,
    manager: Option<Running>,
    nodes: Vec<Option<Running>>,
    seats: Vec<Remembered>,
    client: ManagerClient,
}

/// A manager, a root with two leaves, and a client.
fn town(secret: Option<Secret>) -> Town {
    let (address, manager) = manager(loopback(), secret.clone());
    let seats = vec![Remembered::default(); 3].into_iter().map(|_| Remembered::default()).collect::<Vec<_>>();
    let places = [("top", &[][..]), ("left", &["top"][..]), ("right", &["top"][..])];
    let each = places.iter().zip(&seats);
    let nodes =
        each.map(|((name, parents), seats)| Some(node(address, secret.clone(), name, parents, seats))).collect();
    let mut client = ManagerClient::connect(address, secret, PATIENCE).expect("the manager is there");
    until("all nodes are there", || alive(&mut client) == 3);
    Town { address, manager: Some(manager), nodes, seats, client }
}

fn alive(client: &mut ManagerClient) -> usize {
    client.status().map_or(0, |status| status.nodes.iter().filter(|node| node.alive).count())
}

#[test]
fn a_group_is_opened_and_closed_over_real_connections() {
    let mut town = town(Some(secret()));
    assert!(matches!(town.client.open_group(request(4)), Err(ClientError::NoJob)));
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened");
    assert_eq!(group.seats.iter().map(|seat| seat.name.as_str()).collect::<Vec<_>>(), ["top", "left", "right"]);
    for seats in &town.seats {
        let seats = seats.seats.lock().expect("nobody panicked");
        assert_eq!(seats[&group.key_of_group()].key, group.key);
    }
    let status = town.client.status().expect("answered");
    assert_eq!((status.groups.len(), status.nodes[0].reserved.operations), (1, 8));
    until("beats bring reports", || {
        town.client.status().expect("answered").nodes.iter().all(|node| node.report.operations == 42)
    });
    town.client.close_group(group.key_of_group()).expect("closed");
    assert_eq!(town.seats.iter().map(Remembered::count).sum::<usize>(), 0);
    let error = town.client.close_group(group.key_of_group()).expect_err("it is gone");
    assert!(matches!(error, ClientError::Refused(Refusal::UnknownGroup)), "{error}");
    // A job that ends takes its groups along.
    town.client.open_group(request(8)).expect("opened");
    town.client.close_job().expect("closed");
    until("no seat is left", || town.seats.iter().all(|seats| seats.count() == 0));
}

#[test]
fn a_node_that_refuses_leaves_nothing_behind_and_is_named() {
    let (address, _manager) = manager(loopback(), None);
    let seats = [Remembered::default(), Remembered::default(), Remembered { refuses: true, ..Remembered::default() }];
    let _top = node(address, None, "top", &[], &seats[0]);
    let _left = node(address, None, "left", &["top"], &seats[1]);
    let _right = node(address, None, "right", &["top"], &seats[2]);
    let mut client = ManagerClient::connect(address, None, PATIENCE).expect("the manager is there");
    until("all nodes are there", || alive(&mut client) == 3);
    client.open_job("test", None).expect("admitted");
    let error = client.open_group(request(8)).expect_err("refused");
    assert_eq!(error.to_string(), "node right failed: it does not want to");
    assert_eq!(seats.iter().map(Remembered::count).sum::<usize>(), 0);
    let status = client.status().expect("answered");
    assert!(status.nodes.iter().all(|node| node.reserved.seats == 0));
    assert_eq!(status.jobs[0].last_refusal.as_deref(), Some("node right failed: it does not want to"));
}

#[test]
fn a_killed_node_is_told_and_avoided() {
    let mut town = town(None);
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened");
    let began = Instant::now();
    town.nodes[1] = None;
    let mut notice = None;
    until("the job hears of it", || {
        notice = town.client.poll_notice();
        notice.is_some()
    });
    assert!(began.elapsed() < Duration::from_secs(2), "took {:?}", began.elapsed());
    let Some(Notice::Revoked { group: revoked, node, .. }) = notice else { panic!("{notice:?}") };
    assert_eq!((revoked, node.as_deref()), (group.key_of_group(), Some("left")));
    until("the other seats are given up", || town.seats[0].count() + town.seats[2].count() == 0);
    let again = town.client.open_group(request(8)).expect("opened without it");
    assert!(again.seats.iter().all(|seat| seat.name != "left"));
}

#[test]
fn trouble_in_the_data_plane_reaches_the_job() {
    let mut town = town(None);
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened").key_of_group();
    let trouble = SeatTrouble { group, what: "rank 3 does not answer".to_owned() };
    town.seats[1].troubles.lock().expect("nobody panicked").push(trouble);
    let mut notice = None;
    until("the job hears of it", || {
        notice = town.client.poll_notice();
        notice.is_some()
    });
    let why = "node left: rank 3 does not answer".to_owned();
    assert_eq!(notice, Some(Notice::Revoked { group, node: None, why }));
}

#[test]
fn a_manager_that_begins_anew_finds_everything_as_it_was() {
    let mut town = town(Some(secret()));
    let (ticket, quota) = town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened");
    town.manager = None;
    std::thread::sleep(Duration::from_millis(100));
    let counts = || town.seats.iter().map(Remembered::count).sum::<usize>();
    assert_eq!(counts(), 3, "running groups do not need a manager");
    let error = town.client.status().expect_err("nobody is there");
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    let (_, running) = manager(town.address, Some(secret()));
    town.manager = Some(running);
    until("all nodes are there again", || alive(&mut town.client) == 3);
    let status = town.client.status().expect("answered");
    assert_eq!(status.groups.len(), 1);
    assert_eq!(status.groups[0].nodes.len(), 3);
    assert!(status.jobs.iter().any(|job| job.job == ticket.job && job.attached));
    // Another process of the job may speak for it as well.
    let mut other = ManagerClient::connect(town.address, Some(secret()), PATIENCE).expect("the manager is there");
    other.attach_job(ticket, "test", quota).expect("its own ticket");
    other.close_group(group.key_of_group()).expect("closed");
    assert_eq!(town.seats.iter().map(Remembered::count).sum::<usize>(), 0);
}

#[test]
fn without_the_secret_nobody_is_heard() {
    let town = town(Some(secret()));
    let short = Duration::from_secs(2);
    let wrong = Secret::new("incorrect horse").expect("long enough");
    let error = ManagerClient::connect(town.address, None, short).map(drop).expect_err("no secret");
    assert!(error.to_string().contains("PLEACH_SECRET"), "{error}");
    let error = ManagerClient::connect(town.address, Some(wrong.clone()), short).map(drop).expect_err("a wrong one");
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    let seats = Remembered::default();
    let _stranger = node(town.address, Some(wrong), "stranger", &[], &seats);
    std::thread::sleep(Duration::from_millis(200));
    let mut client = town.client;
    assert_eq!(client.status().expect("answered").nodes.len(), 3);
}

#[test]
fn without_a_secret_only_this_machine_is_heard_unless_one_says_so() {
    let anywhere: SocketAddr = "0.0.0.0:0".parse().expect("an address");
    let bind = |secret, openness| ManagerDaemon::bind(anywhere, Settings::default(), secret, openness);
    let error = bind(None, Openness::Guarded).map(drop).expect_err("it would obey strangers");
    assert!(error.to_string().contains("--open"), "{error}");
    assert!(bind(None, Openness::Open).is_ok());
    assert!(bind(Some(secret()), Openness::Guarded).is_ok());
}

fn frame(json: &str) -> Vec<u8> {
    [&(json.len() as u32).to_le_bytes(), json.as_bytes()].concat()
}

const HELLO: &str = r#"{"hello":{"pleach":1,"nonce":"00112233445566778899aabbccddeeff","secret":false}}"#;

/// True if the other end closes within the time.
fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let began = Instant::now();
    let mut buffer = [0; 4096];
    while began.elapsed() < within {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return true,
        }
    }
    false
}

#[test]
fn peers_who_talk_nonsense_are_closed_and_nobody_else_notices() {
    let mut town = town(None);
    let soon = Duration::from_secs(2);
    let nonsense: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        u32::MAX.to_le_bytes().to_vec(),
        frame("not json"),
        frame(r#"{"open_job":{"request":1,"name":"early","quota":null}}"#),
        [frame(HELLO), frame(HELLO)].concat(),
        [frame(HELLO), (1u32 << 21).to_le_bytes().to_vec()].concat(),
        [frame(HELLO), frame(r#"{"open_the_door":{}}"#)].concat(),
        [frame(HELLO), frame(&"[".repeat(100_000))].concat(),
        frame(&HELLO.replace("\"pleach\":1", "\"pleach\":2")),
        frame(&"x".repeat(2_000)),
    ];
    for bytes in nonsense {
        let mut stream = TcpStream::connect(town.address).expect("it listens");
        stream.write_all(&bytes).expect("it is written");
        assert!(is_closed(&mut stream, soon), "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
    }
    assert_eq!(alive(&mut town.client), 3);
}

#[test]
fn slow_peers_are_closed_in_time_and_keep_nobody_waiting() {
    let mut town = town(None);
    // Half a greeting, half a message, a drop now and then, nothing at all.
    let half = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(town.address).expect("it listens");
        stream.write_all(bytes).expect("it is written");
        stream
    };
    let whole = [frame(HELLO), 1_000u32.to_le_bytes().to_vec(), b"{".to_vec()].concat();
    let mut slow = vec![half(&frame(HELLO)[..20]), half(&whole), half(&[])];
    let mut dripping = half(&whole);
    let crowd: Vec<TcpStream> = (0..200).map(|_| half(&[])).collect();
    let began = Instant::now();
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened").key_of_group();
    town.client.close_group(group).expect("closed");
    assert!(began.elapsed() < Duration::from_secs(1), "others waited for {:?}", began.elapsed());
    let mut closed = false;
    while began.elapsed() < Duration::from_secs(8) && !closed {
        std::thread::sleep(Duration::from_millis(100));
        closed = dripping.write_all(b" ").is_err();
    }
    assert!(closed, "a drop now and then does not keep a connection");
    for stream in &mut slow {
        assert!(is_closed(stream, Duration::from_secs(2)));
    }
    drop(crowd);
    assert_eq!(alive(&mut town.client), 3);
}

#[test]
fn a_peer_that_never_reads_is_dropped() {
    let mut town = town(None);
    let mut stream = TcpStream::connect(town.address).expect("it listens");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream.write_all(&frame(HELLO)).expect("it is written");
    let question = frame(r#"{"status":{"request":1}}"#).repeat(1_000);
    let closed = (0..1_000).any(|_| stream.write_all(&question).is_err());
    assert!(closed, "a million questions were put and no answer read");
    assert_eq!(alive(&mut town.client), 3);
}
