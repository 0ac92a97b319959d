//! The limit: a bare loop of UDP sockets that moves the same bytes, without headers, checks, acknowledgements or matching.
//!
//! Two threads, each bound to its own processor, poll sockets of the two ends.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use namespaces::NamespaceHost;

use super::link::PingpongLink;
use super::rank::{BATCHES, WARM_UP, pin_to_cpu};
use super::runner::PingpongTimes;
use crate::bench::bare_socket::{BareSocket, DatagramLayout, PollMode};

/// What the times have as their checksum.
pub(super) const LIMIT: &str = "limit";

/// Exchanges messages of every size; one-way times.
///
/// # Errors
/// If the sockets cannot be opened, or a datagram is lost.
pub(super) fn run(link: &PingpongLink, sizes: &[usize], seconds: f64) -> Result<Vec<PingpongTimes>> {
    let [mut near, mut far] = PingpongEnd::pair(link)?;
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
struct PingpongEnd {
    socket: BareSocket,
    /// The message, and what the socket needs beyond it.
    buffer: Vec<u8>,
}

impl PingpongEnd {
    fn pair(link: &PingpongLink) -> Result<[Self; 2]> {
        let open = |rank: usize| -> Result<Self> {
            let address = link.host(rank).map_or(Ipv4Addr::LOCALHOST, NamespaceHost::address);
            let socket = link.inside(rank, || {
                BareSocket::open((address, 0).into(), link.mtu_bytes(), DatagramLayout::BytesOnly, PollMode::Spin)
            })??;
            Ok(Self { socket, buffer: Vec::new() })
        };
        let ends = [open(0)?, open(1)?];
        ends[0].socket.connect(ends[1].socket.address()?)?;
        ends[1].socket.connect(ends[0].socket.address()?)?;
        Ok(ends)
    }

    fn ping(&mut self, sizes: &[usize], seconds: f64, orders: &Sender<EchoOrder>) -> Result<Vec<PingpongTimes>> {
        pin_to_cpu(0);
        let mut all = Vec::new();
        for &bytes in sizes {
            self.buffer =
                (0..bytes + BareSocket::SPARE_BYTES).map(|position| (position * 31 + bytes) as u8).collect();
            let once = self.round_trips(bytes, WARM_UP, orders)?;
            let times = ((seconds / once) as u32).max(2);
            let batches = (0..BATCHES).map(|_| Ok(self.round_trips(bytes, times, orders)? / 2.0 * 1e6));
            all.push(PingpongTimes { bytes, checksum: LIMIT.to_owned(), micros: batches.collect::<Result<_>>()? });
        }
        Ok(all)
    }

    /// Seconds of one round trip.
    fn round_trips(&mut self, bytes: usize, times: u32, orders: &Sender<EchoOrder>) -> Result<f64> {
        let expected = self.buffer[..bytes].to_vec();
        orders.send(EchoOrder { bytes, times }).context("the other end has ended")?;
        let began = Instant::now();
        for _ in 0..times {
            self.socket.send(&self.buffer[..bytes])?;
            self.socket.receive(bytes, &mut self.buffer)?;
        }
        let seconds = began.elapsed().as_secs_f64();
        ensure!(self.buffer[..bytes] == expected, "a message of {bytes} bytes came back altered");
        Ok(seconds / f64::from(times))
    }

    fn echo(&mut self, orders: &Receiver<EchoOrder>) -> Result<()> {
        pin_to_cpu(1);
        while let Ok(EchoOrder { bytes, times }) = orders.recv() {
            self.buffer = vec![0; bytes + BareSocket::SPARE_BYTES];
            for _ in 0..times {
                self.socket.receive(bytes, &mut self.buffer)?;
                self.socket.send(&self.buffer[..bytes])?;
            }
        }
        Ok(())
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
