//! Proves every cut of `tests::hosts` with plain UDP sockets, and pins down what Linux tells the owner of such a socket.
//!
//! Times go to standard output: `cargo test -p tests --test hosts -- --nocapture`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_send_buffer_size;
use tests::hosts::{Corruption, Direction, Hosts, HostsError, Link, Plan, Process, Wiring};

const PORT: u16 = 7000;

/// A link that heals may have to wait for the next try of address resolution, a second later.
const HEALING: Duration = Duration::from_secs(4);

/// A datagram takes microseconds; one that has not come by now does not come.
const SILENCE: Duration = Duration::from_millis(120);

type Cut = fn(Link<'_>) -> Result<(), HostsError>;

/// One bound socket for each host and link.
struct Sockets<'hosts> {
    hosts: &'hosts Hosts,
    sockets: Vec<Vec<UdpSocket>>,
}

impl<'hosts> Sockets<'hosts> {
    fn v4(hosts: &'hosts Hosts) -> Self {
        Self::open(hosts, |link| link.address().into())
    }

    fn v6(hosts: &'hosts Hosts) -> Self {
        Self::open(hosts, |link| link.address_v6().into())
    }

    fn open(hosts: &'hosts Hosts, address: fn(Link<'_>) -> IpAddr) -> Self {
        let socket = |host, link| bind(hosts, host, address(hosts.link(host, link)));
        let of_host = |host| (0..hosts.link_count()).map(|link| socket(host, link)).collect();
        Self { hosts, sockets: (0..hosts.count()).map(of_host).collect() }
    }

    /// Sends every few milliseconds until one datagram arrives.
    fn pass_within(&self, limit: Duration, from: usize, to: usize, link: usize) -> bool {
        let (sender, receiver) = (&self.sockets[from][link], &self.sockets[to][link]);
        drain(receiver);
        let deadline = Instant::now() + limit;
        let mut buffer = [0; 64];
        while Instant::now() < deadline {
            // A cut link may refuse to send.
            let _ = sender.send_to(b"token", receiver.local_addr().unwrap());
            if matches!(receiver.recv(&mut buffer), Ok(5)) {
                return true;
            }
        }
        false
    }

    #[track_caller]
    fn assert_open(&self, from: usize, to: usize, link: usize) {
        assert!(self.pass_within(HEALING, from, to, link), "nothing passes from {from} to {to} on link {link}");
    }

    #[track_caller]
    fn assert_cut(&self, from: usize, to: usize, link: usize) {
        assert!(!self.pass_within(SILENCE, from, to, link), "something passes from {from} to {to} on link {link}");
    }

    #[track_caller]
    fn assert_all_open(&self) {
        for link in 0..self.hosts.link_count() {
            for (from, to) in
                (0..self.hosts.count()).flat_map(|from| (0..self.hosts.count()).map(move |to| (from, to)))
            {
                if from != to {
                    self.assert_open(from, to, link);
                }
            }
        }
    }

    /// Sends numbered datagrams of this length in small groups, and returns those that arrive.
    fn send_many(&self, count: u32, length: usize) -> Vec<Vec<u8>> {
        let (sender, receiver) = (&self.sockets[0][1], &self.sockets[1][1]);
        let mut arrived = Vec::new();
        // Ten large ones fit into the receiver's buffer.
        for first in (0..count).step_by(10) {
            for number in first..first + 10 {
                sender.send_to(&numbered(number, length), receiver.local_addr().unwrap()).unwrap();
            }
            let mut buffer = vec![0; length];
            while let Ok(received) = receiver.recv(&mut buffer) {
                arrived.push(buffer[..received].to_vec());
            }
        }
        arrived
    }
}

fn bind(hosts: &Hosts, host: usize, address: IpAddr) -> UdpSocket {
    let socket = hosts.host(host).inside(|| UdpSocket::bind((address, PORT))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    socket
}

fn drain(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 64]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
}

fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut datagram = vec![0x5a; length];
    datagram[..4].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// Cuts link 1 of host 0 and heals it; link 0 never notices.
fn prove(wiring: Wiring, cut: Cut, heal: Cut) {
    let Some(hosts) = Plan::new(2, 2).wiring(wiring).build_or_skip() else { return };
    let sockets = Sockets::v4(&hosts);
    sockets.assert_all_open();
    cut(hosts.link(0, 1)).unwrap();
    for (from, to) in [(0, 1), (1, 0)] {
        sockets.assert_cut(from, to, 1);
        sockets.assert_open(from, to, 0);
    }
    heal(hosts.link(0, 1)).unwrap();
    sockets.assert_all_open();
}

