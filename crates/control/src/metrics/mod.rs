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

use super::listener::{AcceptOutcome, ControlListener};

/// Visitors at a time: if more come, the oldest goes.
const MAX_HTTP_CONNECTIONS: usize = 16;
/// Bytes of a question; Prometheus sends some hundred.
const MAX_REQUEST_BYTES: usize = 4 << 10;
/// From the call to the last byte of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// A page is good for so long.
const PAGE_LIFETIME: Duration = Duration::from_millis(100);
/// After running out of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Where metrics are asked for.
pub(super) struct MetricsServer {
    listener: ControlListener,
    visitors: Vec<HttpConnection>,
    page: Option<(Instant, String)>,
    paused_until: Option<Instant>,
}

struct HttpConnection {
    stream: TcpStream,
    question: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    until: Instant,
}

/// What a visitor is to us after a turn.
enum HttpProgress {
    Stay,
    /// The question is whole.
    Asked(HttpRequest),
    Gone,
}

#[derive(Clone, Copy)]
enum HttpRequest {
    Metrics,
    Elsewhere,
    NotGet,
    TooLong,
}

impl MetricsServer {
    pub(super) fn bind(at: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: ControlListener::at(at)?, visitors: Vec::new(), page: None, paused_until: None })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.listener.local()
    }

    /// What to wait on.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = self.paused_until.is_none().then(|| self.listener.poll_fd());
        self.visitors.iter().map(HttpConnection::poll_fd).chain(listener)
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
            HttpProgress::Stay => true,
            HttpProgress::Gone => false,
            HttpProgress::Asked(question) => {
                let is_stale = page.as_ref().is_none_or(|(at, _)| now.duration_since(*at) >= PAGE_LIFETIME);
                if matches!(question, HttpRequest::Metrics)
                    && is_stale
                    && let Some(make) = make_page.take()
                {
                    *page = Some((now, make()));
                }
                let body = page.as_ref().map_or("", |(_, body)| body);
                visitor.answer = http_response(question, body);
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
            if visitors.len() == MAX_HTTP_CONNECTIONS {
                visitors.remove(0);
            }
            let (question, answer) = (Vec::new(), Vec::new());
            visitors.push(HttpConnection { stream, question, answer, sent: 0, until: now + REQUEST_TIMEOUT });
        });
        if let AcceptOutcome::NoDescriptor = accepted {
            self.paused_until = Some(now + ACCEPT_BACKOFF);
        }
    }
}

impl HttpConnection {
    fn poll_fd(&self) -> PollFd<'_> {
        let flags = if self.answer.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
        PollFd::new(self.stream.as_fd(), flags)
    }

    fn turn(&mut self, now: Instant) -> HttpProgress {
        if now >= self.until {
            return HttpProgress::Gone;
        }
        if !self.answer.is_empty() {
            return if self.flush() { HttpProgress::Stay } else { HttpProgress::Gone };
        }
        let mut buffer = [0; 1024];
        while self.question.len() <= MAX_REQUEST_BYTES {
            match self.stream.read(&mut buffer) {
                Ok(0) => return HttpProgress::Gone,
                Ok(count) => self.question.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return HttpProgress::Gone,
            }
        }
        if let Some(question) = parse_request(&self.question) {
            return HttpProgress::Asked(question);
        }
        if self.question.len() > MAX_REQUEST_BYTES {
            HttpProgress::Asked(HttpRequest::TooLong)
        } else {
            HttpProgress::Stay
        }
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
fn parse_request(bytes: &[u8]) -> Option<HttpRequest> {
    let is_whole = bytes.windows(4).any(|four| four == b"\r\n\r\n") || bytes.windows(2).any(|two| two == b"\n\n");
    if !is_whole {
        return None;
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii().split(|byte| *byte == b' ');
    let (verb, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    Some(match (verb, path) {
        (b"GET", b"/metrics" | b"/") => HttpRequest::Metrics,
        (b"GET", _) => HttpRequest::Elsewhere,
        _ => HttpRequest::NotGet,
    })
}

fn http_response(question: HttpRequest, page: &str) -> Vec<u8> {
    let (status, body) = match question {
        HttpRequest::Metrics => ("200 OK", page),
        HttpRequest::Elsewhere => ("404 Not Found", "ask for /metrics\n"),
        HttpRequest::NotGet => ("405 Method Not Allowed", "ask with GET\n"),
        HttpRequest::TooLong => ("431 Request Header Fields Too Large", "ask with fewer words\n"),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
