//! The buffers of sends and receives: vectors that the user hands over, or memory that the user lends.
//!
//! Lent memory saves the copy at each end of a long message. It does not return with the completion: the user knows it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::{LentBytes, SharedBytes};

/// Memory that belongs to the user, lent for a receive.
pub trait LentBytesMut: fmt::Debug + Send {
    /// The bytes, to read.
    fn bytes(&self) -> &[u8];
    /// The bytes, to write.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// What a send reads from.
#[derive(Debug)]
pub(super) enum SendBuffer {
    Owned(Vec<u8>),
    /// Always sent by a rendezvous, whatever its length: the loan ends when the peer has received it.
    Lent(Arc<dyn LentBytes>),
}

impl SendBuffer {
    /// The vector; an empty one for lent memory.
    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Owned(vector) => vector,
            Self::Lent(_) => Vec::new(),
        }
    }

    pub(super) fn into_shared(self) -> SharedBytes {
        match self {
            Self::Owned(vector) => SharedBytes::Owned(Arc::new(vector)),
            Self::Lent(loan) => SharedBytes::Lent(loan),
        }
    }

    /// Whether a message is sent by a rendezvous.
    #[inline]
    pub(super) fn is_long(&self, eager_bytes: u32) -> bool {
        match self {
            Self::Owned(vector) => vector.len() > eager_bytes as usize,
            Self::Lent(_) => true,
        }
    }
}

impl Deref for SendBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(vector) => vector,
            Self::Lent(loan) => loan.bytes(),
        }
    }
}

/// What a receive writes to.
#[derive(Debug)]
pub(super) enum ReceiveBuffer {
    Owned(Vec<u8>),
    Lent(Box<dyn LentBytesMut>),
}

impl ReceiveBuffer {
    /// The vector; an empty one for lent memory, whose loan ends.
    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Owned(vector) => vector,
            Self::Lent(_) => Vec::new(),
        }
    }
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(vector) => vector,
            Self::Lent(loan) => loan.bytes(),
        }
    }
}

impl DerefMut for ReceiveBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Owned(vector) => vector,
            Self::Lent(loan) => loan.bytes_mut(),
        }
    }
}
