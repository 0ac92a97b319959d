//! A minimal HTTP/1 server that answers `GET /metrics`, for Prometheus.
//!
//! In: HTTP requests. Out: a page. The loop whose metrics it serves polls it, and it never waits. Connections are limited in
//! number, size and time, and a page is made at most ten times a second, so that requests cannot slow the loop down.

mod exposition;
pub(super) mod pages;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::listener::{AcceptOutcome, ControlListener};

/// Connections at a time; beyond that, the oldest is closed.
const MAX_HTTP_CONNECTIONS: usize = 16;
/// Bytes of a request; Prometheus sends a few hundred.
const MAX_REQUEST_BYTES: usize = 4 << 10;
/// Time from the connection to the last byte of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// A page is reused for this long.
const PAGE_LIFETIME: Duration = Duration::from_millis(100);
/// Pause of accepting after the process ran out of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The metrics server.
pub(super) struct MetricsServer {
    listener: ControlListener,
    connections: Vec<HttpConnection>,
    page: Option<(Instant, String)>,
    paused_until: Option<Instant>,
}

struct HttpConnection {
    stream: TcpStream,
    request: Vec<u8>,
    response: Vec<u8>,
    sent: usize,
    deadline: Instant,
}

/// State of a connection after a poll.
enum HttpProgress {
    Pending,
    /// The request is complete.
    Request(HttpRequest),
    Closed,
}

#[derive(Clone, Copy)]
enum HttpRequest {
    Metrics,
    NotFound,
    NotGet,
    TooLong,
}

impl MetricsServer {
    pub(super) fn bind(at: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: ControlListener::at(at)?, connections: Vec::new(), page: None, paused_until: None })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.listener.local()
    }

    /// The descriptors to wait for.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = self.paused_until.is_none().then(|| self.listener.poll_fd());
        self.connections.iter().map(HttpConnection::poll_fd).chain(listener)
    }

    /// When to poll although no descriptor is ready.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.connections.iter().map(|connection| connection.deadline).chain(self.paused_until).min()
    }

    /// Answers complete requests.
    pub(super) fn poll(&mut self, make_page: impl FnOnce() -> String) {
        let now = Instant::now();
        self.accept(now);
        let mut make_page = Some(make_page);
        let page = &mut self.page;
        self.connections.retain_mut(|connection| match connection.poll(now) {
            HttpProgress::Pending => true,
            HttpProgress::Closed => false,
            HttpProgress::Request(request) => {
                let is_stale = page.as_ref().is_none_or(|(at, _)| now.duration_since(*at) >= PAGE_LIFETIME);
                if matches!(request, HttpRequest::Metrics)
                    && is_stale
                    && let Some(make) = make_page.take()
                {
                    *page = Some((now, make()));
                }
                let body = page.as_ref().map_or("", |(_, body)| body);
                connection.response = http_response(request, body);
                connection.flush()
            }
        });
    }

    fn accept(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        let connections = &mut self.connections;
        let accepted = self.listener.accept(|stream| {
            if stream.set_nonblocking(true).is_err() {
                return;
            }
            if connections.len() == MAX_HTTP_CONNECTIONS {
                connections.remove(0);
            }
            let (request, response) = (Vec::new(), Vec::new());
            connections.push(HttpConnection { stream, request, response, sent: 0, deadline: now + REQUEST_TIMEOUT });
        });
        if let AcceptOutcome::NoDescriptor = accepted {
            self.paused_until = Some(now + ACCEPT_BACKOFF);
        }
    }
}

impl HttpConnection {
    fn poll_fd(&self) -> PollFd<'_> {
        let flags = if self.response.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
        PollFd::new(self.stream.as_fd(), flags)
    }

    fn poll(&mut self, now: Instant) -> HttpProgress {
        if now >= self.deadline {
            return HttpProgress::Closed;
        }
        if !self.response.is_empty() {
            return if self.flush() { HttpProgress::Pending } else { HttpProgress::Closed };
        }
        let mut buffer = [0; 1024];
        while self.request.len() <= MAX_REQUEST_BYTES {
            match self.stream.read(&mut buffer) {
                Ok(0) => return HttpProgress::Closed,
                Ok(count) => self.request.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return HttpProgress::Closed,
            }
        }
        if let Some(request) = parse_request(&self.request) {
            return HttpProgress::Request(request);
        }
        if self.request.len() > MAX_REQUEST_BYTES {
            HttpProgress::Request(HttpRequest::TooLong)
        } else {
            HttpProgress::Pending
        }
    }

    /// Writes as much as the kernel accepts; true if some is left.
    fn flush(&mut self) -> bool {
        while self.sent < self.response.len() {
            match self.stream.write(&self.response[self.sent..]) {
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

/// Parses the request once its header is complete. Anything after the header is ignored.
fn parse_request(bytes: &[u8]) -> Option<HttpRequest> {
    let is_complete = bytes.windows(4).any(|four| four == b"\r\n\r\n") || bytes.windows(2).any(|two| two == b"\n\n");
    if !is_complete {
        return None;
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut fields = line.trim_ascii().split(|byte| *byte == b' ');
    let (method, target) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    Some(match (method, path) {
        (b"GET", b"/metrics" | b"/") => HttpRequest::Metrics,
        (b"GET", _) => HttpRequest::NotFound,
        _ => HttpRequest::NotGet,
    })
}

fn http_response(request: HttpRequest, page: &str) -> Vec<u8> {
    let (status, body) = match request {
        HttpRequest::Metrics => ("200 OK", page),
        HttpRequest::NotFound => ("404 Not Found", "only /metrics is available\n"),
        HttpRequest::NotGet => ("405 Method Not Allowed", "only GET is supported\n"),
        HttpRequest::TooLong => ("431 Request Header Fields Too Large", "the request header is too long\n"),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
