//! The handshake of `ibv_rc_pingpong`: 52 bytes each way over TCP, then "done".
//!
//! A card is text with a terminating NUL: local identifier, queue pair, first packet number and global identifier, in
//! hexadecimal with colons between. On RoCE the global identifier is the IP address (IPv4 as `::ffff:a.b.c.d`) and the
//! local one is zero. The client speaks first; when it has the server's card it says "done", and only then sends.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};

use units::{Psn, QpNumber};

use super::malformed;

/// The TCP port on which the server listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 18515;
/// Bytes of a card, with its NUL.
const RECORD_BYTES: usize = 52;
/// What the client says last, with its NUL.
const DONE: &[u8; 5] = b"done\0";

/// What each end tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbsQueuePairInfo {
    /// The queue pair.
    pub pair: QpNumber,
    /// The number of its first packet.
    pub psn: Psn,
    /// Where it is.
    pub address: IpAddr,
}

impl VerbsQueuePairInfo {
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let gid = match self.address {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        let text = format!("0000:{:06x}:{:06x}:{:032x}\0", self.pair.0, self.psn.get(), gid.to_bits());
        text.into_bytes().try_into().expect("fields of fixed width")
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
        let mut fields = text.split(':');
        let _lid = u16::from_str_radix(fields.next()?, 16).ok()?;
        let pair = u32::from_str_radix(fields.next()?, 16).ok().filter(|pair| *pair <= 0xff_ffff)?;
        let psn = u32::from_str_radix(fields.next()?, 16).ok()?;
        let gid = Ipv6Addr::from_bits(u128::from_str_radix(fields.next()?, 16).ok()?);
        let address = gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4);
        Some(Self { pair: QpNumber(pair), psn: Psn::new(psn), address })
    }

    fn read(stream: &mut TcpStream) -> io::Result<Self> {
        let mut bytes = [0; RECORD_BYTES];
        stream.set_read_timeout(Some(super::EXCHANGE_TIMEOUT))?;
        stream.read_exact(&mut bytes)?;
        Self::from_bytes(&bytes).ok_or_else(|| malformed("no card of ibv_rc_pingpong"))
    }

    /// The client's part: tells, hears, and when `ready` says that the queue pair is connected, lets the server begin.
    pub fn call(self, stream: &mut TcpStream, ready: impl FnOnce(Self) -> io::Result<()>) -> io::Result<()> {
        stream.write_all(&self.to_bytes())?;
        let other = Self::read(stream)?;
        ready(other)?;
        stream.write_all(DONE)
    }

    /// The server's part: hears, connects, tells, and waits until the client is ready.
    pub fn answer(self, stream: &mut TcpStream, ready: impl FnOnce(Self) -> io::Result<()>) -> io::Result<()> {
        let other = Self::read(stream)?;
        ready(other)?;
        stream.write_all(&self.to_bytes())?;
        let mut done = [0; DONE.len()];
        stream.read_exact(&mut done)?;
        if done == *DONE { Ok(()) } else { Err(malformed("no farewell of ibv_rc_pingpong")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_52_bytes_and_is_read_back() {
        let address: IpAddr = "10.7.0.2".parse().expect("an address");
        let card = VerbsQueuePairInfo { pair: QpNumber(0x11), psn: Psn::new(0xabcdef), address };
        assert_eq!(&card.to_bytes(), b"0000:000011:abcdef:00000000000000000000ffff0a070002\0");
        assert_eq!(VerbsQueuePairInfo::from_bytes(&card.to_bytes()), Some(card));
        assert_eq!(VerbsQueuePairInfo::from_bytes(&[b'z'; RECORD_BYTES]), None);
        assert_eq!(VerbsQueuePairInfo::from_bytes(&[0xff; RECORD_BYTES]), None);
    }
}
