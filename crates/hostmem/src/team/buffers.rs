//! The caller's buffers of one operation.

use std::ops::Range;

use super::descriptor::TeamVerb;
use super::error::TeamError;

/// The input of a rank and the place for its result. Every poll of an operation gets the same buffers.
#[derive(Debug)]
pub enum CollectiveBuffers<'a> {
    /// For a barrier.
    Empty,
    /// Input only: the root of a broadcast, or a rank of a reduction that is not its root.
    InputOnly(&'a [u8]),
    /// Input, overwritten by the result. At the receivers of a broadcast, only the result.
    InPlace(&'a mut [u8]),
    /// Separate input and output of equal length.
    Separate {
        /// Not changed.
        input: &'a [u8],
        /// Overwritten by the result.
        output: &'a mut [u8],
    },
    /// For an exchange. The input has the same length at every rank.
    Exchange {
        /// Not changed.
        input: &'a [u8],
        /// Which part of every rank's input this rank reads; each rank may read another.
        part: Range<usize>,
        /// Overwritten by the parts of all ranks, one after the other.
        output: &'a mut [u8],
    },
}

impl CollectiveBuffers<'_> {
    /// The length of the vector in bytes.
    pub fn length(&self) -> usize {
        self.input().len()
    }

    /// Checks that the buffers suit the rank's part in an operation: their length, and whether the rank takes the result.
    pub(super) fn check(&self, verb: TeamVerb, takes_result: bool, expected: usize) -> Result<(), TeamError> {
        let lengths = match self {
            Self::Separate { input, output } => [input.len(), output.len()],
            _ => [self.length(); 2],
        };
        if let Some(&found) = lengths.iter().find(|&&length| length != expected) {
            return Err(TeamError::LengthsDiffer { expected, found });
        }
        let suits = match self {
            Self::Empty => verb == TeamVerb::Barrier,
            Self::InputOnly(_) => !takes_result && verb != TeamVerb::Exchange,
            Self::InPlace(_) | Self::Separate { .. } => verb != TeamVerb::Exchange,
            Self::Exchange { input, part, .. } => {
                verb == TeamVerb::Exchange && part.start <= part.end && part.end <= input.len()
            }
        };
        if suits { Ok(()) } else { Err(TeamError::WrongBuffers { verb }) }
    }

    #[inline]
    pub(super) fn input(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::InputOnly(input) | Self::Separate { input, .. } | Self::Exchange { input, .. } => input,
            Self::InPlace(both) => both,
        }
    }

    #[inline]
    pub(super) fn output(&mut self) -> &mut [u8] {
        match self {
            Self::Empty => &mut [],
            Self::InputOnly(_) => unreachable!("`check` accepts this only from ranks that take no result"),
            Self::Separate { output, .. } | Self::Exchange { output, .. } | Self::InPlace(output) => output,
        }
    }

    /// True if the output of an exchange has space for the parts of so many ranks.
    pub(super) fn fits_exchange(&self, ranks: usize) -> bool {
        match self {
            Self::Exchange { part, output, .. } => output.len() == part.len() * ranks,
            _ => false,
        }
    }

    /// Takes this rank's part of another rank's bytes, or of its own.
    pub(super) fn take_part(&mut self, rank: usize, bytes: Option<&[u8]>) {
        if let Self::Exchange { input, part, output } = self {
            let bytes = bytes.unwrap_or(input);
            output[rank * part.len()..][..part.len()].copy_from_slice(&bytes[part.clone()]);
        }
    }

    /// The output of a part of the vector, initialised with the input.
    #[inline]
    pub(super) fn seed(&mut self, part: Range<usize>) -> &mut [u8] {
        match self {
            Self::Separate { input, output } => {
                output[part.clone()].copy_from_slice(&input[part.clone()]);
                &mut output[part]
            }
            _ => &mut self.output()[part],
        }
    }
}
