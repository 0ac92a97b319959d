use proptest::prelude::*;
use units::{Rank, Span};

use super::{
    BroadcastSynchronization, CallNumber, PollBackoff, PollOutcome, PolledBarrier, QuadricsAction, QuadricsMembers,
    QuadricsMembersError, SynchronizedBroadcast, TreeBarrier,
};

const BACK_OFF: PollBackoff = PollBackoff { first: Span::from_micros(2), max: Span::from_micros(10) };

/// Signals in flight.
#[derive(Clone, Copy, Debug)]
enum Signal {
    Enter(Rank),
    Ready { from: Rank, to: Rank, call: CallNumber },
    Release { to: Rank, call: CallNumber },
    Test { call: CallNumber },
    Again,
    Data { to: Rank, call: CallNumber },
}

/// A rank's state machine.
enum Machine {
    Tree(TreeBarrier),
    Test(PolledBarrier),
    Broadcast(SynchronizedBroadcast),
}

/// Runs `calls` barriers or broadcasts. `picks` decides the order of signals, which may arrive twice. Every rank must
/// complete each call once, and none before all ranks have entered.
fn run(members: &QuadricsMembers, make: impl Fn(Rank) -> Machine, calls: u32, picks: &[u16], is_broadcast: bool) {
    let size = members.size();
    let mut machines: Vec<Machine> = (0..size).map(Rank).map(make).collect();
    let mut over = vec![0; size as usize];
    let mut entered = vec![0; size as usize];
    let mut under_way: Vec<Signal> = (0..size).map(|rank| Signal::Enter(Rank(rank))).collect();
    let mut turn = 0;
    while !under_way.is_empty() {
        let pick = usize::from(picks[turn % picks.len()]);
        turn += 1;
        assert!(turn < 2_000_000, "the run does not end");
        let signal = under_way.swap_remove(pick % under_way.len());
        if pick % 7 == 3 && !matches!(signal, Signal::Enter(_) | Signal::Again | Signal::Test { .. }) {
            under_way.push(signal);
        }
        let mut out = Vec::new();
        let rank = match signal {
            Signal::Enter(rank) | Signal::Ready { to: rank, .. } => rank,
            Signal::Release { to, .. } | Signal::Data { to, .. } => to,
            Signal::Test { .. } | Signal::Again => members.root(),
        };
        if let Signal::Test { call } = signal {
            answer_poll(&mut machines, rank, call, pick, &mut under_way, &mut out);
        } else {
            if matches!(signal, Signal::Enter(_)) {
                entered[rank.index()] += 1;
            }
            feed(&mut machines[rank.index()], signal, &mut out);
        }
        for action in out {
            match action {
                QuadricsAction::Ready { to, call } => under_way.push(Signal::Ready { from: rank, to, call }),
                QuadricsAction::Release { to, call } => under_way.push(Signal::Release { to, call }),
                QuadricsAction::ReleaseAll { call } => {
                    under_way.extend((0..size).map(|to| Signal::Release { to: Rank(to), call }));
                }
                QuadricsAction::Poll { call } => under_way.push(Signal::Test { call }),
                QuadricsAction::Wait { span } => {
                    assert!(span >= BACK_OFF.first && span <= BACK_OFF.max);
                    under_way.push(Signal::Again);
                }
                QuadricsAction::Data { to, call } => under_way.push(Signal::Data { to, call }),
                QuadricsAction::DataToAll { call } => {
                    under_way.extend((0..size).map(|to| Signal::Data { to: Rank(to), call }));
                }
                QuadricsAction::Complete { call } => {
                    assert_eq!(call.0, over[rank.index()], "each call ends once, in order");
                    assert!(
                        entered.iter().all(|entered| *entered > call.0),
                        "no rank leaves before all have entered"
                    );
                    over[rank.index()] += 1;
                    if over[rank.index()] < calls {
                        under_way.push(Signal::Enter(rank));
                    }
                }
            }
        }
        // The source event of its DMA tells the root of a tree broadcast that the data was sent.
        if is_broadcast && under_way.is_empty() && members.contiguous().is_none() {
            let root = members.root();
            let call = CallNumber(over[root.index()]);
            if call.0 < calls {
                under_way.push(Signal::Data { to: root, call });
            }
        }
    }
    assert_eq!(over, vec![calls; size as usize]);
}

