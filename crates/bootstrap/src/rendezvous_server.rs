//! Rank 0's side of the meeting: takes every card, and gives everyone the table.
//!
//! One thread waits for all. A connection is a guest until it has shown token and card; guests that say something strange, or
//! nothing for too long, are sent away and change nothing.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use super::endpoint_record::{EndpointRecord, RankTable, RecordWriter};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::failure_detector::FailureDetector;
use super::hub::Hub;
use super::mac::{JoinNonce, MacPurpose, TokenKey, random_nonce};
use super::message_stream::{MessageStream, ReadOutcome, RendezvousMessageKind, encode_message, poll_timeout_until};
use super::rendezvous::{
    JoinRejection, JoinRequest, JoinedJob, MAX_HANDSHAKE_BYTES, RendezvousError, RendezvousTimeouts,
};
use super::rendezvous_file::RendezvousFile;

/// A guest that has not shown its card by then is sent away.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Guests beyond one per rank; more, and the oldest is sent away. Real ones try again.
const MAX_UNAUTHENTICATED: usize = 256;
/// Files that a process needs besides one for each rank.
const RESERVED_FILES: u64 = 512;
const BACKLOG: i32 = 4096;
/// Reasons for sending guests away that are kept for the error.
const MAX_REJECTION_REASONS: usize = 8;
const LISTENER_EVENT: u64 = 0;

pub(super) fn serve_rendezvous(
    place: &JobEnvironment,
    card: EndpointRecord,
    terms: &RendezvousTimeouts,
) -> Result<JoinedJob, RendezvousError> {
    let deadline = Instant::now() + terms.patience;
    raise_file_limit(place.size)?;
    let (listener, notice) = listen(place)?;
    let secret = notice.as_ref().map_or("", |notice| notice.posting.secret.as_str());
    let key = TokenKey::new(&place.token, secret);
    let mut gathering = RendezvousServer::new(listener, key, place.size, card, terms.at_the_meeting())
        .map_err(RendezvousError::Io)?;
    while gathering.missing > 0 {
        if Instant::now() >= deadline {
            return Err(gathering.give_up());
        }
        gathering.turn(deadline).map_err(RendezvousError::Io)?;
    }
    drop(notice); // All are there: nobody needs to find us any more.
    gathering.hand_out(deadline, terms.silence).map_err(RendezvousError::Io)
}

/// A connection that is not known yet, or has a seat.
struct RendezvousConnection {
    stream: MessageStream,
    since: Instant,
    challenge: JoinNonce,
    rank: Option<u32>,
}

struct RendezvousServer {
    listener: TcpListener,
    epoll: Epoll,
    key: TokenKey,
    size: u32,
    silence: Duration,
    /// By a number that is never used again, so that an event of the past meets nobody.
    guests: BTreeMap<u64, RendezvousConnection>,
    next_guest: u64,
    seats: Vec<Option<EndpointRecord>>,
    missing: u32,
    turned_away: Vec<String>,
}

