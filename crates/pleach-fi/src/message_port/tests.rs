//! Ports over loopback, and what a peer or a stranger may send them.

use super::*;
use crate::connection_request::{ConnectionRequest, RequestKind};
use crate::connection_security::SecurityOffer;
use crate::endpoint_address::EndpointPath;
use crate::user_memory::GatheredBytes;

fn port() -> MessagePort {
    let path = EndpointPath { address: "127.0.0.1:0".parse().expect("an address"), prefix: 8 };
    MessagePort::open_at(vec![path]).expect("a port")
}

/// A port that reaches others over UDP only.
fn udp_port() -> MessagePort {
    let mut port = port();
    port.own.host = None;
    port
}

fn message(tag: u64) -> PortSend {
    PortSend { token: 1, tag, body: PortSendBody::Copied(vec![1, 2, 3]) }
}

fn has_arrived(port: &MessagePort, tag: u64) -> bool {
    port.events.iter().any(|event| matches!(event, PortEvent::Arrived(arrival) if arrival.tag() == tag))
}

fn shares_memory(port: &mut MessagePort, peer: PeerIndex) -> bool {
    port.messenger.transport().shares_memory_with(Rank(peer))
}

/// The user may free or change the memory when the failure is reported; a packet must not refer to it then.
#[test]
fn a_failed_send_is_reported_only_when_its_memory_is_free() {
    let lost = MessageFailure::Lost(Rank(0), protocol::messaging::PeerLossCause::Unreachable);
    for failure in [Some(lost), None] {
        let mut port = port();
        let loan: Arc<dyn LentBytes> = Arc::new(GatheredBytes(vec![1; 100]));
        let in_a_packet = Arc::clone(&loan);
        port.sends.insert(3, 77);
        let peer = port.peer_at(&self::port().own);
        port.peers[peer as usize].lent_sends = 1;
        port.loans.insert(77, (peer, loan));
        port.finish_send(3, failure);
        port.collect();
        assert!(port.events.is_empty(), "a packet still refers to the memory");
        drop(in_a_packet);
        port.collect();
        let event = port.events.pop_front().expect("now it is free");
        let is_right = match event {
            PortEvent::SendFailed { token: 77, failure: reported } => Some(reported) == failure,
            PortEvent::Sent { token: 77 } => failure.is_none(),
            _ => false,
        };
        assert!(is_right && port.events.is_empty() && port.peers[peer as usize].lent_sends == 0);
    }
}

/// Two ports that turn until this holds.
fn turn_until(ports: &mut [&mut MessagePort], what: &str, is_done: impl Fn(&[&mut MessagePort]) -> bool) {
    let began = Instant::now();
    while !is_done(ports) {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        ports.iter_mut().for_each(|port| port.turn(Duration::from_millis(1)));
    }
}

fn is_connected(port: &MessagePort, peer: PeerIndex) -> bool {
    matches!(port.peers[peer as usize].state, PeerState::Connected { .. })
}

/// Well-formed requests and answers of strangers: with the key of another job, with no key at all, for another receiver.
#[test]
fn well_formed_requests_without_the_secret_change_nothing() {
    let (mut port, stranger) = (port(), port());
    let request = |kind, receiver| ConnectionRequest {
        kind,
        attempt: 5,
        pairs: vec![QpNumber(3)],
        psn: units::Psn::new(7),
        link_bytes: 1500,
        security: SecurityOffer { mode: SecurityMode::Off, is_set: false },
        sender: stranger.own.clone(),
        rank: None,
        receiver,
    };
    let own = port.own.identity;
    for kind in [RequestKind::Connect, RequestKind::Accept] {
        for key in [stranger.own.secret, [0; 16]] {
            port.handle_request(&request(kind, own).to_bytes(&key));
            assert!(port.peers.is_empty(), "a stranger became a peer");
        }
    }
    port.handle_request(&request(RequestKind::Connect, own + 1).to_bytes(&port.own.secret));
    assert!(port.peers.is_empty(), "a request for somebody else");
    // A peer without a known secret: the answer's key is known to everybody.
    let peer = port.peer_at(&stranger.own.public());
    port.connect(peer);
    port.handle_request(&request(RequestKind::Accept, own).to_bytes(&[0; 16]));
    assert!(matches!(port.peers[peer as usize].state, PeerState::Unconnected));
    // The same request with the secret is accepted, so the ones above failed for their keys alone.
    port.handle_request(&request(RequestKind::Connect, own).to_bytes(&port.own.secret));
    assert!(is_connected(&port, peer));
}

/// Two ports with these settings, of which the first sends a message to the second.
fn asking_and_asked(
    mut ports: [MessagePort; 2],
    settings: [Option<SecurityMode>; 2],
) -> ([MessagePort; 2], PeerIndex) {
    for (port, setting) in ports.iter_mut().zip(settings) {
        port.security = setting;
    }
    let asked = ports[1].own.clone();
    let peer = ports[0].peer_at(&asked);
    let body = PortSendBody::Copied(vec![1, 2, 3]);
    ports[0].send(peer, PortSend { token: 1, tag: 4, body }).expect("it waits for the connection");
    (ports, peer)
}

#[test]
fn messages_arrive_under_every_setting() {
    use SecurityMode::{Authenticate, Encrypt, Off};
    for setting in [None, Some(Off), Some(Authenticate), Some(Encrypt)] {
        let ([mut asking, mut asked], _) = asking_and_asked([udp_port(), udp_port()], [setting, setting]);
        turn_until(&mut [&mut asking, &mut asked], "the message arrives", |ports| {
            ports[1].events.iter().any(|event| matches!(event, PortEvent::Arrived(arrival) if arrival.tag() == 4))
        });
        let counters = asked.messenger.transport().udp().endpoint().counters();
        assert_eq!((counters.forged, counters.replayed, counters.malformed), (0, 0, 0), "{setting:?}");
    }
}

