//! Exchanges queue pair data between two peers that know only an address and a TCP port.
//!
//! Each peer sends its data and reads the other's: [`QueuePairInfo`] between two Pleach programs, [`verbs_pingpong`] with the
//! ping-pong programs of rdma-core. Input is bounded in size and time.

pub mod verbs_pingpong;

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use units::limits::MAX_PATHS;
use units::{Psn, QpNumber};

use super::auth::random_bytes;
use super::framing::{read_frame, write_frame};
use super::retry::RetryBackoff;

/// Time for the peer to answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The data is one frame with a line of text of at most this length.
const MAX_LINE_BYTES: usize = 2048;
const LINE_MAGIC: &str = "pleach 2";

/// Queue pair data of one peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePairInfo {
    /// The first queue pair to connect.
    pub first_pair: QpNumber,
    /// Number of queue pairs, with consecutive numbers.
    pub pairs: u32,
    /// The initial packet sequence number of each.
    pub psn: Psn,
    /// Addresses of this peer, one per path.
    pub addresses: Vec<SocketAddr>,
    /// What the two peers will do; the caller defines the text.
    pub task: String,
}

impl QueuePairInfo {
    /// Sends this data and reads the peer's.
    ///
    /// # Errors
    /// If the connection breaks, the peer does not answer in time, or its data is malformed.
    pub fn exchange(&self, stream: &mut TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(EXCHANGE_TIMEOUT))?;
        stream.set_write_timeout(Some(EXCHANGE_TIMEOUT))?;
        write_frame(stream, self.to_line().as_bytes())?;
        let line = read_frame(stream, MAX_LINE_BYTES)?;
        let line = std::str::from_utf8(&line).map_err(|_| malformed("data that is not text"))?;
        Self::from_line(line).ok_or_else(|| malformed("no queue pair data of this Pleach version"))
    }

    fn to_line(&self) -> String {
        let Self { first_pair, pairs, psn, addresses, task } = self;
        let mut line = format!("{LINE_MAGIC} {} {pairs} {}", first_pair.0, psn.get());
        for address in addresses {
            let _ = write!(line, " {address}");
        }
        let _ = writeln!(line, " | {task}");
        line
    }

    fn from_line(line: &str) -> Option<Self> {
        let (head, task) = line.strip_suffix('\n')?.split_once(" | ")?;
        let mut words = head.strip_prefix(LINE_MAGIC)?.split_ascii_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        let (pair, pairs, psn) = (number()?, number()?, number()?);
        let addresses: Vec<SocketAddr> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let is_valid = pair <= 0xff_ffff && psn <= 0xff_ffff && (1..=MAX_PATHS).contains(&addresses.len());
        is_valid.then(|| Self {
            first_pair: QpNumber(pair),
            pairs,
            psn: Psn::new(psn),
            addresses,
            task: task.to_owned(),
        })
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer sent {what}"))
}

/// Accepts one peer.
///
/// # Errors
/// If the listener fails.
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, IpAddr)> {
    let (stream, from) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok((stream, from.ip()))
}

/// Connects to a peer that may start to listen a moment later.
///
/// # Errors
/// If no program listens there within the timeout, or the connection fails otherwise.
pub fn connect_with_retry(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let began = Instant::now();
    let mut backoff = RetryBackoff::for_late_server();
    loop {
        match TcpStream::connect((host, port)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && began.elapsed() < timeout => {
                std::thread::sleep(backoff.next_delay());
            }
            Err(error) => return Err(error),
        }
    }
}

/// A random initial sequence number, so that packets of an earlier run are not accepted. It need not be secret, so the time will
/// do if the kernel has no random numbers.
pub fn initial_psn() -> Psn {
    let number = random_bytes().map_or_else(|_| psn_from_clock(), u32::from_le_bytes);
    Psn::new(number & 0xff_ffff)
}

fn psn_from_clock() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    now ^ std::process::id().wrapping_mul(0x9e37_79b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_read_as_it_was_written() {
        let info = QueuePairInfo {
            first_pair: QpNumber(17),
            pairs: 3,
            psn: Psn::new(0xabcdef),
            addresses: vec!["10.7.0.1:4791".parse().expect("an address"), "[fd00::1]:9".parse().expect("an address")],
            task: "pingpong 8 1000".to_owned(),
        };
        assert_eq!(QueuePairInfo::from_line(&info.to_line()), Some(info));
        for garbage in ["", "\n", "pleach 2\n", "pleach 2 1 1 1 | x\n", "pleach 2 99999999 1 1 1.2.3.4:5 | x\n"] {
            assert_eq!(QueuePairInfo::from_line(garbage), None, "{garbage:?}");
        }
    }
}
