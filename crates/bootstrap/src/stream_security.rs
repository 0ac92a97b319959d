//! The handshake that encrypts connections between ranks: a message of kind `Secure` in each direction, with the token as the secret.

use std::io;
use std::sync::Arc;

use super::framing::FramedStream;
use super::join_request::{JoinRejection, RENDEZVOUS_VERSION};
use super::rendezvous_message::{RendezvousMessageKind, encode_message};
use super::secure_channel::{self, ChannelHandshake};
use super::token_key::TokenKey;

/// Begins to encrypt a connection; the message to send.
///
/// # Errors
/// The kernel has no random numbers.
pub(super) fn offer(key: &TokenKey) -> io::Result<(ChannelHandshake, Arc<[u8]>)> {
    let (handshake, message) =
        secure_channel::begin(&key.channel_key()).map_err(|_| io::Error::other("no random numbers"))?;
    let frame = encode_message(RendezvousMessageKind::Secure, &[&RENDEZVOUS_VERSION.to_le_bytes(), &message]);
    Ok((handshake, frame))
}

/// Answers the offer of another rank, and encrypts the connection.
///
/// # Errors
/// The other one runs another version or has another token; without a reason if the connection is broken.
pub(super) fn accept_offer(
    stream: &mut FramedStream,
    key: &TokenKey,
    body: &[u8],
) -> Result<(), Option<JoinRejection>> {
    let (version, message) = body.split_first_chunk().ok_or(None)?;
    if u32::from_le_bytes(*version) != RENDEZVOUS_VERSION {
        return Err(Some(JoinRejection::Version(RENDEZVOUS_VERSION)));
    }
    let (channel, answer) =
        secure_channel::answer(&key.channel_key(), message).map_err(|_| Some(JoinRejection::Token))?;
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
/// The other rank does not know the token.
pub(super) fn accept_answer(stream: &mut FramedStream, handshake: ChannelHandshake, body: &[u8]) -> io::Result<()> {
    let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "the other end does not know the token");
    stream.secure(handshake.finish(body).map_err(|_| refused())?)
}
