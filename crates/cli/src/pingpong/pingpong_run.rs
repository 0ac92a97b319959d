//! The game itself: messages go there and back, or one way, and each is looked at when it comes.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use protocol::queue_pair::QpOperation;
use serde::Serialize;
use transport::udp::{Endpoint, EndpointEvent};
use units::QpNumber;

/// Receives that are posted in advance, and most sends of a stream that are under way.
const DEPTH: u32 = 16;
/// The same in bytes: a few messages are enough if they are long.
const DEPTH_BYTES: u32 = 64 << 20;

/// Who begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PingpongSide {
    /// Sends first.
    Client,
    /// Answers.
    Server,
}

/// What is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PingpongPattern {
    /// There and back, one at a time.
    Bounce,
    /// One way, as many as the connection takes.
    Stream,
}

/// Whose bytes come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EchoContents {
    /// The other end plays with the same contents: everything is compared.
    Same,
    /// It sends what its memory holds: ours, once it has received it.
    AfterFirst,
    /// Its contents are its own.
    Unknown,
}

/// What came of it.
#[derive(Serialize)]
pub(super) struct PingpongReport {
    peer: String,
    play: PingpongPattern,
    size: u32,
    iterations: u32,
    mtu: u32,
    seconds: f64,
    /// From one message to the next.
    median_us: f64,
    longest_us: f64,
    megabytes_per_second: f64,
    /// Messages whose every byte was held against what it should be, and those that differed.
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
    pub play: PingpongPattern,
    pub side: PingpongSide,
    pub size: u32,
    pub iterations: u32,
    pub mtu: u32,
    pub echo: EchoContents,
    pub peer: String,
    pub limit: Duration,
}

/// Bytes that an altered message does not have. Every 4096th is zero, as `ibv_rc_pingpong --chk` wants it.
fn contents(size: u32) -> Vec<u8> {
    (0..size).map(|index| if index % 4096 == 0 { 0 } else { (index.wrapping_mul(0x9e37_79b1) >> 24) as u8 }).collect()
}

/// How far a game has come.
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

    /// How many this side sends.
    fn to_send(&self) -> u32 {
        if (self.play, self.side) == (PingpongPattern::Stream, PingpongSide::Server) { 0 } else { self.iterations }
    }

    /// How many it receives.
    fn to_receive(&self) -> u32 {
        if (self.play, self.side) == (PingpongPattern::Stream, PingpongSide::Client) { 0 } else { self.iterations }
    }

    /// Receives must be posted before the other end may send.
    pub(super) fn prepare(&self, endpoint: &mut Endpoint) -> Result<()> {
        for _ in 0..self.depth().min(self.to_receive()) {
            endpoint.post_receive(self.pair, vec![0; self.size as usize])?;
        }
        Ok(())
    }

    /// Plays until every message has come.
    pub(super) fn play(&self, endpoint: &mut Endpoint) -> Result<PingpongReport> {
        let truth = contents(self.size);
        let mut course = PingpongProgress::default();
        let began = Instant::now();
        let mut last = began;
        while course.sent < self.to_send() || course.received < self.to_receive() {
            self.serve(endpoint, &mut course, &truth)?;
            if began.elapsed() > self.limit {
                let PingpongProgress { sent, received, .. } = course;
                bail!("gave up after {:?}: {sent} sent, {received} received of {}", self.limit, self.iterations);
            }
            endpoint.turn(Duration::from_millis(100))?;
            while let Some(event) = endpoint.next_event() {
                if self.note(endpoint, event, &mut course, &truth, began)? {
                    course.gaps.push(last.elapsed());
                    last = Instant::now();
                }
            }
        }
        let elapsed = began.elapsed();
        self.linger(endpoint)?;
        Ok(self.score(endpoint, elapsed, course))
    }

    /// Sends what may be sent now.
    fn serve(&self, endpoint: &mut Endpoint, course: &mut PingpongProgress, truth: &[u8]) -> Result<()> {
        let allowed = match (self.play, self.side) {
            (PingpongPattern::Bounce, PingpongSide::Client) => course.received + 1,
            (PingpongPattern::Bounce, PingpongSide::Server) => course.received,
            (PingpongPattern::Stream, _) => course.sent + self.depth(),
        };
        while course.posted < allowed.min(self.to_send()) {
            let buffer = course.spare.pop().unwrap_or_else(|| truth.to_vec());
            endpoint.post_send(self.pair, buffer, QpOperation::Send { immediate: None })?;
            course.posted += 1;
        }
        Ok(())
    }

    /// Takes note of an event; true if a message has come through with it.
    fn note(
        &self,
        endpoint: &mut Endpoint,
        event: EndpointEvent,
        course: &mut PingpongProgress,
        truth: &[u8],
        began: Instant,
    ) -> Result<bool> {
        match event {
            EndpointEvent::Sent { buffer, .. } => {
                course.sent += 1;
                course.spare.push(buffer);
                Ok(self.play == PingpongPattern::Stream)
            }
            EndpointEvent::Received { buffer, message, .. } => {
                let compare = match self.echo {
                    EchoContents::Same => true,
                    EchoContents::AfterFirst => course.received > 0,
                    EchoContents::Unknown => false,
                };
                course.compared += u32::from(compare);
                course.altered += u32::from(compare && buffer[message] != *truth);
                course.received += 1;
                if course.received + self.depth() <= self.iterations {
                    endpoint.post_receive(self.pair, buffer)?;
                }
                Ok(true)
            }
            EndpointEvent::Failed { failure, .. } => {
                bail!("{failure} ({} sent, {} received)", course.sent, course.received)
            }
            EndpointEvent::Datagram { .. } => Ok(false),
            EndpointEvent::Path { event, .. } => {
                course.path_events.push(format!("{:.3?} {event:?}", began.elapsed()));
                Ok(false)
            }
        }
    }

    /// The other end may still miss our last acknowledgement.
    fn linger(&self, endpoint: &mut Endpoint) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            endpoint.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn score(&self, endpoint: &Endpoint, elapsed: Duration, course: PingpongProgress) -> PingpongReport {
        let PingpongProgress { mut gaps, compared, altered, path_events, .. } = course;
        gaps.sort_unstable();
        let micros = |gap: Option<&Duration>| gap.map_or(0.0, |gap| gap.as_secs_f64() * 1e6);
        let counters = endpoint.counters();
        let paths = endpoint.machine(self.pair).and_then(|machine| machine.connection().paths());
        let bytes = f64::from(self.size) * f64::from(self.to_send() + self.to_receive());
        PingpongReport {
            peer: self.peer.clone(),
            play: self.play,
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
        let what = if self.play == PingpongPattern::Bounce { "there and back" } else { "one to the next" };
        let verdict = match (altered, compared) {
            (_, 0) => "not compared: the end that receives them, or knows their bytes, does".to_owned(),
            (0, _) => format!("{compared} compared byte by byte, none altered"),
            _ => format!("{altered} of {compared} compared were ALTERED"),
        };
        let rows = [
            (what, format!("median {:.1} us, longest {:.1} us", self.median_us, self.longest_us)),
            ("throughput", format!("{:.1} MB/s in {:.3} s", self.megabytes_per_second, self.seconds)),
            (
                "packets",
                format!(
                    "{} sent, {} of them again; {} came damaged",
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
