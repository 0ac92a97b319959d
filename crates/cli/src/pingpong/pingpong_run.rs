//! One run: messages go back and forth, or one way, and each received one is compared.
//!
//! In: a connected queue pair. Out: latencies, throughput, and how many messages were altered.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use protocol::connection::path::{MigrationCause, PathEvent};
use protocol::queue_pair::QpOperation;
use serde::Serialize;
use transport::udp::{Endpoint, EndpointEvent};
use units::QpNumber;

/// Receives posted in advance, and maximum sends in flight of a stream.
const DEPTH: u32 = 16;
/// The same in bytes, for long messages.
const DEPTH_BYTES: u32 = 64 << 20;

/// The side of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PingpongSide {
    /// Sends first.
    Client,
    /// Answers.
    Server,
}

/// The traffic pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PingpongPattern {
    /// Back and forth, one message at a time.
    Bounce,
    /// One way, as many as the connection allows.
    Stream,
}

/// What the peer's messages contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EchoContents {
    /// The same contents: every message is compared.
    Same,
    /// What its buffer holds: our contents, after it has received them once.
    AfterFirst,
    /// Unknown contents: no message is compared.
    Unknown,
}

/// The report. Field names are part of the JSON format.
#[derive(Serialize)]
pub(super) struct PingpongReport {
    peer: String,
    #[serde(rename = "play")]
    pattern: PingpongPattern,
    size: u32,
    iterations: u32,
    mtu: u32,
    seconds: f64,
    /// From one message to the next.
    median_us: f64,
    longest_us: f64,
    megabytes_per_second: f64,
    /// Messages that were compared byte by byte, and those that differed.
    compared: u32,
    pub altered: u32,
    packets_sent: u64,
    packets_repeated: u64,
    packets_damaged: u64,
    migrations: u32,
    path_events: Vec<String>,
}

pub(super) struct PingpongRun {
    pub pair: QpNumber,
    pub pattern: PingpongPattern,
    pub side: PingpongSide,
    pub size: u32,
    pub iterations: u32,
    pub mtu: u32,
    pub echo: EchoContents,
    pub peer: String,
    pub limit: Duration,
}

/// The contents of a message. Every 4096th byte is zero, as `ibv_rc_pingpong --chk` requires.
fn contents(size: u32) -> Vec<u8> {
    (0..size).map(|index| if index % 4096 == 0 { 0 } else { (index.wrapping_mul(0x9e37_79b1) >> 24) as u8 }).collect()
}

/// The progress of a run.
#[derive(Default)]
struct PingpongProgress {
    posted: u32,
    sent: u32,
    received: u32,
    compared: u32,
    altered: u32,
    /// From one message to the next.
    gaps: Vec<Duration>,
    path_events: Vec<String>,
    spare: Vec<Vec<u8>>,
}

impl PingpongRun {
    fn depth(&self) -> u32 {
        DEPTH.min(self.iterations).min(DEPTH_BYTES / self.size.max(1)).max(1)
    }

    /// Messages that this side sends.
    fn to_send(&self) -> u32 {
        if (self.pattern, self.side) == (PingpongPattern::Stream, PingpongSide::Server) { 0 } else { self.iterations }
    }

    /// Messages that this side receives.
    fn to_receive(&self) -> u32 {
        if (self.pattern, self.side) == (PingpongPattern::Stream, PingpongSide::Client) { 0 } else { self.iterations }
    }

    /// Posts receives, before the peer may send.
    pub(super) fn prepare(&self, endpoint: &mut Endpoint) -> Result<()> {
        for _ in 0..self.depth().min(self.to_receive()) {
            endpoint.post_receive(self.pair, vec![0; self.size as usize])?;
        }
        Ok(())
    }

    /// Runs until every message has arrived.
    pub(super) fn run(&self, endpoint: &mut Endpoint) -> Result<PingpongReport> {
        let expected = contents(self.size);
        let mut progress = PingpongProgress::default();
        let began = Instant::now();
        let mut last = began;
        while progress.sent < self.to_send() || progress.received < self.to_receive() {
            self.post_sends(endpoint, &mut progress, &expected)?;
            if began.elapsed() > self.limit {
                let PingpongProgress { sent, received, .. } = progress;
                let limit = self.limit.as_secs_f64();
                bail!("timeout after {limit} s: {sent} sent, {received} received of {}", self.iterations);
            }
            endpoint.turn(Duration::from_millis(100))?;
            while let Some(event) = endpoint.next_event() {
                if self.handle_event(endpoint, event, &mut progress, &expected, began)? {
                    progress.gaps.push(last.elapsed());
                    last = Instant::now();
                }
            }
        }
        let elapsed = began.elapsed();
        self.linger(endpoint)?;
        Ok(self.report(endpoint, elapsed, progress))
    }

    /// Posts the sends that are allowed now.
    fn post_sends(&self, endpoint: &mut Endpoint, progress: &mut PingpongProgress, expected: &[u8]) -> Result<()> {
        let allowed = match (self.pattern, self.side) {
            (PingpongPattern::Bounce, PingpongSide::Client) => progress.received + 1,
            (PingpongPattern::Bounce, PingpongSide::Server) => progress.received,
            (PingpongPattern::Stream, _) => progress.sent + self.depth(),
        };
        while progress.posted < allowed.min(self.to_send()) {
            let buffer = progress.spare.pop().unwrap_or_else(|| expected.to_vec());
            endpoint.post_send(self.pair, buffer, QpOperation::Send { immediate: None })?;
            progress.posted += 1;
        }
        Ok(())
    }

