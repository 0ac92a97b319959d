//! What Linux reports to the owner of a UDP socket, which determines how a runtime can detect a cut.

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

/// Makes each cut on link 1 of a host, and checks the next send of each socket of host 0.
fn after(cuts: &[(usize, Cut)], expected: Result<usize, ErrorKind>) {
    let Some(hosts) = HostsBuilder::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
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

/// Waits until a process on host 0 has joined a netlink group; `ip monitor` does not report when it listens.
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
    fn a_sender_gets_an_error_at_once_for_a_cut_by_its_own_host() {
        let cuts: [(usize, Cut); 2] = [(0, |link| link.down()), (0, |link| link.remove_address())];
        after(&cuts, Err(ErrorKind::NetworkUnreachable));
    }

    #[test]
    fn a_sender_gets_no_error_for_a_cut_elsewhere() {
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
    fn a_cut_link_blocks_a_shared_socket_unless_its_buffer_is_large() {
        let Some(hosts) = HostsBuilder::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
        let open = |buffer_bytes| {
            let socket = hosts.host(0).inside(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap().unwrap();
            socket.set_nonblocking(true).unwrap();
            setsockopt(&socket, sockopt::SndBuf, &buffer_bytes).unwrap();
            socket
        };
        let there = |link| (hosts.link(1, link).address(), PORT);
        let flood = |socket: &UdpSocket| {
            let error = (0..5000).find_map(|_| socket.send_to(&[0; 1000], there(1)).err());
            error.map(|error| error.kind())
        };
        hosts.link(0, 1).unplug().unwrap();
        // Address resolution gets no answer. Packets that wait for it count against the send buffer of their socket, up to a
        // limit for each neighbour (unres_qlen_bytes, 212992); above it the kernel drops the oldest.
        let small = open(16 << 10);
        assert_eq!(flood(&small), Some(ErrorKind::WouldBlock));
        assert_eq!(small.send_to(b"x", there(0)).unwrap_err().kind(), ErrorKind::WouldBlock);
        let large = open(208 << 10); // The kernel doubles it.
        assert_eq!(flood(&large), None);
        assert_eq!(large.send_to(b"x", there(0)).unwrap(), 1);
    }

    #[test]
    fn netlink_reports_a_lost_carrier_and_a_lost_address() {
        let Some(hosts) = HostsBuilder::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
        for (cut, report) in [
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
            // The monitor is killed after two seconds, which also ends the search in its output.
            let found = std::thread::scope(|scope| {
                let finder = scope.spawn(|| {
                    let mut lines = lines.map_while(Result::ok);
                    lines.any(|line| line.contains("link1") && line.contains(report)).then(|| start.elapsed())
                });
                while !finder.is_finished() && start.elapsed() < Duration::from_secs(2) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                monitor.kill().unwrap();
                finder.join().unwrap()
            });
            let found = found.unwrap_or_else(|| panic!("netlink did not report {report}"));
            println!("{report}: reported after {found:?}, the command took {returned:?}");
            hosts.link(0, 1).heal().unwrap();
        }
    }

    #[test]
    fn polled_round_trips_complete() {
        for wiring in [Wiring::Direct, Wiring::Switched] {
            let Some(hosts) = HostsBuilder::new(2, 1).wiring(wiring).build_or_skip() else { return };
            let sockets = Sockets::v4(&hosts);
            sockets.assert_all_open();
            let mut times = round_trips(&sockets.sockets[0][0], &sockets.sockets[1][0]);
            times.sort_unstable();
            let at = |share: usize| times[times.len() * share / 100];
            // Printed, not checked: on a busy machine each round trip may wait for a processor.
            println!("{wiring:?}: median {:?}, tenth {:?}, nine tenths {:?}", at(50), at(10), at(90));
        }
    }
}

/// The durations of some thousand round trips between two polled sockets.
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
