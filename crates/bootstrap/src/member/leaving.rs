//! Leaving the job in order.

use std::time::{Duration, Instant};

use super::super::framing::{FramedStream, ReadOutcome};
use super::super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, encode_message};
use super::Member;

/// Time to write the last goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often connections are looked at while several of them may end.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Member {
    /// True if other ranks need this one to coordinate, or it is not known yet who does.
    pub(in super::super) fn is_needed(&self) -> bool {
        match self.membership.coordinator() {
            None => !self.membership.is_outside(),
            Some(rank) if rank == self.config.rank => !self.links.is_empty() || self.membership.is_gathering(),
            // It may have ended: then this rank says goodbye to the next one.
            Some(rank) => self.is_confirming(Some(rank)),
        }
    }

    /// True if a verdict about ranks may follow.
    pub(in super::super) fn is_deciding(&self) -> bool {
        self.membership.is_deciding() || self.is_confirming(None)
    }

    /// Says goodbye. The coordinator first serves the others until they have left or are lost.
    pub(in super::super) fn leave(mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.serve_until(deadline);
        if self.membership.is_coordinator() {
            return self.dismiss();
        }
        if self.membership.is_outside() {
            // Those that followed this rank until then may not have its last verdict yet: that they are cut off, too.
            let links = std::mem::take(&mut self.links).into_values();
            let streams = links.flat_map(|link| link.into_connections().map(|(_, stream)| stream)).collect();
            return finish_writing(streams, deadline.min(Instant::now() + GOODBYE_TIMEOUT));
        }
        let Some(coordinator) = self.membership.coordinator() else { return };
        let Some(mut link) = self.links.remove(&coordinator) else { return };
        link.queue(&encode_message(RendezvousMessageKind::Goodbye, &[]));
        wait_for_close(link.into_connections().map(|(_, stream)| stream).collect(), deadline);
    }

    fn serve_until(&mut self, deadline: Instant) {
        while self.is_needed() && Instant::now() < deadline {
            let wake = self.deadline().map_or(deadline, |due| due.min(deadline));
            self.exchange(wake);
            self.events.clear();
        }
    }

    /// Tells those that are left that this rank leaves.
    fn dismiss(mut self) {
        self.broadcast(self.config.rank, &encode_message(RendezvousMessageKind::Goodbye, &[]));
        let deadline = Instant::now() + GOODBYE_TIMEOUT;
        for rank in self.links.keys().copied().collect::<Vec<_>>() {
            while self.links.get(&rank).is_some_and(|link| !link.is_flushed()) && Instant::now() < deadline {
                // Not `poll`: unread input would end the wait at once.
                std::thread::sleep(POLL_INTERVAL);
                self.flush(rank);
            }
            self.close_link(rank);
        }
    }
}

/// Writes all that is queued, and waits until the other ends have read it and close: a connection that is closed with unread input is reset,
/// and the kernel discards what it has not sent.
fn finish_writing(mut streams: Vec<FramedStream>, deadline: Instant) {
    while Instant::now() < deadline {
        streams.retain_mut(|stream| {
            if stream.flush().is_err() {
                return false;
            }
            if stream.queued_bytes() == 0 {
                stream.shutdown_write();
            }
            let is_open = matches!(stream.fill(MAX_READ_BYTES), Ok(ReadOutcome::Received | ReadOutcome::WouldBlock));
            stream.drop_inbox();
            is_open
        });
        if streams.is_empty() {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Writes the goodbye on every connection, and waits until the coordinator closes one of them in answer.
fn wait_for_close(mut streams: Vec<FramedStream>, deadline: Instant) {
    let mut is_writing = vec![true; streams.len()];
    while !streams.is_empty() && Instant::now() < deadline {
        let mut index = 0;
        while index < streams.len() {
            let stream = &mut streams[index];
            let is_open = stream.flush().is_ok();
            if is_open && is_writing[index] && stream.queued_bytes() == 0 {
                stream.shutdown_write();
                is_writing[index] = false;
            }
            // Reads to the end: if unread input is left at close, the kernel sends a reset and discards queued output.
            match stream.fill(MAX_READ_BYTES) {
                Ok(ReadOutcome::Closed) if !is_writing[index] => return,
                Ok(ReadOutcome::Received | ReadOutcome::WouldBlock) if is_open => {
                    stream.drop_inbox();
                    index += 1;
                }
                _ => {
                    streams.remove(index);
                    is_writing.remove(index);
                }
            }
        }
        match &streams[..] {
            [] => {}
            [stream] => drop(stream.wait(deadline)),
            _ => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// More than the kernel's buffers take at once, to a reader that is slow, while input lies unread.
    #[test]
    fn what_is_queued_arrives_although_input_is_unread() {
        const BYTES: usize = 4 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut far, _) = listener.accept().expect("accepts");
        far.write_all(&[7; 1000]).expect("room");
        let mut stream = FramedStream::new(near).expect("options that Linux has");
        (0..BYTES >> 10).for_each(|_| stream.queue(encode_message(RendezvousMessageKind::Send, &[&[1; 1024]])));
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut all = Vec::new();
            far.read_to_end(&mut all).map(|_| all.len())
        });
        finish_writing(vec![stream], Instant::now() + Duration::from_secs(20));
        assert!(reader.join().expect("no panic").expect("no reset") > BYTES);
    }
}
