//! Job histories, and operation counts that nodes report.

use super::*;
use crate::job_history::{JobEvent, JobHistory};

fn one_node() -> SimulatedCluster {
    SimulatedCluster::new(1, ManagerSettings::default(), vec![descriptor(0, "only", &[], &[], LARGE_CAPACITY)])
}

fn job_history(cluster: &mut SimulatedCluster, job: &str) -> Vec<JobHistory> {
    cluster.send_request(9, |request| ToManager::JobHistory { request, job: job.to_owned() });
    cluster.deliver_all();
    match cluster.received.get_mut(&9).and_then(Vec::pop) {
        Some(FromManager::JobHistories { histories, .. }) => histories,
        other => panic!("expected histories, got {other:?}"),
    }
}

#[test]
fn a_history_is_found_by_name_and_number_also_after_the_job_ended() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap().group_key();
    let error = cluster.open_group(0, ticket, request(leaders(0..3), 4, u32::MAX)).unwrap_err();
    cluster.nodes[0].folded.insert(group, 42);
    cluster.advance(millis(1_000));
    cluster.close_group(0, ticket, group);
    cluster.send_request(0, |request| ToManager::CloseJob { request, ticket });
    cluster.deliver_all();
    cluster.advance(millis(500));
    let history = job_history(&mut cluster, "job 0");
    assert_eq!(history, job_history(&mut cluster, &format!("{:016x}", ticket.job.0)));
    assert_eq!(history, job_history(&mut cluster, &ticket.job.to_string()));
    let [history] = history.as_slice() else { panic!("{history:?}") };
    assert!(!history.alive);
    assert_eq!((history.totals.opened, history.totals.refused, history.totals.operations), (1, 1, 42));
    let root = "only".to_owned();
    let expected = [
        JobEvent::Admitted,
        JobEvent::GroupOpened { group, leaders: 3, nodes: 1, root },
        JobEvent::GroupRefused { leaders: 3, why: error.to_string() },
        JobEvent::GroupClosed { group, operations: 42 },
        JobEvent::Ended { why: "closed by the job".to_owned() },
    ];
    let happened: Vec<&JobEvent> = history.entries.iter().map(|entry| &entry.event).collect();
    assert_eq!(happened, expected.iter().collect::<Vec<_>>());
    assert_eq!(history.entries[0].ago_ms, 1_500);
    assert!(job_history(&mut cluster, "nobody").is_empty());
}

#[test]
fn histories_are_bounded() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    for _ in 0..100 {
        cluster.open_group(0, ticket, request(leaders(0..1), 4, 64)).unwrap_err();
    }
    let history = job_history(&mut cluster, "job 0").pop().expect("the job runs");
    assert_eq!(history.entries.len(), limits::MAX_JOB_EVENTS);
    assert_eq!((history.totals.refused, history.dropped_entries), (100, 101 - limits::MAX_JOB_EVENTS as u64));
    assert_eq!(cluster.manager.status().refused, BTreeMap::from([("too few hosts".to_owned(), 100)]));
    for job in 1..=2 * limits::MAX_FINISHED_JOBS {
        let ticket = cluster.open_job(job, None);
        cluster.send_request(job, |request| ToManager::CloseJob { request, ticket });
        cluster.deliver_all();
    }
    assert_eq!(cluster.manager.finished_jobs.len(), limits::MAX_FINISHED_JOBS);
    assert!(job_history(&mut cluster, "job 1").is_empty(), "the oldest is dropped");
    assert_eq!(job_history(&mut cluster, "job 0").len(), 1, "a running job is kept");
}

#[test]
fn operations_are_counted_once_although_every_seat_reports_them() {
    let descriptors = vec![
        descriptor(0, "top", &[], &[], LARGE_CAPACITY),
        descriptor(1, "a", &["top"], &[], LARGE_CAPACITY),
        descriptor(2, "b", &["top"], &[], LARGE_CAPACITY),
    ];
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), descriptors);
    let ticket = cluster.open_job(0, None);
    let opened = cluster.open_group(0, ticket, request(leaders(0..8), 4, 64)).unwrap();
    assert_eq!(opened.seats.len(), 3);
    let group = opened.group_key();
    for (node, folded) in [(0, 10), (1, 12), (2, 11)] {
        cluster.nodes[node].folded.insert(group, folded);
    }
    cluster.advance(millis(200));
    let status = cluster.manager.status();
    assert_eq!((status.operations, status.groups[0].operations, status.jobs[0].totals.operations), (12, 12, 12));
    // A count that decreases, as after a restart of the node, does not lower the total.
    cluster.nodes[1].folded.insert(group, 0);
    cluster.nodes[0].folded.insert(group, 13);
    cluster.advance(millis(200));
    assert_eq!(cluster.manager.status().operations, 13);
}
