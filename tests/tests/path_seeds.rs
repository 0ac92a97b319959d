//! Queue pairs on failing paths: every message exactly once, in order, unaltered; and a typed failure at both ends if no
//! path remains. Seeded trials with random fault plans, checked by the oracle.

use std::sync::Arc;

use oracle::StreamViolation;
use protocol::connection::path::{MigrationCause, PathPolicy};
use protocol::queue_pair::QpSabotage;
use simulator::collective::{AlternatePathParameters, Replication};
use simulator::fault::{FaultKind, FaultPlan, FaultRule};
use simulator::queue_pair::{LinkNotification, MessagePlan, MessageVerb};
use tests::{PathTrial, Trial};
use topology::{Fabric, NodeId, TreeRequest};
use units::{SimSpan, SimTime};

fn run_recoverable(seeds: std::ops::Range<u64>) -> (u64, u32) {
    let (mut checked, mut migrations) = (0, 0);
    for seed in seeds {
        let outcome = PathTrial::recoverable(seed).run();
        assert!(outcome.is_clean(), "{}{outcome}", PathTrial::recoverable(seed));
        checked += outcome.checked();
        migrations += outcome.migrations();
    }
    (checked, migrations)
}

/// With users who load and migrate manually; returns the manual migrations and the rejected commands.
fn run_with_user_commands(seeds: std::ops::Range<u64>) -> (u32, u32) {
    let (mut manual, mut rejected) = (0, 0);
    for seed in seeds {
        for trial in [PathTrial::recoverable(seed).with_user_commands(), PathTrial::fatal(seed).with_user_commands()]
        {
            let outcome = trial.run();
            assert!(outcome.is_clean(), "{trial}{outcome}");
            let ends = outcome.reports.iter().flatten();
            manual += ends.filter_map(|end| end.migrations.get(&MigrationCause::Manual)).sum::<u32>();
            rejected += outcome.orders.iter().map(|orders| orders.rejected).sum::<u32>();
        }
    }
    (manual, rejected)
}

fn run_fatal(seeds: std::ops::Range<u64>) -> u64 {
    let mut checked = 0;
    for seed in seeds {
        let outcome = PathTrial::fatal(seed).run();
        assert!(outcome.is_clean(), "{}{outcome}", PathTrial::fatal(seed));
        checked += outcome.checked();
    }
    checked
}

#[test]
fn with_one_path_left_every_message_arrives_once_in_order_and_unaltered() {
    let (checked, migrations) = run_recoverable(0..1_000);
    assert!(checked > 50_000 && migrations > 5_000, "{checked} messages were checked, {migrations} migrations");
}

#[test]
fn with_no_path_left_both_ends_fail_and_the_messages_delivered_are_a_prefix() {
    assert!(run_fatal(0..200) > 8_000);
}

#[test]
fn user_commands_never_lose_duplicate_or_reorder_a_message() {
    let (manual, rejected) = run_with_user_commands(0..500);
    assert!(manual > 500 && rejected > 500, "{manual} manual migrations, {rejected} commands rejected");
}

#[test]
fn a_seed_repeats_the_same_events() {
    for seed in 0..40 {
        assert_eq!(PathTrial::recoverable(seed).run().trace, PathTrial::recoverable(seed).run().trace, "seed {seed}");
    }
    assert_ne!(PathTrial::recoverable(1).run().trace, PathTrial::recoverable(2).run().trace);
}

/// Seeds that found defects: an idle connection on a dead path, traffic that cycled among noisy paths, the repair of a gap
/// measured as a round trip, two ends that followed each other's migrations endlessly.
#[test]
fn seeds_that_found_defects_stay_clean() {
    for seed in [36, 87, 4_535, 100_862] {
        run_recoverable(seed..seed + 1);
    }
}

