//! An InfiniBand transport packet: BTH, the headers that its opcode requires, payload, padding.
//!
//! In: the bytes from the BTH to the ICRC. Out: the headers as values and the payload as a slice. Routing headers and
//! CRCs belong to the framings: [`crate::link_frame`], [`crate::rocev2`].

use crate::bytes::split_tail;
use crate::{Aeth, Bth, Deth, ExtendedHeaders, Immediate, Opcode, ParseError, ProbeToken, Reth, SackBitmap};

/// Bytes of the ICRC, which ends a packet in both framings.
pub(crate) const ICRC_SIZE: usize = 4;

/// The transport headers of a packet. The opcode determines which of the optional headers are present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHeaders {
    /// Opcode, destination and sequence number.
    pub bth: Bth,
    /// Source of a datagram.
    pub deth: Option<Deth>,
    /// Remote memory that the request accesses.
    pub reth: Option<Reth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Immediate data for the receiver's completion.
    pub immediate: Option<Immediate>,
    /// Pleach: packets received beyond the first missing one.
    pub sack: Option<SackBitmap>,
    /// Pleach: token of a probe or its reply.
    pub probe_token: Option<ProbeToken>,
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
    /// The base header alone. The caller adds what the opcode requires.
    fn from(bth: Bth) -> Self {
        Self { bth, deth: None, reth: None, aeth: None, immediate: None, sack: None, probe_token: None }
    }
}

impl PacketHeaders {
    /// Encoded size in bytes.
    pub const fn size(&self) -> usize {
        Bth::SIZE + self.bth.opcode.extended_headers().size()
    }

    /// The optional headers that are present.
    pub const fn present(&self) -> ExtendedHeaders {
        ExtendedHeaders {
            deth: self.deth.is_some(),
            reth: self.reth.is_some(),
            aeth: self.aeth.is_some(),
            immediate: self.immediate.is_some(),
            sack: self.sack.is_some(),
            probe_token: self.probe_token.is_some(),
        }
    }

    /// Parses the headers at the start of `bytes`.
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
        if wanted.sack {
            headers.sack = Some(SackBitmap::parse(rest)?);
            rest = &rest[SackBitmap::SIZE..];
        }
        if wanted.probe_token {
            headers.probe_token = Some(ProbeToken::parse(rest)?);
        }
        Ok(headers)
    }

    /// Writes the headers at the start of `buffer`; returns their size.
    ///
    /// # Panics
    /// If the buffer is too small, or the present headers are not those that the opcode requires.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let opcode = self.bth.opcode;
        assert_eq!(self.present(), opcode.extended_headers(), "wrong headers for {opcode:?}");
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
        if let Some(sack) = self.sack {
            sack.emit(&mut buffer[at..]);
            at += SackBitmap::SIZE;
        }
        if let Some(probe_token) = self.probe_token {
            probe_token.emit(&mut buffer[at..]);
            at += ProbeToken::SIZE;
        }
        at
    }

    /// Size of a packet with a payload of so many bytes, from the BTH to the end of the ICRC; a multiple of four.
    pub fn size_with(&self, payload: usize) -> usize {
        self.size() + payload + padding_of(payload) + ICRC_SIZE
    }

    /// Writes the headers for a payload of so many bytes; returns their size.
    pub(crate) fn emit_before(&self, payload: usize, buffer: &mut [u8]) -> usize {
        let opcode = self.bth.opcode;
        assert!(payload == 0 || opcode.carries_payload(), "{opcode:?} carries no payload");
        let mut headers = *self;
        headers.bth.pad_count = padding_of(payload) as u8;
        headers.emit(buffer)
    }
}

impl<'a> Packet<'a> {
    /// A packet with the pad count of its payload.
    pub fn new(headers: impl Into<PacketHeaders>, payload: &'a [u8]) -> Self {
        let mut headers = headers.into();
        headers.bth.pad_count = padding_of(payload.len()) as u8;
        Self { headers, payload }
    }

    /// The opcode.
    pub const fn opcode(&self) -> Opcode {
        self.headers.bth.opcode
    }

    /// Size from the BTH to the end of the ICRC; a multiple of four.
    pub fn size(&self) -> usize {
        self.headers.size_with(self.payload.len())
    }

    /// Parses a packet that ends with its ICRC, without checking the ICRC.
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

    /// Writes the packet up to the end of its padding; returns its size.
    pub(crate) fn emit(&self, buffer: &mut [u8]) -> usize {
        let start = self.headers.emit_before(self.payload.len(), buffer);
        let end = start + self.payload.len();
        buffer[start..end].copy_from_slice(self.payload);
        let padded_end = end + padding_of(self.payload.len());
        buffer[end..padded_end].fill(0);
        padded_end
    }
}

/// Zero bytes that pad a payload to a multiple of four.
pub(crate) fn padding_of(payload: usize) -> usize {
    payload.wrapping_neg() % 4
}
