//! Connections over real links that are really cut: two hosts as network namespaces with two links each, and queue pairs
//! that bounce or stream messages while the first link fails in every way a network can.
//!
//! Judged here: every message comes once, in order and unaltered, and both ends end up on the second path. How long the
//! longest pause was goes to the standard output (`--nocapture`). With `--ignored`, a gibibyte for each cut, each at a
//! moment of its own; and each cut several times, with a switch between the hosts too, where it is told how soon traffic goes on
//! in the median, and judged whether that is at all soon. A busy machine makes pauses of its own, so those before the cut are
//! subtracted. With `chrt --rr 1` before the command they hardly count; then the kernel's limit on such processes makes one of
//! 50 ms a second.
//!
//! *Noticed* are cuts that the kernel of one host hears of; the other host need not, since the one that moves tells it
//! (P-44). A link that goes down takes its peer's carrier along only where both are ends of one cable; behind a switch the
//! other host hears nothing. Dropped packets are *silent*: only timeouts tell. Corruption is told by checksums.

mod between_hosts {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use protocol::connection::path::{MigrationRole, PathEvent};
    use protocol::queue_pair::QpOperation;
    use tests::hosts::{Corruption, Direction, Hosts, Plan, Wiring};
    use transport::udp::{Endpoint, EndpointEvent, EndpointOptions, QueuePairSetup, UdpPortIndex, UdpRoute};
    use units::{PathId, Psn, QpNumber};

    const LIMIT: Duration = Duration::from_secs(120);
    const SEND: QpOperation = QpOperation::Send { immediate: None };
    /// What is shorter than this is not worth a note.
    const NO_PAUSE: Duration = Duration::from_micros(200);

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Play {
        Bounce,
        Stream,
    }

    struct Load {
        play: Play,
        messages: u64,
        bytes: usize,
    }

    const BOUNCE: Load = Load { play: Play::Bounce, messages: 20_000, bytes: 64 };
    const STREAM: Load = Load { play: Play::Stream, messages: 4_096, bytes: 64 << 10 };
    /// A gibibyte in messages of a mebibyte.
    const TRANSFER: Load = Load { play: Play::Stream, messages: 1_024, bytes: 1 << 20 };

    /// The bytes of a message: each eight follow from their place in all that is sent, so none can stand for another.
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

    /// One end of the game, run on its own host.
    struct End {
        endpoint: Endpoint,
        pair: QpNumber,
        sends_first: bool,
    }

    /// What an end saw.
    #[derive(Default, Debug)]
    struct Seen {
        /// When a message came, and how long after the one before; short ones are left out.
        pauses: Vec<(Instant, Duration)>,
        migrations: Vec<PathEvent>,
        last_path: Option<PathId>,
        damaged: u64,
    }

    /// What both ends and the one who cuts know of the game.
    struct Course {
        /// Messages that came.
        progress: AtomicU64,
        /// How many there are; without an end until the cut is made, so that a slow cut finds something to disturb.
        messages: AtomicU64,
        /// The path that each end is on.
        paths: [AtomicU8; 2],
        over: [AtomicBool; 2],
    }

