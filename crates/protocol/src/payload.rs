//! The payload of a message: real bytes, or only their number.

use std::ops::Deref;
use std::sync::Arc;

/// A message's payload. Size-only payloads let a simulated fabric grow to a million hosts. State machines treat both
/// alike and compute only on real bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// A number of bytes without contents.
    SizeOnly {
        /// How many.
        bytes: u32,
    },
    /// Real bytes.
    Bytes(PayloadBytes),
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Self = Self::SizeOnly { bytes: 0 };

    /// The length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            Self::SizeOnly { bytes } => *bytes,
            Self::Bytes(bytes) => bytes.len() as u32,
        }
    }

    /// True if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are real.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::SizeOnly { .. } => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// Bytes that all copies of a packet share. Short payloads are stored inline, which is faster than an allocation.
#[derive(Clone, Debug)]
pub struct PayloadBytes(ByteStorage);

#[derive(Clone, Debug)]
enum ByteStorage {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Shared(Arc<[u8]>),
}

/// The longest inline payload: one element of any type, with its index.
pub(crate) const INLINE_BYTES: usize = 16;

impl PayloadBytes {
    /// Mutable bytes; copied first if they are shared.
    pub fn make_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            ByteStorage::Inline { length, bytes } => &mut bytes[..usize::from(*length)],
            ByteStorage::Shared(bytes) => Arc::make_mut(bytes),
        }
    }

    /// Stores short payloads inline; none if they are too long.
    #[inline]
    pub(crate) fn inline(bytes: &[u8]) -> Option<Self> {
        let mut storage = [0; INLINE_BYTES];
        storage.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(ByteStorage::Inline { length: bytes.len() as u8, bytes: storage }))
    }

    pub(crate) const fn shared(bytes: Arc<[u8]>) -> Self {
        Self(ByteStorage::Shared(bytes))
    }
}

impl Deref for PayloadBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            ByteStorage::Inline { length, bytes } => &bytes[..usize::from(*length)],
            ByteStorage::Shared(bytes) => bytes,
        }
    }
}

impl PartialEq for PayloadBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for PayloadBytes {}

impl From<&[u8]> for PayloadBytes {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::inline(bytes).unwrap_or_else(|| Self::shared(bytes.into()))
    }
}

impl From<Vec<u8>> for PayloadBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::inline(&bytes).unwrap_or_else(|| Self::shared(bytes.into()))
    }
}

impl<const N: usize> From<[u8; N]> for PayloadBytes {
    fn from(bytes: [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl FromIterator<u8> for PayloadBytes {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        bytes.into_iter().collect::<Vec<u8>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_and_shared_bytes_are_equal() {
        for length in 0..3 * INLINE_BYTES {
            let bytes: Vec<u8> = (0..length as u8).collect();
            let payload = PayloadBytes::from(bytes.as_slice());
            assert_eq!((&*payload, &payload), (bytes.as_slice(), &PayloadBytes::from(bytes.clone())));
            assert_eq!(Payload::Bytes(payload.clone()).len() as usize, length);
            let mut changed = payload.clone();
            changed.make_mut().iter_mut().for_each(|byte| *byte ^= 1);
            assert_eq!(&*payload, bytes.as_slice(), "make_mut changes a copy");
            assert_eq!(changed == payload, length == 0);
        }
    }
}
