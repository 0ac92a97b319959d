//! Rank 0's side of the rendezvous: collects the endpoint of every rank and sends the table to all.
//!
//! One thread serves all connections. A connection is unauthenticated until it has sent a valid join request, encrypted (P-101);
//! connections that send malformed data, or nothing for too long, are rejected and have no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::detector_ports::DetectorPorts;
use super::endpoint_record::{EndpointRecord, RankTable, RecordReader, RecordWriter};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::file_limit::{FileLimitError, raise_file_limit};
use super::framing::{FramedStream, ReadOutcome, poll_timeout_until};
use super::join_request::{
    DUPLICATE_RANK_GRACE, JoinRejection, JoinRequest, MAX_HANDSHAKE_BYTES, WITHDRAWAL_TIME, Withdrawal,
};
use super::listening::{BACKLOG, bind};
use super::rank_connections::RankConnections;
use super::rejected_process::{JoinMismatch, RejectedConnections, RejectedProcess};
use super::rendezvous::{RendezvousError, RendezvousTimeouts};
use super::rendezvous_file::RendezvousFile;
use super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, encode_message, next_message};
use super::stream_security::accept_offer;
use super::token_key::TokenKey;

/// Time for a new connection to send a valid join request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections beyond one per rank; beyond that, the oldest unauthenticated one is closed. Real ranks retry.
const MAX_UNAUTHENTICATED: usize = 256;
/// Processes of versions before 3 wait for rank 0 to begin.
const NO_REQUEST: &str = "a connection without a join request (from an older version of Pleach?)";
const LISTENER_EVENT: u64 = 0;

pub(super) fn serve_rendezvous(
    environment: &JobEnvironment,
    mut record: EndpointRecord,
    mut ports: DetectorPorts,
    timeouts: &RendezvousTimeouts,
    report: &mut dyn FnMut(&RejectedProcess),
) -> Result<RankConnections, RendezvousError> {
    let deadline = Instant::now() + timeouts.join;
    let (listener, file) = listen(environment)?;
    ports.open().clone_into(&mut record.ports);
    raise_file_limit(environment.size, record.ports.len()).map_err(|error| match error {
        FileLimitError::TooLow { allowed } => RendezvousError::TooManyConnections { allowed },
        FileLimitError::Io(error) => RendezvousError::Io(error),
    })?;
    let secret = file.as_ref().map_or("", |file| file.record.secret.as_str());
    let key = TokenKey::new(&environment.token, secret);
    let mut server = RendezvousServer::new(listener, key, (environment.size, record), timeouts, report)
        .map_err(RendezvousError::Io)?;
    while server.missing > 0 {
        if let Some(withdrawal) = server.withdrawn.clone() {
            return Err(server.dismiss(withdrawal, deadline));
        }
        if Instant::now() >= deadline {
            return Err(server.fail(timeouts.join));
        }
        server.turn(deadline).map_err(RendezvousError::Io)?;
    }
    drop(file); // All ranks have joined, so the file is not needed any more.
    server.distribute_table(deadline, ports).map_err(RendezvousError::Io)
}

/// Rank 0 itself cannot join: tells all ranks that come within a while.
///
/// # Errors
/// If they cannot be told.
pub(super) fn serve_withdrawal(
    environment: &JobEnvironment,
    withdrawal: Withdrawal,
    timeouts: &RendezvousTimeouts,
) -> Result<(), RendezvousError> {
    let (listener, file) = listen(environment)?;
    let secret = file.as_ref().map_or("", |file| file.record.secret.as_str());
    let key = TokenKey::new(&environment.token, secret);
    let record = EndpointRecord::own(0, Vec::new(), Vec::new(), Vec::new());
    let mut report = |_: &RejectedProcess| {};
    let server = RendezvousServer::new(listener, key, (environment.size, record), timeouts, &mut report);
    server.map_err(RendezvousError::Io)?.dismiss(withdrawal, Instant::now() + timeouts.join);
    Ok(())
}

/// A connection of a rank, or one that is not authenticated yet.
struct RendezvousConnection {
    stream: FramedStream,
    address: IpAddr,
    since: Instant,
    is_secure: bool,
    rank: Option<u32>,
}

