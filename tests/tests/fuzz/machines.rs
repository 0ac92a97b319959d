//! Sequences of frames at an aggregation node and at a member, from neighbours that send anything.

use bolero::check;
use protocol::Payload;
use protocol::aggregation::{
    AggregationAction, AggregationMember, AggregationMessage, AggregationNode, Contribution, ContributionRole,
    Damage, DownwardDelivery, EdgeIndex, ImplicitAck, MemberConfig, Outbox, ParentLink, Plane, RepairTimeoutMode,
    ResultDisposition, SeatConfig,
};
use protocol::connection::{ConnectionPolicy, Frame, FramePath};
use units::{ChildIndex, Epoch, GroupId, OpId, Psn, SegmentIndex, Span, Time};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};

const GROUP: GroupId = GroupId(7);
const WINDOW: u32 = 4;
/// Children of the node; its parent has the last edge.
const CHILDREN: u16 = 3;
/// The longest payload, in elements of eight bytes.
const MOST_ELEMENTS: u8 = 8;
/// The most that one step may send: every neighbour gets what a window holds, a few times over.
const MOST_ACTIONS: usize = 400;

/// One step: the edge, what arrives, and its numbers.
type Step = (u8, u8, u8, u8, u8, u8);

fn message(kind: u8, operation: u8, child: u8, elements: u8, detail: u8) -> AggregationMessage {
    let kind = [
        AggregationMessageKind::Contribution,
        AggregationMessageKind::Result,
        AggregationMessageKind::Repair,
        AggregationMessageKind::Abort,
        AggregationMessageKind::Poll,
        AggregationMessageKind::NotEntered,
    ][usize::from(kind) % 6];
    let elements = elements % (MOST_ELEMENTS + 1);
    let header = AggregationHeader {
        kind,
        element: ElementCode(detail % 16),
        operator: OperatorCode(detail / 16),
        flags: detail,
        group: if detail == 255 { GroupId(8) } else { GROUP },
        epoch: Epoch(u32::from(detail != 254)),
        // Around the present window, with some far away.
        operation: OpId(if operation > 250 { u32::MAX - u32::from(operation) } else { u32::from(operation % 16) }),
        segment: SegmentIndex(u32::from(detail == 253)),
        child: ChildIndex(u16::from(child % 5)),
        element_count: u16::from(elements),
        detail: u32::from(detail),
    };
    let bytes = vec![detail; usize::from(elements) * 8];
    AggregationMessage::new(header, Payload::Bytes(bytes.into()))
}

fn frame(&(_, what, number, operation, child, detail): &Step) -> Frame<AggregationMessage> {
    let psn = Psn::new(u32::from(number));
    match what % 16 {
        0 => Frame::Ack { psn },
        1 => Frame::Nak { expected: psn },
        2 => Frame::SelectiveAck { expected: psn, arrived: u64::from(detail) << 3 },
        3 => Frame::RnrNak { expected: psn, wait: Span::from_micros(u64::from(detail)) },
        4 => Frame::Probe { token: u64::from(detail) },
        5 => Frame::ProbeReply { token: u64::from(detail) },
        _ => {
            let message = message(what / 16, operation, child, number, detail);
            Frame::Data { psn, wants_ack: detail % 2 == 0, message }
        }
    }
}

fn node() -> AggregationNode {
    let mut node = AggregationNode::new(ConnectionPolicy::default(), &[10, 11, 12, 13]);
    node.take_seat(SeatConfig {
        group: GROUP,
        epoch: Epoch(1),
        plane: Plane(0),
        children: (0..CHILDREN).map(|edge| vec![EdgeIndex(edge)]).collect(),
        parents: vec![ParentLink { edge: EdgeIndex(CHILDREN), child: ChildIndex(1), plane: Plane(0) }],
        implicit_ack: ImplicitAck::ByResult,
        distribution: DownwardDelivery::Multicast,
        window: WINDOW,
    });
    node
}

/// What neighbours send in order, so that the connection takes it: numbers follow each other on every edge.
fn in_order(next: &mut [u32], step: &Step) -> Frame<AggregationMessage> {
    let edge = usize::from(step.0) % next.len();
    match frame(step) {
        Frame::Data { wants_ack, message, .. } if step.0 < 200 => {
            let psn = Psn::new(next[edge]);
            next[edge] += 1;
            Frame::Data { psn, wants_ack, message }
        }
        other => other,
    }
}

