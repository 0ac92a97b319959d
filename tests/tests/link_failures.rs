//! Connections over links that fail: two hosts as network namespaces with two links each, and queue pairs that bounce or stream
//! messages while the first link fails in every way a network can.
//!
//! Checks that every message arrives once, in order and unaltered, that no end goes back to the path that was cut before a
//! probe of it is answered, and that both ends end up on the second path. Prints the longest pause (`--nocapture`). With
//! `--ignored`: a gibibyte for each cut, each cut at another moment; and each cut several times, also with a switch between
//! the hosts, where the median pause is printed. What happened is judged, not how long it took: `pleach bench migration`
//! has the times. A busy machine causes pauses of its own, so the longest pause before the cut is subtracted. With `chrt --rr 1`
//! before the command they hardly matter; then the kernel's limit on real-time processes causes a pause of 50 ms every second.
//!
//! A cut is *noticed* if the kernel of one host reports it; the other host need not, since the end that migrates informs it
//! (P-23). A link that goes down takes its peer's carrier down only if both are ends of one cable; behind a switch the kernel
//! of the other host reports nothing. Dropped packets are *silent*: only timeouts detect them. Checksums detect corruption.

mod between_hosts {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use protocol::connection::path::{MigrationCause, MigrationRole, PathEvent};
    use protocol::queue_pair::QpOperation;
    use tests::hosts::{Corruption, Direction, Hosts, HostsBuilder, Wiring};
    use transport::udp::{Endpoint, EndpointEvent, EndpointOptions, QueuePairSetup, UdpPortIndex, UdpRoute};
    use units::{PathId, Psn, QpNumber};

    const LIMIT: Duration = Duration::from_secs(120);
    const SEND: QpOperation = QpOperation::Send { immediate: None };
    /// Shorter pauses are not recorded.
    const NO_PAUSE: Duration = Duration::from_micros(200);

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum TrafficPattern {
        PingPong,
        Stream,
    }

    struct Load {
        pattern: TrafficPattern,
        messages: u64,
        bytes: usize,
    }

    const PING_PONG: Load = Load { pattern: TrafficPattern::PingPong, messages: 20_000, bytes: 64 };
    const STREAM: Load = Load { pattern: TrafficPattern::Stream, messages: 4_096, bytes: 64 << 10 };
    /// A gibibyte in messages of a mebibyte.
    const TRANSFER: Load = Load { pattern: TrafficPattern::Stream, messages: 1_024, bytes: 1 << 20 };

    /// The words of a message: each follows from its position in the whole stream, so no two are interchangeable.
    fn words(number: u64, bytes: usize) -> impl Iterator<Item = u64> {
        assert!(bytes.is_multiple_of(8));
        let first = number * bytes as u64 / 8;
        (first..first + bytes as u64 / 8).map(|place| {
            let mixed = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        })
    }

    fn fill(buffer: &mut Vec<u8>, number: u64, bytes: usize) {
        buffer.resize(bytes, 0);
        for (chunk, word) in buffer.as_chunks_mut::<8>().0.iter_mut().zip(words(number, bytes)) {
            *chunk = word.to_le_bytes();
        }
    }

    fn is_right(buffer: &[u8], number: u64, bytes: usize) -> bool {
        let (chunks, rest) = buffer.as_chunks::<8>();
        let right = chunks.iter().zip(words(number, bytes)).all(|(chunk, word)| *chunk == word.to_le_bytes());
        right && rest.is_empty() && buffer.len() == bytes
    }

    /// One end of the connection, which runs on its own host.
    struct End {
        endpoint: Endpoint,
        pair: QpNumber,
        sends_first: bool,
    }

    /// What one end observed.
    #[derive(Default, Debug)]
    struct EndReport {
        /// When a message arrived, and how long after the previous one; short pauses are left out.
        pauses: Vec<(Instant, Duration)>,
        path_events: Vec<PathEvent>,
        last_path: Option<PathId>,
        damaged: u64,
    }

    impl EndReport {
        fn migrations(&self) -> Vec<PathEvent> {
            self.path_events.iter().copied().filter(|event| matches!(event, PathEvent::Migrated { .. })).collect()
        }
    }

    /// The path that is cut.
    const CUT: PathId = PathId(0);