struct RendezvousServer<'r> {
    listener: TcpListener,
    epoll: Epoll,
    key: TokenKey,
    size: u32,
    peer_timeout: Duration,
    /// By a number that is never reused, so that a stale epoll event finds no connection.
    connections: BTreeMap<u64, RendezvousConnection>,
    next_connection: u64,
    records: Vec<Option<EndpointRecord>>,
    missing: u32,
    rejected: RejectedConnections,
    /// Called for the first process of each kind that does not fit.
    report: &'r mut dyn FnMut(&RejectedProcess),
    /// Since when a second process asks for a rank: the first one may have died a moment ago.
    duplicates: BTreeMap<u32, Instant>,
    /// A rank that cannot join.
    withdrawn: Option<Withdrawal>,
    /// The ranks that were told so.
    told: BTreeSet<u32>,
}

impl<'r> RendezvousServer<'r> {
    fn new(
        listener: TcpListener,
        key: TokenKey,
        (size, own): (u32, EndpointRecord),
        timeouts: &RendezvousTimeouts,
        report: &'r mut dyn FnMut(&RejectedProcess),
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER_EVENT))?;
        let mut records = vec![None; size as usize];
        records[0] = Some(own);
        let (connections, rejected) = (BTreeMap::new(), RejectedConnections::default());
        let (peer_timeout, duplicates) = (timeouts.peer_while_joining(), BTreeMap::new());
        let missing = size - 1;
        let (withdrawn, told) = (None, BTreeSet::new());
        Ok(Self {
            listener,
            epoll,
            key,
            size,
            peer_timeout,
            connections,
            next_connection: 1,
            records,
            missing,
            rejected,
            report,
            duplicates,
            withdrawn,
            told,
        })
    }

    /// Waits for events and processes them.
    fn turn(&mut self, deadline: Instant) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 256];
        let oldest = self
            .unauthenticated()
            .next()
            .map_or(deadline, |(_, connection)| (connection.since + HANDSHAKE_TIMEOUT).min(deadline));
        let count = match self.epoll.wait(&mut events, poll_timeout_until(oldest)) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            match event.data() {
                LISTENER_EVENT => self.accept()?,
                connection => self.receive(connection),
            }
        }
        let expired: Vec<u64> = self
            .unauthenticated()
            .take_while(|(_, connection)| connection.since.elapsed() >= HANDSHAKE_TIMEOUT)
            .map(|(id, _)| id)
            .collect();
        for id in expired {
            self.discard(id, NO_REQUEST);
        }
        Ok(())
    }

    /// Unauthenticated connections, oldest first.
    fn unauthenticated(&self) -> impl Iterator<Item = (u64, &RendezvousConnection)> {
        self.connections
            .iter()
            .filter(|(_, connection)| connection.rank.is_none())
            .map(|(id, connection)| (*id, connection))
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..BACKLOG {
            match self.listener.accept() {
                Ok((tcp, peer)) => {
                    let Ok(stream) = FramedStream::new(tcp) else { continue };
                    if stream.set_peer_timeout(self.peer_timeout).is_err() {
                        continue;
                    }
                    let id = self.next_connection;
                    self.next_connection += 1;
                    self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, id))?;
                    let (address, since, is_secure, rank) = (peer.ip().to_canonical(), Instant::now(), false, None);
                    self.connections.insert(id, RendezvousConnection { stream, address, since, is_secure, rank });
                    let oldest = self.unauthenticated().next().map(|(id, _)| id);
                    if let Some(oldest) =
                        oldest.filter(|_| self.connections.len() > self.size as usize + MAX_UNAUTHENTICATED)
                    {
                        self.discard(oldest, "too many connections without a join request");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // Out of files: epoll reports the listener again; other threads get time to close files.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(5));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let outcome = connection.stream.fill(MAX_READ_BYTES);
        if connection.rank.is_some() {
            // A joined rank sends nothing before it has the table: the connection is closed, or the rank misbehaves.
            if !matches!(outcome, Ok(ReadOutcome::WouldBlock)) || connection.stream.unread_bytes() > 0 {
                self.discard(id, "a rank disconnected before all ranks had joined");
            }
            return;
        }
        match next_message(&mut connection.stream, MAX_HANDSHAKE_BYTES) {
            Ok(Some((RendezvousMessageKind::Secure, body))) if !connection.is_secure => {
                connection.is_secure = true;
                match accept_offer(&mut connection.stream, &self.key, 0, &body) {
                    Ok(()) => self.receive(id), // More may have arrived with it.
                    Err(Some(rejection)) => self.reject(id, &rejection, None),
                    Err(None) => self.discard(id, "a connection could not be encrypted"),
                }
            }
            Ok(Some((RendezvousMessageKind::Hello, body))) if connection.is_secure => {
                match JoinRequest::read(&body) {
                    Some(request) => self.admit(id, request),
                    None => self.discard(id, "a connection sent a malformed join request"),
                }
            }
            Ok(Some((RendezvousMessageKind::Withdraw, body))) if connection.is_secure => {
                match Withdrawal::read(&mut RecordReader { rest: &body }) {
                    Some(withdrawal) if withdrawal.rank < self.size => self.withdraw(id, withdrawal),
                    _ => self.discard(id, "a connection sent a malformed message"),
                }
            }
            Ok(None) if matches!(outcome, Ok(ReadOutcome::Received | ReadOutcome::WouldBlock)) => {}
            Ok(None) => self.discard(id, NO_REQUEST),
            _ => self.discard(id, "a connection is not a Pleach client"),
        }
    }

    /// Admits an authenticated rank if its rank and the size of the job are right.
    fn admit(&mut self, id: u64, request: JoinRequest) {
        let rank = request.record.rank;
        let entry = self.records.get_mut(rank as usize);
        let rejection = match entry {
            _ if request.size != self.size => JoinRejection::Size(self.size),
            _ if self.withdrawn.is_some() => {
                self.told.insert(rank);
                JoinRejection::Withdrawn(self.withdrawn.clone().expect("just found"))
            }
            Some(entry @ None) => {
                let connection = self.connections.get_mut(&id).expect("its request was just received");
                connection.rank = Some(rank);
                connection.stream.queue(encode_message(RendezvousMessageKind::Welcome, &[]));
                *entry = Some(request.record);
                self.missing -= 1;
                // A few bytes into an empty socket: if writing fails, the connection is broken, and the next read finds it.
                let _ = connection.stream.flush();
                return;
            }
            Some(Some(_)) | None => JoinRejection::Rank,
        };
        self.reject(id, &rejection, Some((rank, request.size)));
    }

    /// Closes a connection and says why. `claim` is the rank and the number of ranks of the process, as far as known.
    fn reject(&mut self, id: u64, rejection: &JoinRejection, claim: Option<(u32, u32)>) {
        let Some(mut connection) = self.remove(id) else { return };
        if let Some(mismatch) = rejection.mismatch().filter(|mismatch| self.is_certain(*mismatch, claim))
            && self.rejected.count(mismatch)
        {
            let (address, expected_size) = (connection.address, self.size);
            (self.report)(&RejectedProcess { address, mismatch, claim, expected_size });
        }
        connection.stream.queue(encode_message(RendezvousMessageKind::Rejected, &[&rejection.to_bytes()]));
        let _ = connection.stream.flush();
        connection.stream.shutdown_write();
    }

    /// Closes a connection without a word.
    fn discard(&mut self, id: u64, why: &'static str) {
        if self.remove(id).is_some() {
            self.rejected.note(why);
        }
    }

    fn remove(&mut self, id: u64) -> Option<RendezvousConnection> {
        let connection = self.connections.remove(&id)?;
        let _ = self.epoll.delete(&connection.stream);
        if let Some(rank) = connection.rank {
            self.records[rank as usize] = None;
            self.missing += 1;
        }
        Some(connection)
    }

    /// False if a rank is asked for twice and has been for a moment only: a process that was started anew asks again.
    fn is_certain(&mut self, mismatch: JoinMismatch, claim: Option<(u32, u32)>) -> bool {
        match (mismatch, claim) {
            (JoinMismatch::Rank, Some((rank, _))) if rank < self.size => {
                self.duplicates.entry(rank).or_insert_with(Instant::now).elapsed() >= DUPLICATE_RANK_GRACE / 2
            }
            (JoinMismatch::Rank, _) => false,
            _ => true,
        }
    }

    /// A rank cannot join.
    fn withdraw(&mut self, id: u64, withdrawal: Withdrawal) {
        self.told.insert(withdrawal.rank);
        let first = self.withdrawn.get_or_insert(withdrawal).clone();
        self.reject(id, &JoinRejection::Withdrawn(first), None);
    }

    /// Tells all ranks that one cannot join, also those that come within a while.
    fn dismiss(mut self, withdrawal: Withdrawal, deadline: Instant) -> RendezvousError {
        self.told.extend([0, withdrawal.rank]);
        let joined: Vec<(u64, u32)> =
            self.connections.iter().filter_map(|(id, connection)| Some((*id, connection.rank?))).collect();
        for (id, rank) in joined {
            self.reject(id, &JoinRejection::Withdrawn(withdrawal.clone()), None);
            self.told.insert(rank);
        }
        let Withdrawal { rank, why } = withdrawal.clone();
        self.withdrawn = Some(withdrawal);
        let until = deadline.min(Instant::now() + WITHDRAWAL_TIME);
        while self.told.len() < self.size as usize && Instant::now() < until && self.turn(until).is_ok() {}
        RendezvousError::Withdrawn { rank, why }
    }

    /// Informs the ranks that joined about those that did not.
    fn fail(mut self, waited: Duration) -> RendezvousError {
        let absent: Vec<u32> = (0..self.size).filter(|rank| self.records[*rank as usize].is_none()).collect();
        let rejected = self.rejected.clone();
        let rejection = JoinRejection::Missing { count: self.missing, some: absent.clone(), rejected };
        let bytes = encode_message(RendezvousMessageKind::Rejected, &[&rejection.to_bytes()]);
        for connection in self.connections.values_mut().filter(|connection| connection.rank.is_some()) {
            connection.stream.queue(bytes.clone());
            let _ = connection.stream.flush();
            connection.stream.shutdown_write();
        }
        RendezvousError::Missing { ranks: absent, count: self.missing, waited, rejected: self.rejected }
    }

    /// Sends the table to all ranks. The failure detector will report a rank that does not read it in time as lost.
    fn distribute_table(mut self, deadline: Instant, ports: DetectorPorts) -> io::Result<RankConnections> {
        let table =
            RankTable::new(self.records.drain(..).map(|record| record.expect("no rank is missing")).collect());
        let mut writer = RecordWriter::default();
        table.write(&mut writer);
        let bytes = encode_message(RendezvousMessageKind::Table, &[&writer.bytes]);
        let mut streams: BTreeMap<u32, FramedStream> = BTreeMap::new();
        for (_, connection) in std::mem::take(&mut self.connections) {
            let _ = self.epoll.delete(&connection.stream);
            if let Some(rank) = connection.rank {
                streams.insert(rank, connection.stream);
            }
        }
        let _ = self.epoll.delete(self.listener.as_fd());
        for (rank, stream) in &mut streams {
            stream.queue(bytes.clone());
            let _ = stream.flush(); // The failure detector finds a broken stream.
            if stream.queued_bytes() > 0 {
                self.epoll.add(&*stream, EpollEvent::new(EpollFlags::EPOLLOUT, u64::from(*rank)))?;
            }
        }
        // Even if the last rank joined at the deadline, all ranks get time to read.
        let deadline = deadline.max(Instant::now() + HANDSHAKE_TIMEOUT);
        let mut busy = streams.values().filter(|stream| stream.queued_bytes() > 0).count();
        while busy > 0 && Instant::now() < deadline {
            let mut events = [EpollEvent::empty(); 256];
            let count = self.epoll.wait(&mut events, poll_timeout_until(deadline)).unwrap_or(0);
            for event in &events[..count] {
                let rank = u32::try_from(event.data()).expect("a rank");
                let stream = streams.get_mut(&rank).expect("its stream is registered");
                if stream.flush().is_err() || stream.queued_bytes() == 0 {
                    self.epoll.delete(&*stream)?;
                    busy -= 1;
                }
            }
        }
        Ok(RankConnections { table, key: self.key, streams, listeners: ports.into_listeners() })
    }
}

/// Rank 0's listener, and the rendezvous file that publishes its port.
fn listen(environment: &JobEnvironment) -> Result<(TcpListener, Option<RendezvousFile>), RendezvousError> {
    let failed = |address: String| move |source| RendezvousError::Listen { address, source };
    let RendezvousPoint::Address { host, port } = &environment.rendezvous else {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = bind(here).map_err(failed(here.to_string()))?;
        let port = listener.local_addr().map_err(RendezvousError::Io)?.port();
        return Ok((listener, Some(RendezvousFile::create(&environment.job, port).map_err(RendezvousError::File)?)));
    };
    // Binds the named address if this host has it, so that loopback stays loopback; otherwise, as behind NAT, all addresses.
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
