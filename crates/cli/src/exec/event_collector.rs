//! Collects what ranks on other hosts report of their paths (P-129): their files are not on this host.
//!
//! In: datagrams with a MAC, perhaps several times. Out: acknowledgements, and each line once. `event_sender.rs` of the libfabric
//! provider is the other end, and has the format.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use bootstrap::auth::{MacKey, random_bytes, to_hex};

const VARIABLE: &str = "PLEACH_FI_COLLECTOR";
const MAC_DIGITS: usize = 64;
/// The longest datagram that is read, and the most lines that are kept.
const MAX_BYTES: usize = 2_048;
const MAX_LINES: usize = 100_000;
/// How soon the thread notices that the job has ended.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// The lines of each process, by number.
pub(crate) type CollectedLines = BTreeMap<String, BTreeMap<u32, String>>;

/// A socket at which ranks report, and the thread that reads it.
pub(crate) struct EventCollector {
    environment: String,
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<CollectedLines>,
}

impl EventCollector {
    /// At all addresses of this host that others reach.
    pub(crate) fn start() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a socket for events")?;
        socket.set_read_timeout(Some(POLL_EVERY))?;
        let port = socket.local_addr()?.port();
        let addresses: Vec<String> = own_addresses().map(|address| format!("{address}:{port}")).collect();
        let secret = to_hex(&random_bytes::<16>()?);
        let environment = format!("{secret} {}", addresses.join(","));
        let is_done = Arc::new(AtomicBool::new(false));
        let (key, stop) = (MacKey::new(secret.as_bytes()), Arc::clone(&is_done));
        let thread =
            std::thread::Builder::new().name("events".into()).spawn(move || collect(&socket, &key, &stop))?;
        Ok(Self { environment, is_done, thread })
    }

    /// What ranks need to report. It has a key, so it must not be an argument of a command.
    pub(crate) fn variable(&self) -> (&'static str, OsString) {
        (VARIABLE, self.environment.clone().into())
    }

    /// Everything that came until now.
    pub(crate) fn finish(self) -> CollectedLines {
        self.is_done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn own_addresses() -> impl Iterator<Item = IpAddr> {
    let links = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = links.filter_map(|link| Some(IpAddr::V4(link.address?.as_sockaddr_in()?.ip())));
    addresses.filter(|address| !address.is_loopback())
}

fn collect(socket: &UdpSocket, key: &MacKey, is_done: &AtomicBool) -> CollectedLines {
    let (mut found, mut lines, mut buffer) = (CollectedLines::new(), 0, [0; MAX_BYTES]);
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            if is_done.load(Ordering::Relaxed) {
                return found;
            }
            continue;
        };
        let Some((source, number, line)) = verified(&buffer[..length], key) else { continue };
        let known = format!(" known {source} {number}");
        let _ = socket.send_to((to_hex(&key.mac(&[known.as_bytes()])) + &known).as_bytes(), from);
        if lines < MAX_LINES && found.entry(source).or_default().insert(number, line).is_none() {
            lines += 1;
        }
    }
}

/// The process, the number and the line of an event; none if it is malformed or the MAC is wrong.
fn verified(datagram: &[u8], key: &MacKey) -> Option<(String, u32, String)> {
    let (mac, text) = std::str::from_utf8(datagram).ok()?.split_at_checked(MAC_DIGITS)?;
    let expected = to_hex(&key.mac(&[text.as_bytes()]));
    // Each difference counts, so the time tells nothing about the MAC.
    let differences = mac.bytes().zip(expected.bytes()).fold(0, |all, (sent, own)| all | (sent ^ own));
    let mut words = text.strip_prefix(" event ")?.splitn(3, ' ');
    let (source, number, line) = (words.next()?, words.next()?, words.next()?);
    (differences == 0).then(|| Some((source.to_owned(), number.parse().ok()?, line.to_owned())))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_counts_once_and_forged_ones_never() {
        let collector = EventCollector::start().expect("a socket");
        let (name, value) = collector.variable();
        let value = value.into_string().expect("text");
        let (secret, addresses) = value.split_once(' ').expect("a key and addresses");
        assert_eq!((name, secret.len()), (VARIABLE, 32));
        let port = addresses.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let Some(port) = port else { return namespaces::skip_test("this host has no address but loopback") };
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        sender.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let send = |key: &str, text: &str| {
            let mac = to_hex(&MacKey::new(key.as_bytes()).mac(&[text.as_bytes()]));
            sender.send_to((mac + text).as_bytes(), ("127.0.0.1", port)).expect("sent");
        };
        send("another key", " event a 0 forged");
        send(secret, " known a 0");
        let mut answer = [0; 256];
        for text in [" event a 0 one", " event a 0 one", " event a 1 two", " event b 0 "] {
            send(secret, text);
            let length = sender.recv(&mut answer).expect("an acknowledgement");
            let told = String::from_utf8_lossy(&answer[MAC_DIGITS..length]).into_owned();
            assert!(text.replace(" event ", " known ").starts_with(&told), "{told:?} for {text:?}");
        }
        let found = collector.finish();
        let lines = |source: &str| found[source].values().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((lines("a"), lines("b"), found.len()), (vec!["one", "two"], vec![""], 2));
    }
}