/// Corrupts what host 1 receives on link 1.
fn prove_corruption(hosts: &Hosts, sockets: &Sockets<'_>) {
    const LENGTH: usize = 6000;
    sockets.assert_all_open();
    let corruption = Corruption { one_in: 4, bytes: vec![4, 77, 5000], flip: 0x12 };
    let mut struck: BTreeMap<usize, u32> = corruption.bytes.iter().map(|&byte| (byte.into(), 0)).collect();
    hosts.link(1, 1).corrupt(Direction::In, corruption).unwrap();
    let arrived = sockets.send_many(800, LENGTH);
    assert_eq!(arrived.len(), 800, "no datagram is lost");
    for (number, datagram) in (0..).zip(&arrived) {
        let sent = numbered(number, LENGTH);
        let changed: Vec<usize> = (0..LENGTH).filter(|&byte| datagram[byte] != sent[byte]).collect();
        match changed[..] {
            [] => {}
            [byte] => {
                assert_eq!(datagram[byte], sent[byte] ^ 0x12);
                *struck.get_mut(&byte).expect("a place that was asked for") += 1;
            }
            _ => panic!("struck more than once: {changed:?}"),
        }
    }
    let all: u32 = struck.values().sum();
    assert!((120..=280).contains(&all) && struck.values().all(|&count| count > 20), "{struck:?}");
    hosts.link(1, 1).let_through().unwrap();
    let intact: Vec<Vec<u8>> = (0..100).map(|number| numbered(number, LENGTH)).collect();
    assert_eq!(sockets.send_many(100, LENGTH), intact);
}

/// The names that `ip netns` would list.
fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

mod between_hosts {
    use super::*;

    #[test]
    fn a_link_that_is_down_is_cut_and_one_that_is_up_is_healed() {
        prove(Wiring::Direct, |link| link.down(), |link| link.up());
        prove(Wiring::Switched, |link| link.down(), |link| link.up());
    }

    #[test]
    fn an_unplugged_link_is_cut_until_it_is_plugged_in() {
        prove(Wiring::Direct, |link| link.unplug(), |link| link.plug_in());
        prove(Wiring::Switched, |link| link.unplug(), |link| link.plug_in());
    }

    #[test]
    fn a_link_without_its_address_is_cut_until_it_is_restored() {
        prove(Wiring::Direct, |link| link.remove_address(), |link| link.restore_address());
    }

    #[test]
    fn a_silent_drop_cuts_until_all_is_let_through() {
        prove(Wiring::Direct, |link| link.drop_silently(Direction::Both), |link| link.let_through());
        prove(Wiring::Switched, |link| link.drop_silently(Direction::Both), |link| link.let_through());
    }

    #[test]
    fn a_cut_of_one_direction_leaves_the_other_open() {
        for wiring in [Wiring::Direct, Wiring::Switched] {
            let Some(hosts) = Plan::new(2, 2).wiring(wiring).build_or_skip() else { return };
            let sockets = Sockets::v4(&hosts);
            for (direction, cut, open) in [(Direction::Out, (0, 1), (1, 0)), (Direction::In, (1, 0), (0, 1))] {
                sockets.assert_all_open();
                hosts.link(0, 1).drop_silently(direction).unwrap();
                sockets.assert_cut(cut.0, cut.1, 1);
                sockets.assert_open(open.0, open.1, 1);
                sockets.assert_open(cut.0, cut.1, 0);
                hosts.link(0, 1).let_through().unwrap();
            }
            sockets.assert_all_open();
        }
    }

    #[test]
    fn every_cut_at_once_is_undone_by_healing() {
        prove(
            Wiring::Switched,
            |link| {
                link.drop_silently(Direction::In)?;
                link.lose(Direction::Both, 3)?;
                link.remove_address()?;
                link.unplug()?;
                link.down()
            },
            |link| link.heal(),
        );
    }

    #[test]
    fn ipv6_passes_and_is_cut_and_healed_too() {
        let Some(hosts) = Plan::new(2, 2).build_or_skip() else { return };
        let sockets = Sockets::v6(&hosts);
        sockets.assert_all_open();
        let cuts: [(Cut, Cut); 3] = [
            (|link| link.down(), |link| link.up()),
            (|link| link.remove_address(), |link| link.restore_address()),
            (|link| link.drop_silently(Direction::Both), |link| link.let_through()),
        ];
        for (cut, heal) in cuts {
            cut(hosts.link(0, 1)).unwrap();
            sockets.assert_cut(0, 1, 1);
            sockets.assert_open(0, 1, 0);
            heal(hosts.link(0, 1)).unwrap();
            sockets.assert_all_open();
        }
    }