    /// The first move of an end back to the path that was cut, without an answered probe since the end left it. An end that follows its
    /// peer need not have one: then the peer's move is judged.
    fn return_without_an_answer(events: &[PathEvent]) -> Option<PathEvent> {
        let mut has_answered = true;
        for event in events {
            match event {
                PathEvent::Migrated { from: CUT, .. } => has_answered = false,
                // Both come of a reply that arrived over the path.
                PathEvent::Armed(CUT) | PathEvent::Recovered(CUT) => has_answered = true,
                PathEvent::Migrated { to: CUT, cause, .. } if !has_answered && *cause != MigrationCause::Followed => {
                    return Some(*event);
                }
                _ => {}
            }
        }
        None
    }

    #[test]
    fn a_return_to_the_cut_path_is_right_only_after_an_answer_or_behind_the_peer() {
        let moved = |from, to, cause| PathEvent::Migrated { from: PathId(from), to: PathId(to), cause };
        let away = moved(0, 1, MigrationCause::Followed);
        let back = moved(1, 0, MigrationCause::Timeout);
        assert_eq!(return_without_an_answer(&[PathEvent::Armed(PathId(1)), away]), None);
        assert_eq!(return_without_an_answer(&[away, back]), Some(back));
        assert_eq!(return_without_an_answer(&[away, PathEvent::Recovered(PathId(1)), back]), Some(back));
        assert_eq!(return_without_an_answer(&[PathEvent::Recovered(CUT), away, back]), Some(back));
        for answer in [PathEvent::Recovered(CUT), PathEvent::Armed(CUT)] {
            assert_eq!(return_without_an_answer(&[away, answer, back]), None);
            assert_eq!(return_without_an_answer(&[away, answer, back, away, back]), Some(back));
        }
        assert_eq!(return_without_an_answer(&[away, moved(1, 0, MigrationCause::Followed)]), None);
    }

    /// The state that both ends and the thread that cuts share.
    struct SharedProgress {
        /// Messages that arrived.
        received: AtomicU64,
        /// The total number; unlimited until the cut, so that a slow cut still finds traffic.
        messages: AtomicU64,
        /// The current path of each end.
        paths: [AtomicU8; 2],
        over: [AtomicBool; 2],
    }

    impl End {
        fn run(mut self, load: &Load, shared: &SharedProgress) -> EndReport {
            let SharedProgress { received: progress, messages, paths, over } = shared;
            let ping_pong = load.pattern == TrafficPattern::PingPong;
            let receives = ping_pong || !self.sends_first;
            let sends = ping_pong || self.sends_first;
            for _ in 0..if receives { 32 } else { 0 } {
                self.endpoint.post_receive(self.pair, vec![0; load.bytes]).expect("the queue has room");
            }
            let goal = |wanted: bool| if wanted { messages.load(Ordering::Relaxed) } else { 0 };
            let (mut posted, mut sent, mut received) = (0, 0, 0);
            let mut report = EndReport::default();
            let mut spare = Vec::new();
            let began = Instant::now();
            let mut last = None;
            let mine = usize::from(!self.sends_first);
            // An end that is done still acknowledges: its peer may miss the last acknowledgement.
            while !(over[0].load(Ordering::Relaxed) && over[1].load(Ordering::Relaxed)) {
                assert!(began.elapsed() < LIMIT, "{sent} sent, {received} received of {}", goal(true));
                let allowed = match (ping_pong, self.sends_first) {
                    (true, true) => received + 1,
                    (true, false) => received,
                    (false, _) => sent + 16,
                };
                while posted < allowed.min(goal(sends)) {
                    let mut buffer = spare.pop().unwrap_or_default();
                    fill(&mut buffer, posted, load.bytes);
                    self.endpoint.post_send(self.pair, buffer, SEND).expect("the queue has room");
                    posted += 1;
                }
                self.endpoint.turn(Duration::from_millis(1)).expect("the sockets can be polled");
                while let Some(event) = self.endpoint.next_event() {
                    match event {
                        EndpointEvent::Sent { buffer, .. } => {
                            sent += 1;
                            spare.push(buffer);
                        }
                        EndpointEvent::Received { buffer, message, .. } => {
                            assert!(is_right(&buffer[message], received, load.bytes), "message {received} is wrong");
                            received += 1;
                            progress.fetch_max(received, Ordering::Relaxed);
                            self.endpoint.post_receive(self.pair, buffer).expect("the queue has room");
                            let now = Instant::now();
                            let pause = last.replace(now).map_or(Duration::ZERO, |last| now - last);
                            if pause > NO_PAUSE {
                                report.pauses.push((now, pause));
                            }
                        }
                        EndpointEvent::Failed { failure, .. } => {
                            panic!("{failure}: {sent} sent, {received} received")
                        }
                        EndpointEvent::Datagram { .. } => {}
                        EndpointEvent::Path { event, .. } => {
                            if let PathEvent::Migrated { to, .. } = event {
                                paths[mine].store(to.0, Ordering::Relaxed);
                            }
                            report.path_events.push(event);
                        }
                    }
                }
                if sent >= goal(sends) && received >= goal(receives) {
                    over[mine].store(true, Ordering::Relaxed);
                }
            }
            report.last_path = self.endpoint.path_state(self.pair).map(|(_, path)| path);
            report.damaged = self.endpoint.counters().damaged;
            report
        }
    }