/// Answers a poll of the root: damaged now and then, otherwise whether every rank has entered.
fn answer_poll(
    machines: &mut [Machine],
    root: Rank,
    call: CallNumber,
    pick: usize,
    under_way: &mut Vec<Signal>,
    out: &mut Vec<QuadricsAction>,
) {
    let come = |machine: &Machine| match machine {
        Machine::Test(test) => test.has_entered(call),
        Machine::Broadcast(broadcast) => broadcast.has_entered(call),
        Machine::Tree(_) => false,
    };
    let verdict = match machines.iter().all(come) {
        _ if pick % 5 == 1 => PollOutcome::Damaged,
        true => PollOutcome::AllEntered,
        false => PollOutcome::SomeMissing,
    };
    if verdict == PollOutcome::AllEntered {
        under_way.extend((0..machines.len() as u32).map(|to| Signal::Release { to: Rank(to), call }));
    }
    match &mut machines[root.index()] {
        Machine::Test(test) => test.handle_poll_outcome(call, verdict, out),
        Machine::Broadcast(broadcast) => broadcast.handle_poll_outcome(call, verdict, out),
        Machine::Tree(_) => unreachable!("trees do not test"),
    }
}

fn feed(machine: &mut Machine, signal: Signal, out: &mut Vec<QuadricsAction>) {
    match (machine, signal) {
        (Machine::Tree(tree), Signal::Enter(_)) => tree.enter(out),
        (Machine::Tree(tree), Signal::Ready { from, call, .. }) => tree.handle_ready(from, call, out),
        (Machine::Tree(tree), Signal::Release { call, .. }) => tree.handle_release(call, out),
        (Machine::Test(test), Signal::Enter(_)) => test.enter(out),
        (Machine::Test(test), Signal::Release { call, .. }) => test.handle_release(call, out),
        (Machine::Test(test), Signal::Again) => test.handle_timer(out),
        (Machine::Broadcast(broadcast), Signal::Enter(_)) => broadcast.enter(out),
        (Machine::Broadcast(broadcast), Signal::Ready { from, call, .. }) => broadcast.handle_ready(from, call, out),
        (Machine::Broadcast(broadcast), Signal::Release { call, .. }) => broadcast.handle_release(call, out),
        (Machine::Broadcast(broadcast), Signal::Again) => broadcast.handle_timer(out),
        (Machine::Broadcast(broadcast), Signal::Data { call, .. }) => broadcast.handle_data(call, out),
        (_, signal) => panic!("{signal:?} is not for this machine"),
    }
}

fn scattered(count: u32, root: u32, arity: u32) -> QuadricsMembers {
    let nodes = (0..count).map(|rank| rank * 3 + rank / 2).collect();
    QuadricsMembers::list(nodes, Rank(root % count), arity).expect("members")
}

proptest! {
    #[test]
    fn tree_barriers_hold_in_any_order_of_signals(
        count in 1u32..40, root in 0u32..40, arity in 1u32..6, contiguous: bool,
        picks in proptest::collection::vec(any::<u16>(), 50..200),
    ) {
        let members = match contiguous {
            true => QuadricsMembers::range(5, count, Rank(root % count), arity).expect("members"),
            false => scattered(count, root, arity),
        };
        let make = |rank| Machine::Tree(TreeBarrier::new(members.clone(), rank).expect("a member"));
        run(&members, make, 4, &picks, false);
    }

    #[test]
    fn polled_barriers_hold_in_any_order_of_signals(
        count in 1u32..40, root in 0u32..40, picks in proptest::collection::vec(any::<u16>(), 50..200),
    ) {
        let members = QuadricsMembers::range(0, count, Rank(root % count), 4).expect("members");
        let make = |rank| Machine::Test(PolledBarrier::new(&members, rank, BACK_OFF).expect("a member"));
        run(&members, make, 4, &picks, false);
    }

    #[test]
    fn broadcasts_hold_in_any_order_of_signals(
        count in 1u32..40, root in 0u32..40, polled: bool, contiguous: bool,
        picks in proptest::collection::vec(any::<u16>(), 50..200),
    ) {
        let members = match contiguous {
            true => QuadricsMembers::range(0, count, Rank(root % count), 4).expect("members"),
            false => scattered(count, root, 2),
        };
        let synchronization = if polled { BroadcastSynchronization::Poll(BACK_OFF) } else { BroadcastSynchronization::Tree };
        let make = |rank| Machine::Broadcast(SynchronizedBroadcast::new(members.clone(), rank, synchronization).expect("a member"));
        run(&members, make, 3, &picks, true);
    }

    #[test]
    fn every_rank_has_one_parent_and_the_tree_is_balanced(count in 1u32..500, root in 0u32..500, arity in 1u32..8) {
        let members = QuadricsMembers::range(0, count, Rank(root % count), arity).expect("members");
        let mut children = 0;
        for rank in (0..count).map(Rank) {
            for index in 0..members.children(rank) {
                let child = members.child(rank, index).expect("a child");
                prop_assert_eq!(members.parent(child), Some(rank));
                prop_assert_eq!(members.index_of_child(rank, child), Some(index));
                children += 1;
            }
            let (mut steps, mut at) = (0, rank);
            while let Some(parent) = members.parent(at) {
                (steps, at) = (steps + 1, parent);
            }
            prop_assert!(arity == 1 || arity.pow(steps) <= count * arity);
        }
        prop_assert_eq!(children, count - 1);
    }
}

