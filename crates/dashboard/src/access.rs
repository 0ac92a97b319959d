//! Who may look at the page: the token, and the names under which a browser may reach it.
//!
//! Off loopback a token is needed, as a bearer token or, for browsers, once in the address; then a cookie replaces it. On
//! loopback without a token, any web site that the operator visits could make its own name resolve to this machine (DNS rebinding)
//! and read the page; so only addresses and `localhost` are accepted as the host of a request.

use std::fmt;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HOST};
use sha2::{Digest, Sha256};

/// The shortest acceptable token.
pub const MIN_TOKEN_CHARS: usize = 16;
const MAX_TOKEN_FILE_BYTES: u64 = 4096;
/// The name of the cookie.
const COOKIE_NAME: &str = "pleach_view";
/// A browser keeps the cookie for a week.
const COOKIE_SECONDS: u32 = 7 * 24 * 3600;

/// What a viewer must know. The token itself is not kept.
#[derive(Clone)]
pub struct WebToken {
    token_digest: [u8; 32],
    /// Derived from the token, so that it outlives the manager: an open page connects again after a restart.
    cookie: String,
}

impl fmt::Debug for WebToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebToken(..)")
    }
}

impl WebToken {
    /// From text; surrounding white space is ignored.
    ///
    /// # Errors
    /// If it is too short, or has characters that a header cannot carry.
    pub fn new(text: &str) -> io::Result<Self> {
        let text = text.trim();
        if text.chars().count() < MIN_TOKEN_CHARS || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what = format!(
                "a token has at least {MIN_TOKEN_CHARS} printable ASCII characters and no spaces; for example: \
                 openssl rand -hex 32"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let cookie = digest(&[b"pleach web cookie\0", text.as_bytes()]);
        let cookie = cookie.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { token_digest: digest(&[text.as_bytes()]), cookie })
    }

    /// From a file.
    ///
    /// # Errors
    /// If the file cannot be read, or as [`Self::new`].
    pub fn from_file(path: &Path) -> io::Result<Self> {
        let mut text = String::new();
        std::fs::File::open(path)?.take(MAX_TOKEN_FILE_BYTES).read_to_string(&mut text)?;
        Self::new(&text)
    }

    /// True if this is the token. The comparison takes the same time wherever they differ.
    fn is_token(&self, text: &[u8]) -> bool {
        same_bytes(&digest(&[text]), &self.token_digest)
    }

    fn is_cookie(&self, text: &[u8]) -> bool {
        same_bytes(&digest(&[text]), &digest(&[self.cookie.as_bytes()]))
    }

