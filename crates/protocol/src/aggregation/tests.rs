//! One node with two children and a parent, fed by hand.

use reduce::{ElementType, Operator};
use units::{ChildIndex, Epoch, GroupId, OpId, Psn, SegmentIndex, Span, Time};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};

use super::*;
use crate::Payload;
use crate::connection::{ConnectionPolicy, Frame, FramePath, OutgoingFrame};

const LEFT: EdgeIndex = EdgeIndex(0);
const RIGHT: EdgeIndex = EdgeIndex(1);
const UP: EdgeIndex = EdgeIndex(2);

fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_micros(micros)
}

/// An inner node with two children and one parent.
fn inner_node() -> AggregationNode {
    inner_node_with(ConnectionPolicy { retry_limit: 2, ..ConnectionPolicy::default() })
}

fn inner_node_with(policy: ConnectionPolicy) -> AggregationNode {
    let mut node = AggregationNode::new(policy, &[10, 11, 20]);
    let parents = vec![ParentLink { edge: UP, child: ChildIndex(5), plane: Plane(0) }];
    node.take_seat(seat_config(parents));
    node
}

fn root_node() -> AggregationNode {
    let mut node = AggregationNode::new(ConnectionPolicy::default(), &[10, 11]);
    node.take_seat(seat_config(Vec::new()));
    node
}

fn seat_config(parents: Vec<ParentLink>) -> SeatConfig {
    SeatConfig {
        group: GroupId(1),
        epoch: Epoch(0),
        plane: Plane(0),
        children: vec![vec![LEFT], vec![RIGHT]],
        parents,
        implicit_ack: ImplicitAck::ByResult,
        distribution: DownwardDelivery::Multicast,
        window: 2,
    }
}

fn message(kind: AggregationMessageKind, op: u32, child: u16, values: &[i32]) -> AggregationMessage {
    let header = AggregationHeader {
        kind,
        element: ElementCode(ElementType::I32.code()),
        operator: OperatorCode(Operator::Sum.code()),
        flags: 0,
        group: GroupId(1),
        epoch: Epoch(0),
        operation: OpId(op),
        segment: SegmentIndex(0),
        child: ChildIndex(child),
        element_count: values.len() as u16,
        detail: 0,
    };
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    AggregationMessage::new(header, Payload::Bytes(bytes))
}

fn data(psn: u32, message: AggregationMessage) -> Frame<AggregationMessage> {
    Frame::Data { psn: Psn::new(psn), wants_ack: false, message }
}

fn feed(node: &mut AggregationNode, edge: EdgeIndex, frame: &Frame<AggregationMessage>) -> Vec<AggregationAction> {
    let mut out = Outbox::default();
    node.handle_frame(at(1), edge, FramePath::ONLY_PATH, frame, &mut out);
    out.drain().collect()
}

fn sent(actions: &[AggregationAction], over: EdgeIndex) -> Vec<&AggregationMessage> {
    let messages = actions.iter().filter_map(|action| match action {
        AggregationAction::Transmit { edge, outgoing: OutgoingFrame { frame: Frame::Data { message, .. }, .. } }
            if *edge == over =>
        {
            Some(message)
        }
        _ => None,
    });
    messages.collect()
}

fn values(message: &AggregationMessage) -> Vec<i32> {
    let bytes = message.payload.bytes().unwrap_or_default();
    bytes.chunks_exact(4).map(|chunk| i32::from_le_bytes(chunk.try_into().expect("four bytes"))).collect()
}

#[test]
fn a_node_folds_once_all_children_have_contributed_and_forwards_under_its_own_child_index() {
    let mut node = inner_node();
    assert!(feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1, 2]))).is_empty());
    let actions = feed(&mut node, RIGHT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[10, 20])));
    let up = sent(&actions, UP);
    assert_eq!((up.len(), values(up[0]), up[0].header.child), (1, vec![11, 22], ChildIndex(5)));
}

