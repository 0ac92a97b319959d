//! Queue pairs on failing paths: every message exactly once, in order, with the right bytes; and a typed failure at both
//! ends where no path is left. Seeded trials with random fault plans, judged by the oracle.

use std::sync::Arc;

use oracle::StreamViolation;
use protocol::connection::path::{MigrationCause, PathPolicy};
use protocol::queue_pair::QpSabotage;
use simulator::collective::{AlternatePathParameters, Replication};
use simulator::fault::{FaultKind, FaultPlan, FaultRule};
use simulator::queue_pair::{LinkNotification, MessagePlan, MessageVerb};
use tests::{PathTrial, Trial};
use topology::{Fabric, NodeId, TreeRequest};
use units::{Span, Time};

fn survive(seeds: std::ops::Range<u64>) -> (u64, u32) {
    let (mut checked, mut migrations) = (0, 0);
    for seed in seeds {
        let outcome = PathTrial::survivor(seed).run();
        assert!(outcome.is_clean(), "{}{outcome}", PathTrial::survivor(seed));
        checked += outcome.checked();
        migrations += outcome.migrations();
    }
    (checked, migrations)
}

/// With users who load and migrate by hand; migrations that they brought about, and orders that were refused.
fn survive_orders(seeds: std::ops::Range<u64>) -> (u32, u32) {
    let (mut by_hand, mut refused) = (0, 0);
    for seed in seeds {
        for trial in [PathTrial::survivor(seed).with_orders(), PathTrial::mortal(seed).with_orders()] {
            let outcome = trial.run();
            assert!(outcome.is_clean(), "{trial}{outcome}");
            let ends = outcome.reports.iter().flatten();
            by_hand += ends.filter_map(|end| end.migrations.get(&MigrationCause::ByHand)).sum::<u32>();
            refused += outcome.orders.iter().map(|orders| orders.refused).sum::<u32>();
        }
    }
    (by_hand, refused)
}

fn die(seeds: std::ops::Range<u64>) -> u64 {
    let mut checked = 0;
    for seed in seeds {
        let outcome = PathTrial::mortal(seed).run();
        assert!(outcome.is_clean(), "{}{outcome}", PathTrial::mortal(seed));
        checked += outcome.checked();
    }
    checked
}

#[test]
fn with_one_path_left_every_message_comes_once_in_order_and_unaltered() {
    let (checked, migrations) = survive(0..1_000);
    assert!(checked > 50_000 && migrations > 5_000, "{checked} messages were checked, {migrations} migrations");
}

#[test]
fn with_no_path_left_both_ends_hear_of_it_and_what_came_is_a_beginning() {
    assert!(die(0..200) > 8_000);
}

#[test]
fn whatever_users_order_by_hand_no_message_is_lost_doubled_or_reordered() {
    let (by_hand, refused) = survive_orders(0..500);
    assert!(by_hand > 500 && refused > 500, "{by_hand} migrations by hand, {refused} orders refused");
}

#[test]
fn a_seed_gives_the_same_events_every_time() {
    for seed in 0..40 {
        assert_eq!(PathTrial::survivor(seed).run().trace, PathTrial::survivor(seed).run().trace, "seed {seed}");
    }
    assert_ne!(PathTrial::survivor(1).run().trace, PathTrial::survivor(2).run().trace);
}

/// Seeds that found something: an idle connection on a dead path, traffic that went round among noisy paths, a gap's
/// repair measured as a round trip, two ends that followed each other for ever.
#[test]
fn seeds_that_found_defects_stay_clean() {
    for seed in [36, 87, 4_535, 100_862] {
        survive(seed..seed + 1);
    }
}

/// Two hosts with two ports each, and a stream of small messages; the first path is cut in its middle.
fn cut_in_the_middle(notice: LinkNotification, link: &str) -> PathTrial {
    let mut trial = PathTrial::survivor(1);
    trial.fabric = Arc::new(Fabric::xgft(&[2], &[2]).expect("small"));
    trial.parameters.notice = notice;
    let plan = &mut trial.parameters.connections[0];
    plan.paths = 2;
    plan.policy.window = 16;
    plan.policy.acknowledge_every = 16;
    for (number, end) in plan.ends.iter_mut().enumerate() {
        end.host = NodeId(number as u32);
        (end.receives, end.repost_after, end.sends_at_once) = (64, Span::ZERO, 16);
        let message = |number: u64| {
            let not_before = Time::ZERO + Span::from_nanos(500 * number);
            MessagePlan { not_before, length: 200, kind: MessageVerb::Send }
        };
        end.messages = (0..2_000).map(message).collect();
    }
    trial.parameters.connections.truncate(1);
    let cut = FaultRule::new(FaultKind::Down).on(link).lasting(400.0, None);
    trial.plan = FaultPlan { seed: None, rules: vec![cut] };
    trial.without_redundancy()
}

