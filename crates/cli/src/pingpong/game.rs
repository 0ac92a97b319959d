//! The game itself: a message goes there and back, and is looked at each time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use protocol::queue_pair::Operation;
use runtime::udp::{Endpoint, Event};
use serde::Serialize;
use units::QpNumber;

/// Receives that are posted in advance.
const DEPTH: u32 = 16;

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// Sends first.
    Client,
    /// Answers.
    Server,
}

/// What came of it.
#[derive(Serialize)]
pub(super) struct Score {
    peer: String,
    size: u32,
    iterations: u32,
    mtu: u32,
    seconds: f64,
    median_us: f64,
    slowest_us: f64,
    megabytes_per_second: f64,
    pub altered: u32,
    packets_sent: u64,
    packets_repeated: u64,
    packets_damaged: u64,
    migrations: u32,
    path_events: Vec<String>,
}

/// Bytes that an altered message does not have. Every 4096th is zero, as `ibv_rc_pingpong --chk` wants it.
fn contents(size: u32) -> Vec<u8> {
    (0..size).map(|index| if index % 4096 == 0 { 0 } else { (index.wrapping_mul(0x9e37_79b1) >> 24) as u8 }).collect()
}

/// Whose bytes come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Echo {
    /// The other end plays with the same contents: everything is compared.
    Same,
    /// It sends what its memory holds: ours, once it has received it.
    AfterFirst,
    /// Its contents are its own.
    Unknown,
}

pub(super) struct Game {
    pub pair: QpNumber,
    pub side: Side,
    pub size: u32,
    pub iterations: u32,
    pub mtu: u32,
    pub echo: Echo,
    pub peer: String,
    pub limit: Duration,
}

impl Game {
    /// Receives must be posted before the other end may send.
    pub(super) fn prepare(&self, endpoint: &mut Endpoint) -> Result<()> {
        for _ in 0..DEPTH.min(self.iterations) {
            endpoint.post_receive(self.pair, vec![0; self.size as usize])?;
        }
        Ok(())
    }

    /// Plays until every message has been there and back.
    pub(super) fn play(&self, endpoint: &mut Endpoint) -> Result<Score> {
        let send = Operation::Send { immediate: None };
        let truth = contents(self.size);
        let (mut sent, mut received, mut serves, mut altered) = (0, 0, 0, 0);
        let mut trips = Vec::with_capacity(self.iterations as usize);
        let mut path_events = Vec::new();
        let began = Instant::now();
        let mut last = began;
        if self.side == Side::Client {
            endpoint.post_send(self.pair, truth.clone(), send)?;
            serves = 1;
        }
        while sent < self.iterations || received < self.iterations {
            if began.elapsed() > self.limit {
                bail!("gave up after {:?}: {sent} sent, {received} received of {}", self.limit, self.iterations);
            }
            endpoint.turn(Duration::from_millis(100))?;
            while let Some(event) = endpoint.next_event() {
                match event {
                    Event::Sent { .. } => sent += 1,
                    Event::Received { buffer, length, .. } => {
                        let compare = match self.echo {
                            Echo::Same => true,
                            Echo::AfterFirst => received > 0,
                            Echo::Unknown => false,
                        };
                        altered += u32::from(compare && buffer[..length] != truth[..]);
                        received += 1;
                        trips.push(last.elapsed());
                        last = Instant::now();
                        if received + DEPTH <= self.iterations {
                            endpoint.post_receive(self.pair, buffer)?;
                        }
                        if serves < self.iterations {
                            endpoint.post_send(self.pair, truth.clone(), send)?;
                            serves += 1;
                        }
                    }
                    Event::Failed { failure, .. } => bail!("{failure} ({sent} sent, {received} received)"),
                    Event::Path { event, .. } => path_events.push(format!("{:?} {event:?}", began.elapsed())),
                }
            }
        }
        self.linger(endpoint)?;
        Ok(self.score(endpoint, began.elapsed(), trips, altered, path_events))
    }

    /// The other end may still miss our last acknowledgement.
    fn linger(&self, endpoint: &mut Endpoint) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            endpoint.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn score(
        &self,
        endpoint: &Endpoint,
        elapsed: Duration,
        mut trips: Vec<Duration>,
        altered: u32,
        path_events: Vec<String>,
    ) -> Score {
        trips.sort_unstable();
        let micros = |trip: Option<&Duration>| trip.map_or(0.0, |trip| trip.as_secs_f64() * 1e6);
        let counters = endpoint.counters();
        let total: Duration = trips.iter().sum();
        let paths = endpoint.machine(self.pair).and_then(|machine| machine.connection().paths());
        Score {
            peer: self.peer.clone(),
            size: self.size,
            iterations: self.iterations,
            mtu: self.mtu,
            seconds: elapsed.as_secs_f64(),
            median_us: micros(trips.get(trips.len() / 2)),
            slowest_us: micros(trips.last()),
            megabytes_per_second: 2.0 * f64::from(self.size) * f64::from(self.iterations)
                / total.as_secs_f64().max(1e-9)
                / 1e6,
            altered,
            packets_sent: counters.sent,
            packets_repeated: counters.repeated,
            packets_damaged: counters.damaged,
            migrations: paths.map_or(0, |paths| paths.migrations()),
            path_events,
        }
    }
}

impl Score {
    pub(super) fn table(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let _ =
            writeln!(text, "{} iterations of {} B with {} (MTU {})", self.iterations, self.size, self.peer, self.mtu);
        let _ =
            writeln!(text, "  there and back   median {:.1} us, slowest {:.1} us", self.median_us, self.slowest_us);
        let _ = writeln!(text, "  both directions  {:.1} MB/s", self.megabytes_per_second);
        let _ = writeln!(
            text,
            "  packets          {} sent, {} of them again; {} came damaged",
            self.packets_sent, self.packets_repeated, self.packets_damaged
        );
        let verdict = if self.altered == 0 { "every one came unaltered" } else { "ALTERED MESSAGES" };
        let _ = writeln!(
            text,
            "  messages         {verdict}{}",
            if self.altered == 0 { String::new() } else { format!(": {}", self.altered) }
        );
        if !self.path_events.is_empty() {
            let _ = writeln!(text, "  paths            {} migrations", self.migrations);
            for event in &self.path_events {
                let _ = writeln!(text, "    after {event}");
            }
        }
        text
    }
}
