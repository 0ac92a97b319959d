//! The caller's buffers.

use std::ops::Range;

use super::descriptor::TeamVerb;
use super::error::TeamError;

/// What a rank brings to an operation and where the result goes. The same buffers are given to every poll.
#[derive(Debug)]
pub enum CollectiveBuffers<'a> {
    /// For a barrier.
    Nothing,
    /// Only input: a broadcast's root, or a reduction's rank that is not the root.
    Give(&'a [u8]),
    /// Input, overwritten by the result. A broadcast's other ranks have it for the result alone.
    InPlace(&'a mut [u8]),
    /// Input and result apart, equally long.
    Apart {
        /// Is not changed.
        input: &'a [u8],
        /// Overwritten.
        output: &'a mut [u8],
    },
}

impl CollectiveBuffers<'_> {
    /// Bytes of the vector.
    pub fn length(&self) -> usize {
        self.input().len()
    }

    /// The buffers suit a part: `takes_result` or not, of a vector of so many bytes.
    pub(super) fn check(&self, verb: TeamVerb, takes_result: bool, expected: usize) -> Result<(), TeamError> {
        let lengths = match self {
            Self::Apart { input, output } => [input.len(), output.len()],
            _ => [self.length(); 2],
        };
        if let Some(&found) = lengths.iter().find(|&&length| length != expected) {
            return Err(TeamError::LengthsDiffer { expected, found });
        }
        let suits = match self {
            Self::Nothing => verb == TeamVerb::Barrier,
            Self::Give(_) => !takes_result,
            Self::InPlace(_) | Self::Apart { .. } => true,
        };
        if suits { Ok(()) } else { Err(TeamError::WrongBuffers { verb }) }
    }

    #[inline]
    pub(super) fn input(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::Give(input) | Self::Apart { input, .. } => input,
            Self::InPlace(both) => both,
        }
    }

    #[inline]
    pub(super) fn output(&mut self) -> &mut [u8] {
        match self {
            Self::Nothing => &mut [],
            Self::Give(_) => unreachable!("`check` let only ranks without a result bring this"),
            Self::Apart { output, .. } | Self::InPlace(output) => output,
        }
    }

    /// The output of a part of the vector, holding the input.
    #[inline]
    pub(super) fn seed(&mut self, part: Range<usize>) -> &mut [u8] {
        match self {
            Self::Apart { input, output } => {
                output[part.clone()].copy_from_slice(&input[part.clone()]);
                &mut output[part]
            }
            _ => &mut self.output()[part],
        }
    }
}