#[test]
fn a_second_contribution_of_a_child_changes_nothing() {
    let mut node = inner_node();
    let _ = feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
    assert!(feed(&mut node, LEFT, &data(1, message(AggregationMessageKind::Contribution, 0, 0, &[100]))).is_empty());
    let actions = feed(&mut node, RIGHT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[2])));
    assert_eq!(values(sent(&actions, UP)[0]), [3]);
    assert_eq!(node.counters().duplicate, 1);
}

#[test]
fn a_child_may_not_contribute_for_another() {
    let mut node = inner_node();
    assert!(feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[1]))).is_empty());
    assert!(feed(&mut node, LEFT, &data(1, message(AggregationMessageKind::Contribution, 0, 99, &[1]))).is_empty());
    assert_eq!(node.counters().unauthorized_child, 2);
}

#[test]
fn unknown_groups_stale_epochs_and_distant_operations_are_counted_and_dropped() {
    let mut node = inner_node();
    let mut foreign = message(AggregationMessageKind::Contribution, 0, 0, &[1]);
    foreign.header.group = GroupId(9);
    let foreign = AggregationMessage::new(foreign.header, foreign.payload);
    let mut stale = message(AggregationMessageKind::Contribution, 0, 0, &[1]);
    stale.header.epoch = Epoch(7);
    let stale = AggregationMessage::new(stale.header, stale.payload);
    assert!(feed(&mut node, LEFT, &data(0, foreign)).is_empty());
    assert!(feed(&mut node, LEFT, &data(1, stale)).is_empty());
    assert!(feed(&mut node, LEFT, &data(2, message(AggregationMessageKind::Contribution, 77, 0, &[1]))).is_empty());
    assert_eq!((node.counters().foreign, node.counters().out_of_window), (2, 1));
}

#[test]
fn a_checksum_mismatch_is_damage_and_causes_a_nak() {
    let mut node = inner_node();
    let mut corrupted = message(AggregationMessageKind::Contribution, 0, 0, &[1]);
    corrupted.payload = vec![9, 0, 0, 0].into();
    let actions = feed(&mut node, LEFT, &data(0, corrupted));
    assert!(matches!(
        actions.as_slice(),
        [AggregationAction::Transmit { outgoing: OutgoingFrame { frame: Frame::Nak { .. }, .. }, .. }]
    ));
    assert_eq!(node.counters().corrupt, 1);
    assert!(feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1]))).is_empty());
}

#[test]
fn an_operation_on_which_members_disagree_fails_for_all() {
    let mut node = root_node();
    let _ = feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
    let actions = feed(&mut node, RIGHT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[1, 2])));
    let abort = actions.iter().find_map(|action| match action {
        AggregationAction::Multicast { message, .. } => Some(message.header),
        _ => None,
    });
    let abort = abort.expect("the root multicasts an abort");
    assert_eq!(
        (abort.kind, AbortCause::from_code(abort.detail)),
        (AggregationMessageKind::Abort, AbortCause::Mismatch)
    );
}

#[test]
fn a_missed_result_is_repaired_even_after_the_slot_is_reused() {
    let mut node = root_node();
    for (op, psn) in [(0, 0), (1, 1)] {
        let _ = feed(&mut node, LEFT, &data(psn, message(AggregationMessageKind::Contribution, op, 0, &[1])));
        let _ = feed(&mut node, RIGHT, &data(psn, message(AggregationMessageKind::Contribution, op, 1, &[2])));
    }
    // The left child is in operation 2, which reuses the slot of operation 0; the right child missed the result of 0.
    let _ = feed(&mut node, LEFT, &data(2, message(AggregationMessageKind::Contribution, 2, 0, &[5])));
    let actions = feed(&mut node, RIGHT, &data(2, message(AggregationMessageKind::Repair, 0, 1, &[])));
    assert_eq!(values(sent(&actions, RIGHT)[0]), [3]);
}

