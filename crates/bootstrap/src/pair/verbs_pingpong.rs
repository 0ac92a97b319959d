//! The handshake of `ibv_rc_pingpong`: 52 bytes each way over TCP, then "done".
//!
//! The data is text with a terminating NUL: LID, queue pair, initial PSN and GID, in hexadecimal with colons between. On RoCE
//! the GID is the IP address (IPv4 as `::ffff:a.b.c.d`) and the LID is zero. The client sends first; when it has the server's
//! data it sends "done", and only then its packets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};

use units::{Psn, QpNumber};

use super::malformed;

/// The default TCP port of the server.
pub const DEFAULT_PORT: u16 = 18515;
/// Bytes of the data, with the NUL.
const RECORD_BYTES: usize = 52;
/// The client's last message, with the NUL.
const DONE: &[u8; 5] = b"done\0";

/// The data of one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbsQueuePairInfo {
    /// The queue pair.
    pub pair: QpNumber,
    /// Its initial packet sequence number.
    pub psn: Psn,
    /// Its address.
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
        Self::from_bytes(&bytes).ok_or_else(|| malformed("no data of ibv_rc_pingpong"))
    }

    /// The client's side: sends its data, reads the server's, and lets the server begin when `ready` has connected the queue pair.
    ///
    /// # Errors
    /// If the connection breaks, the peer's data is malformed, or `ready` fails.
    pub fn call(self, stream: &mut TcpStream, ready: impl FnOnce(Self) -> io::Result<()>) -> io::Result<()> {
        stream.write_all(&self.to_bytes())?;
        let other = Self::read(stream)?;
        ready(other)?;
        stream.write_all(DONE)
    }

    /// The server's side: reads the client's data, connects the queue pair in `ready`, sends its data, and waits for the client.
    ///
    /// # Errors
    /// If the connection breaks, the peer's data is malformed, or `ready` fails.
    pub fn answer(self, stream: &mut TcpStream, ready: impl FnOnce(Self) -> io::Result<()>) -> io::Result<()> {
        let other = Self::read(stream)?;
        ready(other)?;
        stream.write_all(&self.to_bytes())?;
        let mut done = [0; DONE.len()];
        stream.read_exact(&mut done)?;
        if done == *DONE { Ok(()) } else { Err(malformed("no final message of ibv_rc_pingpong")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_52_bytes_and_is_read_back() {
        let address: IpAddr = "10.7.0.2".parse().expect("an address");
        let info = VerbsQueuePairInfo { pair: QpNumber(0x11), psn: Psn::new(0xabcdef), address };
        assert_eq!(&info.to_bytes(), b"0000:000011:abcdef:00000000000000000000ffff0a070002\0");
        assert_eq!(VerbsQueuePairInfo::from_bytes(&info.to_bytes()), Some(info));
        assert_eq!(VerbsQueuePairInfo::from_bytes(&[b'z'; RECORD_BYTES]), None);
        assert_eq!(VerbsQueuePairInfo::from_bytes(&[0xff; RECORD_BYTES]), None);
    }
}
