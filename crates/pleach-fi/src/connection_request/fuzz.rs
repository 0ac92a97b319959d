//! Datagrams at the port for connection requests: from anybody, and from a process of the job, which can compute the MAC.

use bolero::check;

use super::*;
use crate::endpoint_address::EndpointPath;

const KEY: EndpointSecret = [3; 16];

/// An input: the kind of a request and how many rails it has, and which bytes of it are changed.
type EditedRequest = (u8, u8, Vec<(u8, u8)>);

fn request(kind: u8, rails: u8) -> ConnectionRequest {
    let paths = ["10.0.0.1:77", "[fd00::2]:9"].map(|text| text.parse().expect("an address"));
    let sender = EndpointAddress {
        identity: 9,
        datagrams: QpNumber(3),
        secret: [1; 16],
        host: None,
        is_checked: true,
        paths: paths.map(|address| EndpointPath { address, prefix: 16 }).to_vec(),
    };
    ConnectionRequest {
        kind: RequestKind::ALL[usize::from(kind) % RequestKind::ALL.len()],
        attempt: 99,
        pairs: (0..u32::from(rails) % (MAX_RAILS as u32 + 1)).map(QpNumber).collect(),
        psn: Psn::new(1234),
        link_bytes: 1500,
        security: SecurityOffer { mode: transport::SecurityMode::Encrypt, is_set: true },
        sender,
        rank: Some(7),
        receiver: 4,
    }
}

fn sign(bytes: &mut [u8]) {
    let mac = mac_of(&KEY, &bytes[MAC_BYTES..]);
    bytes[..MAC_BYTES].copy_from_slice(&mac);
}

/// What is accepted is within bounds, and is written as what was read.
fn check_accepted(request: &ConnectionRequest) {
    assert!(request.pairs.len() <= MAX_RAILS && request.pairs.is_empty() != request.kind.has_rails());
    assert!((MIN_LINK_BYTES..=MAX_LINK_BYTES).contains(&request.link_bytes));
    assert!(!request.sender.paths.is_empty());
    let again = ConnectionRequest::parse(&request.to_bytes(&KEY), &KEY).expect("it was accepted before");
    assert_eq!(again, ConnectionRequest { sender: request.sender.public(), ..request.clone() });
}

#[test]
fn any_request_of_a_process_with_the_key_is_read_or_refused() {
    check!(name = "connection_requests").with_type::<EditedRequest>().for_each(
        |(kind, rails, edits): &EditedRequest| {
            let mut bytes = request(*kind, *rails).to_bytes(&KEY);
            edits.iter().for_each(|(at, value)| bytes[usize::from(*at) % REQUEST_BYTES] = *value);
            sign(&mut bytes);
            ConnectionRequest::parse(&bytes, &KEY).iter().for_each(check_accepted);
        },
    );
}

#[test]
fn any_datagram_is_read_or_refused_as_a_request() {
    check!(name = "connection_datagrams").for_each(|bytes: &[u8]| {
        let _ = ConnectionRequest::claimed_sender(bytes);
        assert!(ConnectionRequest::parse(bytes, &KEY).is_none(), "nobody guesses a MAC");
        let _ = EndpointAddress::parse(bytes).map(|address| address.to_string());
    });
}
