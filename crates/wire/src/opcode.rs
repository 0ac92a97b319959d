//! The opcode of a packet: its operation and its position within a message (IB specification, 9.2).
//!
//! The high three bits name the service: reliable connection (0) or unreliable datagram (3). The low five name the
//! operation. Services 6 and 7 are reserved for manufacturers; Pleach endpoints use 6. Unsupported services and
//! operations, such as atomics, are unknown opcodes.

use crate::{Aeth, Deth, Immediate, ParseError, ProbeToken, Reth, SackBitmap};

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The operation of a packet.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)*
        }

        impl Opcode {
            /// All supported opcodes, by rising code.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        impl TryFrom<u8> for Opcode {
            type Error = ParseError;
            fn try_from(code: u8) -> Result<Self, ParseError> {
                match code {
                    $($code => Ok(Self::$name),)*
                    _ => Err(ParseError::UnknownOpcode(code)),
                }
            }
        }
    };
}

opcodes! {
    /// Connection: the first packet of a message.
    SendFirst = 0x00,
    /// Connection: neither first nor last packet of a message.
    SendMiddle = 0x01,
    /// Connection: the last packet of a message.
    SendLast = 0x02,
    /// Connection: the last packet of a message, with immediate data.
    SendLastWithImmediate = 0x03,
    /// Connection: a message in one packet.
    SendOnly = 0x04,
    /// Connection: a message in one packet, with immediate data.
    SendOnlyWithImmediate = 0x05,
    /// Connection: the first packet of a write to remote memory.
    WriteFirst = 0x06,
    /// Connection: neither first nor last packet of a write.
    WriteMiddle = 0x07,
    /// Connection: the last packet of a write.
    WriteLast = 0x08,
    /// Connection: the last packet of a write, with immediate data.
    WriteLastWithImmediate = 0x09,
    /// Connection: a write in one packet.
    WriteOnly = 0x0a,
    /// Connection: a write in one packet, with immediate data.
    WriteOnlyWithImmediate = 0x0b,
    /// Connection: a read of remote memory.
    ReadRequest = 0x0c,
    /// Connection: the first packet of a read response.
    ReadResponseFirst = 0x0d,
    /// Connection: neither first nor last packet of a read response.
    ReadResponseMiddle = 0x0e,
    /// Connection: the last packet of a read response.
    ReadResponseLast = 0x0f,
    /// Connection: a read response in one packet.
    ReadResponseOnly = 0x10,
    /// Connection: ACK, NAK or RNR NAK.
    Acknowledge = 0x11,
    /// Datagram: a message in one packet.
    DatagramSendOnly = 0x64,
    /// Datagram: a message in one packet, with immediate data.
    DatagramSendOnlyWithImmediate = 0x65,
    /// Pleach: NAK of the first missing packet with a bitmap of the packets received after it.
    SelectiveAcknowledge = 0xc1,
    /// Pleach: liveness probe of a path.
    Probe = 0xc2,
    /// Pleach: reply to a probe, with its token.
    ProbeReply = 0xc3,
    /// Pleach: the headers of an acknowledgement, a NAK, a probe or its reply, and their MAC, as the payload.
    AuthenticatedControl = 0xc4,
    /// Pleach: a packet of a queue pair whole, headers included, behind a counter and a MAC; perhaps encrypted.
    Protected = 0xc5,
}

/// The headers between the BTH and the payload, in wire order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtendedHeaders {
    /// Source of a datagram.
    pub deth: bool,
    /// Remote memory that the request accesses.
    pub reth: bool,
    /// Acknowledgement.
    pub aeth: bool,
    /// Immediate data for the receiver's completion.
    pub immediate: bool,
    /// Pleach: packets received beyond the first missing one.
    pub sack: bool,
    /// Pleach: token of a probe or its reply.
    pub probe_token: bool,
}

impl ExtendedHeaders {
    /// Their total size in bytes.
    pub const fn size(self) -> usize {
        self.deth as usize * Deth::SIZE
            + self.reth as usize * Reth::SIZE
            + self.aeth as usize * Aeth::SIZE
            + self.immediate as usize * Immediate::SIZE
            + self.sack as usize * SackBitmap::SIZE
            + self.probe_token as usize * ProbeToken::SIZE
    }
}

impl Opcode {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The headers that follow the BTH.
    pub const fn extended_headers(self) -> ExtendedHeaders {
        use Opcode::*;
        ExtendedHeaders {
            deth: matches!(self, DatagramSendOnly | DatagramSendOnlyWithImmediate),
            reth: matches!(self, WriteFirst | WriteOnly | WriteOnlyWithImmediate | ReadRequest),
            aeth: matches!(
                self,
                ReadResponseFirst | ReadResponseLast | ReadResponseOnly | Acknowledge | SelectiveAcknowledge
            ),
            immediate: matches!(
                self,
                SendLastWithImmediate
                    | SendOnlyWithImmediate
                    | WriteLastWithImmediate
                    | WriteOnlyWithImmediate
                    | DatagramSendOnlyWithImmediate
            ),
            sack: matches!(self, SelectiveAcknowledge),
            probe_token: matches!(self, Probe | ProbeReply),
        }
    }

    /// True if the packet may have a payload.
    pub const fn carries_payload(self) -> bool {
        use Opcode::*;
        !matches!(self, ReadRequest | Acknowledge | SelectiveAcknowledge | Probe | ProbeReply)
    }

    /// True if a message begins with this packet.
    pub const fn begins_message(self) -> bool {
        use Opcode::*;
        !matches!(
            self,
            SendMiddle
                | SendLast
                | SendLastWithImmediate
                | WriteMiddle
                | WriteLast
                | WriteLastWithImmediate
                | ReadResponseMiddle
                | ReadResponseLast
        )
    }

    /// True if a message ends with this packet.
    pub const fn ends_message(self) -> bool {
        use Opcode::*;
        !matches!(self, SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadResponseFirst | ReadResponseMiddle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_known_codes_parse_to_opcodes() {
        let known = (0..=u8::MAX).filter_map(|code| Opcode::try_from(code).ok().map(|opcode| (code, opcode)));
        let (codes, opcodes): (Vec<u8>, Vec<Opcode>) = known.unzip();
        assert_eq!(opcodes, Opcode::ALL);
        assert!(opcodes.iter().zip(codes).all(|(opcode, code)| opcode.code() == code));
        assert_eq!(Opcode::try_from(0x12), Err(ParseError::UnknownOpcode(0x12)));
        assert_eq!(Opcode::try_from(0xc0), Err(ParseError::UnknownOpcode(0xc0)));
    }

    #[test]
    fn every_opcode_has_the_specified_headers() {
        let sizes: Vec<usize> = Opcode::ALL.iter().map(|opcode| opcode.extended_headers().size()).collect();
        assert_eq!(sizes, [0, 0, 0, 4, 0, 4, 16, 0, 0, 4, 16, 20, 16, 4, 0, 4, 4, 4, 8, 12, 12, 8, 8, 0, 0]);
    }
}
