//! Groups opened, closed and lost over real connections.

use std::time::{Duration, Instant};

use control::{ClientError, ManagerClient, ManagerNotification, SeatFailure};
use manager::ControlError;
use manager::job_history::JobEvent;

use crate::town::*;

#[test]
fn a_group_is_opened_and_closed_over_real_connections() {
    let mut town = town(Some(secret()));
    assert!(matches!(town.client.open_group(request(4)), Err(ClientError::NoJob)));
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened");
    assert_eq!(group.seats.iter().map(|seat| seat.name.as_str()).collect::<Vec<_>>(), ["top", "left", "right"]);
    for seats in &town.seats {
        let seats = seats.seats.lock().expect("nobody panicked");
        assert_eq!(seats[&group.key_of_group()].key, group.key);
    }
    let status = town.client.status().expect("answered");
    assert_eq!((status.groups.len(), status.nodes[0].reserved.operations), (1, 8));
    until("beats bring reports", || {
        town.client.status().expect("answered").nodes.iter().all(|node| node.report.operations == 42)
    });
    town.client.close_group(group.key_of_group()).expect("closed");
    assert_eq!(town.seats.iter().map(Remembered::count).sum::<usize>(), 0);
    let error = town.client.close_group(group.key_of_group()).expect_err("it is gone");
    assert!(matches!(error, ClientError::Refused(ControlError::UnknownGroup)), "{error}");
    // A job that ends takes its groups along.
    town.client.open_group(request(8)).expect("opened");
    town.client.close_job().expect("closed");
    until("no seat is left", || town.seats.iter().all(|seats| seats.count() == 0));
}

#[test]
fn a_node_that_refuses_leaves_nothing_behind_and_is_named() {
    let (Doors { control: address, .. }, _manager) = manager(loopback(), None);
    let seats = [Remembered::default(), Remembered::default(), Remembered { refuses: true, ..Remembered::default() }];
    let _top = node(address, None, "top", &[], &seats[0]);
    let _left = node(address, None, "left", &["top"], &seats[1]);
    let _right = node(address, None, "right", &["top"], &seats[2]);
    let mut client = ManagerClient::connect(address, None, PATIENCE).expect("the manager is there");
    until("all nodes are there", || alive(&mut client) == 3);
    client.open_job("test", None).expect("admitted");
    let error = client.open_group(request(8)).expect_err("refused");
    assert_eq!(error.to_string(), "node right failed: it does not want to");
    assert_eq!(seats.iter().map(Remembered::count).sum::<usize>(), 0);
    let status = client.status().expect("answered");
    assert!(status.nodes.iter().all(|node| node.reserved.seats == 0));
    assert_eq!(status.jobs[0].last_refusal.as_deref(), Some("node right failed: it does not want to"));
}

#[test]
fn a_killed_node_is_told_and_avoided() {
    let mut town = town(None);
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened");
    let began = Instant::now();
    town.nodes[1] = None;
    let mut notice = None;
    until("the job hears of it", || {
        notice = town.client.poll_notice();
        notice.is_some()
    });
    assert!(began.elapsed() < Duration::from_secs(2), "took {:?}", began.elapsed());
    let Some(ManagerNotification::Revoked { group: revoked, node, .. }) = notice else { panic!("{notice:?}") };
    assert_eq!((revoked, node.as_deref()), (group.key_of_group(), Some("left")));
    until("the other seats are given up", || town.seats[0].count() + town.seats[2].count() == 0);
    let again = town.client.open_group(request(8)).expect("opened without it");
    assert!(again.seats.iter().all(|seat| seat.name != "left"));
}

#[test]
fn trouble_in_the_data_plane_reaches_the_job() {
    let mut town = town(None);
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened").key_of_group();
    let trouble = SeatFailure { group, what: "rank 3 does not answer".to_owned() };
    town.seats[1].troubles.lock().expect("nobody panicked").push(trouble);
    let mut notice = None;
    until("the job hears of it", || {
        notice = town.client.poll_notice();
        notice.is_some()
    });
    let why = "node left: rank 3 does not answer".to_owned();
    assert_eq!(notice, Some(ManagerNotification::Revoked { group, node: None, why }));
}

#[test]
fn a_manager_that_begins_anew_finds_everything_as_it_was() {
    let mut town = town(Some(secret()));
    let (ticket, quota) = town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened");
    town.manager = None;
    std::thread::sleep(Duration::from_millis(100));
    let counts = || town.seats.iter().map(Remembered::count).sum::<usize>();
    assert_eq!(counts(), 3, "running groups do not need a manager");
    let error = town.client.status().expect_err("nobody is there");
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    let (_, running) = manager(town.doors.control, Some(secret()));
    town.manager = Some(running);
    until("all nodes are there again", || alive(&mut town.client) == 3);
    let status = town.client.status().expect("answered");
    assert_eq!(status.groups.len(), 1);
    assert_eq!(status.groups[0].nodes.len(), 3);
    assert!(status.jobs.iter().any(|job| job.job == ticket.job && job.attached));
    // Another process of the job may speak for it as well.
    let mut other =
        ManagerClient::connect(town.doors.control, Some(secret()), PATIENCE).expect("the manager is there");
    other.attach_job(ticket, "test", quota).expect("its own ticket");
    other.close_group(group.key_of_group()).expect("closed");
    assert_eq!(town.seats.iter().map(Remembered::count).sum::<usize>(), 0);
}

#[test]
fn what_became_of_a_job_is_told_also_when_it_is_gone() {
    let mut town = town(Some(secret()));
    town.client.open_job("weather", None).expect("admitted");
    town.client.open_group(request(1)).expect_err("one host has nothing to fold");
    let group = town.client.open_group(request(8)).expect("opened").key_of_group();
    until("its operations are known", || town.client.status().is_ok_and(|status| status.operations == 42));
    town.client.tell_trouble(group, "node top does not answer").expect("told");
    until("the seats are given up", || town.seats.iter().all(|seats| seats.count() == 0));
    town.client.close_job().expect("closed");
    let accounts = town.client.explain("weather").expect("answered");
    let [account] = accounts.as_slice() else { panic!("{accounts:?}") };
    let totals = account.totals;
    assert_eq!((totals.opened, totals.refused, totals.revoked, totals.operations), (1, 1, 1, 42));
    let why = "its job says: node top does not answer".to_owned();
    let told = account
        .happenings
        .iter()
        .any(|happening| happening.what == JobEvent::GroupRevoked { group, why: why.clone() });
    assert!(told && !account.alive, "{account:?}");
    assert!(town.client.explain("another").expect("answered").is_empty());
}