impl RendezvousServer {
    fn new(
        listener: TcpListener,
        key: TokenKey,
        size: u32,
        own: EndpointRecord,
        silence: Duration,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER_EVENT))?;
        let mut seats = vec![None; size as usize];
        seats[0] = Some(own);
        let (guests, turned_away) = (BTreeMap::new(), Vec::new());
        let missing = size - 1;
        Ok(Self { listener, epoll, key, size, silence, guests, next_guest: 1, seats, missing, turned_away })
    }

    /// Waits for something to happen and deals with it.
    fn turn(&mut self, deadline: Instant) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 256];
        let oldest =
            self.strangers().next().map_or(deadline, |(_, guest)| (guest.since + HANDSHAKE_TIMEOUT).min(deadline));
        let count = match self.epoll.wait(&mut events, poll_timeout_until(oldest)) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            match event.data() {
                LISTENER_EVENT => self.accept()?,
                guest => self.hear(guest),
            }
        }
        let rude: Vec<u64> = self
            .strangers()
            .take_while(|(_, guest)| guest.since.elapsed() >= HANDSHAKE_TIMEOUT)
            .map(|(id, _)| id)
            .collect();
        for id in rude {
            self.send_away(id, None, "a connection said nothing of use");
        }
        Ok(())
    }

    /// Guests without a seat, oldest first.
    fn strangers(&self) -> impl Iterator<Item = (u64, &RendezvousConnection)> {
        self.guests.iter().filter(|(_, guest)| guest.rank.is_none()).map(|(id, guest)| (*id, guest))
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..BACKLOG {
            match self.listener.accept() {
                Ok((tcp, _)) => {
                    let Ok(mut stream) = MessageStream::new(tcp, self.silence) else { continue };
                    let challenge = random_nonce();
                    stream.queue(encode_message(RendezvousMessageKind::Challenge, &[&challenge]));
                    if stream.flush().is_err() {
                        continue;
                    }
                    let id = self.next_guest;
                    self.next_guest += 1;
                    self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, id))?;
                    self.guests
                        .insert(id, RendezvousConnection { stream, since: Instant::now(), challenge, rank: None });
                    let oldest = self.strangers().next().map(|(id, _)| id);
                    if let Some(oldest) =
                        oldest.filter(|_| self.guests.len() > self.size as usize + MAX_UNAUTHENTICATED)
                    {
                        self.send_away(oldest, None, "too many connections that said nothing");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // Out of files: the level-triggered event comes again; give others time to close theirs.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(5));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, id: u64) {
        let Some(guest) = self.guests.get_mut(&id) else { return };
        let ear = guest.stream.fill();
        if guest.rank.is_some() {
            // A seated rank has nothing to say before it has the table: it is gone, or confused.
            if !matches!(ear, Ok(ReadOutcome::Quiet)) || guest.stream.has_unread() {
                self.send_away(id, None, "a rank was gone before all were there");
            }
            return;
        }
        match guest.stream.next(MAX_HANDSHAKE_BYTES) {
            Ok(Some((RendezvousMessageKind::Hello, body))) => {
                match JoinRequest::read(&body, &self.key, &guest.challenge) {
                    Ok(hello) => self.judge(id, hello),
                    Err(refusal) => self.send_away(id, refusal, "a connection with a greeting that cannot be read"),
                }
            }
            Ok(None) if matches!(ear, Ok(ReadOutcome::Heard | ReadOutcome::Quiet)) => {}
            _ => self.send_away(id, None, "a connection that does not speak our language"),
        }
    }

    /// Seats a rank whose token is right, if all else is.
    fn judge(&mut self, id: u64, hello: JoinRequest) {
        let rank = hello.card.rank;
        let seat = self.seats.get_mut(rank as usize);
        let refusal = match seat {
            _ if hello.size != self.size => JoinRejection::Size(self.size),
            Some(seat @ None) => {
                let guest = self.guests.get_mut(&id).expect("it has just spoken");
                guest.rank = Some(rank);
                let seal = self.key.seal(MacPurpose::Welcome, &hello.nonce, &[]);
                guest.stream.queue(encode_message(RendezvousMessageKind::Welcome, &[&seal]));
                *seat = Some(hello.card);
                self.missing -= 1;
                // A few bytes into an empty socket; if they do not go, the connection is broken, and its end will be heard.
                let _ = guest.stream.flush();
                return;
            }
            Some(Some(_)) | None => JoinRejection::Rank,
        };
        let why = format!("rank {rank} of {} from {}: {refusal}", hello.size, hello.card.host_name);
        self.send_away(id, Some(refusal), &why);
    }

    fn send_away(&mut self, id: u64, refusal: Option<JoinRejection>, why: &str) {
        let Some(mut guest) = self.guests.remove(&id) else { return };
        let _ = self.epoll.delete(&guest.stream);
        if let Some(rank) = guest.rank {
            self.seats[rank as usize] = None;
            self.missing += 1;
        }
        if self.turned_away.len() < MAX_REJECTION_REASONS {
            let why =
                refusal.as_ref().filter(|refusal| **refusal == JoinRejection::Token).map_or(why, |_| "a wrong token");
            if !self.turned_away.iter().any(|said| said == why) {
                self.turned_away.push(why.to_owned());
            }
        }
        if let Some(refusal) = refusal {
            guest.stream.queue(encode_message(RendezvousMessageKind::Refused, &[&refusal.to_bytes()]));
            let _ = guest.stream.flush();
            guest.stream.close_mouth();
        }
    }

    /// Tells everyone who came that not all did.
    fn give_up(mut self) -> RendezvousError {
        let absent: Vec<u32> = (0..self.size).filter(|rank| self.seats[*rank as usize].is_none()).collect();
        let refusal = JoinRejection::Missing { count: self.missing, some: absent.clone() };
        let bytes = encode_message(RendezvousMessageKind::Refused, &[&refusal.to_bytes()]);
        for guest in self.guests.values_mut().filter(|guest| guest.rank.is_some()) {
            guest.stream.queue(bytes.clone());
            let _ = guest.stream.flush();
            guest.stream.close_mouth();
        }
        RendezvousError::Missing { ranks: absent, count: self.missing, turned_away: self.turned_away }
    }

    /// Gives everyone the table. A rank that does not take it in time is left to the lifeline, which will call it lost.
    fn hand_out(mut self, deadline: Instant, silence: Duration) -> io::Result<JoinedJob> {
        let table = RankTable::new(self.seats.drain(..).map(|seat| seat.expect("nobody is missing")).collect());
        let mut writer = RecordWriter::default();
        table.write(&mut writer);
        let bytes = encode_message(RendezvousMessageKind::Cards, &[&writer.bytes]);
        let mut streams: BTreeMap<u32, MessageStream> = BTreeMap::new();
        for (_, guest) in std::mem::take(&mut self.guests) {
            let _ = self.epoll.delete(&guest.stream);
            if let Some(rank) = guest.rank {
                streams.insert(rank, guest.stream);
            }
        }
        let _ = self.epoll.delete(self.listener.as_fd());
        for (rank, stream) in &mut streams {
            stream.queue(bytes.clone());
            let _ = stream.flush(); // A broken one is found by the hub.
            if stream.queued_bytes() > 0 {
                self.epoll.add(&*stream, EpollEvent::new(EpollFlags::EPOLLOUT, u64::from(*rank)))?;
            }
        }
        // However late the last one came, the rest have time to read.
        let deadline = deadline.max(Instant::now() + HANDSHAKE_TIMEOUT);
        let mut busy = streams.values().filter(|stream| stream.queued_bytes() > 0).count();
        while busy > 0 && Instant::now() < deadline {
            let mut events = [EpollEvent::empty(); 256];
            let count = self.epoll.wait(&mut events, poll_timeout_until(deadline)).unwrap_or(0);
            for event in &events[..count] {
                let rank = u32::try_from(event.data()).expect("a rank");
                let stream = streams.get_mut(&rank).expect("it is registered");
                if stream.flush().is_err() || stream.queued_bytes() == 0 {
                    self.epoll.delete(&*stream)?;
                    busy -= 1;
                }
            }
        }
        let lifeline = FailureDetector::of_hub(Hub::new(self.size, streams, silence)?);
        Ok(JoinedJob { table, lifeline })
    }
}

/// Rank 0's socket, and the notice that tells of it.
fn listen(place: &JobEnvironment) -> Result<(TcpListener, Option<RendezvousFile>), RendezvousError> {
    let failed = |address: String| move |source| RendezvousError::Listen { address, source };
    let RendezvousPoint::Address { host, port } = &place.meeting else {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = bind(here).map_err(failed(here.to_string()))?;
        let port = listener.local_addr().map_err(RendezvousError::Io)?.port();
        return Ok((listener, Some(RendezvousFile::post(&place.job, port).map_err(RendezvousError::Notice)?)));
    };
    // The named address if it is this host's, so that loopback stays loopback; else, as behind a translated address, all.
    let mut last = None;
    for address in (host.as_str(), *port).to_socket_addrs().into_iter().flatten() {
        match bind(address) {
            Ok(listener) => return Ok((listener, None)),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(source) if source.kind() != ErrorKind::AddrNotAvailable => Err(failed(format!("{host}:{port}"))(source)),
        _ => {
            let anywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port));
            Ok((bind(anywhere).map_err(failed(anywhere.to_string()))?, None))
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Thousands of ranks are thousands of files; the usual limit is 1,024, and may be raised.
fn raise_file_limit(size: u32) -> Result<(), RendezvousError> {
    let wanted = u64::from(size) + RESERVED_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| RendezvousError::Io(error.into()))?;
    if soft >= wanted {
        return Ok(());
    }
    if hard < u64::from(size) + RESERVED_FILES / 4 {
        return Err(RendezvousError::TooManyConnections { allowed: hard });
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).map_err(|error| RendezvousError::Io(error.into()))
}
