//! Groups opened, closed and lost over real connections.

use std::time::{Duration, Instant};

use control::{ClientError, ManagerClient, ManagerNotification, SeatFailure};
use manager::ControlError;
use manager::job_history::JobEvent;

use crate::cluster::*;

#[test]
fn a_group_is_opened_and_closed_over_real_connections() {
    let mut cluster = start_cluster(Some(secret()));
    assert!(matches!(cluster.client.open_group(request(4)), Err(ClientError::NoJob)));
    cluster.client.open_job("test", None).expect("admitted");
    let group = cluster.client.open_group(request(8)).expect("opened");
    assert_eq!(group.seats.iter().map(|seat| seat.name.as_str()).collect::<Vec<_>>(), ["top", "left", "right"]);
    for seats in &cluster.seats {
        let seats = seats.seats.lock().expect("not poisoned");
        assert_eq!(seats[&group.group_key()].key, group.key);
    }
    let status = cluster.client.status().expect("answered");
    assert_eq!((status.groups.len(), status.nodes[0].reserved.operations), (1, 8));
    until("heartbeats bring reports", || {
        cluster.client.status().expect("answered").nodes.iter().all(|node| node.report.operations == 42)
    });
    cluster.client.close_group(group.group_key()).expect("closed");
    assert_eq!(cluster.seats.iter().map(RecordingDataPlane::count).sum::<usize>(), 0);
    let error = cluster.client.close_group(group.group_key()).expect_err("it is gone");
    assert!(matches!(error, ClientError::Rejected(ControlError::UnknownGroup)), "{error}");
    // The end of a job closes its groups.
    cluster.client.open_group(request(8)).expect("opened");
    cluster.client.close_job().expect("closed");
    until("no seat is left", || cluster.seats.iter().all(|seats| seats.count() == 0));
}

#[test]
fn a_node_that_rejects_its_seat_leaves_nothing_behind_and_is_named() {
    let (Addresses { control: address, .. }, _manager) = manager(loopback(), None);
    let seats = [
        RecordingDataPlane::default(),
        RecordingDataPlane::default(),
        RecordingDataPlane { rejects: true, ..RecordingDataPlane::default() },
    ];
    let _top = node(address, None, "top", &[], &seats[0]);
    let _left = node(address, None, "left", &["top"], &seats[1]);
    let _right = node(address, None, "right", &["top"], &seats[2]);
    let mut client =
        ManagerClient::connect(address, None::<control::ControlCredential>, TIMEOUT).expect("the manager runs");
    until("all nodes are registered", || alive(&mut client) == 3);
    client.open_job("test", None).expect("admitted");
    let error = client.open_group(request(8)).expect_err("refused");
    assert_eq!(error.to_string(), "node right failed: rejected by the test");
    assert_eq!(seats.iter().map(RecordingDataPlane::count).sum::<usize>(), 0);
    let status = client.status().expect("answered");
    assert!(status.nodes.iter().all(|node| node.reserved.seats == 0));
    assert_eq!(status.jobs[0].last_refusal.as_deref(), Some("node right failed: rejected by the test"));
}

#[test]
fn a_killed_node_is_reported_and_avoided() {
    let mut cluster = start_cluster(None);
    cluster.client.open_job("test", None).expect("admitted");
    let group = cluster.client.open_group(request(8)).expect("opened");
    let began = Instant::now();
    cluster.nodes[1] = None;
    let mut notification = None;
    until("the job is notified", || {
        notification = cluster.client.poll_notification();
        notification.is_some()
    });
    assert!(began.elapsed() < Duration::from_secs(2), "took {:?}", began.elapsed());
    let Some(ManagerNotification::Revoked { group: revoked, node, .. }) = notification else {
        panic!("{notification:?}")
    };
    assert_eq!((revoked, node.as_deref()), (group.group_key(), Some("left")));
    until("the other seats are removed", || cluster.seats[0].count() + cluster.seats[2].count() == 0);
    let again = cluster.client.open_group(request(8)).expect("opened without it");
    assert!(again.seats.iter().all(|seat| seat.name != "left"));
}

#[test]
fn a_failure_in_the_data_plane_reaches_the_job() {
    let mut cluster = start_cluster(None);
    cluster.client.open_job("test", None).expect("admitted");
    let group = cluster.client.open_group(request(8)).expect("opened").group_key();
    let failure = SeatFailure { group, what: "rank 3 does not answer".to_owned() };
    cluster.seats[1].failures.lock().expect("not poisoned").push(failure);
    let mut notification = None;
    until("the job is notified", || {
        notification = cluster.client.poll_notification();
        notification.is_some()
    });
    let why = "node left: rank 3 does not answer".to_owned();
    assert_eq!(notification, Some(ManagerNotification::Revoked { group, node: None, why }));
}

#[test]
fn a_restarted_manager_recovers_everything() {
    let mut cluster = start_cluster(Some(secret()));
    let (ticket, quota) = cluster.client.open_job("test", None).expect("admitted");
    let group = cluster.client.open_group(request(8)).expect("opened");
    cluster.manager = None;
    std::thread::sleep(Duration::from_millis(100));
    let counts = || cluster.seats.iter().map(RecordingDataPlane::count).sum::<usize>();
    assert_eq!(counts(), 3, "open groups need no manager");
    let error = cluster.client.status().expect_err("no manager runs");
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    let (_, running) = manager(cluster.addresses.control, Some(secret()));
    cluster.manager = Some(running);
    until("all nodes are registered again", || alive(&mut cluster.client) == 3);
    let status = cluster.client.status().expect("answered");
    assert_eq!(status.groups.len(), 1);
    assert_eq!(status.groups[0].nodes.len(), 3);
    assert!(status.jobs.iter().any(|job| job.job == ticket.job && job.attached));
    // Another process of the job may act for it too.
    let mut other =
        ManagerClient::connect(cluster.addresses.control, Some(secret()), TIMEOUT).expect("the manager runs");
    other.attach_job(ticket, "test", quota).expect("its own ticket");
    other.close_group(group.group_key()).expect("closed");
    assert_eq!(cluster.seats.iter().map(RecordingDataPlane::count).sum::<usize>(), 0);
}

#[test]
fn a_history_is_available_also_after_the_job_ended() {
    let mut cluster = start_cluster(Some(secret()));
    cluster.client.open_job("weather", None).expect("admitted");
    cluster.client.open_group(request(1)).expect_err("one host is too few");
    let group = cluster.client.open_group(request(8)).expect("opened").group_key();
    until("its operations are known", || cluster.client.status().is_ok_and(|status| status.operations == 42));
    cluster.client.report_failure(group, "node top does not answer").expect("sent");
    until("the seats are removed", || cluster.seats.iter().all(|seats| seats.count() == 0));
    cluster.client.close_job().expect("closed");
    let histories = cluster.client.job_history("weather").expect("answered");
    let [history] = histories.as_slice() else { panic!("{histories:?}") };
    let totals = history.totals;
    assert_eq!((totals.opened, totals.refused, totals.revoked, totals.operations), (1, 1, 1, 42));
    let why = "reported by its job: node top does not answer".to_owned();
    let is_recorded =
        history.entries.iter().any(|entry| entry.event == JobEvent::GroupRevoked { group, why: why.clone() });
    assert!(is_recorded && !history.alive, "{history:?}");
    assert!(cluster.client.job_history("another").expect("answered").is_empty());
}
