//! The handshake with which every connection between ranks begins (P-101): a message of kind `Secure` in each direction.
//!
//! The rank that connects sends an offer: its version, and the first Noise message. The other one sends the second Noise message, and
//! everything that follows is encrypted. Only who knows the job's token can make either message. A recorded offer is answered again, but
//! whoever repeats it cannot decrypt the answer, and nothing that it sends then is authentic.

use std::io;
use std::sync::Arc;

use super::framing::FramedStream;
use super::join_request::{JoinRejection, RENDEZVOUS_VERSION};
use super::rendezvous_message::{RendezvousMessageKind, encode_message};
use super::secure_channel::{self, ChannelHandshake};
use super::token_key::TokenKey;

/// Begins to encrypt a connection to a rank; the message to send.
///
/// # Errors
/// The kernel has no random numbers.
pub(super) fn offer(key: &TokenKey, acceptor: u32) -> io::Result<(ChannelHandshake, Arc<[u8]>)> {
    let (handshake, message) =
        secure_channel::begin(&key.channel_key(acceptor)).map_err(|_| io::Error::other("no random numbers"))?;
    let frame = encode_message(RendezvousMessageKind::Secure, &[&RENDEZVOUS_VERSION.to_le_bytes(), &message]);
    Ok((handshake, frame))
}

/// Answers the offer of another rank to the own one, and encrypts the connection.
///
/// # Errors
/// The other one runs another version or has another token; without a reason if the connection is broken.
pub(super) fn accept_offer(
    stream: &mut FramedStream,
    key: &TokenKey,
    own_rank: u32,
    body: &[u8],
) -> Result<(), Option<JoinRejection>> {
    let (version, message) = body.split_first_chunk().ok_or(None)?;
    if u32::from_le_bytes(*version) != RENDEZVOUS_VERSION {
        return Err(Some(JoinRejection::Version(RENDEZVOUS_VERSION)));
    }
    let (channel, answer) =
        secure_channel::answer(&key.channel_key(own_rank), message).map_err(|_| Some(JoinRejection::Token))?;
    stream.queue(encode_message(RendezvousMessageKind::Secure, &[&answer]));
    // A few bytes into an empty socket.
    match stream.flush() {
        Ok(()) if stream.queued_bytes() == 0 => stream.secure(channel).map_err(|_| None),
        _ => Err(None),
    }
}

/// Takes the answer to an offer, and encrypts the connection.
///
/// # Errors
/// The other end is not the rank to which the offer was made, or does not know the token.
pub(super) fn accept_answer(stream: &mut FramedStream, handshake: ChannelHandshake, body: &[u8]) -> io::Result<()> {
    let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "the other end does not know the token");
    stream.secure(handshake.finish(body).map_err(|_| refused())?)
}

#[cfg(test)]
mod tests {
    use super::super::environment::JobToken;
    use super::super::framing::encode_frame;
    use super::super::rendezvous_message::{MAX_READ_BYTES, next_message};
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn key(token: &str) -> TokenKey {
        TokenKey::new(&JobToken(token.into()), "")
    }

    fn pair() -> (FramedStream, FramedStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (far, _) = listener.accept().expect("accepts");
        (FramedStream::new(near).expect("options"), FramedStream::new(far).expect("options"))
    }

    fn send(stream: &mut FramedStream, frame: &Arc<[u8]>) {
        stream.queue(Arc::clone(frame));
        stream.flush().expect("open");
    }

    fn receive(stream: &mut FramedStream) -> io::Result<Vec<u8>> {
        stream.wait(Instant::now() + Duration::from_secs(5))?;
        stream.fill(MAX_READ_BYTES)?;
        Ok(next_message(stream, MAX_READ_BYTES).expect("a message").expect("a whole one").1)
    }

    /// The stream and the answer of rank 3 of a job to a recorded offer.
    fn answered(offered: &Arc<[u8]>) -> (FramedStream, FramedStream, Vec<u8>) {
        let (mut near, mut far) = pair();
        send(&mut near, offered);
        let body = receive(&mut far).expect("the offer");
        assert_eq!(accept_offer(&mut far, &key("token"), 3, &body), Ok(()));
        let answer = receive(&mut near).expect("the answer");
        (near, far, answer)
    }

    #[test]
    fn ranks_of_a_job_encrypt_their_connection() {
        let (handshake, offered) = offer(&key("token"), 3).expect("random numbers");
        let (mut near, mut far, answer) = answered(&offered);
        accept_answer(&mut near, handshake, &answer).expect("the right rank");
        for _ in 0..2 {
            send(&mut near, &encode_message(RendezvousMessageKind::Hello, &[b"hello"]));
            assert_eq!(receive(&mut far).expect("authentic"), b"hello");
            std::mem::swap(&mut near, &mut far);
        }
    }

    #[test]
    fn only_the_rank_that_is_called_answers_and_only_in_its_job_and_version() {
        let (_near, mut far) = pair();
        for (token, rank) in [("token", 2), ("other", 3)] {
            let (_, offered) = offer(&key(token), rank).expect("random numbers");
            let refused = accept_offer(&mut far, &key("token"), 3, &offered[5..]);
            assert_eq!(refused, Err(Some(JoinRejection::Token)), "{token} {rank}");
        }
        let (_, offered) = offer(&key("token"), 3).expect("random numbers");
        let mut newer = offered[5..].to_vec();
        newer[0] += 1;
        let refused = accept_offer(&mut far, &key("token"), 3, &newer);
        assert_eq!(refused, Err(Some(JoinRejection::Version(RENDEZVOUS_VERSION))));
        assert_eq!(accept_offer(&mut far, &key("token"), 3, &[0; 3]), Err(None));
    }

    #[test]
    fn an_answer_to_another_offer_and_a_reflected_offer_are_rejected() {
        let (_, recorded) = offer(&key("token"), 3).expect("random numbers");
        let (mut near, _far, answer) = answered(&recorded);
        for forged in [&answer[..], &recorded[5..], &recorded[9..], &[]] {
            let (handshake, _) = offer(&key("token"), 3).expect("random numbers");
            assert!(accept_answer(&mut near, handshake, forged).is_err());
        }
    }

    #[test]
    fn whoever_repeats_a_recorded_offer_can_send_nothing() {
        let (handshake, recorded) = offer(&key("token"), 3).expect("random numbers");
        let (mut near, _far, answer) = answered(&recorded);
        accept_answer(&mut near, handshake, &answer).expect("the right rank");
        let (mut stranger, mut far, _) = answered(&recorded);
        send(&mut stranger, &encode_frame(&[&[0; 64]]));
        far.wait(Instant::now() + Duration::from_secs(5)).expect("poll");
        assert!(far.fill(MAX_READ_BYTES).is_err());
    }
}
