//! What the last calls on a communicator brought, for the case that they must be repeated.

use std::collections::VecDeque;

use crate::calls::Call;
use crate::recovery::Transition;

/// Longer inputs are not kept: to keep one costs as much as to send it.
const MOST_KEPT: usize = 64 << 10;
/// Inputs are kept of so many calls, with so many bytes in all.
const MOST_CALLS: usize = 64;
const MOST_BYTES: usize = 1 << 20;

/// What the last calls brought, the one under way included.
#[derive(Default)]
pub(crate) struct Kept {
    inputs: VecDeque<Input>,
    bytes: usize,
    /// What becomes of the communicator, if Pleach does not serve it any more.
    pub(crate) transition: Option<Transition>,
}

/// What a call brought.
struct Input {
    /// How many calls came before it.
    number: u64,
    call: Call,
    /// None if they were too many.
    bytes: Option<Vec<u8>>,
}

impl Kept {
    /// A call begins; it has a vector of so many bytes.
    pub(crate) fn push(&mut self, number: u64, call: &Call, bytes: usize, input: impl FnOnce() -> Option<Vec<u8>>) {
        let bytes = if bytes <= MOST_KEPT { input() } else { None };
        self.bytes += bytes.as_ref().map_or(0, Vec::len);
        self.inputs.push_back(Input { number, call: *call, bytes });
        while self.inputs.len() > MOST_CALLS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.inputs.pop_front() else { break };
            self.bytes -= oldest.bytes.map_or(0, |bytes| bytes.len());
        }
    }

    /// The call with this number, and what it brought.
    pub(crate) fn of(&self, number: u64) -> Option<(&Call, &[u8])> {
        let input = self.inputs.iter().find(|input| input.number == number)?;
        Some((&input.call, input.bytes.as_deref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Verb;

    fn call() -> Call {
        let (send, receive, count, datatype, operator, root, communicator) = (0, 0, 0, 0, 0, 0, 0);
        Call { verb: Verb::Scan, send, receive, count, datatype, operator, root, communicator }
    }

    #[test]
    fn inputs_are_kept_by_number_up_to_a_limit() {
        let mut kept = Kept::default();
        for number in 0..100 {
            kept.push(number, &call(), 8, || Some(vec![number as u8; 8]));
        }
        assert_eq!(kept.of(99).map(|(_, bytes)| bytes[0]), Some(99));
        assert_eq!(kept.of(36).map(|(_, bytes)| bytes[0]), Some(36));
        assert!(kept.of(35).is_none() && kept.of(100).is_none());
        for number in 100..200 {
            kept.push(number, &call(), MOST_KEPT, || Some(vec![0; MOST_KEPT]));
        }
        assert!(kept.bytes <= MOST_BYTES && kept.of(199).is_some());
    }

    #[test]
    fn long_inputs_are_not_kept() {
        let mut kept = Kept::default();
        kept.push(0, &call(), MOST_KEPT + 1, || unreachable!("nobody asks for them"));
        assert!(kept.of(0).is_none());
    }
}