#[test]
fn a_cut_cable_is_left_by_both_ends_whether_they_notice_or_not() {
    for (notice, cause) in
        [(LinkNotification::Noticed, MigrationCause::Down), (LinkNotification::Silent, MigrationCause::Silence)]
    {
        let outcome = cut_in_the_middle(notice, "H0-S0").run();
        assert!(outcome.is_clean() && outcome.checked() == 4_000, "{outcome}");
        let causes: Vec<_> = outcome.reports[0].iter().flat_map(|report| report.migrations.keys()).collect();
        assert!(causes.contains(&&cause), "{notice:?}: {causes:?}");
        assert!(outcome.reports[0].iter().all(|report| report.path.0 == 1));
    }
}

#[test]
fn a_receiver_that_forgets_or_skips_after_a_migration_is_caught() {
    for sabotage in [QpSabotage::Forget, QpSabotage::Skip] {
        let mut trial = cut_in_the_middle(LinkNotification::Silent, "H1>S0");
        assert!(trial.run().is_clean());
        trial.sabotage = Some((1, sabotage));
        let outcome = trial.run();
        let violations = &outcome.streams[0].violations;
        let expected = match sabotage {
            QpSabotage::Forget => violations.iter().any(|found| matches!(found, StreamViolation::Doubled { .. })),
            // What it skipped is never acknowledged, so its sender gives up.
            QpSabotage::Skip => {
                violations.iter().any(|found| matches!(found, StreamViolation::FailedThoughSoft { .. }))
            }
        };
        assert!(expected, "{sabotage:?}: {outcome}");
    }
}

/// A trial of collectives whose tree edges have second paths; one of them loses its cable for good in the middle.
fn collective_with_a_cut(alternates: Option<AlternatePathParameters>) -> Trial {
    let mut trial = Trial::soft(7);
    trial.fabric = Arc::new(Fabric::xgft(&[4, 4, 2], &[1, 2, 2]).expect("small"));
    trial.parameters.replication = Replication::None;
    trial.parameters.radix_limit = None;
    trial.parameters.policy.retry_limit = 7;
    trial.parameters.alternates = alternates;
    trial.operations = 40;
    let tree = topology::place_tree(&trial.fabric, &TreeRequest::all()).expect("a fat tree has one");
    let node = tree.nodes.iter().find(|node| node.level == 1).expect("hosts have parents");
    let port = node.parents[0].port.expect("to another switch");
    let parent = trial.fabric.peer(node.switch, port).expect("tree edges follow cables").node;
    let link = format!("{}-{}", trial.fabric.name(node.switch), trial.fabric.name(parent));
    let cut = FaultRule::new(FaultKind::Down).on(link).lasting(30.0, None);
    trial.plan = FaultPlan { seed: None, rules: vec![cut] };
    trial
}

fn alternates(notice: LinkNotification) -> AlternatePathParameters {
    let policy = PathPolicy {
        probe_every: Span::from_micros(50),
        probe_timeout: Span::from_micros(20),
        failback_after: Span::from_micros(500),
        ..PathPolicy::default()
    };
    AlternatePathParameters { policy, notice }
}

#[test]
fn an_edge_of_a_tree_that_loses_its_cable_moves_and_no_result_changes() {
    let without = collective_with_a_cut(None).run();
    assert!(without.verdict.is_clean() && without.verdict.failed > 0, "{}", without.verdict);
    for notice in [LinkNotification::Noticed, LinkNotification::Silent] {
        let outcome = collective_with_a_cut(Some(alternates(notice))).run();
        assert!(outcome.verdict.is_clean() && outcome.verdict.failed == 0, "{notice:?}: {}", outcome.verdict);
        assert_eq!(outcome.verdict.checked, 40 * 32);
        assert!(outcome.migrations > 0);
    }
}

#[test]
fn trees_with_second_paths_survive_whatever_others_do() {
    for seed in 0..600 {
        let mut trial = Trial::hard(seed);
        trial.parameters.alternates =
            Some(alternates(if seed % 2 == 0 { LinkNotification::Noticed } else { LinkNotification::Silent }));
        let outcome = trial.run();
        assert!(outcome.verdict.is_clean(), "{trial}{}", outcome.verdict);
    }
}

/// Tens of thousands of the same trials, in parts that run side by side.
mod many {
    use super::{die, survive, survive_orders};

    #[test]
    #[ignore = "long: ten thousand trials"]
    fn ten_thousand_trials_with_a_path_left_are_clean() {
        survive(100_000..110_000);
    }

    #[test]
    #[ignore = "long: ten thousand trials"]
    fn another_ten_thousand_trials_with_a_path_left_are_clean() {
        survive(110_000..120_000);
    }

    #[test]
    #[ignore = "long: thousands of trials"]
    fn thousands_of_trials_with_no_path_left_are_clean() {
        die(100_000..104_000);
    }

    #[test]
    #[ignore = "long: thousands of trials"]
    fn thousands_of_trials_with_orders_are_clean() {
        survive_orders(100_000..105_000);
    }
}