/// Two hosts with two ports each, and a stream of small messages; the first path is cut halfway.
fn cut_in_the_middle(notice: LinkNotification, link: &str) -> PathTrial {
    let mut trial = PathTrial::recoverable(1);
    trial.fabric = Arc::new(Fabric::xgft(&[2], &[2]).expect("the shape is within the bounds"));
    trial.parameters.notice = notice;
    let plan = &mut trial.parameters.connections[0];
    plan.paths = 2;
    plan.policy.window = 16;
    plan.policy.acknowledge_every = 16;
    for (number, end) in plan.ends.iter_mut().enumerate() {
        end.host = NodeId(number as u32);
        (end.receives, end.repost_after, end.sends_at_once) = (64, SimSpan::ZERO, 16);
        let message = |number: u64| {
            let not_before = SimTime::ZERO + SimSpan::from_nanos(500 * number);
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
fn both_ends_leave_a_cut_cable_with_and_without_link_notification() {
    for (notice, cause) in
        [(LinkNotification::Notified, MigrationCause::Down), (LinkNotification::Silent, MigrationCause::Timeout)]
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
            QpSabotage::Forget => violations.iter().any(|found| matches!(found, StreamViolation::Duplicated { .. })),
            // The receiver never acknowledges what it skipped, so the sender fails.
            QpSabotage::Skip => {
                violations.iter().any(|found| matches!(found, StreamViolation::UnexpectedFailure { .. }))
            }
        };
        assert!(expected, "{sabotage:?}: {outcome}");
    }
}

/// A trial of collectives whose tree edges have alternate paths; one edge loses its cable permanently halfway.
fn collective_with_a_cut(alternates: Option<AlternatePathParameters>) -> Trial {
    let mut trial = Trial::soft(7);
    trial.fabric = Arc::new(Fabric::xgft(&[4, 4, 2], &[1, 2, 2]).expect("the shape is within the bounds"));
    trial.parameters.replication = Replication::None;
    trial.parameters.radix_limit = None;
    trial.parameters.policy.retry_limit = 7;
    trial.parameters.alternate_paths = alternates;
    trial.operations = 40;
    let tree = topology::place_tree(&trial.fabric, &TreeRequest::all()).expect("a fat tree has an aggregation tree");
    let node = tree.nodes.iter().find(|node| node.level == 1).expect("hosts have parents");
    let port = node.parents[0].port.expect("the parent is on another switch");
    let parent = trial.fabric.peer(node.switch, port).expect("tree edges follow cables").node;
    let link = format!("{}-{}", trial.fabric.name(node.switch), trial.fabric.name(parent));
    let cut = FaultRule::new(FaultKind::Down).on(link).lasting(30.0, None);
    trial.plan = FaultPlan { seed: None, rules: vec![cut] };
    trial
}

fn alternates(notice: LinkNotification) -> AlternatePathParameters {
    let policy = PathPolicy {
        probe_every: units::Span::from_micros(50),
        probe_timeout: units::Span::from_micros(20),
        failback_after: units::Span::from_micros(500),
        ..PathPolicy::default()
    };
    AlternatePathParameters { policy, notice }
}

#[test]
fn a_tree_edge_that_loses_its_cable_migrates_and_no_result_changes() {
    let without = collective_with_a_cut(None).run();
    assert!(without.verdict.is_clean() && without.verdict.failed > 0, "{}", without.verdict);
    for notice in [LinkNotification::Notified, LinkNotification::Silent] {
        let outcome = collective_with_a_cut(Some(alternates(notice))).run();
        assert!(outcome.verdict.is_clean() && outcome.verdict.failed == 0, "{notice:?}: {}", outcome.verdict);
        assert_eq!(outcome.verdict.checked, 40 * 32);
        assert!(outcome.migrations > 0);
    }
}

#[test]
fn trees_with_alternate_paths_pass_the_trials_with_permanent_faults() {
    for seed in 0..600 {
        let mut trial = Trial::hard(seed);
        trial.parameters.alternate_paths =
            Some(alternates(if seed % 2 == 0 { LinkNotification::Notified } else { LinkNotification::Silent }));
        let outcome = trial.run();
        assert!(outcome.verdict.is_clean(), "{trial}{}", outcome.verdict);
    }
}

/// Tens of thousands of the same trials, in parts that run in parallel.
mod many {
    use super::{run_fatal, run_recoverable, run_with_user_commands};

    #[test]
    #[ignore = "long: ten thousand trials"]
    fn ten_thousand_trials_with_a_path_left_are_clean() {
        run_recoverable(100_000..110_000);
    }

    #[test]
    #[ignore = "long: ten thousand trials"]
    fn another_ten_thousand_trials_with_a_path_left_are_clean() {
        run_recoverable(110_000..120_000);
    }

    #[test]
    #[ignore = "long: thousands of trials"]
    fn thousands_of_trials_with_no_path_left_are_clean() {
        run_fatal(100_000..104_000);
    }

    #[test]
    #[ignore = "long: thousands of trials"]
    fn thousands_of_trials_with_user_commands_are_clean() {
        run_with_user_commands(100_000..105_000);
    }
}