    /// The header that makes a browser keep the cookie.
    pub(super) fn set_cookie(&self) -> String {
        format!("{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_SECONDS}", self.cookie)
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

fn same_bytes(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// What a request may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessDecision {
    Granted,
    /// The token is in the address: set the cookie and redirect.
    SetCookie,
    /// There is no token, or a wrong one.
    Denied,
    /// The name by which the browser found this server may belong to somebody else.
    WrongHost,
}

/// Decides about a request by its headers and query.
pub(super) fn decide(token: Option<&WebToken>, headers: &HeaderMap, query: Option<&str>) -> AccessDecision {
    let Some(token) = token else {
        let mut hosts = headers.get_all(HOST).iter();
        let is_local = hosts.next().is_some_and(|host| host.to_str().is_ok_and(is_address_or_localhost));
        let is_only = hosts.next().is_none();
        return if is_local && is_only { AccessDecision::Granted } else { AccessDecision::WrongHost };
    };
    let bearer = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    if let Some((scheme, given)) = bearer.and_then(|value| value.split_at_checked(7)) {
        let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ");
        return if is_bearer && token.is_token(given.trim_ascii()) {
            AccessDecision::Granted
        } else {
            AccessDecision::Denied
        };
    }
    let mut cookies = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let prefix = format!("{COOKIE_NAME}=");
    if cookies.any(|part| part.trim_ascii().strip_prefix(prefix.as_bytes()).is_some_and(|it| token.is_cookie(it))) {
        return AccessDecision::Granted;
    }
    let mut parameters = query.unwrap_or("").split('&').filter_map(|pair| pair.strip_prefix("token="));
    match parameters.next() {
        Some(given) if token.is_token(&percent_decoded(given)) => AccessDecision::SetCookie,
        _ => AccessDecision::Denied,
    }
}

/// True for `localhost`, `127.0.0.1:8080`, `[::1]:8080`: nobody can make these names lead somewhere else.
fn is_address_or_localhost(host: &str) -> bool {
    let is_port =
        |text: &str| text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    if let Some(bracketed) = host.strip_prefix('[') {
        let Some((address, port)) = bracketed.split_once(']') else { return false };
        return address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) && is_port(port);
    }
    let at = host.find(':').unwrap_or(host.len());
    let (name, port) = host.split_at(at);
    let is_name = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    is_name && is_port(port)
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => decoded.push(byte),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef%20";

    fn headers(pairs: &[(hyper::header::HeaderName, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(hyper::header::HeaderName, &str)| (name.clone(), value.parse().expect("a value"));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn without_a_token_only_addresses_and_localhost_are_hosts() {
        for (host, granted) in [
            ("localhost", true),
            ("LocalHost:8080", true),
            ("127.0.0.1", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("10.0.0.1:80", true),
            ("evil.example", false),
            ("evil.example:8080", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("localhost:port", false),
            ("127.0.0.1:99999", false),
            ("[::1", false),
            ("[evil]:80", false),
            ("", false),
        ] {
            let decision = decide(None, &headers(&[(HOST, host)]), None);
            assert_eq!(decision == AccessDecision::Granted, granted, "{host}");
        }
        assert_eq!(decide(None, &HeaderMap::new(), None), AccessDecision::WrongHost);
        let mut two = headers(&[(HOST, "localhost")]);
        two.append(HOST, "evil.example".parse().expect("a value"));
        assert_eq!(decide(None, &two, None), AccessDecision::WrongHost);
    }

    #[test]
    fn a_token_is_accepted_as_bearer_in_the_query_and_as_the_cookie_that_follows() {
        let token = WebToken::new(TOKEN).expect("long enough");
        let decide =
            |pairs: &[(hyper::header::HeaderName, &str)], query| decide(Some(&token), &headers(pairs), query);
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(decide(&[(AUTHORIZATION, &bearer)], None), AccessDecision::Granted);
        assert_eq!(decide(&[(AUTHORIZATION, &bearer.to_lowercase())], None), AccessDecision::Granted);
        for wrong in ["", "Bearer", "Bearer ", "Bearer x", TOKEN, "Basic 0123456789abcdef", &format!("{bearer}x")] {
            assert_eq!(decide(&[(AUTHORIZATION, wrong)], None), AccessDecision::Denied, "{wrong:?}");
        }
        let encoded = format!("a=b&token={}", TOKEN.replace('%', "%25"));
        assert_eq!(decide(&[], Some(&encoded)), AccessDecision::SetCookie);
        assert_eq!(decide(&[], Some("token=")), AccessDecision::Denied);
        assert_eq!(decide(&[], Some("token=%")), AccessDecision::Denied);
        assert_eq!(decide(&[], None), AccessDecision::Denied);
        let set = token.set_cookie();
        let cookie = set.split(';').next().expect("the value");
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict") && !set.contains(TOKEN), "{set}");
        assert_eq!(decide(&[(COOKIE, &format!("other=1; {cookie}"))], None), AccessDecision::Granted);
        assert_eq!(decide(&[(COOKIE, &format!("{cookie}0"))], None), AccessDecision::Denied);
        assert_eq!(decide(&[(COOKIE, &format!("{COOKIE_NAME}={TOKEN}"))], None), AccessDecision::Denied);
        let same = WebToken::new(&format!(" {TOKEN}\n")).expect("the same token");
        assert_eq!(same.cookie, token.cookie, "the cookie outlives the process");
    }

    #[test]
    fn weak_tokens_are_refused() {
        for weak in
            ["", "short", "               1", "0123456789abcde", "0123456789 abcdef", "0123456789abcdef\u{e9}"]
        {
            assert!(WebToken::new(weak).is_err(), "{weak:?}");
        }
    }
}
