//! Tagged message ports: receives and messages meet by sender and tag, in the order in which they came (QN-8).

use std::collections::VecDeque;

/// What a sender writes on a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender's virtual process id.
    pub from: u32,
    /// The tag.
    pub tag: u32,
    /// How long the message is.
    pub bytes: u32,
}

/// What a receiver wants; nothing said is anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receive {
    /// From whom.
    pub from: Option<u32>,
    /// With which tag.
    pub tag: Option<u32>,
    /// The receiver's own number for it.
    pub number: u32,
}

impl Receive {
    fn takes(&self, envelope: &Envelope) -> bool {
        self.from.is_none_or(|from| from == envelope.from) && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// A receive and the message that it got.
pub type Match = (Receive, Envelope);

/// The port of a process.
#[derive(Debug)]
pub struct TaggedPort {
    posted: VecDeque<Receive>,
    unexpected: VecDeque<Envelope>,
    /// Messages that are kept until somebody wants them, at most.
    room: usize,
}

impl TaggedPort {
    /// A port that keeps so many messages that nobody has asked for yet.
    pub fn new(room: usize) -> Self {
        Self { posted: VecDeque::new(), unexpected: VecDeque::new(), room }
    }

    /// A receive is posted: the oldest message that fits is its.
    pub fn post(&mut self, receive: Receive) -> Option<Match> {
        match self.unexpected.iter().position(|envelope| receive.takes(envelope)) {
            Some(place) => Some((receive, self.unexpected.remove(place)?)),
            None => {
                self.posted.push_back(receive);
                None
            }
        }
    }

    /// A message comes: the oldest receive that fits gets it.
    ///
    /// # Errors
    /// The message itself, if it fits none and there is no room: the sender must try again.
    pub fn arrive(&mut self, envelope: Envelope) -> Result<Option<Match>, Envelope> {
        match self.posted.iter().position(|receive| receive.takes(&envelope)) {
            Some(place) => Ok(self.posted.remove(place).map(|receive| (receive, envelope))),
            None if self.unexpected.len() >= self.room => Err(envelope),
            None => {
                self.unexpected.push_back(envelope);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn message(from: u32, tag: u32) -> Envelope {
        Envelope { from, tag, bytes: 8 }
    }

    #[test]
    fn the_oldest_receive_that_fits_gets_the_message() {
        let mut port = TaggedPort::new(8);
        for (number, from, tag) in [(0, Some(1), None), (1, None, Some(7)), (2, None, None)] {
            assert_eq!(port.post(Receive { from, tag, number }), None);
        }
        let got =
            |port: &mut TaggedPort, from, tag| port.arrive(message(from, tag)).ok().flatten().map(|(r, _)| r.number);
        assert_eq!(got(&mut port, 2, 7), Some(1));
        assert_eq!(got(&mut port, 1, 7), Some(0));
        assert_eq!(got(&mut port, 1, 7), Some(2));
        assert_eq!(got(&mut port, 1, 7), None);
    }

    #[test]
    fn unexpected_messages_are_kept_in_order_while_there_is_room() {
        let mut port = TaggedPort::new(2);
        assert_eq!(port.arrive(message(1, 5)), Ok(None));
        assert_eq!(port.arrive(message(2, 5)), Ok(None));
        assert_eq!(port.arrive(message(3, 5)), Err(message(3, 5)));
        let wanted = Receive { from: None, tag: Some(5), number: 9 };
        assert_eq!(port.post(wanted).map(|(_, envelope)| envelope.from), Some(1));
        assert_eq!(port.post(wanted).map(|(_, envelope)| envelope.from), Some(2));
        assert_eq!(port.post(wanted), None);
    }
}
