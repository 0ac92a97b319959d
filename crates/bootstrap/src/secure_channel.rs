//! Encryption of a TCP connection between two processes that know the same secret: Noise with a pre-shared key (`NNpsk0`).
//!
//! Each side sends one handshake message. Whoever does not know the secret cannot produce one, and an eavesdropper learns nothing of what
//! follows, even if it learns the secret later. After the handshake the bytes of both directions travel in records: two bytes of length
//! in little-endian order, then the encrypted bytes with their tag.

use std::cmp::Ordering;

use snow::{Builder, HandshakeState, TransportState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Bytes of a pre-shared key.
pub const SECRET_KEY_BYTES: usize = 32;
/// Both handshake messages are shorter.
const MAX_HANDSHAKE_MESSAGE_BYTES: usize = 128;
/// The most plain bytes of a record.
const MAX_RECORD_BYTES: usize = 16 << 10;
const TAG_BYTES: usize = 16;
const LENGTH_BYTES: usize = 2;

/// The other side does not know the secret, or the bytes were changed on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAuthentic;

impl From<snow::Error> for NotAuthentic {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

/// The side that begins, between its message and the answer.
#[derive(Debug)]
pub struct ChannelHandshake(Box<HandshakeState>);

/// Encrypts and decrypts the bytes of a connection.
#[derive(Debug)]
pub struct SecureChannel(Box<TransportState>);

fn builder(key: &[u8; SECRET_KEY_BYTES]) -> Result<Builder<'_>, NotAuthentic> {
    Ok(Builder::new(PATTERN.parse()?).psk(0, key)?)
}

/// Begins a handshake; the message for the other side.
///
/// # Errors
/// The kernel has no random numbers.
pub fn begin(key: &[u8; SECRET_KEY_BYTES]) -> Result<(ChannelHandshake, Vec<u8>), NotAuthentic> {
    let mut state = builder(key)?.build_initiator()?;
    let mut message = vec![0; MAX_HANDSHAKE_MESSAGE_BYTES];
    let length = state.write_message(&[], &mut message)?;
    message.truncate(length);
    Ok((ChannelHandshake(Box::new(state)), message))
}

/// Answers a handshake message: the channel, and the message for the other side.
///
/// # Errors
/// The other side does not know the secret.
pub fn answer(key: &[u8; SECRET_KEY_BYTES], message: &[u8]) -> Result<(SecureChannel, Vec<u8>), NotAuthentic> {
    let mut state = builder(key)?.build_responder()?;
    state.read_message(message, &mut [0; MAX_HANDSHAKE_MESSAGE_BYTES])?;
    let mut answer = vec![0; MAX_HANDSHAKE_MESSAGE_BYTES];
    let length = state.write_message(&[], &mut answer)?;
    answer.truncate(length);
    Ok((SecureChannel(Box::new(state.into_transport_mode()?)), answer))
}

/// Encrypts bytes for all who know the key, without a connection: a handshake message for each piece. Its payload is the number of all
/// bytes, the number of those before it, so that no piece can be left out, repeated or moved, and the piece.
///
/// # Errors
/// The kernel has no random numbers.
pub fn seal_bytes(key: &[u8; SECRET_KEY_BYTES], plain: &[u8]) -> Result<Vec<u8>, NotAuthentic> {
    let (mut sealed, mut before) = (Vec::new(), 0);
    loop {
        let piece = &plain[before..plain.len().min(before + MAX_RECORD_BYTES)];
        let payload = [&(plain.len() as u64).to_le_bytes(), &(before as u64).to_le_bytes(), piece].concat();
        let mut state = builder(key)?.build_initiator()?;
        let mut message = vec![0; payload.len() + MAX_HANDSHAKE_MESSAGE_BYTES];
        let length = state.write_message(&payload, &mut message)?;
        sealed.extend_from_slice(&(length as u16).to_le_bytes());
        sealed.extend_from_slice(&message[..length]);
        before += piece.len();
        if before == plain.len() {
            return Ok(sealed);
        }
    }
}

/// What [`seal_bytes`] encrypted.
///
/// # Errors
/// The bytes are not authentic, or not all of them and nothing else.
pub fn open_bytes(key: &[u8; SECRET_KEY_BYTES], mut sealed: &[u8]) -> Result<Vec<u8>, NotAuthentic> {
    let mut plain = Vec::new();
    loop {
        let (length, rest) = sealed.split_first_chunk::<LENGTH_BYTES>().ok_or(NotAuthentic)?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(NotAuthentic)?;
        let mut payload = vec![0; message.len()];
        let length = builder(key)?.build_responder()?.read_message(message, &mut payload)?;
        let (all, piece) = payload[..length].split_first_chunk().ok_or(NotAuthentic)?;
        let (before, piece) = piece.split_first_chunk().ok_or(NotAuthentic)?;
        let is_next = u64::from_le_bytes(*before) == plain.len() as u64;
        plain.extend_from_slice(piece);
        sealed = rest;
        match (is_next, u64::from_le_bytes(*all).cmp(&(plain.len() as u64)), sealed.is_empty()) {
            (true, Ordering::Equal, true) => return Ok(plain),
            (true, Ordering::Greater, false) => {}
            _ => return Err(NotAuthentic),
        }
    }
}

impl ChannelHandshake {
    /// Takes the answer.
    ///
    /// # Errors
    /// The other side does not know the secret.
    pub fn finish(mut self, answer: &[u8]) -> Result<SecureChannel, NotAuthentic> {
        self.0.read_message(answer, &mut [0; MAX_HANDSHAKE_MESSAGE_BYTES])?;
        Ok(SecureChannel(Box::new(self.0.into_transport_mode()?)))
    }
}

impl SecureChannel {
    /// Encrypts the first bytes of `plain` into a record; returns how many.
    ///
    /// # Errors
    /// After 2^64 records.
    pub(super) fn seal(&mut self, plain: &[u8], record: &mut Vec<u8>) -> Result<usize, NotAuthentic> {
        let taken = plain.len().min(MAX_RECORD_BYTES);
        record.resize(LENGTH_BYTES + taken + TAG_BYTES, 0);
        let length = self.0.write_message(&plain[..taken], &mut record[LENGTH_BYTES..])?;
        record[..LENGTH_BYTES].copy_from_slice(&(length as u16).to_le_bytes());
        Ok(taken)
    }

    /// Decrypts the first record of `sealed` behind `plain`; returns how many bytes the record has, or none if it is not complete.
    ///
    /// # Errors
    /// The record is not authentic.
    pub(super) fn open(&mut self, sealed: &[u8], plain: &mut Vec<u8>) -> Result<Option<usize>, NotAuthentic> {
        let Some((length, rest)) = sealed.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes(*length));
        if !(TAG_BYTES..=MAX_RECORD_BYTES + TAG_BYTES).contains(&length) {
            return Err(NotAuthentic);
        }
        let Some(record) = rest.get(..length) else { return Ok(None) };
        let start = plain.len();
        plain.resize(start + length, 0);
        let opened = self.0.read_message(record, &mut plain[start..]);
        plain.truncate(start + opened.as_ref().map_or(0, |length| *length));
        Ok(opened.map(|_| Some(LENGTH_BYTES + length))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; SECRET_KEY_BYTES] = [7; SECRET_KEY_BYTES];

    fn pair() -> (SecureChannel, SecureChannel) {
        let (handshake, first) = begin(&KEY).expect("random numbers");
        let (responder, second) = answer(&KEY, &first).expect("the same key");
        (handshake.finish(&second).expect("the same key"), responder)
    }

    #[test]
    fn long_bytes_arrive_in_records_in_both_directions() {
        let (mut one, mut other) = pair();
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        for _ in 0..2 {
            let (mut sealed, mut record, mut sent) = (Vec::new(), Vec::new(), 0);
            while sent < bytes.len() {
                sent += one.seal(&bytes[sent..], &mut record).expect("few records");
                sealed.extend_from_slice(&record);
            }
            assert!(!sealed.windows(16).any(|window| window == &bytes[..16]), "nothing is in clear");
            let (mut plain, mut taken) = (Vec::new(), 0);
            while let Some(length) = other.open(&sealed[taken..], &mut plain).expect("authentic") {
                taken += length;
            }
            assert_eq!((plain, taken), (bytes.clone(), sealed.len()));
            std::mem::swap(&mut one, &mut other);
        }
    }

    #[test]
    fn bytes_are_sealed_for_those_who_know_the_key() {
        for length in [0, 1, 100, MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1, 100_000] {
            let plain: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let sealed = seal_bytes(&KEY, &plain).expect("random numbers");
            assert_eq!(open_bytes(&KEY, &sealed), Ok(plain.clone()));
            if length >= 100 {
                assert!(!sealed.windows(16).any(|window| window == &plain[..16]), "nothing is in clear");
                assert_ne!(sealed, seal_bytes(&KEY, &plain).expect("random numbers"), "never the same twice");
                assert_eq!(open_bytes(&[8; SECRET_KEY_BYTES], &sealed), Err(NotAuthentic));
                for at in [0, 1, 2, 40, sealed.len() - 1] {
                    let mut changed = sealed.clone();
                    changed[at] ^= 1;
                    assert_eq!(open_bytes(&KEY, &changed), Err(NotAuthentic), "byte {at}");
                }
                assert_eq!(open_bytes(&KEY, &sealed[..sealed.len() - 1]), Err(NotAuthentic));
            }
        }
    }

    #[test]
    fn sealed_pieces_cannot_be_left_out_repeated_or_moved() {
        let plain: Vec<u8> = (0..3 * MAX_RECORD_BYTES).map(|byte| (byte / 64) as u8).collect();
        let sealed = seal_bytes(&KEY, &plain).expect("random numbers");
        let (mut pieces, mut rest) = (Vec::new(), &sealed[..]);
        while let Some(length) = rest.first_chunk().map(|length| usize::from(u16::from_le_bytes(*length))) {
            let (piece, after) = rest.split_at(LENGTH_BYTES + length);
            pieces.push(piece);
            rest = after;
        }
        assert_eq!(pieces.len(), 3);
        for order in [&[0, 1][..], &[0, 2], &[0, 0, 1, 2], &[0, 2, 1], &[0, 1, 2, 2], &[]] {
            let changed: Vec<u8> = order.iter().flat_map(|at: &usize| pieces[*at].iter().copied()).collect();
            assert_eq!(open_bytes(&KEY, &changed), Err(NotAuthentic), "{order:?}");
        }
        assert_eq!(open_bytes(&KEY, &pieces[1..].concat()), Err(NotAuthentic));
    }

    #[test]
    fn a_side_without_the_secret_is_found_out() {
        let (handshake, first) = begin(&KEY).expect("random numbers");
        assert!(answer(&[8; SECRET_KEY_BYTES], &first).is_err());
        let (_, forged) = begin(&[8; SECRET_KEY_BYTES]).expect("random numbers");
        assert!(handshake.finish(&forged).is_err());
        for length in 0..first.len() {
            assert!(answer(&KEY, &first[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn changed_repeated_and_reordered_records_are_rejected() {
        let (mut one, mut other) = pair();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        one.seal(b"first", &mut first).expect("few records");
        one.seal(b"second", &mut second).expect("few records");
        let mut plain = Vec::new();
        assert_eq!(other.open(&first[..first.len() - 1], &mut plain), Ok(None), "not complete");
        assert_eq!(other.open(&second, &mut plain), Err(NotAuthentic));
        let mut changed = first.clone();
        *changed.last_mut().expect("not empty") ^= 1;
        assert_eq!(other.open(&changed, &mut plain), Err(NotAuthentic));
        assert_eq!(other.open(&[0, 0], &mut plain), Err(NotAuthentic), "too short for a tag");
        assert_eq!(other.open(&[255, 255], &mut plain), Err(NotAuthentic), "too long");
        assert!(plain.is_empty());
    }
}