    /// Two ends with one connection over both links.
    fn connect(hosts: &Hosts) -> [End; 2] {
        let mut ends = [0, 1].map(|me| {
            let addresses: Vec<SocketAddr> =
                (0..2).map(|link| SocketAddr::new(hosts.link(me, link).address().into(), 4791)).collect();
            let open =
                || Endpoint::open(&addresses, EndpointOptions::default()).expect("the host has these addresses");
            let mut endpoint = hosts.host(me).inside(open).expect("the thread enters the host");
            let pair = endpoint.create();
            End { endpoint, pair, sends_first: me == 0 }
        });
        for me in 0..2 {
            let other = &ends[1 - me];
            let remote = other.endpoint.addresses();
            let routes =
                remote.iter().enumerate().map(|(port, to)| UdpRoute::new(UdpPortIndex(port as u8), *to)).collect();
            let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
            let mut setup = QueuePairSetup::new(other.pair, Psn::new(7), Psn::new(7), routes, role);
            setup.mtu = 4096;
            let End { endpoint, pair, .. } = &mut ends[me];
            endpoint.connect(*pair, setup).expect("the set-up is valid");
        }
        ends
    }

    /// The longest pause before the cut, which the machine causes, and the longest since.
    struct Pauses {
        before: Duration,
        since: Duration,
    }

