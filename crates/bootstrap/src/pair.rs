//! How two ends that only know an address and a TCP port find each other's queue pairs.
//!
//! Each sends one card and reads the other's: [`QueuePairInfo`] between two ends of ours, [`verbs_pingpong`] with the ping-pong programs that
//! come with verbs. What is read is bounded in size and time.

pub mod verbs_pingpong;

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use units::limits::MAX_PATHS;
use units::{Psn, QpNumber};

/// How long the other end may take to answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// A card is one line of at most so many bytes.
const MAX_LINE_BYTES: u64 = 2048;
const LINE_MAGIC: &str = "pleach 1";

/// What an end must tell the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePairInfo {
    /// The queue pairs that are to be connected, in order.
    pub first_pair: QpNumber,
    /// How many, with numbers that count up.
    pub pairs: u32,
    /// The number of the first packet of each.
    pub psn: Psn,
    /// Where packets for this end may be sent, one address per path.
    pub addresses: Vec<SocketAddr>,
    /// What the two are to do, in the words of whoever uses the card.
    pub task: String,
}

impl QueuePairInfo {
    /// Sends this card and reads the other end's.
    ///
    /// # Errors
    /// If the other end is gone, silent, or speaks another language.
    pub fn exchange(&self, stream: &mut TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(EXCHANGE_TIMEOUT))?;
        stream.set_write_timeout(Some(EXCHANGE_TIMEOUT))?;
        stream.write_all(self.to_line().as_bytes())?;
        let mut line = Vec::new();
        // Byte by byte: whatever follows the line is not ours.
        let mut byte = [0];
        while line.last() != Some(&b'\n') {
            if line.len() as u64 >= MAX_LINE_BYTES {
                return Err(malformed("a card that does not end"));
            }
            stream.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        let line = std::str::from_utf8(&line).map_err(|_| malformed("something that is no text"))?;
        Self::from_line(line).ok_or_else(|| malformed("something that is no card"))
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
        let sound = pair <= 0xff_ffff && psn <= 0xff_ffff && (1..=MAX_PATHS).contains(&addresses.len());
        sound.then(|| Self {
            first_pair: QpNumber(pair),
            pairs,
            psn: Psn::new(psn),
            addresses,
            task: task.to_owned(),
        })
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other end sent {what}"))
}

/// Waits for one other end.
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, IpAddr)> {
    let (stream, from) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok((stream, from.ip()))
}

/// Reaches the other end, which may be a moment late in listening.
pub fn connect_with_retry(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect((host, port)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && began.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error),
        }
    }
}

/// A number that is likely to differ from one run to the next, so that packets of an earlier one are not believed.
pub fn initial_psn() -> Psn {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    Psn::new((now ^ std::process::id().wrapping_mul(0x9e37_79b9)) & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_as_they_were_written() {
        let card = QueuePairInfo {
            first_pair: QpNumber(17),
            pairs: 3,
            psn: Psn::new(0xabcdef),
            addresses: vec!["10.7.0.1:4791".parse().expect("an address"), "[fd00::1]:9".parse().expect("an address")],
            task: "pingpong 8 1000".to_owned(),
        };
        assert_eq!(QueuePairInfo::from_line(&card.to_line()), Some(card));
        for garbage in ["", "\n", "pleach 1\n", "pleach 1 1 1 1 | x\n", "pleach 1 99999999 1 1 1.2.3.4:5 | x\n"] {
            assert_eq!(QueuePairInfo::from_line(garbage), None, "{garbage:?}");
        }
    }
}