#[test]
fn a_node_survives_any_sequence_of_frames() {
    check!(name = "aggregation_node").with_type::<Vec<Step>>().for_each(|steps: &Vec<Step>| {
        let (mut node, mut out, mut next) = (node(), Outbox::default(), [0; CHILDREN as usize + 1]);
        for (number, step) in steps.iter().enumerate() {
            let (now, edge) =
                (Time::from_nanos(number as u64 * 7_000), EdgeIndex(u16::from(step.0) % (CHILDREN + 1)));
            match step.1 {
                255 => node.handle_damage(now, edge, Damage::Here, &mut out),
                254 => node.handle_multicast(
                    now,
                    EdgeIndex(CHILDREN),
                    &message(1, step.3, step.4, step.2, step.5),
                    &mut out,
                ),
                _ => node.handle_frame(now, edge, FramePath::ONLY_PATH, &in_order(&mut next, step), &mut out),
            }
            if node.deadline() <= now {
                node.handle_timeout(now, &mut out);
            }
            let actions = out.drain().count();
            assert!(actions <= MOST_ACTIONS, "{actions} actions");
            let most = u64::from(WINDOW) * u64::from(CHILDREN) * u64::from(MOST_ELEMENTS) * 8;
            assert!(node.load().bytes <= most, "{} bytes", node.load().bytes);
        }
    });
}

fn member() -> AggregationMember {
    AggregationMember::new(
        ConnectionPolicy::default(),
        MemberConfig {
            group: GROUP,
            epoch: Epoch(1),
            parents: vec![ParentLink { edge: EdgeIndex(0), child: ChildIndex(0), plane: Plane(0) }],
            peers: vec![13],
            implicit_ack: ImplicitAck::ByResult,
            window: WINDOW,
            repair_after: Span::from_micros(50),
            repair_timeout_mode: RepairTimeoutMode::Fixed,
        },
    )
}

fn contribution(elements: u8) -> Contribution {
    let elements = elements % (MOST_ELEMENTS + 1);
    Contribution {
        element: ElementCode(1),
        operator: OperatorCode(1),
        element_count: u16::from(elements),
        role: ContributionRole::Operand,
        disposition: ResultDisposition::Deliver,
        segment: SegmentIndex(0),
        payload: Payload::Bytes(vec![1; usize::from(elements) * 8].into()),
    }
}

/// Each operation ends at most once, whatever the parent sends.
#[test]
fn a_member_survives_any_sequence_of_frames() {
    check!(name = "aggregation_member").with_type::<Vec<Step>>().for_each(|steps: &Vec<Step>| {
        let (mut member, mut out, mut next) = (member(), Outbox::default(), [0; 1]);
        let (mut started, mut ended) = (0_usize, std::collections::BTreeSet::new());
        for (number, step) in steps.iter().enumerate() {
            let now = Time::from_nanos(number as u64 * 7_000);
            match step.1 {
                250.. => {
                    started += usize::from(member.start(now, contribution(step.2), &mut out).is_ok());
                }
                249 => member.handle_damage(now, EdgeIndex(0), Damage::Here, &mut out),
                248 => {
                    member.handle_multicast(now, EdgeIndex(0), &message(1, step.3, step.4, step.2, step.5), &mut out)
                }
                _ => {
                    member.handle_frame(now, EdgeIndex(0), FramePath::ONLY_PATH, &in_order(&mut next, step), &mut out)
                }
            }
            if member.deadline() <= now {
                member.handle_timeout(now, &mut out);
            }
            let mut actions = 0;
            for action in out.drain() {
                actions += 1;
                if let AggregationAction::Complete { op, .. } | AggregationAction::Failed { op, .. } = action {
                    assert!(ended.insert(op), "{op} ended twice");
                }
            }
            assert!(actions <= MOST_ACTIONS, "{actions} actions");
            assert!(ended.len() <= started, "{} of {started} operations ended", ended.len());
        }
    });
}
