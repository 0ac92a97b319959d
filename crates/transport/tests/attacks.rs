//! An attacker on the way between two queue pairs: it reads every packet, and sends what it likes in the name of both ends (P-123).
//!
//! It computes right ICRCs, as anyone can. The same attacks on queue pairs without MACs succeed, which shows that they are attacks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use manager::AuthKey;
use protocol::connection::path::MigrationRole;
use protocol::queue_pair::QpOperation;
use transport::SecurityMode;
use transport::udp::{Endpoint, EndpointEvent, EndpointOptions, QueuePairSetup, UdpPortIndex, UdpRoute};
use units::{Psn, QpNumber};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader};
use wire::{Aeth, Bth, CreditCode, IcrcCoverage, Opcode, Packet, PacketHeaders, Syndrome};

const SEND: QpOperation = QpOperation::Send { immediate: None };
const LIMIT: Duration = Duration::from_secs(20);
const FIRST_PSN: Psn = Psn::new(100);

/// Two ends that know only the attacker's addresses.
struct Victims {
    ends: [Endpoint; 2],
    pairs: [QpNumber; 2],
    bound: [SocketAddr; 2],
    /// Where the packets of each end arrive, and from where the other end gets them.
    relays: [UdpSocket; 2],
}

fn victims(mode: SecurityMode) -> Victims {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut ends =
        [0, 1].map(|_| Endpoint::open(&[loopback], EndpointOptions::default()).expect("loopback can be bound"));
    let relays = [0, 1].map(|_| UdpSocket::bind(loopback).expect("loopback can be bound"));
    for relay in &relays {
        relay.set_nonblocking(true).expect("a socket");
    }
    let pairs = [ends[0].create(), ends[1].create()];
    let bound = [ends[0].addresses()[0], ends[1].addresses()[0]];
    for (me, relay) in relays.iter().enumerate() {
        let at = relay.local_addr().expect("bound");
        let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
        let route = UdpRoute::new(UdpPortIndex(0), at);
        let setup = QueuePairSetup::new(pairs[1 - me], FIRST_PSN, FIRST_PSN, vec![route], role);
        // The ends agreed that the ICRC covers only the beginning of a packet, as messages do.
        let setup = QueuePairSetup { coverage: IcrcCoverage::Prefix, ..setup };
        ends[me].connect(pairs[me], setup.with_security(mode.packets(AuthKey([7; 16])))).expect("valid attributes");
    }
    Victims { ends, pairs, bound, relays }
}

/// What the attacker does with a packet from one end: what the other end gets instead.
type Attack<'a> = dyn FnMut(usize, &[u8]) -> Vec<Vec<u8>> + 'a;

impl Victims {
    /// Sends bytes to an end, as if they came from the other one, with a right ICRC.
    fn inject(&self, to: usize, datagram: &[u8]) {
        let from = self.relays[to].local_addr().expect("bound");
        let Ok(packet) = rocev2::parse_at_least(datagram, IcrcCoverage::Prefix) else { return };
        let flow = flow(from, self.bound[to]);
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow, &mut bytes);
        self.relays[to].send_to(&bytes, self.bound[to]).expect("sent");
    }

    /// Lets both ends and the attacker work for one turn; the messages that arrived at the second end.
    fn turn(&mut self, attack: &mut Attack<'_>) -> (Vec<Vec<u8>>, usize) {
        let mut space = [0; 1 << 16];
        for from in 0..2 {
            while let Ok((length, sender)) = self.relays[from].recv_from(&mut space) {
                assert_eq!(sender, self.bound[from], "nobody else sends");
                for datagram in attack(from, &space[..length]) {
                    self.inject(1 - from, &datagram);
                }
            }
        }
        let (mut arrived, mut sent) = (Vec::new(), 0);
        for end in &mut self.ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = end.next_event() {
                match event {
                    EndpointEvent::Received { buffer, message, .. } => arrived.push(buffer[message].to_vec()),
                    EndpointEvent::Sent { .. } => sent += 1,
                    EndpointEvent::Failed { failure, .. } => panic!("{failure}"),
                    EndpointEvent::Path { .. } | EndpointEvent::Datagram { .. } => {}
                }
            }
        }
        (arrived, sent)
    }

    /// Sends messages from the first end to the second one under attack; what arrived.
    fn stream(&mut self, messages: &[Vec<u8>], attack: &mut Attack<'_>) -> Vec<Vec<u8>> {
        for message in messages {
            self.ends[1].post_receive(self.pairs[1], vec![0; 1 << 16]).expect("posted");
            self.ends[0].post_send(self.pairs[0], message.clone(), SEND).expect("posted");
        }
        let (mut arrived, mut sent) = (Vec::new(), 0);
        let began = Instant::now();
        while arrived.len() < messages.len() || sent < messages.len() {
            assert!(began.elapsed() < LIMIT, "{} of {} messages", arrived.len(), messages.len());
            let (now, complete) = self.turn(attack);
            arrived.extend(now);
            sent += complete;
        }
        arrived
    }
}

