//! An exchange within the host, piece by piece: each rank reads a part of every rank's bytes.

use std::ops::Range;

use hostmem::team::{CollectiveBuffers, MAX_EXCHANGE_BYTES, Team, TeamCall, TeamOperation};

use crate::error::Error;
use crate::hierarchical_operation::StageDriver;

/// The exchange of one operation. The input has the same length at all ranks of the host; each rank reads the part that it needs.
pub(super) struct PieceExchange {
    pub input: Vec<u8>,
    pub part: Range<usize>,
    call: TeamCall,
    /// No piece is longer, nor ends inside an element.
    piece_bytes: usize,
    /// Where the present piece starts.
    next: usize,
    scratch: Vec<u8>,
}

impl PieceExchange {
    pub(super) fn new(input: Vec<u8>, part: Range<usize>, element_bytes: usize, purpose: u16) -> Self {
        let piece_bytes = MAX_EXCHANGE_BYTES / element_bytes * element_bytes;
        Self { input, part, call: TeamCall::Exchange { purpose }, piece_bytes, next: 0, scratch: Vec::new() }
    }

    fn piece(&self) -> Range<usize> {
        self.next..(self.next + self.piece_bytes).min(self.input.len())
    }

    /// True if pieces follow the present one: no later operation may start within the host before them.
    pub(super) fn has_more_pieces(&self) -> bool {
        self.piece().end < self.input.len()
    }

    /// Advances the exchange; `take` gets the bytes of each rank in rank order, with their offset within the part. True if it is complete.
    pub(super) fn drive<D: StageDriver>(
        &mut self,
        team: &mut Team,
        operation: &mut Option<TeamOperation>,
        driver: &mut D,
        mut take: impl FnMut(usize, usize, &[u8]),
    ) -> Result<bool, Error> {
        let ranks = usize::from(team.ranks());
        loop {
            let piece = self.piece();
            let read = self.part.start.clamp(piece.start, piece.end)..self.part.end.clamp(piece.start, piece.end);
            self.scratch.resize(ranks * read.len(), 0);
            let mut buffers = CollectiveBuffers::Exchange {
                input: &self.input[piece.clone()],
                part: read.start - piece.start..read.end - piece.start,
                output: &mut self.scratch,
            };
            if !driver.drive_team(team, operation, self.call, &mut buffers)? {
                return Ok(false);
            }
            *operation = None;
            if !read.is_empty() {
                for (rank, bytes) in self.scratch.chunks_exact(read.len()).enumerate() {
                    take(rank, read.start - self.part.start, bytes);
                }
            }
            self.next = piece.end;
            if self.next == self.input.len() {
                return Ok(true);
            }
        }
    }
}