    impl End {
        fn play(mut self, load: &Load, course: &Course) -> Seen {
            let Course { progress, messages, paths, over } = course;
            let bounce = load.play == Play::Bounce;
            let receives = bounce || !self.sends_first;
            let sends = bounce || self.sends_first;
            for _ in 0..if receives { 32 } else { 0 } {
                self.endpoint.post_receive(self.pair, vec![0; load.bytes]).expect("room");
            }
            let goal = |wanted: bool| if wanted { messages.load(Ordering::Relaxed) } else { 0 };
            let (mut posted, mut sent, mut received) = (0, 0, 0);
            let mut seen = Seen::default();
            let mut spare = Vec::new();
            let began = Instant::now();
            let mut last = None;
            let mine = usize::from(!self.sends_first);
            // An end that is done still answers: the other may miss its last acknowledgement.
            while !(over[0].load(Ordering::Relaxed) && over[1].load(Ordering::Relaxed)) {
                assert!(began.elapsed() < LIMIT, "{sent} sent, {received} received of {}", goal(true));
                let allowed = match (bounce, self.sends_first) {
                    (true, true) => received + 1,
                    (true, false) => received,
                    (false, _) => sent + 16,
                };
                while posted < allowed.min(goal(sends)) {
                    let mut buffer = spare.pop().unwrap_or_default();
                    fill(&mut buffer, posted, load.bytes);
                    self.endpoint.post_send(self.pair, buffer, SEND).expect("room");
                    posted += 1;
                }
                self.endpoint.turn(Duration::from_millis(1)).expect("sockets can be waited on");
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
                            self.endpoint.post_receive(self.pair, buffer).expect("room");
                            let now = Instant::now();
                            let pause = last.replace(now).map_or(Duration::ZERO, |last| now - last);
                            if pause > NO_PAUSE {
                                seen.pauses.push((now, pause));
                            }
                        }
                        EndpointEvent::Failed { failure, .. } => {
                            panic!("{failure}: {sent} sent, {received} received")
                        }
                        EndpointEvent::Datagram { .. } => {}
                        EndpointEvent::Path { event, .. } => {
                            if let PathEvent::Migrated { to, .. } = event {
                                paths[mine].store(to.0, Ordering::Relaxed);
                                seen.migrations.push(event);
                            }
                        }
                    }
                }
                if sent >= goal(sends) && received >= goal(receives) {
                    over[mine].store(true, Ordering::Relaxed);
                }
            }
            seen.last_path = self.endpoint.path_state(self.pair).map(|(_, path)| path);
            seen.damaged = self.endpoint.counters().damaged;
            seen
        }
    }

    /// Two ends with one connection over both links.
    fn connect(hosts: &Hosts) -> [End; 2] {
        let mut ends = [0, 1].map(|me| {
            let addresses: Vec<SocketAddr> =
                (0..2).map(|link| SocketAddr::new(hosts.link(me, link).address().into(), 4791)).collect();
            let open = || Endpoint::open(&addresses, EndpointOptions::default()).expect("the host's own addresses");
            let mut endpoint = hosts.host(me).inside(open).expect("a host to be on");
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
            endpoint.connect(*pair, setup).expect("a sound set-up");
        }
        ends
    }

    /// The longest pause of a game before the cut, which is the machine's own, and since.
    struct Pauses {
        before: Duration,
        since: Duration,
    }

    /// Plays, cuts the first link when so many hundredths are done, and judges.
    fn survive(name: &str, wiring: Wiring, load: &Load, moment: u64, cut: impl Fn(&Hosts)) -> Option<Pauses> {
        let hosts = Plan::new(2, 2).wiring(wiring).build_or_skip()?;
        let ends = connect(&hosts);
        let course = Course {
            progress: AtomicU64::new(0),
            messages: AtomicU64::new(u64::MAX),
            paths: Default::default(),
            over: Default::default(),
        };
        let (cut_at, seen) = std::thread::scope(|scope| {
            let players: Vec<_> = ends
                .into_iter()
                .enumerate()
                .map(|(me, end)| {
                    let (hosts, course) = (&hosts, &course);
                    let play = move || end.play(load, course);
                    scope.spawn(move || hosts.host(me).inside(play).expect("a host to be on"))
                })
                .collect();
            let began = Instant::now();
            let due = load.messages * moment / 100;
            // On a busy machine silence may have made them move before; they come back.
            let is_time = || {
                let at_home = course.paths.iter().all(|path| path.load(Ordering::Relaxed) == 0);
                at_home && course.progress.load(Ordering::Relaxed) >= due
            };
            while !is_time() && began.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(1));
            }
            let cut_at = Instant::now();
            cut(&hosts);
            let enough = course.progress.load(Ordering::Relaxed) + load.messages / 20;
            course.messages.store(enough.max(load.messages), Ordering::Relaxed);
            let ended = players.into_iter().map(|player| player.join().expect("a player's own panic says more"));
            (cut_at, ended.collect::<Vec<Seen>>())
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
            seen.iter().map(|seen| &seen.migrations).collect::<Vec<_>>()
        );
        assert!(seen[0].migrations.len() + seen[1].migrations.len() > 0, "nobody moved: {seen:?}");
        // The end that sends must have moved; one that only answers goes where the questions come from.
        assert_eq!(seen[0].last_path, Some(PathId(1)), "{seen:?}");
        Some(pauses)
    }

    /// How long traffic may stand still.
    #[derive(Clone, Copy)]
    enum Kind {
        Noticed,
        Silent,
        Corrupting,
    }

    impl Kind {
        /// On a machine that has nothing else to do.
        fn usual(self) -> Duration {
            Duration::from_millis(match self {
                Self::Noticed => 5,
                // Until the path is left, one packet in four is lost, and a lost ball of a ping-pong costs a timeout.
                Self::Silent | Self::Corrupting => 50,
            })
        }
    }

    /// The same cut again and again: traffic goes on soon, in the median.
    fn goes_on(name: &str, kind: Kind, cut: impl Fn(&Hosts)) {
        const GAMES: usize = 5;
        for (wiring, load) in
            [Wiring::Direct, Wiring::Switched].into_iter().flat_map(|wiring| [(wiring, &BOUNCE), (wiring, &STREAM)])
        {
            let name = format!("{name}, {wiring:?}, {:?}", load.play);
            let games = (0..GAMES).map_while(|_| survive(&name, wiring, load, 50, &cut));
            let mut added: Vec<Duration> = games.map(|pauses| pauses.since.saturating_sub(pauses.before)).collect();
            added.sort_unstable();
            let Some(median) = added.get(GAMES / 2) else { return };
            println!("{name}: {median:.1?} in the median, usually at most {:?}", kind.usual());
            assert!(*median <= 10 * kind.usual(), "{name}: {added:?}");
        }
    }

    macro_rules! cuts {
        ($($name:ident, $kind:ident, at $moment:literal: $cut:expr;)*) => {
            mod bounce {
                use super::*;
                $(
                    #[test]
                    fn $name() {
                        survive(concat!("bounce, ", stringify!($name)), Wiring::Direct, &BOUNCE, 50, $cut);
                    }
                )*
            }
            mod stream {
                use super::*;
                $(
                    #[test]
                    fn $name() {
                        survive(concat!("stream, ", stringify!($name)), Wiring::Direct, &STREAM, 50, $cut);
                    }
                )*
            }
            mod gibibyte {
                use super::*;
                $(
                    #[test]
                    #[ignore = "long: a gibibyte for each cut"]
                    fn $name() {
                        survive(concat!("1 GiB, ", stringify!($name)), Wiring::Direct, &TRANSFER, $moment, $cut);
                    }
                )*
            }
            mod goes_on {
                use super::*;
                $(
                    #[test]
                    #[ignore = "long: twenty games for each cut"]
                    fn $name() {
                        super::goes_on(stringify!($name), Kind::$kind, $cut);
                    }
                )*
            }
        };
    }

    // The moments are those of the gibibyte, in hundredths of it.
    cuts! {
        our_link_goes_down, Noticed, at 5: |hosts| hosts.link(0, 0).down().expect("a cut");
        their_link_goes_down, Noticed, at 17: |hosts| hosts.link(1, 0).down().expect("a cut");
        our_address_is_removed, Noticed, at 29: |hosts| hosts.link(0, 0).remove_address().expect("a cut");
        their_address_is_removed, Noticed, at 41: |hosts| hosts.link(1, 0).remove_address().expect("a cut");
        everything_is_dropped_silently, Silent, at 53: |hosts| {
            hosts.link(0, 0).drop_silently(Direction::Both).expect("a cut");
        };
        only_what_we_send_is_dropped, Silent, at 65: |hosts| {
            hosts.link(0, 0).drop_silently(Direction::Out).expect("a cut");
        };
        only_what_they_send_is_dropped, Silent, at 77: |hosts| {
            hosts.link(0, 0).drop_silently(Direction::In).expect("a cut");
        };
        the_link_corrupts, Corrupting, at 85: |hosts| {
            let corruption = Corruption { one_in: 4, bytes: vec![9, 13, 17, 33], flip: 0x10 };
            hosts.link(0, 0).corrupt(Direction::Both, corruption).expect("a cut");
        };
    }
}
