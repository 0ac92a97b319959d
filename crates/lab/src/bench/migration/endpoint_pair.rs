//! Two endpoints in one thread, joined by many connections of two paths each.
//!
//! One thread drives both, so that a measurement is the work of both ends and does not depend on the scheduler.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use protocol::connection::path::{AlternateLoading, MigrationRole, PathEvent, PathPolicy, PathState};
use protocol::queue_pair::QpOperation;
use transport::udp::{Endpoint, EndpointEvent, EndpointOptions, LinkCut, QueuePairSetup, UdpPortIndex, UdpRoute};
use units::{PathId, Psn, QpNumber, Span};

/// A wait that takes longer has hung.
const TIMEOUT: Duration = Duration::from_secs(60);
const SEND: QpOperation = QpOperation::Send { immediate: None };

/// The paths of each connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AlternatePaths {
    /// One path only.
    None,
    /// A second path, armed before anything is measured.
    Armed,
}

pub(crate) struct EndpointPair {
    ends: [Endpoint; 2],
    pairs: Vec<[QpNumber; 2]>,
    /// True while a connection that migrates by itself is armed again: on a busy machine a path may seem silent.
    rearm: bool,
    /// Events since the counters were reset; migrations and messages by endpoint.
    armed: usize,
    moved: [usize; 2],
    received: [u64; 2],
    spare: Vec<Vec<u8>>,
    posted_bytes: usize,
}

