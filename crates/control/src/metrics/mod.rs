//! Metrics on request: a port that answers `GET /metrics` over HTTP/1, for Prometheus, and nothing else.
//!
//! In: connections of whoever asks. Out: a page. It is turned by the loop that it tells of and never waits; visitors are few,
//! short of words and short of time, and a page is made at most ten times a second, so nobody who asks can slow it down.

mod exposition;
pub(super) mod pages;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::listener::{Accepted, Listener};

/// Visitors at a time: if more come, the oldest goes.
const MOST_VISITORS: usize = 16;
/// Bytes of a question; Prometheus sends some hundred.
const MOST_QUESTION: usize = 4 << 10;
/// From the call to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A page is good for so long.
const FRESH: Duration = Duration::from_millis(100);
/// After running out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Where metrics are asked for.
pub(super) struct MetricsPort {
    listener: Listener,
    visitors: Vec<Visitor>,
    page: Option<(Instant, String)>,
    paused_until: Option<Instant>,
}

struct Visitor {
    stream: TcpStream,
    question: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    until: Instant,
}

/// What a visitor is to us after a turn.
enum Step {
    Stay,
    /// The question is whole.
    Asked(Question),
    Gone,
}

#[derive(Clone, Copy)]
enum Question {
    Metrics,
    Elsewhere,
    NotGet,
    TooLong,
}

impl MetricsPort {
    pub(super) fn bind(at: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: Listener::at(at)?, visitors: Vec::new(), page: None, paused_until: None })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.listener.local()
    }

    /// What to wait on.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = self.paused_until.is_none().then(|| self.listener.poll_fd());
        self.visitors.iter().map(Visitor::poll_fd).chain(listener)
    }

    /// When something is to be done although nothing comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.visitors.iter().map(|visitor| visitor.until).chain(self.paused_until).min()
    }

    /// Answers whoever has asked.
    pub(super) fn turn(&mut self, make_page: impl FnOnce() -> String) {
        let now = Instant::now();
        self.accept(now);
        let mut make_page = Some(make_page);
        let page = &mut self.page;
        self.visitors.retain_mut(|visitor| match visitor.turn(now) {
            Step::Stay => true,
            Step::Gone => false,
            Step::Asked(question) => {
                let is_stale = page.as_ref().is_none_or(|(at, _)| now.duration_since(*at) >= FRESH);
                if matches!(question, Question::Metrics)
                    && is_stale
                    && let Some(make) = make_page.take()
                {
                    *page = Some((now, make()));
                }
                let body = page.as_ref().map_or("", |(_, body)| body);
                visitor.answer = answer(question, body);
                visitor.flush()
            }
        });
    }

    fn accept(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        let visitors = &mut self.visitors;
        let accepted = self.listener.accept(|stream| {
            if stream.set_nonblocking(true).is_err() {
                return;
            }
            if visitors.len() == MOST_VISITORS {
                visitors.remove(0);
            }
            let (question, answer) = (Vec::new(), Vec::new());
            visitors.push(Visitor { stream, question, answer, sent: 0, until: now + PATIENCE });
        });
        if let Accepted::NoDescriptor = accepted {
            self.paused_until = Some(now + PAUSE);
        }
    }
}

impl Visitor {
    fn poll_fd(&self) -> PollFd<'_> {
        let flags = if self.answer.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
        PollFd::new(self.stream.as_fd(), flags)
    }

    fn turn(&mut self, now: Instant) -> Step {
        if now >= self.until {
            return Step::Gone;
        }
        if !self.answer.is_empty() {
            return if self.flush() { Step::Stay } else { Step::Gone };
        }
        let mut buffer = [0; 1024];
        while self.question.len() <= MOST_QUESTION {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Step::Gone,
                Ok(count) => self.question.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Step::Gone,
            }
        }
        if let Some(question) = asked(&self.question) {
            return Step::Asked(question);
        }
        if self.question.len() > MOST_QUESTION { Step::Asked(Question::TooLong) } else { Step::Stay }
    }

    /// Sends what can be; true if some is left.
    fn flush(&mut self) -> bool {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(0) => return false,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }
}

/// What is asked for, once the head is whole. What follows it is nobody's business.
fn asked(bytes: &[u8]) -> Option<Question> {
    let is_whole = bytes.windows(4).any(|four| four == b"\r\n\r\n") || bytes.windows(2).any(|two| two == b"\n\n");
    if !is_whole {
        return None;
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii().split(|byte| *byte == b' ');
    let (verb, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    Some(match (verb, path) {
        (b"GET", b"/metrics" | b"/") => Question::Metrics,
        (b"GET", _) => Question::Elsewhere,
        _ => Question::NotGet,
    })
}

fn answer(question: Question, page: &str) -> Vec<u8> {
    let (status, body) = match question {
        Question::Metrics => ("200 OK", page),
        Question::Elsewhere => ("404 Not Found", "ask for /metrics\n"),
        Question::NotGet => ("405 Method Not Allowed", "ask with GET\n"),
        Question::TooLong => ("431 Request Header Fields Too Large", "ask with fewer words\n"),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