fn flow(from: SocketAddr, to: SocketAddr) -> Flow {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (from.ip(), to.ip()) else { panic!("all are IPv4") };
    let ip = IpHeader::V4 { source, destination, identification: 0, fragmentation: Fragmentation::Forbidden };
    Flow { ip, source_port: from.port(), destination_port: to.port() }
}

fn messages() -> Vec<Vec<u8>> {
    (0..40_u8).map(|number| vec![number; 1 + 211 * usize::from(number)]).collect()
}

const PROTECTED: [SecurityMode; 2] = [SecurityMode::Authenticate, SecurityMode::Encrypt];

#[test]
fn a_changed_packet_is_not_used() {
    for mode in PROTECTED {
        let mut victims = victims(mode);
        let mut count = 0_usize;
        let arrived = victims.stream(&messages(), &mut |_, datagram| {
            count += 1;
            // Every third packet comes changed somewhere, and every sixth not at all.
            let mut changed = datagram.to_vec();
            let at = 20 + (count * 37) % (datagram.len() - 24);
            changed[at] ^= 1 << (count % 8);
            match count % 6 {
                0 => vec![changed],
                3 => vec![changed, datagram.to_vec()],
                _ => vec![datagram.to_vec()],
            }
        });
        assert!(arrived == messages(), "{mode}: only what was sent arrives");
        let forged: u64 = victims.ends.iter().map(|end| end.counters().forged).sum();
        assert!(forged > 0, "{mode}: the changes were found by the MACs");
    }
}

#[test]
fn a_recorded_packet_is_of_no_use() {
    for mode in PROTECTED {
        let mut victims = victims(mode);
        let mut recorded: [Vec<Vec<u8>>; 2] = Default::default();
        let mut replay = |from: usize, datagram: &[u8]| {
            let old = recorded[from].iter().step_by(7).cloned();
            let all = std::iter::once(datagram.to_vec()).chain(old).chain([datagram.to_vec()]).collect();
            recorded[from].push(datagram.to_vec());
            all
        };
        assert!(victims.stream(&messages(), &mut replay) == messages(), "{mode}: each message arrives once");
        let replayed: u64 = victims.ends.iter().map(|end| end.counters().replayed).sum();
        assert!(replayed > 50, "{mode}: {replayed} packets were recognised");
        let received = victims.ends.iter().map(|end| end.counters().received).sum::<u64>();
        assert!(received <= recorded.iter().map(Vec::len).sum::<usize>() as u64, "{mode}: none was used twice");
    }
}

#[test]
fn a_packet_sent_back_or_to_another_queue_pair_is_of_no_use() {
    let mut victims = victims(SecurityMode::Authenticate);
    let mut seen = Vec::new();
    victims.stream(&messages()[..5], &mut |_, datagram| {
        seen.push(datagram.to_vec());
        vec![datagram.to_vec()]
    });
    // Late acknowledgements arrive.
    for _ in 0..100 {
        std::thread::sleep(Duration::from_micros(200));
        victims.turn(&mut |_, datagram| vec![datagram.to_vec()]);
    }
    // Both ends have the same number: only the direction in the MAC tells them apart.
    assert_eq!(victims.pairs[0], victims.pairs[1]);
    let before = victims.ends[0].counters();
    for datagram in &seen {
        victims.inject(0, datagram);
    }
    // A turn may leave datagrams unread.
    (0..50).for_each(|_| drop(victims.turn(&mut |_, _| Vec::new())));
    let after = victims.ends[0].counters();
    assert_eq!(after.received, before.received);
    assert!(after.forged > before.forged && after.replayed > before.replayed, "{after:?}");
}

/// A packet as a stranger makes it who knows the numbers and has no key.
fn forged_acknowledgement(pair: QpNumber, psn: Psn) -> Vec<u8> {
    let mut headers = PacketHeaders::from(Bth::new(Opcode::Acknowledge, pair, psn));
    headers.aeth = Some(Aeth { syndrome: Syndrome::Ack { credits: CreditCode::at_most(8) }, message_sequence: 1 });
    let mut bytes = vec![0; headers.size_with(0)];
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    rocev2::emit(&Packet::new(headers, &[]), &flow(nowhere, nowhere), &mut bytes);
    bytes
}