/// Found by seeded trials: both children of a node died between operations, no message came from below any more, and
/// the node ignored its parent's requests because it had no contribution to refer to.
#[test]
fn a_node_without_contributions_asks_all_its_children() {
    let mut node = inner_node();
    let actions = feed(&mut node, UP, &data(0, message(AggregationMessageKind::Repair, 0, 5, &[])));
    assert_eq!((sent(&actions, LEFT).len(), sent(&actions, RIGHT).len()), (1, 1));
}

#[test]
fn an_abort_names_the_lost_child_and_its_frames_are_not_answered() {
    let mut node = inner_node();
    let _ = feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
    let _ = feed(&mut node, LEFT, &data(1, message(AggregationMessageKind::Repair, 0, 0, &[]))); // Makes the node ask the right child.
    let mut aborts = Vec::new();
    for _ in 0..8 {
        let mut out = Outbox::default();
        node.handle_timeout(node.deadline(), &mut out);
        let actions: Vec<AggregationAction> = out.drain().collect();
        aborts.extend(sent(&actions, UP).iter().map(|message| message.header));
        if !aborts.is_empty() {
            break;
        }
    }
    assert_eq!(AbortCause::from_code(aborts[0].detail), AbortCause::LostPeer(11));
    assert!(feed(&mut node, RIGHT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[2]))).is_empty());
    assert_eq!(node.counters().from_lost_peer, 1);
}

/// Seen at a node under 256,000 edges: its socket overflowed, and one edge in a few thousand lost 30 transmissions in a row by chance.
#[test]
fn a_silent_child_that_is_alive_elsewhere_gets_more_time_but_not_forever() {
    let lost_after = |alive_until: Span, policy: ConnectionPolicy| {
        let mut node = inner_node_with(policy);
        let _ = feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
        let _ = feed(&mut node, LEFT, &data(1, message(AggregationMessageKind::Repair, 0, 0, &[])));
        let mut repeats = 0;
        while node.lost_peer().is_none() {
            let (now, mut out) = (node.deadline(), Outbox::default());
            node.extend_retries(now, |_, since| since < Time::ZERO + alive_until);
            node.handle_timeout(now, &mut out);
            repeats += out.drain().count();
        }
        (node.lost_peer().expect("just seen").silence, repeats)
    };
    let second = Span::from_micros(1_000_000);
    let (alone, repeats) = lost_after(Span::ZERO, ConnectionPolicy::datagram());
    assert!(second.times(7) < alone && alone < second.times(9), "{alone:?}");
    // After the death of a busy peer, its edge gives up as if there had been no extension: it first waits for the longer timeout under way.
    let (busy, busy_repeats) = lost_after(second.times(40), ConnectionPolicy::datagram());
    assert!(second.times(47) < busy && busy < second.times(54), "{busy:?}");
    assert!(busy_repeats < repeats + 16, "{repeats} retransmissions, then {busy_repeats}: they become rare");
    let (endless, _) = lost_after(second.times(1_000), ConnectionPolicy::datagram());
    assert!(second.times(66) < endless && endless < second.times(75), "{endless:?}");
}

/// Long packets vanish where the MTU of a path has become smaller, while short ones of other edges are answered: no patience helps those.
#[test]
fn a_parent_that_is_alive_elsewhere_gets_more_time_only_for_messages_that_pass_every_path() {
    let lost_after = |elements: usize| {
        let mut node = inner_node_with(ConnectionPolicy::datagram());
        for (edge, child) in [(LEFT, 0), (RIGHT, 1)] {
            let _ = feed(
                &mut node,
                edge,
                &data(0, message(AggregationMessageKind::Contribution, 0, child, &vec![1; elements])),
            );
        }
        while node.lost_peer().is_none() {
            let now = node.deadline();
            node.extend_retries(now, |_, _| true);
            node.handle_timeout(now, &mut Outbox::default());
        }
        node.lost_peer().expect("just seen").silence
    };
    let (second, most) = (Span::from_micros(1_000_000), BASE_SEGMENT_BYTES / size_of::<i32>());
    assert!(lost_after(most) > second.times(60));
    assert!(lost_after(most + 1) < second.times(9));
}

