//! `pleach manager`, `pleach node`, `pleach top` and `pleach doctor` as processes.

mod browser;
mod floods;
mod keyboard;
mod load;
mod memory;
mod monitoring;
mod page;
mod process;
mod settings;
mod swarm;
mod terminal;
mod tools;
mod web;
mod web_figures;

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use control::{ManagerClient, ManagerNotification};

use process::*;

#[test]
fn nodes_find_the_manager_and_a_client_gets_a_group() {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0"]);
    let node = |name: &str, parent: &[&str]| {
        Process::start(&[&["node", "--manager", &manager.line, "--name", name], parent].concat())
    };
    let _top = node("top", &[]);
    let left = node("left", &["--parent", "top"]);
    let _right = node("right", &["--parent", "top", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    let mut client = client(&manager);
    wait_for_nodes(&mut client, 3);
    client.open_job("test", None).expect("admitted");
    let group = client.open_group(request(4)).expect("opened");
    assert_eq!(group.seats.len(), 3);
    assert_eq!(group.seats[1].addresses, [left.line.parse().expect("a node prints its address")]);
    assert_eq!(group.seats[2].addresses.len(), 2);
    drop(left);
    let mut notice = None;
    until("the job is notified of the lost node", || {
        notice = client.poll_notification();
        notice.is_some()
    });
    assert!(matches!(notice, Some(ManagerNotification::Revoked { node: Some(name), .. }) if name == "left"));
    client.open_group(request(4)).expect("opened without it");
}

#[test]
fn a_manager_without_descriptors_does_not_spin_and_accepts_clients_again() {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_pleach");
    command.args(["-c", "ulimit -n 24; exec \"$0\" manager --listen 127.0.0.1:0 --log off", program]);
    let manager = Process::run(command.env("PLEACH_SECRET", SECRET));
    let connections: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(manager.address()).expect("it listens")).collect();
    std::thread::sleep(Duration::from_millis(200));
    let before = processor_time(manager.id());
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let busy = processor_time(manager.id()).saturating_sub(before);
    assert!(busy < began.elapsed() / 4, "it used the CPU for {busy:?} of {:?}", began.elapsed());
    let connect = || ManagerClient::connect(manager.address(), control::ClusterSecret::new(SECRET).ok(), PATIENCE);
    let mut client = connect().expect("it is accepted although the other connections are still open");
    client.status().expect("it answers");
    drop(connections);
}