    /// Runs the traffic, cuts the first link after `moment` hundredths of it, and checks the result.
    fn check_cut(name: &str, wiring: Wiring, load: &Load, moment: u64, cut: impl Fn(&Hosts)) -> Option<Pauses> {
        let hosts = HostsBuilder::new(2, 2).wiring(wiring).build_or_skip()?;
        let ends = connect(&hosts);
        let progress = SharedProgress {
            received: AtomicU64::new(0),
            messages: AtomicU64::new(u64::MAX),
            paths: Default::default(),
            over: Default::default(),
        };
        let (cut_at, seen) = std::thread::scope(|scope| {
            let threads: Vec<_> = ends
                .into_iter()
                .enumerate()
                .map(|(me, end)| {
                    let (hosts, progress) = (&hosts, &progress);
                    let run = move || end.run(load, progress);
                    scope.spawn(move || hosts.host(me).inside(run).expect("the thread enters the host"))
                })
                .collect();
            let began = Instant::now();
            let due = load.messages * moment / 100;
            // On a busy machine the ends may have migrated already because of silence; they fail back.
            let is_time = || {
                let on_first_path = progress.paths.iter().all(|path| path.load(Ordering::Relaxed) == 0);
                on_first_path && progress.received.load(Ordering::Relaxed) >= due
            };
            while !is_time() && began.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(1));
            }
            let cut_at = Instant::now();
            cut(&hosts);
            let enough = progress.received.load(Ordering::Relaxed) + load.messages / 20;
            progress.messages.store(enough.max(load.messages), Ordering::Relaxed);
            let ended =
                threads.into_iter().map(|thread| thread.join().expect("the panic of the thread is printed above"));
            (cut_at, ended.collect::<Vec<EndReport>>())
        });
        let longest = |wanted: &dyn Fn(Instant) -> bool| {
            let pauses = seen.iter().flat_map(|seen| &seen.pauses).filter(|(at, _)| wanted(*at));
            pauses.map(|(_, pause)| *pause).max().unwrap_or_default()
        };
        let pauses = Pauses { before: longest(&|at| at < cut_at), since: longest(&|at| at >= cut_at) };
        println!(
            "{name}: longest pause {:.1?}, before the cut {:.1?}, {:?}",
            pauses.since,
            pauses.before,
            seen.iter().map(EndReport::migrations).collect::<Vec<_>>()
        );
        assert!(seen.iter().any(|seen| !seen.migrations().is_empty()), "no end migrated: {seen:?}");
        for seen in &seen {
            assert_eq!(return_without_an_answer(&seen.path_events), None, "{:?}", seen.path_events);
        }
        // The end that sends must have migrated; an end that only acknowledges follows its peer.
        assert_eq!(seen[0].last_path, Some(PathId(1)), "{seen:?}");
        Some(pauses)
    }

    /// How the hosts can detect the cut, which determines the expected pause.
    #[derive(Clone, Copy)]
    enum CutDetection {
        Noticed,
        Silent,
        Corrupting,
    }

    impl CutDetection {
        /// On an otherwise idle machine.
        fn usual_pause(self) -> Duration {
            Duration::from_millis(match self {
                Self::Noticed => 5,
                // Until the migration one packet in four is lost, and in a ping-pong each lost packet costs a timeout.
                Self::Silent | Self::Corrupting => 50,
            })
        }
    }

    /// The same cut several times, and the median pause.
    fn print_median_pause(name: &str, detection: CutDetection, cut: impl Fn(&Hosts)) {
        const RUNS: usize = 5;
        for (wiring, load) in [Wiring::Direct, Wiring::Switched]
            .into_iter()
            .flat_map(|wiring| [(wiring, &PING_PONG), (wiring, &STREAM)])
        {
            let name = format!("{name}, {wiring:?}, {:?}", load.pattern);
            let runs = (0..RUNS).map_while(|_| check_cut(&name, wiring, load, 50, &cut));
            let mut added: Vec<Duration> = runs.map(|pauses| pauses.since.saturating_sub(pauses.before)).collect();
            added.sort_unstable();
            let Some(median) = added.get(RUNS / 2) else { return };
            println!("{name}: {median:.1?} in the median, usually at most {:?}", detection.usual_pause());
        }
    }

    macro_rules! cuts {
        ($($name:ident, $kind:ident, at $moment:literal: $cut:expr;)*) => {
            mod ping_pong {
                use super::*;
                $(
                    #[test]
                    fn $name() {
                        check_cut(concat!("ping-pong, ", stringify!($name)), Wiring::Direct, &PING_PONG, 50, $cut);
                    }
                )*
            }
            mod stream {
                use super::*;
                $(
                    #[test]
                    fn $name() {
                        check_cut(concat!("stream, ", stringify!($name)), Wiring::Direct, &STREAM, 50, $cut);
                    }
                )*
            }
            mod gibibyte {
                use super::*;
                $(
                    #[test]
                    #[ignore = "long: a gibibyte for each cut"]
                    fn $name() {
                        check_cut(concat!("1 GiB, ", stringify!($name)), Wiring::Direct, &TRANSFER, $moment, $cut);
                    }
                )*
            }
            mod median_pause {
                use super::*;
                $(
                    #[test]
                    #[ignore = "long: twenty runs for each cut"]
                    fn $name() {
                        super::print_median_pause(stringify!($name), CutDetection::$kind, $cut);
                    }
                )*
            }
        };
    }

    // The moments apply to the gibibyte transfers, in hundredths.
    cuts! {
        our_link_goes_down, Noticed, at 5: |hosts| hosts.link(0, 0).down().expect("the link can be cut");
        their_link_goes_down, Noticed, at 17: |hosts| hosts.link(1, 0).down().expect("the link can be cut");
        our_address_is_removed, Noticed, at 29: |hosts| hosts.link(0, 0).remove_address().expect("the link can be cut");
        their_address_is_removed, Noticed, at 41: |hosts| hosts.link(1, 0).remove_address().expect("the link can be cut");
        everything_is_dropped_silently, Silent, at 53: |hosts| {
            hosts.link(0, 0).drop_silently(Direction::Both).expect("the link can be cut");
        };
        only_what_we_send_is_dropped, Silent, at 65: |hosts| {
            hosts.link(0, 0).drop_silently(Direction::Out).expect("the link can be cut");
        };
        only_what_they_send_is_dropped, Silent, at 77: |hosts| {
            hosts.link(0, 0).drop_silently(Direction::In).expect("the link can be cut");
        };
        the_link_corrupts, Corrupting, at 85: |hosts| {
            let corruption = Corruption { one_in: 4, bytes: vec![9, 13, 17, 33], flip: 0x10 };
            hosts.link(0, 0).corrupt(Direction::Both, corruption).expect("the link can be cut");
        };
    }
}
