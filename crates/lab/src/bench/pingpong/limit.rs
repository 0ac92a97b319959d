//! The limit: a bare loop of UDP sockets that moves the same bytes, without headers, checks, acknowledgements or matching.
//!
//! Two threads, each bound to its own processor, poll sockets of the two ends. The kernel cuts what is sent into datagrams that fill
//! the MTU (GSO) and joins them at the receiver (GRO). Nothing is sent again: a lost datagram fails the run.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use namespaces::NamespaceHost;
use nix::sys::socket::{setsockopt, sockopt};

use super::link::PingpongLink;
use super::rank::{BATCHES, WARM_UP, pin_to_cpu};
use super::runner::PingpongTimes;

/// What the times have as their checksum.
pub(super) const LIMIT: &str = "limit";
/// IPv6 and UDP headers, as Pleach assumes them.
const HEADER_BYTES: usize = 48;
/// The longest payload of a datagram over IPv4, also before the kernel cuts it.
const MAX_PAYLOAD_BYTES: usize = 65_507;
/// The kernel cuts at most so many segments at once.
const MAX_SEGMENTS: usize = 64;
/// Holds a whole message.
const SOCKET_BUFFER_BYTES: usize = 32 << 20;
/// A datagram that takes longer is lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(500);

/// Exchanges messages of every size; one-way times.
///
/// # Errors
/// If the sockets cannot be opened, or a datagram is lost.
pub(super) fn run(link: &PingpongLink, sizes: &[usize], seconds: f64) -> Result<Vec<PingpongTimes>> {
    let [mut near, mut far] = BareSocket::pair(link)?;
    let (sender, orders) = channel();
    std::thread::scope(|scope| {
        let echoes = scope.spawn(move || far.echo(&orders));
        let pings = scope.spawn(move || near.ping(sizes, seconds, &sender));
        let (times, echoed) = (join(pings), join(echoes));
        echoed.and(times).context("the bare loop of sockets failed")
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))?
}

/// So many messages of so many bytes.
struct EchoOrder {
    bytes: usize,
    times: u32,
}

/// One end.
struct BareSocket {
    socket: UdpSocket,
    /// The most bytes of one system call.
    batch_bytes: usize,
    buffer: Vec<u8>,
}

impl BareSocket {
    fn pair(link: &PingpongLink) -> Result<[Self; 2]> {
        let segment = link.mtu_bytes().saturating_sub(HEADER_BYTES).min(MAX_PAYLOAD_BYTES);
        let batch_bytes = segment * (MAX_PAYLOAD_BYTES / segment).min(MAX_SEGMENTS);
        let open = |rank: usize| -> Result<Self> {
            let address = link.host(rank).map_or(Ipv4Addr::LOCALHOST, NamespaceHost::address);
            let socket = link.inside(rank, || UdpSocket::bind((address, 0)))?.context("cannot open a UDP socket")?;
            let buffers = setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES);
            // Only root may exceed the limit of the system; others get what it allows.
            buffers.or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BUFFER_BYTES))?;
            setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(segment)?)?;
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
            Ok(Self { socket, batch_bytes, buffer: Vec::new() })
        };
        let ends = [open(0)?, open(1)?];
        for (end, peer) in [(0, 1), (1, 0)] {
            ends[end].socket.connect(ends[peer].socket.local_addr()?)?;
            ends[end].socket.set_nonblocking(true)?;
        }
        Ok(ends)
    }

    fn ping(&mut self, sizes: &[usize], seconds: f64, orders: &Sender<EchoOrder>) -> Result<Vec<PingpongTimes>> {
        pin_to_cpu(0);
        let mut all = Vec::new();
        for &bytes in sizes {
            self.buffer = (0..bytes).map(|position| (position * 31 + bytes) as u8).collect();
            let once = self.round_trips(bytes, WARM_UP, orders)?;
            let times = ((seconds / once) as u32).max(2);
            let batches = (0..BATCHES).map(|_| Ok(self.round_trips(bytes, times, orders)? / 2.0 * 1e6));
            all.push(PingpongTimes { bytes, checksum: LIMIT.to_owned(), micros: batches.collect::<Result<_>>()? });
        }
        Ok(all)
    }

    /// Seconds of one round trip.
    fn round_trips(&mut self, bytes: usize, times: u32, orders: &Sender<EchoOrder>) -> Result<f64> {
        let expected = self.buffer.clone();
        orders.send(EchoOrder { bytes, times }).context("the other end has ended")?;
        let began = Instant::now();
        for _ in 0..times {
            self.send()?;
            self.receive()?;
        }
        let seconds = began.elapsed().as_secs_f64();
        ensure!(self.buffer == expected, "a message of {bytes} bytes came back altered");
        Ok(seconds / f64::from(times))
    }

    fn echo(&mut self, orders: &Receiver<EchoOrder>) -> Result<()> {
        pin_to_cpu(1);
        while let Ok(EchoOrder { bytes, times }) = orders.recv() {
            self.buffer = vec![0; bytes];
            for _ in 0..times {
                self.receive()?;
                self.send()?;
            }
        }
        Ok(())
    }

    fn send(&self) -> Result<()> {
        for batch in self.buffer.chunks(self.batch_bytes) {
            let sent = until_ready(|| self.socket.send(batch))?;
            ensure!(sent == batch.len(), "the kernel sent {sent} of {} bytes", batch.len());
        }
        Ok(())
    }

    /// Fills the buffer.
    fn receive(&mut self) -> Result<()> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            filled += until_ready(|| self.socket.recv(&mut self.buffer[filled..]))?;
        }
        Ok(())
    }
}

/// Repeats a call of the kernel without sleeping.
fn until_ready(mut call: impl FnMut() -> std::io::Result<usize>) -> Result<usize> {
    let mut deadline = None;
    loop {
        match call() {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + LOSS_TIMEOUT);
                ensure!(Instant::now() < deadline, "a datagram was lost");
                std::hint::spin_loop();
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_unchanged_over_loopback() {
        let times = run(&PingpongLink::Loopback, &[8, 100_000], 0.001).expect("loopback loses nothing");
        assert_eq!(times.iter().map(|times| times.bytes).collect::<Vec<_>>(), [8, 100_000]);
        assert!(times.iter().all(|times| times.median() > 0.0));
    }
}
