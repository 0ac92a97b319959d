use proptest::prelude::*;
use units::{Rank, Span};

use super::{
    BroadcastSynchronization, CallNumber, PollBackoff, PollOutcome, PolledBarrier, QuadricsAction, QuadricsMembers,
    QuadricsMembersError, SynchronizedBroadcast, TreeBarrier,
};

const BACK_OFF: PollBackoff = PollBackoff { first: Span::from_micros(2), most: Span::from_micros(10) };

/// Signals under way.
#[derive(Clone, Copy, Debug)]
enum Signal {
    Enter(Rank),
    Ready { from: Rank, to: Rank, call: CallNumber },
    Release { to: Rank, call: CallNumber },
    Test { call: CallNumber },
    Again,
    Data { to: Rank, call: CallNumber },
}

/// A rank's machine, whichever it is.
enum Machine {
    Tree(TreeBarrier),
    Test(PolledBarrier),
    Broadcast(SynchronizedBroadcast),
}

/// Plays `calls` barriers or broadcasts; signals arrive in an order that `picks` decides, and may come twice. Every rank
/// must be over once a call, and nobody may be before everyone has entered.
fn play(members: &QuadricsMembers, make: impl Fn(Rank) -> Machine, calls: u32, picks: &[u16], is_broadcast: bool) {
    let size = members.size();
    let mut machines: Vec<Machine> = (0..size).map(Rank).map(make).collect();
    let mut over = vec![0; size as usize];
    let mut entered = vec![0; size as usize];
    let mut under_way: Vec<Signal> = (0..size).map(|rank| Signal::Enter(Rank(rank))).collect();
    let mut turn = 0;
    while !under_way.is_empty() {
        let pick = usize::from(picks[turn % picks.len()]);
        turn += 1;
        assert!(turn < 2_000_000, "it goes on for ever");
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
            let come = |machine: &Machine| match machine {
                Machine::Test(test) => test.has_come_to(call),
                Machine::Broadcast(broadcast) => broadcast.has_come_to(call),
                Machine::Tree(_) => false,
            };
            let verdict = match machines.iter().all(come) {
                _ if pick % 5 == 1 => PollOutcome::Damaged,
                true => PollOutcome::All,
                false => PollOutcome::NotAll,
            };
            if verdict == PollOutcome::All {
                under_way.extend((0..size).map(|to| Signal::Release { to: Rank(to), call }));
            }
            match &mut machines[rank.index()] {
                Machine::Test(test) => test.handle_verdict(call, verdict, &mut out),
                Machine::Broadcast(broadcast) => broadcast.handle_verdict(call, verdict, &mut out),
                Machine::Tree(_) => unreachable!("trees do not test"),
            }
        } else {
            if matches!(signal, Signal::Enter(_)) {
                entered[rank.index()] += 1;
            }
            feed(&mut machines[rank.index()], signal, &mut out);
        }
        for duty in out {
            match duty {
                QuadricsAction::Ready { to, call } => under_way.push(Signal::Ready { from: rank, to, call }),
                QuadricsAction::Release { to, call } => under_way.push(Signal::Release { to, call }),
                QuadricsAction::ReleaseAll { call } => {
                    under_way.extend((0..size).map(|to| Signal::Release { to: Rank(to), call }));
                }
                QuadricsAction::Test { call } => under_way.push(Signal::Test { call }),
                QuadricsAction::Wait { span } => {
                    assert!(span >= BACK_OFF.first && span <= BACK_OFF.most);
                    under_way.push(Signal::Again);
                }
                QuadricsAction::Data { to, call } => under_way.push(Signal::Data { to, call }),
                QuadricsAction::DataToAll { call } => {
                    under_way.extend((0..size).map(|to| Signal::Data { to: Rank(to), call }));
                }
                QuadricsAction::Complete { call } => {
                    assert_eq!(call.0, over[rank.index()], "each call ends once, in order");
                    assert!(entered.iter().all(|entered| *entered > call.0), "nobody leaves before all have come");
                    over[rank.index()] += 1;
                    if over[rank.index()] < calls {
                        under_way.push(Signal::Enter(rank));
                    }
                }
            }
        }
        // The root of a tree broadcast hears of its data by its own DMA.
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

fn feed(machine: &mut Machine, signal: Signal, out: &mut Vec<QuadricsAction>) {
    match (machine, signal) {
        (Machine::Tree(tree), Signal::Enter(_)) => tree.enter(out),
        (Machine::Tree(tree), Signal::Ready { from, call, .. }) => tree.handle_ready(from, call, out),
        (Machine::Tree(tree), Signal::Release { call, .. }) => tree.handle_release(call, out),
        (Machine::Test(test), Signal::Enter(_)) => test.enter(out),
        (Machine::Test(test), Signal::Release { call, .. }) => test.handle_release(call, out),
        (Machine::Test(test), Signal::Again) => test.handle_alarm(out),
        (Machine::Broadcast(broadcast), Signal::Enter(_)) => broadcast.enter(out),
        (Machine::Broadcast(broadcast), Signal::Ready { from, call, .. }) => broadcast.handle_ready(from, call, out),
        (Machine::Broadcast(broadcast), Signal::Release { call, .. }) => broadcast.handle_release(call, out),
        (Machine::Broadcast(broadcast), Signal::Again) => broadcast.handle_alarm(out),
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
        play(&members, make, 4, &picks, false);
    }

    #[test]
    fn tested_barriers_hold_in_any_order_of_signals(
        count in 1u32..40, root in 0u32..40, picks in proptest::collection::vec(any::<u16>(), 50..200),
    ) {
        let members = QuadricsMembers::range(0, count, Rank(root % count), 4).expect("members");
        let make = |rank| Machine::Test(PolledBarrier::new(&members, rank, BACK_OFF).expect("a member"));
        play(&members, make, 4, &picks, false);
    }

    #[test]
    fn broadcasts_hold_in_any_order_of_signals(
        count in 1u32..40, root in 0u32..40, tested: bool, contiguous: bool,
        picks in proptest::collection::vec(any::<u16>(), 50..200),
    ) {
        let members = match contiguous {
            true => QuadricsMembers::range(0, count, Rank(root % count), 4).expect("members"),
            false => scattered(count, root, 2),
        };
        let how = if tested { BroadcastSynchronization::Test(BACK_OFF) } else { BroadcastSynchronization::Tree };
        let make = |rank| Machine::Broadcast(SynchronizedBroadcast::new(members.clone(), rank, how).expect("a member"));
        play(&members, make, 3, &picks, true);
    }

    #[test]
    fn everyone_has_one_parent_and_the_tree_is_balanced(count in 1u32..500, root in 0u32..500, arity in 1u32..8) {
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
fn the_root_asks_ever_more_rarely_until_all_have_come() {
    let members = QuadricsMembers::range(0, 2, Rank(0), 4).expect("members");
    let mut root = PolledBarrier::new(&members, Rank(0), BACK_OFF).expect("a member");
    let mut out = Vec::new();
    root.enter(&mut out);
    let mut waits = Vec::new();
    for _ in 0..5 {
        out.clear();
        root.handle_verdict(CallNumber(0), PollOutcome::NotAll, &mut out);
        let [QuadricsAction::Wait { span }] = out[..] else { panic!("{out:?}") };
        waits.push(span.as_nanos_f64() / 1e3);
        root.handle_alarm(&mut out);
    }
    assert_eq!(waits, [2.0, 4.0, 8.0, 10.0, 10.0]);
}

#[test]
fn garbage_says_nothing() {
    let members = QuadricsMembers::range(0, 9, Rank(0), 4).expect("members");
    let mut tree = TreeBarrier::new(members.clone(), Rank(0)).expect("a member");
    let mut out = Vec::new();
    tree.handle_release(CallNumber(0), &mut out);
    tree.handle_ready(Rank(8), CallNumber(0), &mut out);
    tree.handle_ready(Rank(77), CallNumber(0), &mut out);
    tree.handle_ready(Rank(1), CallNumber(9), &mut out);
    let mut test = PolledBarrier::new(&members, Rank(3), BACK_OFF).expect("a member");
    test.handle_release(CallNumber(0), &mut out);
    test.handle_verdict(CallNumber(0), PollOutcome::NotAll, &mut out);
    test.handle_alarm(&mut out);
    assert!(out.is_empty(), "{out:?}");
    assert!(TreeBarrier::new(members.clone(), Rank(9)).is_none());
    assert!(PolledBarrier::new(&scattered(4, 0, 2), Rank(0), BACK_OFF).is_none(), "no multicast reaches these alone");
}

#[test]
fn what_is_no_group_is_refused() {
    assert_eq!(QuadricsMembers::range(0, 0, Rank(0), 4), Err(QuadricsMembersError::Empty));
    assert_eq!(QuadricsMembers::range(u32::MAX, 2, Rank(0), 4), Err(QuadricsMembersError::TooMany));
    assert_eq!(QuadricsMembers::range(0, u32::MAX, Rank(0), 4), Err(QuadricsMembersError::TooMany));
    assert_eq!(QuadricsMembers::range(0, 4, Rank(4), 4), Err(QuadricsMembersError::NoSuchRoot));
    assert_eq!(QuadricsMembers::range(0, 4, Rank(0), 0), Err(QuadricsMembersError::NoArity));
    assert_eq!(QuadricsMembers::list(vec![1, 1], Rank(0), 4), Err(QuadricsMembersError::NotAscending));
    assert_eq!(QuadricsMembers::list(vec![3, 4, 5], Rank(0), 4).expect("members").contiguous(), Some((3, 5)));
    assert_eq!(QuadricsMembers::list(vec![3, 5], Rank(0), 4).expect("members").contiguous(), None);
}