impl EndpointPair {
    /// Opens so many connections over the loopback interface.
    pub(crate) fn new(connections: usize, alternates: AlternatePaths) -> Result<Self> {
        let paths = if alternates == AlternatePaths::Armed { 2 } else { 1 };
        let addresses: Vec<SocketAddr> =
            (1..=paths).map(|host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0)).collect();
        let open = || Endpoint::open(&addresses, EndpointOptions::default());
        let mut ends = [open()?, open()?];
        let mut pairs = Vec::with_capacity(connections);
        for _ in 0..connections {
            let pair = [ends[0].create(), ends[1].create()];
            for me in 0..2 {
                let remote = ends[1 - me].addresses();
                let routes = remote
                    .iter()
                    .enumerate()
                    .map(|(port, to)| UdpRoute::new(UdpPortIndex(port as u8), *to))
                    .collect();
                let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
                let mut setup = QueuePairSetup::new(pair[1 - me], Psn::new(0), Psn::new(0), routes, role);
                // Loaded by hand, so that nothing else happens; the probes of thousands of connections spread over seconds.
                let probe_every = Span::from_micros(2_000_000 + 1_000 * connections as u64);
                setup.path_policy =
                    PathPolicy { loading: AlternateLoading::Manual, probe_every, ..PathPolicy::default() };
                ends[me].connect(pair[me], setup)?;
            }
            pairs.push(pair);
        }
        let mut endpoints = Self {
            ends,
            pairs,
            rearm: false,
            armed: 0,
            moved: [0; 2],
            received: [0; 2],
            spare: Vec::new(),
            posted_bytes: 0,
        };
        endpoints.settle()?;
        if alternates == AlternatePaths::Armed {
            endpoints.arm()?;
        }
        Ok(endpoints)
    }

    pub(crate) fn connections(&self) -> usize {
        self.pairs.len()
    }

    /// Drives both endpoints once and handles their events.
    fn drive(&mut self) -> Result<()> {
        for me in 0..2 {
            self.ends[me].turn(Duration::ZERO)?;
            while let Some(event) = self.ends[me].next_event() {
                match event {
                    EndpointEvent::Path { event: PathEvent::Armed(_), .. } => self.armed += 1,
                    EndpointEvent::Path { pair, event: PathEvent::Migrated { from, .. } } => {
                        self.moved[me] += 1;
                        if self.rearm {
                            self.ends[me].load_path(pair, from)?;
                        }
                    }
                    EndpointEvent::Path { .. } | EndpointEvent::Datagram { .. } => {}
                    EndpointEvent::Sent { buffer, .. } => self.spare.push(buffer),
                    EndpointEvent::Received { pair, buffer, .. } => {
                        self.received[me] += 1;
                        self.ends[me].post_receive(pair, buffer)?;
                    }
                    EndpointEvent::Failed { failure, .. } => bail!("{failure}"),
                }
            }
        }
        Ok(())
    }

    fn drive_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<Duration> {
        let began = Instant::now();
        while !done(self) {
            if began.elapsed() > TIMEOUT {
                bail!("{what} did not end within {TIMEOUT:?}");
            }
            self.drive()?;
        }
        Ok(began.elapsed())
    }

    /// Waits until probes and their replies have passed.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(20 + self.pairs.len() as u64 / 10);
        while Instant::now() < until {
            self.drive()?;
        }
        Ok(())
    }

    /// MIGRATED to ARMED: loads the other path at both ends of all connections. Returns the time until every end is armed.
    pub(crate) fn arm(&mut self) -> Result<Duration> {
        self.armed = 0;
        self.rearm = true;
        let began = Instant::now();
        for me in 0..2 {
            for other in [PathId(0), PathId(1)] {
                let is_elsewhere =
                    |pair: &QpNumber| self.ends[me].path_state(*pair).is_some_and(|(_, path)| path != other);
                let mine = self.pairs.iter().map(|pair| pair[me]);
                let elsewhere: Vec<QpNumber> = mine.filter(is_elsewhere).collect();
                if let Some((_, error)) = self.ends[me].load_paths(&elsewhere, other).pop() {
                    bail!(error);
                }
            }
        }
        let ends = 2 * self.pairs.len();
        self.drive_until("arming", |endpoints| endpoints.armed >= ends && endpoints.are_all_armed())?;
        self.rearm = false;
        Ok(began.elapsed())
    }

    fn are_all_armed(&self) -> bool {
        self.pairs.iter().all(|pair| self.is_armed(0, *pair) && self.is_armed(1, *pair))
    }

    fn is_armed(&self, me: usize, pair: [QpNumber; 2]) -> bool {
        self.ends[me].path_state(pair[me]).is_some_and(|(state, _)| state == PathState::Armed)
    }

    /// ARMED to MIGRATED: migrates all connections by hand at one end. Returns the time until every other end has followed.
    pub(crate) fn migrate(&mut self) -> Result<Duration> {
        self.moved = [0; 2];
        let began = Instant::now();
        for pair in 0..self.pairs.len() {
            self.ends[0].migrate(self.pairs[pair][0])?;
        }
        let connections = self.pairs.len();
        self.drive_until("migration", |endpoints| endpoints.moved[1] >= connections)?;
        Ok(began.elapsed())
    }

    /// Migrates all connections without waiting. A connection that has migrated by itself stays on its path.
    pub(crate) fn begin_migration(&mut self) -> Result<()> {
        for pair in 0..self.pairs.len() {
            if self.is_armed(0, self.pairs[pair]) {
                self.ends[0].migrate(self.pairs[pair][0])?;
            }
        }
        Ok(())
    }

    /// Cuts the first path at both ends.
    pub(crate) fn cut(&mut self, cut: LinkCut) {
        for end in &mut self.ends {
            end.cut(UdpPortIndex(0), cut);
        }
    }

    /// Posts receives for messages of so many bytes.
    pub(crate) fn prepare(&mut self, bytes: usize) -> Result<()> {
        if self.posted_bytes < bytes {
            for pair in 0..self.pairs.len() {
                for me in 0..2 {
                    for _ in 0..2 {
                        self.ends[me].post_receive(self.pairs[pair][me], vec![0; bytes])?;
                    }
                }
            }
            self.posted_bytes = bytes;
        }
        Ok(())
    }

    /// Sends one message and its reply over a connection. Returns the round-trip time.
    pub(crate) fn round_trip(&mut self, connection: usize, bytes: usize) -> Result<Duration> {
        let began = Instant::now();
        for me in 0..2 {
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.resize(bytes, 0x5a);
            let due = self.received[1 - me] + 1;
            self.ends[me].post_send(self.pairs[connection][me], buffer, SEND)?;
            self.drive_until("a message", |endpoints| endpoints.received[1 - me] >= due)?;
        }
        Ok(began.elapsed())
    }

    /// Sends `count` messages in one direction over the first connection. Returns the bytes per second.
    pub(crate) fn stream(&mut self, count: u64, bytes: usize) -> Result<f64> {
        let began = Instant::now();
        let (first, mut posted) = (self.received[1], 0);
        while self.received[1] < first + count {
            while posted < count && posted < self.received[1] - first + 2 {
                let mut buffer = self.spare.pop().unwrap_or_default();
                buffer.resize(bytes, 0x5a);
                self.ends[0].post_send(self.pairs[0][0], buffer, SEND)?;
                posted += 1;
            }
            self.drive()?;
            if began.elapsed() > TIMEOUT {
                bail!("a stream did not end within {TIMEOUT:?}");
            }
        }
        Ok(count as f64 * bytes as f64 / began.elapsed().as_secs_f64())
    }
}