#[test]
fn a_child_that_never_contributes_is_late_and_its_loss_counts() {
    let mut node = inner_node();
    let late = |node: &AggregationNode| node.children().collect::<Vec<_>>();
    let _ = feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
    node.count_waiting(at(501));
    node.count_waiting(at(1_001));
    let waiting =
        ChildLateness { times_last: 0, waited: Span::from_micros(1_000), longest: Span::from_micros(1_000) };
    assert_eq!(late(&node), [(10, ChildLateness::default()), (11, waiting)]);
    let _ = feed(&mut node, LEFT, &data(1, message(AggregationMessageKind::Repair, 0, 0, &[])));
    while node.lost_peer().is_none() {
        node.handle_timeout(node.deadline(), &mut Outbox::default());
    }
    let neighbour = node.lost_peer().expect("just seen");
    assert!(neighbour.peer == 11 && neighbour.silence > Span::ZERO, "{neighbour:?}");
    let lost = late(&node)[1].1;
    assert!(lost.times_last == 1 && lost.longest >= waiting.longest, "{lost:?}");
    let _ = feed(&mut node, LEFT, &data(2, message(AggregationMessageKind::Contribution, 1, 0, &[1])));
    assert_eq!((late(&node)[1].1.times_last, late(&node)[0].1, node.collected()), (2, ChildLateness::default(), 2));
    assert_eq!(node.folded(), 0);
}

#[test]
fn when_a_child_comes_at_last_only_the_time_since_the_report_is_added() {
    let mut node = root_node();
    let mut contribute = |edge, child, micros| {
        let message = message(AggregationMessageKind::Contribution, 0, child, &[1]);
        node.handle_contribution_copy(at(micros), edge, &message, &mut Outbox::default());
        node.count_waiting(at(micros + 100));
        node.children().map(|(_, late)| (late.times_last, late.waited.as_nanos() / 1_000)).collect::<Vec<_>>()
    };
    assert_eq!(contribute(LEFT, 0, 0), [(0, 0), (0, 100)]);
    assert_eq!(contribute(RIGHT, 1, 3_000), [(0, 0), (1, 3_000)]);
}

#[test]
fn an_aborted_operation_is_not_counted_as_completed() {
    for (kind, count) in [(AggregationMessageKind::Result, 1), (AggregationMessageKind::Abort, 0)] {
        let mut node = inner_node();
        let _ = feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
        let _ = feed(&mut node, RIGHT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[2])));
        node.handle_multicast(at(2), UP, &message(kind, 0, 0, &[3]), &mut Outbox::default());
        assert_eq!(node.operation_times().classes().iter().sum::<u64>(), count, "{kind:?}");
    }
}

/// Found by seeded trials: a node treated an abort as an implicit acknowledgement, and the connection lost count.
#[test]
fn an_abort_does_not_acknowledge_the_contribution() {
    for (kind, keeps) in [(AggregationMessageKind::Result, false), (AggregationMessageKind::Abort, true)] {
        let mut node = inner_node();
        let _ = feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
        let _ = feed(&mut node, RIGHT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[2])));
        let mut out = Outbox::default();
        node.handle_multicast(at(2), UP, &message(kind, 0, 0, &[3]), &mut out);
        let mut out = Outbox::default();
        node.handle_timeout(at(1_000_000), &mut out);
        assert_eq!(!out.is_empty(), keeps, "{kind:?}");
    }
}

/// Found by random scenarios: a node treated a parent of the second plane as a child, and its abort as a
/// contribution.
#[test]
fn an_abort_from_a_parent_of_any_plane_is_a_result() {
    let mut node = AggregationNode::new(ConnectionPolicy::default(), &[10, 11, 20, 21]);
    for (plane, up) in [(0, UP), (1, EdgeIndex(3))] {
        let parents = vec![ParentLink { edge: up, child: ChildIndex(5), plane: Plane(0) }];
        let config = SeatConfig { plane: Plane(plane), implicit_ack: ImplicitAck::Never, ..seat_config(parents) };
        node.take_seat(config);
    }
    let abort = message(AggregationMessageKind::Result, 0, 5, &[]).aborted(AbortCause::LostPeer(3));
    let actions = feed(&mut node, EdgeIndex(3), &data(0, abort));
    assert!(actions.iter().any(|action| matches!(action, AggregationAction::Multicast { .. })));
    assert_eq!(node.counters().unauthorized_child, 0);
}

