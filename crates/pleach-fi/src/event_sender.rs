//! Events of a process on another host than the command that started the job: sent to that command in datagrams (P-129).
//!
//! In: lines. Out: datagrams to every address of the command, again and again until one is acknowledged: the paths are what fails here.
//! `event_collector.rs` of `pleach exec` is the other end.
//!
//! ```text
//! event            MAC in 64 hexadecimal digits, " event ", source, " ", number, " ", the line
//! acknowledgement  MAC in 64 hexadecimal digits, " known ", source, " ", number
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bootstrap::auth::{MacKey, random_bytes, to_hex};

/// The key in hexadecimal digits, a space, and the addresses with commas between them.
const COLLECTOR: &str = "PLEACH_FI_COLLECTOR";
const RESEND_EVERY: Duration = Duration::from_millis(50);
/// Unacknowledged events that are kept; further ones are not sent.
const MAX_WAITING: usize = 1_000;
const MAC_DIGITS: usize = 64;

/// Sends lines, and repeats them.
#[derive(Debug)]
pub(crate) struct EventSender {
    key: MacKey,
    collectors: Vec<(UdpSocket, SocketAddr)>,
    source: String,
    next: u32,
    waiting: BTreeMap<u32, Vec<u8>>,
    resend_at: Instant,
}

impl EventSender {
    /// To the collector that the environment names; none without it.
    pub(crate) fn from_environment() -> Option<Self> {
        Self::to(&std::env::var(COLLECTOR).ok()?)
    }

    fn to(collector: &str) -> Option<Self> {
        let (key, addresses) = collector.split_once(' ')?;
        let open = |address: &str| {
            let to: SocketAddr = address.parse().ok()?;
            let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, to))
        };
        let collectors: Vec<_> = addresses.split(',').filter_map(open).collect();
        let source = to_hex(&random_bytes::<8>().ok()?);
        let mut sender = Self {
            key: MacKey::new(key.as_bytes()),
            collectors,
            source,
            next: 0,
            waiting: BTreeMap::new(),
            resend_at: Instant::now(),
        };
        sender.send(""); // The command counts who takes part.
        Some(sender)
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, line: &str) {
        if self.waiting.len() >= MAX_WAITING {
            return;
        }
        let text = format!(" event {} {} {line}", self.source, self.next);
        let datagram = (to_hex(&self.key.mac(&[text.as_bytes()])) + &text).into_bytes();
        self.transmit(&datagram);
        self.waiting.insert(self.next, datagram);
        self.next += 1;
    }

    fn transmit(&self, datagram: &[u8]) {
        for (socket, to) in &self.collectors {
            let _ = socket.send_to(datagram, to); // What the kernel refuses is repeated later.
        }
    }

    /// Reads acknowledgements, and repeats what has none.
    pub(crate) fn turn(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut buffer = [0; 256];
        let mut known = Vec::new();
        for (socket, _) in &self.collectors {
            while let Ok((length, _)) = socket.recv_from(&mut buffer) {
                known.extend(self.acknowledged(&buffer[..length]));
            }
        }
        known.iter().for_each(|number| drop(self.waiting.remove(number)));
        if Instant::now() >= self.resend_at {
            self.waiting.values().for_each(|datagram| self.transmit(datagram));
            self.resend_at = Instant::now() + RESEND_EVERY;
        }
    }

    /// The number in an acknowledgement; none if it is not one for this process.
    fn acknowledged(&self, datagram: &[u8]) -> Option<u32> {
        let (mac, text) = std::str::from_utf8(datagram).ok()?.split_at_checked(MAC_DIGITS)?;
        let (source, number) = text.strip_prefix(" known ")?.split_once(' ')?;
        // To time the comparison helps nobody: a forged one only keeps an event out of a report.
        (source == self.source && mac == to_hex(&self.key.mac(&[text.as_bytes()]))).then(|| number.parse().ok())?
    }

    /// Waits for the last acknowledgements, but not for long.
    pub(crate) fn finish(&mut self, limit: Duration) {
        let began = Instant::now();
        while !self.waiting.is_empty() && began.elapsed() < limit {
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_repeated_until_a_right_acknowledgement_comes() {
        let collector = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = collector.local_addr().expect("bound");
        let mut sender = EventSender::to(&format!("secret {address}")).expect("well formed");
        let (key, mut buffer) = (MacKey::new(b"secret"), [0; 256]);
        let read = |buffer: &mut [u8]| {
            let (length, from) = collector.recv_from(buffer).expect("a datagram");
            (String::from_utf8(buffer[..length].to_vec()).expect("text"), from)
        };
        let (first, from) = read(&mut buffer);
        std::thread::sleep(RESEND_EVERY);
        sender.turn();
        assert_eq!(read(&mut buffer).0, first, "repeated");
        let known = first[MAC_DIGITS..].replace(" event ", " known ");
        let known = known.trim_end();
        let forged = "0".repeat(MAC_DIGITS) + known;
        collector.send_to(forged.as_bytes(), from).expect("sent");
        sender.finish(Duration::from_millis(20));
        assert_eq!(sender.waiting.len(), 1, "a forged acknowledgement counts for nothing");
        let right = to_hex(&key.mac(&[known.as_bytes()])) + known;
        collector.send_to(right.as_bytes(), from).expect("sent");
        sender.finish(Duration::from_secs(5));
        assert!(sender.waiting.is_empty());
    }

    #[test]
    fn what_is_no_collector_is_left_alone() {
        assert!(EventSender::to("only-a-key").is_none());
        let nowhere = EventSender::to("key not-an-address").expect("a key and a list");
        assert!(nowhere.collectors.is_empty());
    }
}
