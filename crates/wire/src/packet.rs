//! A packet of InfiniBand transport: base header, the headers its opcode asks for, payload, padding.
//!
//! In: the bytes between the routing headers and the ICRC. Out: the headers as values and the payload where
//! it lies. What routes and checks the packet is the framings' story: [`crate::link_frame`], [`crate::rocev2`].

use crate::bytes::split_tail;
use crate::{Aeth, Bth, Deth, ExtendedHeaders, Immediate, Opcode, ParseError, ProbeToken, Reth, SackBitmap};

/// Bytes of the ICRC, which ends a packet in both framings.
pub(crate) const ICRC_SIZE: usize = 4;

/// The transport headers of a packet. Which of the optional ones are there is told by the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHeaders {
    /// What the packet is and where it goes.
    pub bth: Bth,
    /// Where a datagram comes from.
    pub deth: Option<Deth>,
    /// Which remote memory is meant.
    pub reth: Option<Reth>,
    /// What is acknowledged.
    pub aeth: Option<Aeth>,
    /// Four bytes for the receiver's completion.
    pub immediate: Option<Immediate>,
    /// Pleach: which packets arrived past the missing one.
    pub arrived: Option<SackBitmap>,
    /// Pleach: which probe is asked or answered.
    pub token: Option<ProbeToken>,
}

/// A packet: headers and payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The transport headers.
    pub headers: PacketHeaders,
    /// The payload without padding.
    pub payload: &'a [u8],
}

impl From<Bth> for PacketHeaders {
    /// The base header alone, for opcodes that need no other or to be completed by the caller.
    fn from(bth: Bth) -> Self {
        Self { bth, deth: None, reth: None, aeth: None, immediate: None, arrived: None, token: None }
    }
}

impl PacketHeaders {
    /// Bytes they take.
    pub const fn size(&self) -> usize {
        Bth::SIZE + self.bth.opcode.extended_headers().size()
    }

    /// Which optional headers are there.
    pub const fn present(&self) -> ExtendedHeaders {
        ExtendedHeaders {
            deth: self.deth.is_some(),
            reth: self.reth.is_some(),
            aeth: self.aeth.is_some(),
            immediate: self.immediate.is_some(),
            arrived: self.arrived.is_some(),
            token: self.token.is_some(),
        }
    }

    /// Reads the headers at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bth = Bth::parse(bytes)?;
        let wanted = bth.opcode.extended_headers();
        let needed = Bth::SIZE + wanted.size();
        if bytes.len() < needed {
            return Err(ParseError::TooShort { needed, given: bytes.len() });
        }
        let mut headers = Self::from(bth);
        let mut rest = &bytes[Bth::SIZE..];
        if wanted.deth {
            headers.deth = Some(Deth::parse(rest)?);
            rest = &rest[Deth::SIZE..];
        }
        if wanted.reth {
            headers.reth = Some(Reth::parse(rest)?);
            rest = &rest[Reth::SIZE..];
        }
        if wanted.aeth {
            headers.aeth = Some(Aeth::parse(rest)?);
            rest = &rest[Aeth::SIZE..];
        }
        if wanted.immediate {
            headers.immediate = Some(Immediate::parse(rest)?);
            rest = &rest[Immediate::SIZE..];
        }
        if wanted.arrived {
            headers.arrived = Some(SackBitmap::parse(rest)?);
            rest = &rest[SackBitmap::SIZE..];
        }
        if wanted.token {
            headers.token = Some(ProbeToken::parse(rest)?);
        }
        Ok(headers)
    }

    /// Writes the headers at the beginning of `buffer`; returns how many bytes they took.
    ///
    /// # Panics
    /// If the buffer is too small, or the headers are not those the opcode asks for.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let opcode = self.bth.opcode;
        assert_eq!(self.present(), opcode.extended_headers(), "headers do not fit {opcode:?}");
        self.bth.emit(buffer);
        let mut at = Bth::SIZE;
        if let Some(deth) = self.deth {
            deth.emit(&mut buffer[at..]);
            at += Deth::SIZE;
        }
        if let Some(reth) = self.reth {
            reth.emit(&mut buffer[at..]);
            at += Reth::SIZE;
        }
        if let Some(aeth) = self.aeth {
            aeth.emit(&mut buffer[at..]);
            at += Aeth::SIZE;
        }
        if let Some(immediate) = self.immediate {
            immediate.emit(&mut buffer[at..]);
            at += Immediate::SIZE;
        }
        if let Some(arrived) = self.arrived {
            arrived.emit(&mut buffer[at..]);
            at += SackBitmap::SIZE;
        }
        if let Some(token) = self.token {
            token.emit(&mut buffer[at..]);
            at += ProbeToken::SIZE;
        }
        at
    }

    /// Bytes that a packet with so much payload takes, from the base header to the end of the ICRC: whole words.
    pub fn size_with(&self, payload: usize) -> usize {
        self.size() + payload + padding_of(payload) + ICRC_SIZE
    }

    /// Writes what stands before a payload of so many bytes; returns how many bytes it took.
    pub(crate) fn emit_before(&self, payload: usize, buffer: &mut [u8]) -> usize {
        let opcode = self.bth.opcode;
        assert!(payload == 0 || opcode.carries_payload(), "{opcode:?} carries no payload");
        let mut headers = *self;
        headers.bth.pad_count = padding_of(payload) as u8;
        headers.emit(buffer)
    }
}

impl<'a> Packet<'a> {
    /// A packet whose pad count fits its payload.
    pub fn new(headers: impl Into<PacketHeaders>, payload: &'a [u8]) -> Self {
        let mut headers = headers.into();
        headers.bth.pad_count = padding_of(payload.len()) as u8;
        Self { headers, payload }
    }

    /// The operation.
    pub const fn opcode(&self) -> Opcode {
        self.headers.bth.opcode
    }

    /// Bytes it takes from the base header to the end of the ICRC: whole words.
    pub fn size(&self) -> usize {
        self.headers.size_with(self.payload.len())
    }

    /// Reads a packet that ends with its ICRC, which is not looked at.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let headers = PacketHeaders::parse(bytes)?;
        let (bytes, _icrc) = split_tail::<ICRC_SIZE>(bytes)?;
        let needed = headers.size() + ICRC_SIZE;
        let padded =
            bytes.get(headers.size()..).ok_or(ParseError::TooShort { needed, given: bytes.len() + ICRC_SIZE })?;
        if !padded.len().is_multiple_of(4) {
            return Err(ParseError::PartialWord { given: padded.len() });
        }
        let pad = headers.bth.pad_count;
        let Some(length) = padded.len().checked_sub(usize::from(pad)) else {
            return Err(ParseError::Padding { pad, given: padded.len() });
        };
        if !padded.is_empty() && !headers.bth.opcode.carries_payload() {
            return Err(ParseError::UnexpectedPayload(headers.bth.opcode));
        }
        Ok(Self { headers, payload: &padded[..length] })
    }

    /// Writes the packet up to the end of its padding; returns how many bytes it took.
    pub(crate) fn emit(&self, buffer: &mut [u8]) -> usize {
        let start = self.headers.emit_before(self.payload.len(), buffer);
        let end = start + self.payload.len();
        buffer[start..end].copy_from_slice(self.payload);
        let padded_end = end + padding_of(self.payload.len());
        buffer[end..padded_end].fill(0);
        padded_end
    }
}

/// Bytes of zeros that bring a payload of so many bytes to a whole word.
pub(crate) fn padding_of(payload: usize) -> usize {
    payload.wrapping_neg() % 4
}