#[test]
fn a_marked_packet_causes_no_repair_request() {
    let mut node = inner_node();
    let mut out = Outbox::default();
    node.handle_damage(at(1), UP, Damage::Marked, &mut out);
    assert!(out.is_empty());
}

#[test]
fn a_member_completes_once_despite_duplicate_results() {
    let config = MemberConfig {
        group: GroupId(1),
        epoch: Epoch(0),
        parents: vec![ParentLink { edge: LEFT, child: ChildIndex(0), plane: Plane(0) }],
        peers: vec![20],
        implicit_ack: ImplicitAck::ByResult,
        window: 2,
        repair_after: Span::from_micros(50),
        repair_timeout_mode: RepairTimeoutMode::Fixed,
    };
    let mut member = AggregationMember::new(ConnectionPolicy::default(), config);
    let mut out = Outbox::default();
    let contribution = Contribution {
        element: ElementCode(5),
        operator: OperatorCode(1),
        element_count: 1,
        role: ContributionRole::Operand,
        disposition: ResultDisposition::Deliver,
        segment: SegmentIndex(0),
        payload: vec![1, 0, 0, 0].into(),
    };
    let op = member.start(at(0), contribution.clone(), &mut out).expect("the window is empty");
    let result = message(AggregationMessageKind::Result, op.0, 0, &[6]);
    for _ in 0..3 {
        member.handle_multicast(at(1), LEFT, &result, &mut out);
    }
    let completions = out.drain().filter(|action| matches!(action, AggregationAction::Complete { .. })).count();
    assert_eq!(completions, 1);
    for _ in 0..2 {
        member.start(at(2), contribution.clone(), &mut out).expect("the window holds two");
    }
    let third = member.start(at(2), contribution, &mut out);
    assert_eq!(third, Err(OperationStartError::WindowFull));
}

fn node_with_delivery(distribution: DownwardDelivery) -> AggregationNode {
    let mut node = AggregationNode::new(ConnectionPolicy::default(), &[10, 11, 20]);
    let parents = vec![ParentLink { edge: UP, child: ChildIndex(5), plane: Plane(0) }];
    node.take_seat(SeatConfig { distribution, ..seat_config(parents) });
    node
}

#[test]
fn results_are_sent_over_the_connections_once() {
    let mut node = node_with_delivery(DownwardDelivery::Connections);
    for op in 0..6 {
        feed(&mut node, LEFT, &data(op, message(AggregationMessageKind::Contribution, op, 0, &[1])));
        feed(&mut node, RIGHT, &data(op, message(AggregationMessageKind::Contribution, op, 1, &[2])));
        let result = message(AggregationMessageKind::Result, op, 5, &[3]);
        let actions = feed(&mut node, UP, &data(op, result.clone()));
        for edge in [LEFT, RIGHT] {
            assert_eq!(sent(&actions, edge), [&result], "operation {op}");
        }
        assert!(!actions.iter().any(|action| matches!(action, AggregationAction::Multicast { .. })));
    }
    // A request is not answered: the reliable connection delivers the result.
    let actions = feed(&mut node, LEFT, &data(6, message(AggregationMessageKind::Repair, 5, 0, &[])));
    assert_eq!(sent(&actions, LEFT), Vec::<&AggregationMessage>::new());
    assert_eq!(sent(&actions, UP), Vec::<&AggregationMessage>::new());
    // A second result or contribution causes no message either.
    let actions = feed(&mut node, UP, &data(6, message(AggregationMessageKind::Result, 5, 5, &[3])));
    assert_eq!(sent(&actions, LEFT), Vec::<&AggregationMessage>::new());
    let actions = feed(&mut node, RIGHT, &data(6, message(AggregationMessageKind::Contribution, 5, 1, &[9])));
    assert_eq!(sent(&actions, UP), Vec::<&AggregationMessage>::new());
    assert_eq!(node.counters().duplicate, 1);
}

