//! A vector of any length and its segments.

use reduce::ReductionKind;
use std::ops::Range;

/// What a vector consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VectorContents {
    /// Real elements; every bit of the result can be checked.
    Elements,
    /// One element of the machines stands for this many of the vector: its digest. Results are checked by digest, and packets have
    /// the size of the whole vector. For vectors that do not fit into memory once per host.
    Digest {
        /// Bytes on the wire for each byte of the machines' vector.
        scale: u32,
    },
    /// Only a size.
    SizeOnly,
}

/// The vector of a host, cut into segments of equal length; the last may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentedVector {
    /// Element type and operator of the machines' vector.
    pub kind: ReductionKind,
    /// Elements of the machines' vector.
    pub elements: u32,
    /// Elements of a segment; at least 1.
    pub segment_elements: u32,
    /// What the elements are.
    pub contents: VectorContents,
}

impl SegmentedVector {
    /// The number of segments; an empty vector has one empty segment.
    pub fn segments(&self) -> u32 {
        self.elements.div_ceil(self.segment_elements).max(1)
    }

    /// The elements of a segment.
    pub fn elements_of(&self, segment: u32) -> Range<u32> {
        let start = segment * self.segment_elements;
        start..self.elements.min(start + self.segment_elements)
    }

    /// Bytes of a segment in the machines' vector.
    pub fn bytes_of(&self, segment: u32) -> u32 {
        self.elements_of(segment).len() as u32 * self.kind.element_size() as u32
    }

    /// Bytes on the wire for each byte of the machines' vector.
    pub fn scale(&self) -> u32 {
        match self.contents {
            VectorContents::Digest { scale } => scale,
            VectorContents::Elements | VectorContents::SizeOnly => 1,
        }
    }

    /// Bytes of the whole vector on the wire, without headers.
    pub fn wire_bytes(&self) -> u64 {
        u64::from(self.elements) * self.kind.element_size() as u64 * u64::from(self.scale())
    }
}