/// The attacker swallows the message and acknowledges it: whether the sender believes that.
fn believes_a_forged_acknowledgement(mode: SecurityMode) -> bool {
    let mut victims = victims(mode);
    victims.ends[0].post_send(victims.pairs[0], vec![1; 100], SEND).expect("posted");
    let pair = victims.pairs[0];
    for _ in 0..200 {
        let mut swallowed = false;
        let (_, sent) = victims.turn(&mut |_, _| {
            swallowed = true;
            Vec::new()
        });
        if sent > 0 {
            return true;
        }
        if swallowed {
            victims.inject(0, &forged_acknowledgement(pair, FIRST_PSN));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(victims.ends[0].counters().forged > 0, "it arrived");
    // The attacker gives up, and the message arrives after all.
    victims.ends[1].post_receive(victims.pairs[1], vec![0; 200]).expect("posted");
    let began = Instant::now();
    while victims.turn(&mut |_, datagram| vec![datagram.to_vec()]).0.is_empty() {
        assert!(began.elapsed() < LIMIT, "the sender still tries");
    }
    false
}

#[test]
fn an_acknowledgement_without_the_key_is_not_believed() {
    assert!(believes_a_forged_acknowledgement(SecurityMode::Off), "without MACs it is: the attack is one");
    for mode in PROTECTED {
        assert!(!believes_a_forged_acknowledgement(mode), "{mode}");
    }
}

/// Whether a message that a stranger made is delivered.
fn takes_a_message_of_a_stranger(mode: SecurityMode) -> bool {
    let mut victims = victims(mode);
    victims.ends[1].post_receive(victims.pairs[1], vec![0; 200]).expect("posted");
    let headers = PacketHeaders::from(Bth::new(Opcode::SendOnly, victims.pairs[1], FIRST_PSN));
    let mut bytes = vec![0; headers.size_with(5)];
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    rocev2::emit(&Packet::new(headers, b"wrong"), &flow(nowhere, nowhere), &mut bytes);
    victims.inject(1, &bytes);
    (0..50).any(|_| {
        std::thread::sleep(Duration::from_micros(200));
        !victims.turn(&mut |_, _| Vec::new()).0.is_empty()
    })
}

#[test]
fn a_message_without_the_key_is_not_delivered() {
    assert!(takes_a_message_of_a_stranger(SecurityMode::Off), "without MACs it is: the attack is one");
    assert!(!PROTECTED.into_iter().any(takes_a_message_of_a_stranger));
}

/// Acknowledgements, probes and messages by the thousand, without the key: they cost the victim no packet and no memory.
#[test]
fn a_flood_without_the_key_gets_no_answer() {
    let mut victims = victims(SecurityMode::Authenticate);
    let pair = victims.pairs[1];
    let mut answers = 0;
    for round in 0..200_u32 {
        for number in 0..20_u32 {
            let opcode = if number.is_multiple_of(2) { Opcode::Protected } else { Opcode::SendOnly };
            let headers = PacketHeaders::from(Bth::new(opcode, pair, Psn::new(round * 20 + number)));
            let payload = vec![number as u8; number as usize * 60];
            let mut bytes = vec![0; headers.size_with(payload.len())];
            let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
            rocev2::emit(&Packet::new(headers, &payload), &flow(nowhere, nowhere), &mut bytes);
            victims.inject(1, &bytes);
        }
        victims.turn(&mut |_, _| {
            answers += 1;
            Vec::new()
        });
    }
    let counters = victims.ends[1].counters();
    assert!(counters.forged + counters.malformed > 3_000 && counters.received == 0, "{counters:?}");
    assert_eq!(answers, 0, "a packet whose ICRC is right and whose MAC is wrong is no damage, and asks for nothing");
}

#[test]
fn an_encrypted_message_cannot_be_read_on_the_way() {
    let mut victims = victims(SecurityMode::Encrypt);
    let secret = b"eight bytes of a secret that nobody else may read".to_vec();
    let mut seen = Vec::new();
    let arrived = victims.stream(&vec![secret.clone(); 20], &mut |_, datagram| {
        seen.push(datagram.to_vec());
        vec![datagram.to_vec()]
    });
    assert!(arrived.iter().all(|message| *message == secret) && arrived.len() == 20);
    for datagram in &seen {
        assert!(
            !datagram.windows(6).any(|window| secret.windows(6).any(|part| part == window)),
            "a part is readable"
        );
    }
}
