//! How a rank offers its buffer for direct copies, in the descriptor of a large broadcast.

use super::descriptor::{CallSignature, INLINE_BYTES};

/// Where the vector of a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BufferOffer {
    /// It goes through the pipeline.
    Nothing,
    Address(u64),
}

impl BufferOffer {
    /// As payload of a descriptor: the address, and a check word to tell it from garbage.
    pub(super) fn to_payload(self, number: u64, signature: CallSignature) -> [u8; 16] {
        let address = match self {
            Self::Nothing => 0,
            Self::Address(address) => address,
        };
        let mut payload = [0; 16];
        payload[..8].copy_from_slice(&address.to_le_bytes());
        payload[8..].copy_from_slice(&signature.after(address, number).to_le_bytes());
        payload
    }

    /// The offer in a payload; none if the check word is wrong.
    pub(super) fn from_payload(payload: &[u8; INLINE_BYTES], number: u64, signature: CallSignature) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| payload[at + byte]));
        let (address, check) = (word(0), word(8));
        if check != signature.after(address, number) {
            return None;
        }
        Some(if address == 0 { Self::Nothing } else { Self::Address(address) })
    }
}