    /// Handles an event; true if it completes a message.
    fn handle_event(
        &self,
        endpoint: &mut Endpoint,
        event: EndpointEvent,
        progress: &mut PingpongProgress,
        expected: &[u8],
        began: Instant,
    ) -> Result<bool> {
        match event {
            EndpointEvent::Sent { buffer, .. } => {
                progress.sent += 1;
                progress.spare.push(buffer);
                Ok(self.pattern == PingpongPattern::Stream)
            }
            EndpointEvent::Received { buffer, message, .. } => {
                let compare = match self.echo {
                    EchoContents::Same => true,
                    EchoContents::AfterFirst => progress.received > 0,
                    EchoContents::Unknown => false,
                };
                progress.compared += u32::from(compare);
                progress.altered += u32::from(compare && buffer[message] != *expected);
                progress.received += 1;
                if progress.received + self.depth() <= self.iterations {
                    endpoint.post_receive(self.pair, buffer)?;
                }
                Ok(true)
            }
            EndpointEvent::Failed { failure, .. } => {
                bail!("{failure} ({} sent, {} received)", progress.sent, progress.received)
            }
            EndpointEvent::Datagram { .. } => Ok(false),
            EndpointEvent::Path { event, .. } => {
                progress.path_events.push(format!(
                    "{:.3} s: {}",
                    began.elapsed().as_secs_f64(),
                    path_event_text(event)
                ));
                Ok(false)
            }
        }
    }

    /// Answers for a while, since the peer may still miss our last acknowledgement.
    fn linger(&self, endpoint: &mut Endpoint) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            endpoint.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn report(&self, endpoint: &Endpoint, elapsed: Duration, progress: PingpongProgress) -> PingpongReport {
        let PingpongProgress { mut gaps, compared, altered, path_events, .. } = progress;
        gaps.sort_unstable();
        let micros = |gap: Option<&Duration>| gap.map_or(0.0, |gap| gap.as_secs_f64() * 1e6);
        let counters = endpoint.counters();
        let paths = endpoint.machine(self.pair).and_then(|machine| machine.connection().paths());
        let bytes = f64::from(self.size) * f64::from(self.to_send() + self.to_receive());
        PingpongReport {
            peer: self.peer.clone(),
            pattern: self.pattern,
            size: self.size,
            iterations: self.iterations,
            mtu: self.mtu,
            seconds: elapsed.as_secs_f64(),
            median_us: micros(gaps.get(gaps.len() / 2)),
            longest_us: micros(gaps.last()),
            megabytes_per_second: bytes / elapsed.as_secs_f64().max(1e-9) / 1e6,
            compared,
            altered,
            packets_sent: counters.sent,
            packets_repeated: counters.repeated,
            packets_damaged: counters.damaged,
            migrations: paths.map_or(0, |paths| paths.migrations()),
            path_events,
        }
    }
}

impl PingpongReport {
    pub(super) fn table(&self) -> String {
        let Self { size, iterations, mtu, peer, compared, altered, .. } = self;
        let what = if self.pattern == PingpongPattern::Bounce { "round trip" } else { "message interval" };
        let verdict = match (altered, compared) {
            (_, 0) => "not compared here: only the peer knows the expected bytes".to_owned(),
            (0, _) => format!("{compared} compared byte by byte, none altered"),
            _ => format!("{altered} of {compared} compared were ALTERED"),
        };
        let rows = [
            (what, format!("median {:.1} us, longest {:.1} us", self.median_us, self.longest_us)),
            ("throughput", format!("{:.1} MB/s in {:.3} s", self.megabytes_per_second, self.seconds)),
            (
                "packets",
                format!(
                    "{} sent, {} of them retransmitted; {} received corrupted",
                    self.packets_sent, self.packets_repeated, self.packets_damaged
                ),
            ),
            ("messages", verdict),
            ("migrations", self.migrations.to_string()),
        ];
        let mut text = format!("{iterations} messages of {size} B with {peer} (MTU {mtu})\n");
        for (name, value) in rows {
            let _ = writeln!(text, "  {name:16} {value}");
        }
        for event in &self.path_events {
            let _ = writeln!(text, "    after {event}");
        }
        text
    }
}

fn path_event_text(event: PathEvent) -> String {
    match event {
        PathEvent::Armed(path) => format!("path {path} is ready as an alternate"),
        PathEvent::Migrated { from, to, cause } => {
            let why = match cause {
                MigrationCause::Manual => "on request",
                MigrationCause::Timeout => "nothing was acknowledged in time",
                MigrationCause::Down => "its link is down",
                MigrationCause::Damage => "too many packets were damaged",
                MigrationCause::Followed => "the peer moved",
                MigrationCause::Failback => "the better path works again",
            };
            format!("moved from path {from} to path {to}: {why}")
        }
        PathEvent::MigrationFailed(path) => format!("path {path} failed, and no other is known to work"),
        PathEvent::Recovered(path) => format!("path {path} works again"),
        PathEvent::Lost(path) => format!("path {path} does not answer"),
    }
}