#[test]
fn with_both_deliveries_the_connections_repeat_the_multicast_result() {
    let mut node = node_with_delivery(DownwardDelivery::Both);
    feed(&mut node, LEFT, &data(0, message(AggregationMessageKind::Contribution, 0, 0, &[1])));
    feed(&mut node, RIGHT, &data(0, message(AggregationMessageKind::Contribution, 0, 1, &[2])));
    let result = message(AggregationMessageKind::Result, 0, 5, &[3]);
    let mut out = Outbox::default();
    node.handle_multicast(at(1), UP, &result, &mut out);
    assert!(out.is_empty(), "the multicast also reached the children");
    let actions = feed(&mut node, UP, &data(0, result.clone()));
    assert_eq!(sent(&actions, LEFT), [&result]);
    assert_eq!(sent(&actions, RIGHT), [&result]);
}

#[test]
fn an_abort_is_sent_over_the_connections_too() {
    let mut node = node_with_delivery(DownwardDelivery::Connections);
    let abort = message(AggregationMessageKind::Contribution, 0, 5, &[]).aborted(AbortCause::Mismatch);
    let actions = feed(&mut node, UP, &data(0, abort));
    let kinds: Vec<AggregationMessageKind> = sent(&actions, LEFT).iter().map(|message| message.header.kind).collect();
    assert_eq!(kinds, [AggregationMessageKind::Abort]);
}

fn contribution_as(role: ContributionRole, child: u16, values: &[i32]) -> Frame<AggregationMessage> {
    let plain = message(AggregationMessageKind::Contribution, 0, child, values);
    let header = AggregationHeader { detail: role.code(), ..plain.header };
    data(0, AggregationMessage::new(header, plain.payload))
}

#[test]
fn receive_only_children_get_the_sole_contribution() {
    for (giver, receiver) in [(LEFT, RIGHT), (RIGHT, LEFT)] {
        for giver_first in [true, false] {
            let mut node = inner_node();
            let give = (giver, contribution_as(ContributionRole::Sole, giver.0, &[7, 8, 9]));
            let receive = (receiver, contribution_as(ContributionRole::ReceiveOnly, receiver.0, &[]));
            let (first, second) = if giver_first { (give, receive) } else { (receive, give) };
            feed(&mut node, first.0, &first.1);
            let actions = feed(&mut node, second.0, &second.1);
            let up = sent(&actions, UP)[0];
            assert_eq!(up.payload, message(AggregationMessageKind::Contribution, 0, 0, &[7, 8, 9]).payload);
            assert_eq!(ContributionRole::from_code(up.header.detail), ContributionRole::Sole);
            assert_eq!(up.header.element_count, 3);
        }
    }
}

#[test]
fn a_node_with_receive_only_children_is_receive_only() {
    let mut node = inner_node();
    feed(&mut node, LEFT, &contribution_as(ContributionRole::ReceiveOnly, 0, &[]));
    let actions = feed(&mut node, RIGHT, &contribution_as(ContributionRole::ReceiveOnly, 1, &[]));
    assert_eq!(ContributionRole::from_code(sent(&actions, UP)[0].header.detail), ContributionRole::ReceiveOnly);
}

#[test]
fn two_sole_contributions_fail() {
    for other in [ContributionRole::Sole, ContributionRole::Operand] {
        let mut node = inner_node();
        feed(&mut node, LEFT, &contribution_as(ContributionRole::Sole, 0, &[1]));
        let actions = feed(&mut node, RIGHT, &contribution_as(other, 1, &[1]));
        let up = sent(&actions, UP)[0];
        assert_eq!(
            (up.header.kind, AbortCause::from_code(up.header.detail)),
            (AggregationMessageKind::Abort, AbortCause::Mismatch)
        );
    }
}

