//! What travels between ranks, and the unit of time.

/// Nanoseconds since the start.
pub(super) type Nanos = u64;

/// Bytes of a control packet.
const CONTROL_BYTES: u64 = 64;

/// A message of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedPacket {
    pub sequence: u64,
    pub packet: MpiPacket,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketKind {
    Eager,
    Rts,
    Cts,
    Data,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MpiPacket {
    pub from: usize,
    pub to: usize,
    /// Numbers messages from one rank to another. A CTS has that of its RTS.
    pub number: u64,
    pub kind: PacketKind,
    pub bytes: u64,
}

impl MpiPacket {
    pub(super) fn wire_bytes(&self) -> u64 {
        match self.kind {
            PacketKind::Eager | PacketKind::Data => self.bytes,
            PacketKind::Rts | PacketKind::Cts => CONTROL_BYTES,
        }
    }
}
