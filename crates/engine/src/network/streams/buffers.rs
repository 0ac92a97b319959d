//! The caller's memory during a streamed operation.

use protocol::collective::{CombineMode, RangeSource, VectorRange};
use reduce::ReductionKind;
use transport::edges::UnverifiedPart;

/// Input and result of an operation in the caller's memory; both may be the same.
#[derive(Clone, Copy, Debug)]
pub struct StreamBuffers {
    input: *const u8,
    output: *mut u8,
    bytes: usize,
}

// SAFETY: the buffers belong to the caller of the operation, who gives them up until it is over (`StreamBuffers::new`); the engine
// uses them from one thread at a time, under its lock.
unsafe impl Send for StreamBuffers {}

impl StreamBuffers {
    /// Buffers of `bytes` bytes each.
    ///
    /// # Safety
    /// Until the operation is over or cancelled, `input` is readable and does not change, `output` is readable and writable, and
    /// nobody else uses `output`. The two are the same or do not overlap.
    pub unsafe fn new(input: *const u8, output: *mut u8, bytes: usize) -> Self {
        Self { input, output, bytes }
    }

    /// The length of each.
    pub(in crate::network) fn len(&self) -> usize {
        self.bytes
    }

    /// The present value of a range.
    pub(super) fn range(&self, source: RangeSource, part: VectorRange) -> &[u8] {
        let (start, end) = (part.start as usize, part.end as usize);
        assert!(start <= end && end <= self.bytes, "the schedule stays within the vector");
        let buffer = match source {
            RangeSource::Input => self.input,
            RangeSource::Output => self.output.cast_const(),
        };
        // SAFETY: within the buffer (asserted), which is valid until the operation is over (`new`).
        unsafe { std::slice::from_raw_parts(buffer.add(start), end - start) }
    }

    fn output(&mut self, start: usize, bytes: usize) -> &mut [u8] {
        assert!(start + bytes <= self.bytes, "the schedule stays within the vector");
        // SAFETY: within the buffer (asserted), which only this operation uses (`new`).
        unsafe { std::slice::from_raw_parts_mut(self.output.add(start), bytes) }
    }

    /// Combines a part that arrived with the vector at `start`, whole elements; false if the part is not intact. A part that
    /// replaces the vector's is verified while it is copied: if it is not intact, it arrives again.
    pub(super) fn combine(
        &mut self,
        kind: Option<ReductionKind>,
        apply: CombineMode,
        operand: RangeSource,
        start: usize,
        part: UnverifiedPart<'_>,
    ) -> bool {
        let range = VectorRange { start: start as u32, end: (start + part.len()) as u32 };
        match (apply, kind) {
            (CombineMode::FoldLeft | CombineMode::FoldRight, Some(kind)) => {
                let Some(part) = part.verify() else { return false };
                let folded = if operand == RangeSource::Input && self.input != self.output.cast_const() {
                    // SAFETY: within the input (asserted in `range`), which is valid until the operation is over and does not
                    // overlap the output unless it is the same (`new`), which is excluded here.
                    let mine = unsafe { &*std::ptr::from_ref(self.range(RangeSource::Input, range)) };
                    let (left, right) = if apply == CombineMode::FoldLeft { (part, mine) } else { (mine, part) };
                    kind.combine(self.output(start, part.len()), left, right)
                } else {
                    // All operators commute: either order gives the same bits, but for the payload of NaNs.
                    kind.fold(self.output(start, part.len()), part)
                };
                folded.expect("parts are whole elements of equal length");
                true
            }
            _ => part.copy_to(self.output(start, part.len())),
        }
    }
}
