//! The calls of a user who matches messages himself (P-118).
//!
//! In: messages in the order of their numbers. Out: arrivals, each of which the user accepts or discards. Until then it uses
//! credit, so a peer's unaccepted messages are bounded (P-63).

use std::sync::Arc;

use units::{Rank, Time};

use super::action::NoInPlaceBuffers;
use super::arrival::{MessageArrival, MessageMatching};
use super::checksum_policy;
use super::completion::{MessageCompletion, MessageFailure, MessagePostError};
use super::control_message::ControlMessage;
use super::control_send::refunded_credit;
use super::endpoint::MessagingEndpoint;
use super::fragments::{IncomingTransfer, ReceivedRanges};
use super::lent_buffer::{LentBytesMut, ReceiveBuffer, SendBuffer};
use super::matching::{MessageContents, ReceiveId, SendId};
use crate::LentBytes;

impl MessagingEndpoint {
    /// Lets the user match messages. Receives cannot be posted then.
    #[must_use]
    pub fn with_matching(mut self, mode: MessageMatching) -> Self {
        self.shared.mode = mode;
        self
    }

    /// Sends lent memory by a rendezvous, whatever its length, with a note that arrives before the bytes. The send completes
    /// when the peer has the bytes; the memory is free when the loan has no other owner.
    ///
    /// # Errors
    /// If the message cannot be sent.
    pub fn send_lent(
        &mut self,
        now: Time,
        to: Rank,
        (tag, note): (u64, u128),
        loan: Arc<dyn LentBytes>,
    ) -> Result<SendId, MessagePostError> {
        let message = (tag, note, SendBuffer::Lent(loan));
        self.post_send(now, to, message, &mut NoInPlaceBuffers).map_err(|(error, _)| error)
    }

    /// The next message that arrived; with [`MessageMatching::ByUser`].
    pub fn poll_arrival(&mut self) -> Option<MessageArrival> {
        self.shared.arrivals.pop_front()
    }

    /// Accepts an eager message: its bytes, whose checksum is verified once more.
    ///
    /// # Errors
    /// If its bytes changed in memory, here or at the sender.
    pub fn accept_eager(&mut self, now: Time, arrival: MessageArrival) -> Result<Vec<u8>, MessageFailure> {
        let MessageArrival { source, tag, contents } = arrival;
        self.refund(now, source, &contents);
        match contents {
            MessageContents::Eager { bytes, choice, checksum }
                if checksum_policy::value(choice, &bytes) == checksum =>
            {
                Ok(bytes)
            }
            _ => Err(MessageFailure::Corrupted { source, tag }),
        }
    }

    /// Accepts a long message into lent memory, which must have at least its length; the receive completes when all bytes are
    /// there.
    ///
    /// # Errors
    /// If the sender is lost. Then the bytes never come.
    ///
    /// # Panics
    /// If the message is not a long one, or the memory is shorter.
    pub fn accept_transfer(
        &mut self,
        now: Time,
        arrival: MessageArrival,
        loan: Box<dyn LentBytesMut>,
    ) -> Result<ReceiveId, MessagePostError> {
        let MessageArrival { source, tag, contents } = arrival;
        let MessageContents::Rendezvous { transfer, length, .. } = contents else {
            panic!("only a long message has a transfer");
        };
        assert!(length <= loan.bytes().len() as u64, "the memory is shorter than the message");
        let peer = self.peers.get_mut(&source).ok_or(MessagePostError::Unknown(source))?;
        if let Some(cause) = peer.lost {
            return Err(MessagePostError::Lost(source, cause));
        }
        let id = ReceiveId(self.next_receive);
        self.next_receive += 1;
        let buffer = ReceiveBuffer::Lent(loan);
        if length == 0 {
            peer.replies.push_back(ControlMessage::Fin { transfer });
            let completion = MessageCompletion::Received { id, source, tag, length: 0, buffer: Vec::new() };
            self.shared.completions.push_back(completion);
        } else {
            let received = ReceivedRanges::default();
            peer.incoming.insert(transfer, IncomingTransfer { id, source, tag, length, buffer, received });
            peer.replies.push_back(ControlMessage::Cts { transfer });
        }
        self.refund(now, source, &contents);
        Ok(id)
    }

    /// Discards a message; its sender's send completes.
    pub fn discard(&mut self, now: Time, arrival: MessageArrival) {
        let MessageArrival { source, contents, .. } = arrival;
        if let MessageContents::Rendezvous { transfer, .. } = contents
            && let Some(peer) = self.peers.get_mut(&source).filter(|peer| peer.lost.is_none())
        {
            peer.replies.push_back(ControlMessage::Fin { transfer });
        }
        self.refund(now, source, &contents);
    }

    fn refund(&mut self, now: Time, source: Rank, contents: &MessageContents) {
        if let Some(peer) = self.peers.get_mut(&source).filter(|peer| peer.lost.is_none()) {
            peer.allowed += refunded_credit(contents);
            if !peer.is_idle(&self.shared) {
                self.pump(now, source);
            }
        }
    }
}