    #[test]
    fn at_a_switch_a_cut_harms_only_its_own_host() {
        let Some(hosts) = Plan::new(3, 2).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        sockets.assert_all_open();
        let cuts: [Cut; 3] = [|link| link.down(), |link| link.unplug(), |link| link.drop_silently(Direction::Both)];
        for cut in cuts {
            cut(hosts.link(0, 1)).unwrap();
            sockets.assert_cut(0, 1, 1);
            sockets.assert_cut(2, 0, 1);
            sockets.assert_open(1, 2, 1);
            sockets.assert_open(2, 1, 1);
            sockets.assert_open(0, 2, 0);
            hosts.link(0, 1).heal().unwrap();
            sockets.assert_all_open();
        }
    }

    #[test]
    fn an_address_is_not_served_to_another_link() {
        let Some(hosts) = Plan::new(2, 2).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        sockets.assert_all_open();
        // The datagram goes out on link 1, where the address of link 0 is a stranger.
        let there = sockets.sockets[1][1].local_addr().unwrap();
        sockets.sockets[0][0].send_to(b"astray", there).unwrap();
        assert!(sockets.sockets[1][1].recv(&mut [0; 64]).is_err());
    }

    #[test]
    fn a_lossy_link_loses_about_the_share_it_should() {
        let Some(hosts) = Plan::new(2, 2).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        sockets.assert_all_open();
        hosts.link(0, 1).lose(Direction::Out, 4).unwrap();
        let arrived = sockets.send_many(800, 100).len();
        assert!((500..=700).contains(&arrived), "{arrived} of 800 arrived, about 600 should");
        hosts.link(1, 1).lose(Direction::In, 1).unwrap();
        assert_eq!(sockets.send_many(20, 100).len(), 0);
        hosts.link(0, 1).let_through().unwrap();
        assert_eq!(sockets.send_many(400, 100).len(), 400);
    }

    #[test]
    fn a_corrupting_link_delivers_changed_bytes() {
        let Some(hosts) = Plan::new(2, 2).build_or_skip() else { return };
        prove_corruption(&hosts, &Sockets::v4(&hosts));
        let Some(hosts) = Plan::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
        prove_corruption(&hosts, &Sockets::v6(&hosts));
    }

    #[test]
    fn a_wire_that_strikes_single_datagrams_carries_single_datagrams() {
        let Some(hosts) = Plan::new(2, 1).wiring(Wiring::Switched).build_or_skip() else { return };
        let segments = || {
            let listed =
                hosts.host(0).command("ip").args(["-details", "link", "show", "dev", "link0"]).output().unwrap();
            let words = String::from_utf8(listed.stdout).unwrap();
            words.split_whitespace().skip_while(|&word| word != "gso_max_segs").nth(1).unwrap().to_owned()
        };
        assert_eq!(segments(), "65535");
        hosts.link(0, 0).lose(Direction::Out, 10).unwrap();
        assert_eq!(segments(), "1");
        hosts.link(0, 0).let_through().unwrap();
        assert_eq!(segments(), "65535");
    }

