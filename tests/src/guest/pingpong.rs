//! The guest's side of a ping-pong: `ibv_rc_pingpong`, the standard verbs example, and the requirements on its peer.
//!
//! # The handshake, byte by byte
//! From the program's source (libibverbs/examples/rc_pingpong.c of rdma-core) and from captures. It uses TCP,
//! [`HANDSHAKE_PORT`] by default; the server listens, accepts one connection and stops listening.
//!
//! | step | from | bytes | what |
//! |---|---|---|---|
//! | 1 | client | 52 | its address |
//! | 2 | server | 52 | its address; by now it can receive and send |
//! | 3 | client | 5 | `done` and a zero byte; then it closes the connection |
//!
//! An address is 51 characters and a zero byte: `LID:QPN:PSN:GID` as `%04x:%06x:%06x:%s`, all in lower-case hex. The
//! GID is its 16 bytes in network order as 32 digits without colons; for RoCEv2 over IPv4 it is the mapped address,
//! so that 10.91.0.2 is `00000000000000000000ffff0a5b0002`. The LID is 0000 on Ethernet. For example
//! `0000:000011:8e72b4:00000000000000000000ffff0a5b0002\0`.
//!
//! - The program reads each message with one `read` that must return all of it, and the server's last one exactly 5 bytes:
//!   write each message with one call, and nothing after `done`.
//! - `done` means only that the client has read the server's address. A client makes its queue pair ready to receive
//!   after it has sent `done` and closed, so a server must not send before it has received; it never needs to.
//! - A server that receives anything else writes to standard error and exits with status 1.
//!
//! # The queue pairs
//! RC over UDP port 4791, partition key 0xffff. The PSN in an address is the first one that its owner will send. The
//! path MTU is 1024 unless `-m` sets another; it is not exchanged, so both sides need the same option. The guest requests
//! an acknowledgement at least with the last packet of a message; it resends after 67 ms (timeout 14), seven times, and
//! then fails with `transport retry counter exceeded`. Its receiver-not-ready NAKs request 0.64 ms (timer 12); it obeys
//! its peer's without limit. There is one send request, so one message is in flight at a time.
//!
//! On the wire the guest's packets have UDP checksum 0, a source port derived from the queue pair's number, TTL 64,
//! don't-fragment set and an IPv4 identification that counts up (so a receiver that checks the ICRC must see the IP
//! header), migration bit 0, acknowledgements with syndrome 0x1f (no credits). It accepts packets from any source port, with
//! identification 0, with or without a UDP checksum, and with either migration bit.
//!
//! # The exchange
//! The client sends first. A side that has received a message, and whose own last message is acknowledged, sends the
//! next, until it has sent `-n` of them. All messages are SENDs of `-s` bytes. All receives (500 of them) use the one
//! buffer that is also sent from, so **a guest returns the bytes that it receives**: a peer that is the client can check
//! every byte of every message. The initial content of the buffer is 0x7b. Both sides need the same `-s`: a message
//! longer than the receiver's buffer is an error there.
//!
//! `-c` checks little: the client sets the first byte of every 4096 to zero (the source has `% sizeof(char)`), the
//! server checks only these bytes, after the last message, and writes `invalid data in page` to standard output; its
//! exit status stays 0. A peer that is the server, and returns what it receives, sees 0x7b everywhere else.
//!
//! # The end
//! A side exits as soon as it has received `-n` messages and its own are acknowledged, and its queue pair ends with it. So
//! the last acknowledgement may never arrive, in either direction: a peer that has received all its messages must
//! not treat the missing acknowledgement of its last one as a failure, and should answer retransmissions for half a second
//! (seven times 67 ms) before it exits.

use std::net::Ipv4Addr;

/// The TCP port of the handshake.
pub const HANDSHAKE_PORT: u16 = 18515;

/// Whether the guest's program checks the payload (`-c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadCheck {
    /// It returns any bytes.
    Unchecked,
    /// As a client it sets the first byte of every 4096 to zero, as a server it expects that.
    Checked,
}

/// The arguments of a run, the same for both sides.
#[derive(Debug, Clone, Copy)]
pub struct Pingpong {
    /// Length of a message.
    pub message_bytes: u32,
    /// How many messages each side sends.
    pub iterations: u32,
    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096.
    pub path_mtu_bytes: u32,
    /// Whether the guest checks the payload.
    pub contents: PayloadCheck,
}

impl Default for Pingpong {
    /// The program's own defaults.
    fn default() -> Self {
        Self { message_bytes: 4096, iterations: 1000, path_mtu_bytes: 1024, contents: PayloadCheck::Unchecked }
    }
}

/// The result that the program prints.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PingpongResult {
    /// Bytes sent and received.
    pub bytes: u64,
    /// Round trips.
    pub iterations: u32,
    /// Duration of a round trip.
    pub microseconds: f64,
}

impl Pingpong {
    /// The guest's command for the side that listens.
    #[must_use]
    pub fn server(&self, gid_index: u16) -> String {
        let Self { message_bytes, iterations, path_mtu_bytes, contents } = self;
        let check = match contents {
            PayloadCheck::Unchecked => "",
            PayloadCheck::Checked => " -c",
        };
        // Waiting for events (-e) instead of polling leaves the guest's only processor to its network.
        format!(
            "ibv_rc_pingpong -d rxe0 -g {gid_index} -s {message_bytes} -n {iterations} -m {path_mtu_bytes} -e{check}"
        )
    }

    /// The guest's command for the side that connects and sends first.
    #[must_use]
    pub fn client(&self, gid_index: u16, server: Ipv4Addr) -> String {
        format!("{} {server}", self.server(gid_index))
    }
}

impl PingpongResult {
    /// Parses the last lines of the program's output; none if it did not finish, or found a wrong byte.
    #[must_use]
    pub fn read(output: &str) -> Option<Self> {
        if output.contains("invalid data") {
            return None;
        }
        let mut result = Self { bytes: 0, iterations: 0, microseconds: 0.0 };
        for line in output.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [bytes, "bytes", "in", ..] => result.bytes = bytes.parse().ok()?,
                [iterations, "iters", "in", _, "seconds", "=", microseconds, "usec/iter"] => {
                    result.iterations = iterations.parse().ok()?;
                    result.microseconds = microseconds.parse().ok()?;
                }
                _ => {}
            }
        }
        (result.iterations > 0).then_some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "  local address:  LID 0x0000, QPN 0x000011, PSN 0x8e72b4, GID ::ffff:10.91.0.2
  remote address: LID 0x0000, QPN 0x000012, PSN 0x0fa1b7, GID ::ffff:10.91.0.2
8192000 bytes in 0.50 seconds = 131.07 Mbit/sec
1000 iters in 0.50 seconds = 500.00 usec/iter
";

    #[test]
    fn a_result_is_parsed_from_the_output() {
        let score = PingpongResult { bytes: 8_192_000, iterations: 1000, microseconds: 500.0 };
        assert_eq!(PingpongResult::read(OUTPUT), Some(score));
    }

    #[test]
    fn an_unfinished_or_corrupted_run_has_no_result() {
        assert_eq!(PingpongResult::read(&OUTPUT.replace("1000 iters", "no iters")), None);
        assert_eq!(PingpongResult::read(&format!("{OUTPUT}invalid data in page 0\n")), None);
    }
}
