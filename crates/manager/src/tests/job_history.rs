//! What the manager remembers of jobs, and what nodes tell of their work.

use crate::job_history::{JobEvent, JobHistory};
use super::*;

fn one_node() -> SimulatedCluster {
    SimulatedCluster::new(1, ManagerSettings::default(), vec![card(0, "only", &[], &[], ROOM)])
}

fn explain(cluster: &mut SimulatedCluster, job: &str) -> Vec<JobHistory> {
    cluster.ask(9, |request| ToManager::Explain { request, job: job.to_owned() });
    cluster.settle();
    match cluster.heard.get_mut(&9).and_then(Vec::pop) {
        Some(FromManager::Explained { accounts, .. }) => accounts,
        other => panic!("no account but {other:?}"),
    }
}

#[test]
fn a_job_is_told_of_by_name_and_number_also_when_it_is_gone() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap().key_of_group();
    let refusal = cluster.open_group(0, ticket, request(leaders(0..3), 4, u32::MAX)).unwrap_err();
    cluster.nodes[0].folded.insert(group, 42);
    cluster.pass(millis(1_000));
    cluster.close_group(0, ticket, group);
    cluster.ask(0, |request| ToManager::CloseJob { request, ticket });
    cluster.settle();
    cluster.pass(millis(500));
    let account = explain(&mut cluster, "job 0");
    assert_eq!(account, explain(&mut cluster, &format!("{:016x}", ticket.job.0)));
    assert_eq!(account, explain(&mut cluster, &ticket.job.to_string()));
    let [account] = account.as_slice() else { panic!("{account:?}") };
    assert!(!account.alive);
    assert_eq!((account.totals.opened, account.totals.refused, account.totals.operations), (1, 1, 42));
    let root = "only".to_owned();
    let expected = [
        JobEvent::Admitted,
        JobEvent::GroupOpened { group, leaders: 3, nodes: 1, root },
        JobEvent::GroupRefused { leaders: 3, why: refusal.to_string() },
        JobEvent::GroupClosed { group, operations: 42 },
        JobEvent::Ended { why: "it is done".to_owned() },
    ];
    let happened: Vec<&JobEvent> = account.happenings.iter().map(|happening| &happening.what).collect();
    assert_eq!(happened, expected.iter().collect::<Vec<_>>());
    assert_eq!(account.happenings[0].ago_ms, 1_500);
    assert!(explain(&mut cluster, "nobody").is_empty());
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    for _ in 0..100 {
        cluster.open_group(0, ticket, request(leaders(0..1), 4, 64)).unwrap_err();
    }
    let account = explain(&mut cluster, "job 0").pop().expect("it is there");
    assert_eq!(account.happenings.len(), limits::MAX_JOB_EVENTS);
    assert_eq!((account.totals.refused, account.forgotten), (100, 101 - limits::MAX_JOB_EVENTS as u64));
    assert_eq!(cluster.manager.status().refused, BTreeMap::from([("too few hosts".to_owned(), 100)]));
    for job in 1..=2 * limits::MAX_FINISHED_JOBS {
        let ticket = cluster.open_job(job, None);
        cluster.ask(job, |request| ToManager::CloseJob { request, ticket });
        cluster.settle();
    }
    assert_eq!(cluster.manager.past.len(), limits::MAX_FINISHED_JOBS);
    assert!(explain(&mut cluster, "job 1").is_empty(), "the oldest are forgotten");
    assert_eq!(explain(&mut cluster, "job 0").len(), 1, "whoever is there is not");
}

#[test]
fn operations_are_counted_once_although_every_seat_tells_them() {
    let cards =
        vec![card(0, "top", &[], &[], ROOM), card(1, "a", &["top"], &[], ROOM), card(2, "b", &["top"], &[], ROOM)];
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), cards);
    let ticket = cluster.open_job(0, None);
    let opened = cluster.open_group(0, ticket, request(leaders(0..8), 4, 64)).unwrap();
    assert_eq!(opened.seats.len(), 3);
    let group = opened.key_of_group();
    for (node, folded) in [(0, 10), (1, 12), (2, 11)] {
        cluster.nodes[node].folded.insert(group, folded);
    }
    cluster.pass(millis(200));
    let status = cluster.manager.status();
    assert_eq!((status.operations, status.groups[0].operations, status.jobs[0].totals.operations), (12, 12, 12));
    // A count that goes back, as that of a node which began anew, takes nothing away.
    cluster.nodes[1].folded.insert(group, 0);
    cluster.nodes[0].folded.insert(group, 13);
    cluster.pass(millis(200));
    assert_eq!(cluster.manager.status().operations, 13);
}
