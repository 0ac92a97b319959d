//! How the packets of a connection are protected: what both ends agree on when it is made (P-120, P-124).

use hmac::{Hmac, KeyInit, Mac};
use manager::AuthKey;
use sha2::Sha256;
use transport::SecurityMode;

use crate::endpoint_address::EndpointSecret;

/// What one end wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SecurityOffer {
    pub(crate) mode: SecurityMode,
    /// The user asked for it; otherwise it follows from this end's addresses.
    pub(crate) is_set: bool,
}

const MODES: [SecurityMode; 3] = [SecurityMode::Off, SecurityMode::Authenticate, SecurityMode::Encrypt];
const IS_SET: u8 = 1 << 2;

impl SecurityOffer {
    pub(crate) fn to_bits(self) -> u8 {
        self.mode as u8 | if self.is_set { IS_SET } else { 0 }
    }

    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        let mode = *MODES.get(usize::from(bits & 3))?;
        (bits & !(3 | IS_SET) == 0).then_some(Self { mode, is_set: bits & IS_SET != 0 })
    }

    /// What two ends use: what the user said, which must be the same at both; otherwise the stronger of the two.
    pub(crate) fn agree(self, peer: Self) -> Result<SecurityMode, String> {
        if self.mode != peer.mode && (self.is_set || peer.is_set) {
            let name = |offer: Self| {
                if offer.is_set { offer.mode.to_string() } else { format!("none, which means {}", offer.mode) }
            };
            return Err(format!(
                "{} differs: {} here, {} there; set it to the same for all processes",
                SecurityMode::VARIABLE,
                name(self),
                name(peer)
            ));
        }
        Ok(self.mode.max(peer.mode))
    }
}

/// The key of one connection. Its attempt is random, so that no other connection has the same; the secret is that of the end that was asked.
pub(crate) fn connection_key(secret: &EndpointSecret, attempt: u64, asking: u64, asked: u64) -> AuthKey {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length will do");
    mac.update(b"pleach messages of a connection");
    [attempt, asking, asked].into_iter().for_each(|number| mac.update(&number.to_le_bytes()));
    let whole = mac.finalize().into_bytes();
    AuthKey(whole[..16].try_into().expect("a prefix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(mode: SecurityMode, is_set: bool) -> SecurityOffer {
        SecurityOffer { mode, is_set }
    }

    #[test]
    fn settings_must_be_the_same_and_the_stronger_default_counts() {
        use SecurityMode::{Authenticate, Encrypt, Off};
        assert_eq!(offer(Encrypt, true).agree(offer(Encrypt, true)), Ok(Encrypt));
        assert_eq!(offer(Off, false).agree(offer(Authenticate, false)), Ok(Authenticate));
        assert_eq!(offer(Authenticate, true).agree(offer(Authenticate, false)), Ok(Authenticate));
        let error = offer(Encrypt, true).agree(offer(Authenticate, false)).expect_err("they differ");
        assert!(error.contains("encrypt here, none, which means authenticate there"), "{error}");
        assert!(
            offer(Off, true).agree(offer(Authenticate, false)).is_err(),
            "nobody turns MACs off for the other end"
        );
    }

    #[test]
    fn offers_read_back() {
        for mode in MODES {
            for is_set in [false, true] {
                assert_eq!(SecurityOffer::from_bits(offer(mode, is_set).to_bits()), Some(offer(mode, is_set)));
            }
        }
        assert_eq!(SecurityOffer::from_bits(3), None);
        assert_eq!(SecurityOffer::from_bits(8), None);
    }

    #[test]
    fn every_connection_has_a_key_of_its_own() {
        let usual = connection_key(&[1; 16], 2, 3, 4);
        let others =
            [connection_key(&[2; 16], 2, 3, 4), connection_key(&[1; 16], 1, 3, 4), connection_key(&[1; 16], 2, 4, 3)];
        assert!(others.iter().all(|other| other.0 != usual.0));
    }
}