#[test]
fn ends_with_different_settings_both_name_both() {
    // The second two would share memory.
    for ports in [[udp_port(), udp_port()], [port(), port()]] {
        let ([mut asking, mut asked], peer) =
            asking_and_asked(ports, [Some(SecurityMode::Encrypt), Some(SecurityMode::Authenticate)]);
        turn_until(&mut [&mut asking, &mut asked], "both give up", |ports| {
            ports[0].lost(peer).is_some() && !ports[1].peers.is_empty() && ports[1].lost(0).is_some()
        });
        let here = asking.lost(peer).expect("it is lost").to_owned();
        assert!(here.contains("PLEACH_SECURITY differs: encrypt here, authenticate there"), "{here}");
        let there = asked.lost(0).expect("it is lost");
        assert!(there.contains("PLEACH_SECURITY differs: authenticate here, encrypt there"), "{there}");
    }
}

/// P-120: the answer is lost, the request comes again and gets the same answer.
#[test]
fn a_lost_answer_is_repeated_and_the_messages_arrive() {
    for [mut asking, mut asked] in [[udp_port(), udp_port()], [port(), port()]] {
        lose_an_answer(&mut asking, &mut asked);
    }
}

fn lose_an_answer(asking: &mut MessagePort, asked: &mut MessagePort) {
    let peer = asking.peer_at(&asked.own);
    asking.send(peer, message(4)).expect("it waits for the connection");
    turn_until(&mut [&mut *asked], "the request arrives", |ports| ports[0].peers.len() == 1);
    assert!(is_connected(asked, 0));
    // The answer is on its way in the socket of the port that asked: it is thrown away.
    asking.messenger.transport().turn(Duration::from_millis(50), &mut |_, _| {}).expect("no error");
    while asking.messenger.transport().next_side_event().is_some() {}
    assert!(!is_connected(asking, peer), "the answer was lost");
    turn_until(&mut [&mut *asking, &mut *asked], "the message arrives", |ports| has_arrived(ports[1], 4));
    assert!(is_connected(asking, peer) && asked.peers.len() == 1);
}

#[test]
fn ports_of_one_host_share_memory_also_if_both_ask() {
    for both_ask in [false, true] {
        let (mut first, mut second) = (port(), port());
        let (to_second, to_first) = (first.peer_at(&second.own), second.peer_at(&first.own));
        first.send(to_second, message(4)).expect("it waits for the connection");
        if both_ask {
            second.send(to_first, message(5)).expect("it waits for the connection");
        }
        turn_until(&mut [&mut first, &mut second], "all messages arrive", |ports| {
            has_arrived(ports[1], 4) && (!both_ask || has_arrived(ports[0], 5))
        });
        assert!(shares_memory(&mut first, to_second) && shares_memory(&mut second, to_first));
        assert!(first.peers[0].queue_pairs.is_empty() && second.peers[0].queue_pairs.is_empty());
    }
}

/// As between containers that look like one host, whichever of them asks first, and if both do.
#[test]
fn ports_that_only_seem_to_be_on_one_host_connect_over_udp() {
    for asking in [[true, false], [false, true], [true, true]] {
        let (mut first, mut second) = (port(), port());
        let (to_second, to_first) = (first.peer_at(&second.own), second.peer_at(&first.own));
        second.own.host = None; // It joins nothing, but the first one thinks that it can.
        if asking[0] {
            first.send(to_second, message(4)).expect("it waits for the connection");
        }
        if asking[1] {
            second.send(to_first, message(5)).expect("it waits for the connection");
        }
        turn_until(&mut [&mut first, &mut second], "all messages arrive", |ports| {
            (!asking[0] || has_arrived(ports[1], 4)) && (!asking[1] || has_arrived(ports[0], 5))
        });
        assert!(!shares_memory(&mut first, to_second) && !shares_memory(&mut second, to_first));
    }
}

/// What waits for a port that was closed in an orderly way fails; before, its last message arrives.
#[test]
fn a_closed_port_is_lost_to_those_who_need_it() {
    let (mut staying, mut leaving) = (port(), port());
    let (to_leaving, to_staying) = (staying.peer_at(&leaving.own), leaving.peer_at(&staying.own));
    leaving.send(to_staying, message(6)).expect("it waits for the connection");
    turn_until(&mut [&mut staying, &mut leaving], "it connects", |ports| is_connected(ports[0], 0));
    let loan: Arc<dyn LentBytes> = Arc::new(GatheredBytes(vec![1; 100_000]));
    let body = PortSendBody::Lent { note: 0, loan };
    staying.send(to_leaving, PortSend { token: 9, tag: 7, body }).expect("it is connected");
    leaving.messenger.transport().pairs().close();
    turn_until(&mut [&mut staying], "the send fails", |ports| {
        let failed = |event: &PortEvent| matches!(event, PortEvent::SendFailed { token: 9, .. });
        ports[0].events.iter().any(failed)
    });
    assert!(has_arrived(&staying, 6));
    assert!(staying.lost(to_leaving).is_some_and(|why| why.contains("closed its endpoint")));
    assert!(staying.send(to_leaving, message(8)).is_err(), "later sends fail at once");
}
