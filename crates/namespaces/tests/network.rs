//! Hosts as namespaces, with plain sockets. Where a prerequisite is missing, the tests print which and end.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use namespaces::{NamespaceError, NamespaceNetwork};

/// With `CI` set it panics instead, so that CI cannot skip these tests unnoticed.
fn network(count: usize) -> Option<NamespaceNetwork> {
    match NamespaceNetwork::new(count) {
        Ok(network) => Some(network),
        Err(error @ NamespaceError::Missing(_)) => {
            namespaces::skip_test(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

fn socket(network: &NamespaceNetwork, host: usize, address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = network
        .host(host)
        .inside(|| UdpSocket::bind((address, port)))
        .expect("the thread enters the host")
        .expect("the port is free");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("the timeout is not zero");
    socket
}

#[test]
fn invalid_numbers_of_hosts_are_rejected() {
    for count in [0, namespaces::MAX_HOSTS + 1] {
        assert!(matches!(NamespaceNetwork::new(count), Err(NamespaceError::HostCount(found)) if found == count));
    }
}

mod between_hosts {
    use super::*;

    #[test]
    fn all_links_have_the_given_mtu() {
        if network(1).is_none() {
            return;
        }
        let network = NamespaceNetwork::with_mtu(2, 1500).expect("the prerequisites are there");
        for host in [0, 1] {
            let read = || std::fs::read_to_string("/proc/sys/net/ipv6/conf/net0/mtu").expect("the kernel has IPv6");
            assert_eq!(network.host(host).inside(read).expect("the thread enters the host").trim(), "1500");
        }
    }

    #[test]
    fn all_hosts_reach_each_other_and_multicast_reaches_all() {
        let Some(network) = network(4) else { return };
        let group = Ipv4Addr::new(239, 7, 7, 7);
        let sockets: Vec<UdpSocket> =
            (0..4).map(|host| socket(&network, host, Ipv4Addr::UNSPECIFIED, 7000)).collect();
        for (host, socket) in sockets.iter().enumerate() {
            let address = network.host(host).address();
            socket.join_multicast_v4(&group, &address).expect("a group");
        }
        let mut buffer = [0; 16];
        for from in 0..4 {
            for to in (0..4).filter(|to| *to != from) {
                sockets[from].send_to(b"one", (network.host(to).address(), 7000)).expect("a route");
                let (length, source) = sockets[to].recv_from(&mut buffer).expect("it arrives");
                assert_eq!((&buffer[..length], source.ip()), (&b"one"[..], network.host(from).address().into()));
            }
        }
        sockets[2].send_to(b"all", (group, 7000)).expect("a route for multicast");
        for socket in &sockets {
            assert_eq!(socket.recv(&mut buffer).expect("it arrives"), 3);
        }
    }

    #[test]
    fn the_machine_itself_has_no_new_devices_or_addresses() {
        let Some(network) = network(2) else { return };
        let read = |path: &str| std::fs::read_to_string(path).expect("there is a /proc");
        let (devices, addresses) = (read("/proc/self/net/dev"), read("/proc/self/net/fib_trie"));
        assert!(!["net0:", "port0:", "bridge:"].iter().any(|device| devices.contains(device)), "{devices}");
        assert!(!addresses.contains("10.77."), "{addresses}");
        let inside = network
            .host(0)
            .inside(|| std::fs::read_to_string("/proc/thread-self/net/dev"))
            .expect("the thread enters the host");
        assert!(inside.expect("there is a /proc").contains("net0:"));
    }

    #[test]
    fn a_command_runs_on_its_host() {
        let Some(network) = network(2) else { return };
        let mut command = Command::new("ip");
        command.args(["-o", "-4", "address", "show", "dev", "net0"]).stdout(Stdio::piped());
        let output = network.host(1).start(&mut command).expect("it starts").wait_with_output().expect("it ends");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains("10.77.0.2/16"), "{printed}");
        let missing = network.host(1).start(&mut Command::new("/no/such/program")).expect_err("it is not there");
        assert!(missing.to_string().contains("/no/such/program"), "{missing}");
    }

    #[test]
    fn a_panic_deletes_everything_even_if_a_process_remains() {
        let Some(network) = network(2) else { return };
        let names: Vec<String> = network.names().into_iter().map(str::to_owned).collect();
        assert!(names.len() == 3 && names.iter().all(|name| exists(name)), "{names:?}");
        let mut remaining = network.host(0).start(Command::new("sleep").arg("30")).expect("it starts");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _network = network;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert!(!names.iter().any(|name| exists(name)), "{names:?}");
        remaining.kill().expect("it runs");
        remaining.wait().expect("it was killed");
    }

    /// Runs in a process of its own, since a process deletes stale namespaces only once.
    #[test]
    #[ignore = "another test starts it as a process"]
    fn create_one() {
        let Some(network) = network(1) else { return };
        println!("created {}", network.names().join(" "));
        if std::env::var_os("PLEACH_TEST_ABORT").is_some() {
            std::process::abort();
        }
    }

    #[test]
    fn the_next_process_deletes_the_namespaces_of_a_killed_one() {
        if network(1).is_none() {
            return;
        }
        let create_one = |abort: bool| {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(["--exact", "between_hosts::create_one", "--ignored", "--nocapture"]);
            if abort {
                command.env("PLEACH_TEST_ABORT", "1");
            }
            String::from_utf8_lossy(&command.output().expect("it starts").stdout).into_owned()
        };
        let printed = create_one(true);
        let names = printed
            .lines()
            .find_map(|line| Some(line.split_once("created ")?.1))
            .expect("it created namespaces")
            .to_owned();
        assert!(names.split(' ').all(exists), "{names}");
        create_one(false);
        assert!(!names.split(' ').any(exists), "{names}");
    }
}