#[test]
fn the_root_polls_with_growing_pauses_until_all_have_entered() {
    let members = QuadricsMembers::range(0, 2, Rank(0), 4).expect("members");
    let mut root = PolledBarrier::new(&members, Rank(0), BACK_OFF).expect("a member");
    let mut out = Vec::new();
    root.enter(&mut out);
    let mut waits = Vec::new();
    for _ in 0..5 {
        out.clear();
        root.handle_poll_outcome(CallNumber(0), PollOutcome::SomeMissing, &mut out);
        let [QuadricsAction::Wait { span }] = out[..] else { panic!("{out:?}") };
        waits.push(span.as_nanos_f64() / 1e3);
        root.handle_timer(&mut out);
    }
    assert_eq!(waits, [2.0, 4.0, 8.0, 10.0, 10.0]);
}

#[test]
fn unexpected_signals_are_ignored() {
    let members = QuadricsMembers::range(0, 9, Rank(0), 4).expect("members");
    let mut tree = TreeBarrier::new(members.clone(), Rank(0)).expect("a member");
    let mut out = Vec::new();
    tree.handle_release(CallNumber(0), &mut out);
    tree.handle_ready(Rank(8), CallNumber(0), &mut out);
    tree.handle_ready(Rank(77), CallNumber(0), &mut out);
    tree.handle_ready(Rank(1), CallNumber(9), &mut out);
    let mut test = PolledBarrier::new(&members, Rank(3), BACK_OFF).expect("a member");
    test.handle_release(CallNumber(0), &mut out);
    test.handle_poll_outcome(CallNumber(0), PollOutcome::SomeMissing, &mut out);
    test.handle_timer(&mut out);
    assert!(out.is_empty(), "{out:?}");
    assert!(TreeBarrier::new(members.clone(), Rank(9)).is_none());
    assert!(
        PolledBarrier::new(&scattered(4, 0, 2), Rank(0), BACK_OFF).is_none(),
        "hardware multicast needs contiguous nodes"
    );
}

#[test]
fn invalid_groups_are_rejected() {
    assert_eq!(QuadricsMembers::range(0, 0, Rank(0), 4), Err(QuadricsMembersError::Empty));
    assert_eq!(QuadricsMembers::range(u32::MAX, 2, Rank(0), 4), Err(QuadricsMembersError::TooMany));
    assert_eq!(QuadricsMembers::range(0, u32::MAX, Rank(0), 4), Err(QuadricsMembersError::TooMany));
    assert_eq!(QuadricsMembers::range(0, 4, Rank(4), 4), Err(QuadricsMembersError::NoSuchRoot));
    assert_eq!(QuadricsMembers::range(0, 4, Rank(0), 0), Err(QuadricsMembersError::NoArity));
    assert_eq!(QuadricsMembers::list(vec![1, 1], Rank(0), 4), Err(QuadricsMembersError::NotAscending));
    assert_eq!(QuadricsMembers::list(vec![3, 4, 5], Rank(0), 4).expect("members").contiguous(), Some((3, 5)));
    assert_eq!(QuadricsMembers::list(vec![3, 5], Rank(0), 4).expect("members").contiguous(), None);
}