    #[test]
    fn a_host_runs_commands() {
        let Some(hosts) = Plan::new(2, 2).mtu(1500).build_or_skip() else { return };
        let shown = hosts.host(1).command("ip").args(["address", "show", "dev", "link1"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        for part in ["inet 10.7.1.2/24", "inet6 fd00:7:1::2/64", "mtu 1500"] {
            assert!(shown.contains(part), "{shown}");
        }
        let mut process = Process::start(hosts.host(0).command("sleep").arg("60")).unwrap();
        assert!(process.wait_at_most(Duration::from_millis(20)).unwrap().is_none());
        let own = Path::new("/proc").join(process.child().id().to_string());
        drop(process);
        assert!(!own.exists(), "it outlives its owner");
    }

    #[test]
    fn nothing_stays_behind() {
        let Some(hosts) = Plan::new(3, 2).build_or_skip() else { return };
        let names: Vec<String> = hosts.namespaces().into_iter().map(str::to_owned).collect();
        assert_eq!(names.len(), 4);
        assert!(names.iter().all(|name| exists(name)));
        let kept = bind(&hosts, 0, hosts.link(0, 1).address().into());
        drop(hosts);
        assert!(names.iter().all(|name| !exists(name)), "{names:?}");
        // The socket keeps the namespace alive, but there is nothing in it any more.
        let error = kept.send_to(b"to nowhere", "10.7.1.2:7000").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    }

    #[test]
    fn nothing_stays_behind_after_a_panic() {
        let mut names = Vec::new();
        let fallen = catch_unwind(AssertUnwindSafe(|| {
            let Some(hosts) = Plan::new(2, 1).build_or_skip() else { return };
            names.extend(hosts.namespaces().into_iter().map(str::to_owned));
            panic!("a test that fails");
        }));
        if !names.is_empty() {
            assert!(fallen.is_err() && names.iter().all(|name| !exists(name)), "{names:?}");
        }
    }

    #[test]
    fn what_a_dead_process_left_is_swept() {
        let Some(hosts) = Plan::new(2, 1).build_or_skip() else { return };
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let left = format!("pleach-{}-0-host0", dead.id());
        assert!(Command::new("ip").args(["netns", "add", &left]).status().unwrap().success());
        // A process sweeps before it makes its first hosts, so it takes another one.
        let mut other = Command::new(std::env::current_exe().unwrap());
        let swept = other.args(["--exact", "between_hosts::a_host_runs_commands"]).output().unwrap();
        assert!(swept.status.success() && !exists(&left), "{left}");
        assert!(hosts.namespaces().iter().all(|name| exists(name)), "the living are left alone");
    }
}

/// What Linux tells the owner of a UDP socket; the ways in which a runtime can notice a cut follow from this.
mod what_is_told {
    use super::*;

    /// A socket bound to the address of link 1, one that is also connected, and one bound to no address.
    fn senders(hosts: &Hosts) -> [(&'static str, UdpSocket); 3] {
        let open = |address: IpAddr| hosts.host(0).inside(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        let address = hosts.link(0, 1).address().into();
        let connected = open(address);
        connected.connect((hosts.link(1, 1).address(), PORT)).unwrap();
        [("bound", open(address)), ("connected", connected), ("unbound", open(IpAddr::from([0, 0, 0, 0])))]
    }

    fn send(hosts: &Hosts, name: &str, socket: &UdpSocket) -> Result<usize, ErrorKind> {
        let sent = match name {
            "connected" => socket.send(b"x"),
            _ => socket.send_to(b"x", (hosts.link(1, 1).address(), PORT)),
        };
        sent.map_err(|error| error.kind())
    }

    /// Makes each cut at link 1 of a host, and checks what the next send of each socket of host 0 says.
    fn after(cuts: &[(usize, Cut)], expected: Result<usize, ErrorKind>) {
        let Some(hosts) = Plan::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        let senders = senders(&hosts);
        for (number, &(host, cut)) in cuts.iter().enumerate() {
            sockets.assert_open(0, 1, 1);
            for (name, socket) in &senders {
                assert_eq!(send(&hosts, name, socket), Ok(1), "{name} before cut {number}");
            }
            cut(hosts.link(host, 1)).unwrap();
            for (name, socket) in &senders {
                assert_eq!(send(&hosts, name, socket), expected, "{name} after cut {number}");
            }
            hosts.link(host, 1).heal().unwrap();
        }
    }

    /// Waits until a process on host 0 has joined a netlink group; `ip monitor` does not say when it listens.
    fn wait_for_listener(hosts: &Hosts, process: u32) {
        let process = process.to_string();
        let listens = || {
            let table = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
            let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            rows.any(|row| row[2] == process && row[3] != "00000000") // Columns: sk, Eth, Pid, Groups.
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        while !hosts.host(0).inside(listens).unwrap() {
            assert!(Instant::now() < deadline, "{process} does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    mod between_hosts {
        use super::*;

        #[test]
        fn a_sender_hears_at_once_of_what_its_own_host_did() {
            let cuts: [(usize, Cut); 2] = [(0, |link| link.down()), (0, |link| link.remove_address())];
            after(&cuts, Err(ErrorKind::NetworkUnreachable));
        }

        #[test]
        fn a_sender_does_not_hear_of_what_happened_elsewhere() {
            let cuts: [(usize, Cut); 5] = [
                (0, |link| link.unplug()),
                (1, |link| link.unplug()),
                (1, |link| link.down()),
                (1, |link| link.remove_address()),
                (0, |link| link.drop_silently(Direction::Both)),
            ];
            after(&cuts, Ok(1));
        }

        #[test]
        fn a_cut_link_blocks_a_socket_that_also_serves_others_unless_its_buffer_is_large() {
            let Some(hosts) = Plan::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
            let open = |buffer_bytes| {
                let socket = hosts.host(0).inside(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap().unwrap();
                socket.set_nonblocking(true).unwrap();
                set_socket_send_buffer_size(&socket, buffer_bytes).unwrap();
                socket
            };
            let there = |link| (hosts.link(1, link).address(), PORT);
            let flood = |socket: &UdpSocket| {
                let error = (0..5000).find_map(|_| socket.send_to(&[0; 1000], there(1)).err());
                error.map(|error| error.kind())
            };
            hosts.link(0, 1).unplug().unwrap();
            // Nobody answers for the hardware address. What waits for the answer is charged to its socket, up to a limit
            // for each neighbour (unres_qlen_bytes, 212992); past that the oldest is dropped.
            let small = open(16 << 10);
            assert_eq!(flood(&small), Some(ErrorKind::WouldBlock));
            assert_eq!(small.send_to(b"x", there(0)).unwrap_err().kind(), ErrorKind::WouldBlock);
            let large = open(208 << 10); // The kernel doubles it.
            assert_eq!(flood(&large), None);
            assert_eq!(large.send_to(b"x", there(0)).unwrap(), 1);
        }

        #[test]
        fn netlink_tells_of_a_lost_carrier_and_of_a_lost_address() {
            let Some(hosts) = Plan::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
            for (cut, told) in [
                ((|link| link.unplug()) as Cut, "NO-CARRIER"),
                (|link| link.remove_address(), "Deleted"),
                (|link| link.down(), "DOWN"),
            ] {
                let mut command = hosts.host(0).command("ip");
                command.args(["monitor", "link", "address"]).stdout(Stdio::piped());
                let mut monitor = Process::start(&mut command).unwrap();
                let lines = BufReader::new(monitor.child().stdout.take().unwrap()).lines();
                wait_for_listener(&hosts, monitor.child().id());
                let start = Instant::now();
                cut(hosts.link(0, 1)).unwrap();
                let returned = start.elapsed();
                // The monitor ends after two seconds, and so does the search in what it says.
                let found = std::thread::scope(|scope| {
                    let finder = scope.spawn(|| {
                        let mut lines = lines.map_while(Result::ok);
                        lines.any(|line| line.contains("link1") && line.contains(told)).then(|| start.elapsed())
                    });
                    while !finder.is_finished() && start.elapsed() < Duration::from_secs(2) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    monitor.kill().unwrap();
                    finder.join().unwrap()
                });
                let found = found.unwrap_or_else(|| panic!("not told of {told}"));
                println!("{told}: told after {found:?}, the command took {returned:?}");
                hosts.link(0, 1).heal().unwrap();
            }
        }

        #[test]
        fn a_polled_round_trip_comes_back() {
            for wiring in [Wiring::Direct, Wiring::Switched] {
                let Some(hosts) = Plan::new(2, 1).wiring(wiring).build_or_skip() else { return };
                let sockets = Sockets::v4(&hosts);
                sockets.assert_all_open();
                let mut times = round_trips(&sockets.sockets[0][0], &sockets.sockets[1][0]);
                times.sort_unstable();
                let at = |share: usize| times[times.len() * share / 100];
                // How long it took is told, not judged: on a busy machine each trip may wait for a core.
                println!("{wiring:?}: median {:?}, tenth {:?}, nine tenths {:?}", at(50), at(10), at(90));
            }
        }
    }

    /// The times of some thousand round trips between two sockets that are asked again and again.
    fn round_trips(near: &UdpSocket, far: &UdpSocket) -> Vec<Duration> {
        let start = Instant::now();
        let (last_departure, deadline) = (start + Duration::from_secs(1), start + Duration::from_secs(4));
        for socket in [near, far] {
            drain(socket);
            socket.set_nonblocking(true).unwrap();
        }
        let there = far.local_addr().unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 64];
                while !is_done.load(Ordering::Relaxed) && Instant::now() < deadline {
                    if let Ok((length, sender)) = far.recv_from(&mut buffer) {
                        let _ = far.send_to(&buffer[..length], sender);
                    }
                }
            });
            let mut times = Vec::new();
            while times.len() < 5000 && Instant::now() < last_departure {
                let departure = Instant::now();
                near.send_to(&[7; 64], there).unwrap();
                while near.recv(&mut [0; 64]).is_err() {
                    assert!(Instant::now() < deadline, "no answer to datagram {}", times.len());
                }
                times.push(departure.elapsed());
            }
            is_done.store(true, Ordering::Relaxed);
            times
        })
    }
}