fn contribution_wanting(
    disposition: ResultDisposition,
    role: ContributionRole,
    op: u32,
    child: u16,
) -> Frame<AggregationMessage> {
    let plain = message(
        AggregationMessageKind::Contribution,
        op,
        child,
        if role == ContributionRole::ReceiveOnly { &[] } else { &[4] },
    );
    let header = AggregationHeader { detail: role.code() | disposition.code(), ..plain.header };
    data(op, AggregationMessage::new(header, plain.payload))
}

#[test]
fn a_completion_only_child_gets_a_result_without_payload() {
    let mut node = node_with_delivery(DownwardDelivery::Connections);
    feed(&mut node, LEFT, &contribution_wanting(ResultDisposition::CompletionOnly, ContributionRole::Operand, 0, 0));
    // A target that does not contribute: receive-only, and wants the result (SH-1).
    let actions = feed(
        &mut node,
        RIGHT,
        &contribution_wanting(ResultDisposition::Deliver, ContributionRole::ReceiveOnly, 0, 1),
    );
    assert_eq!(
        ResultDisposition::from_code(sent(&actions, UP)[0].header.detail),
        ResultDisposition::Deliver,
        "a child wants the result"
    );
    let result = message(AggregationMessageKind::Result, 0, 5, &[4]);
    let actions = feed(&mut node, UP, &data(0, result.clone()));
    assert_eq!(sent(&actions, RIGHT), [&result]);
    let reply = sent(&actions, LEFT)[0];
    assert_eq!(
        (reply.header.kind, reply.header.operation, reply.payload.len()),
        (AggregationMessageKind::Result, OpId(0), 0)
    );
    assert!(reply.is_intact());
}

#[test]
fn a_node_with_completion_only_children_is_completion_only() {
    let mut node = node_with_delivery(DownwardDelivery::Connections);
    feed(&mut node, LEFT, &contribution_wanting(ResultDisposition::CompletionOnly, ContributionRole::Operand, 0, 0));
    let actions = feed(
        &mut node,
        RIGHT,
        &contribution_wanting(ResultDisposition::CompletionOnly, ContributionRole::Operand, 0, 1),
    );
    assert_eq!(ResultDisposition::from_code(sent(&actions, UP)[0].header.detail), ResultDisposition::CompletionOnly);
    // The next operation in the same slot starts afresh.
    feed(&mut node, UP, &data(0, message(AggregationMessageKind::Result, 0, 5, &[])));
    feed(&mut node, LEFT, &contribution_wanting(ResultDisposition::Deliver, ContributionRole::Operand, 1, 0));
    feed(&mut node, RIGHT, &contribution_wanting(ResultDisposition::Deliver, ContributionRole::Operand, 1, 1));
    let result = message(AggregationMessageKind::Result, 1, 5, &[8]);
    let actions = feed(&mut node, UP, &data(1, result.clone()));
    assert_eq!(sent(&actions, LEFT), [&result]);
}

#[test]
fn a_multicast_result_has_its_payload() {
    for distribution in [DownwardDelivery::Multicast, DownwardDelivery::Both] {
        let mut node = AggregationNode::new(ConnectionPolicy::default(), &[10, 11]);
        node.take_seat(SeatConfig { distribution, ..seat_config(Vec::new()) });
        feed(
            &mut node,
            LEFT,
            &contribution_wanting(ResultDisposition::CompletionOnly, ContributionRole::Operand, 0, 0),
        );
        let actions = feed(
            &mut node,
            RIGHT,
            &contribution_wanting(ResultDisposition::CompletionOnly, ContributionRole::Operand, 0, 1),
        );
        let multicast = actions.iter().find_map(|action| match action {
            AggregationAction::Multicast { message, .. } => Some(message.payload.clone()),
            _ => None,
        });
        assert_eq!(multicast, Some(message(AggregationMessageKind::Result, 0, 0, &[8]).payload), "{distribution:?}");
        assert!(sent(&actions, LEFT).iter().all(|message| message.payload.len() == 4), "{distribution:?}");
    }
}
