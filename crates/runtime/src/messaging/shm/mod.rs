//! Parcels between ranks of one host: one rail to each, a ring in shared memory. Whoever waits spins, then sleeps at its bell.

mod mapping;
mod ring;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use protocol::messaging::{RailIndex, Settings};
use units::Rank;

use super::messenger::{Carrier, News};
use crate::Clock;
use mapping::Mapping;
use ring::{Reader, Writer};

const RAIL: RailIndex = RailIndex(0);
/// How long one who waits looks again and again, and after how many looks it begins to give up the processor in between: the
/// one it waits for may need it.
const SPIN: Duration = Duration::from_micros(200);
const EAGER_LOOKS: u32 = 4096;
const LOOKS_PER_YIELD: u32 = 64;
/// How long it sleeps at most: a bell may be missed.
const NAP: Duration = Duration::from_millis(1);
/// How often it looks whether the others are there.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// Parcels of one ring that are taken in one turn.
const PARCELS_PER_TURN: usize = 16;

struct Peer {
    rank: usize,
    writer: Writer,
    reader: Reader,
    /// Parcels that do not fit now.
    waiting: VecDeque<Vec<u8>>,
    is_lost: bool,
}

/// The rails of a process to others on its host.
pub struct ShmCarrier {
    mapping: Mapping,
    me: usize,
    clock: Clock,
    peers: Vec<Peer>,
    /// Parcels that are in a ring or will never be; their bytes go back.
    landed: Vec<(usize, Vec<u8>)>,
    looked_around: Instant,
}

impl ShmCarrier {
    /// Meets the other ranks in memory of this name, which nobody else uses; returns when all have come.
    ///
    /// # Errors
    /// If the memory cannot be had, or not all come in time.
    pub fn meet(name: &str, me: Rank, ranks: u32, patience: Duration) -> io::Result<Self> {
        let (me, ranks) = (me.index(), ranks as usize);
        let mut mapping = Mapping::open(name, me, ranks, patience)?;
        mapping.take_name_away();
        let peer = |rank| Peer {
            rank,
            writer: Writer::new(me, rank),
            reader: Reader::new(rank, me),
            waiting: VecDeque::new(),
            is_lost: false,
        };
        let peers = (0..ranks).filter(|rank| *rank != me).map(peer).collect();
        let looked_around = Instant::now();
        Ok(Self { mapping, me, clock: Clock::new(), peers, landed: Vec::new(), looked_around })
    }

    /// Settings that suit shared memory.
    pub fn settings(base: Settings) -> Settings {
        Settings { piece_bytes: 64 << 10, letter_depth: 64, depth: 8, ..base }
    }

    fn is_idle(&self) -> bool {
        self.landed.is_empty() && !self.peers.iter().any(|peer| !peer.is_lost && peer.reader.has_more(&self.mapping))
    }

    fn move_parcels(&mut self, tell: &mut dyn FnMut(News<'_>)) {
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            let from = Rank(peer.rank as u32);
            let mut any = false;
            for _ in 0..PARCELS_PER_TURN {
                match peer.reader.read(&self.mapping, |bytes| tell(News::Parcel { from, rail: RAIL, bytes })) {
                    Ok(true) => any = true,
                    Ok(false) => break,
                    Err(ring::Broken) => {
                        peer.is_lost = true;
                        break;
                    }
                }
            }
            while let Some(bytes) = peer.waiting.pop_front() {
                if !peer.writer.write(&self.mapping, &bytes) {
                    peer.waiting.push_front(bytes);
                    break;
                }
                any = true;
                self.landed.push((peer.rank, bytes));
            }
            if any {
                self.mapping.bell(peer.rank).ring(); // It may wait for room, or for what was just written.
            }
            if peer.is_lost {
                lose(peer, &mut self.landed, tell);
            }
        }
        for (rank, bytes) in self.landed.drain(..) {
            tell(News::Landed { to: Rank(rank as u32), rail: RAIL, bytes });
        }
    }

    /// Whoever has ended, and whose last words have been read, is lost.
    fn look_around(&mut self, tell: &mut dyn FnMut(News<'_>)) {
        if self.looked_around.elapsed() < LOOK_AROUND {
            return;
        }
        self.looked_around = Instant::now();
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            if !self.mapping.is_there(peer.rank) && !peer.reader.has_more(&self.mapping) {
                peer.is_lost = true;
                lose(peer, &mut self.landed, tell);
            }
        }
    }

    fn nap(&self, wait: Duration) {
        let bell = self.mapping.bell(self.me);
        let ticket = bell.come();
        if self.is_idle() {
            bell.sleep(ticket, wait.min(NAP));
        }
        bell.leave();
    }
}

fn lose(peer: &mut Peer, landed: &mut Vec<(usize, Vec<u8>)>, tell: &mut dyn FnMut(News<'_>)) {
    landed.extend(peer.waiting.drain(..).map(|bytes| (peer.rank, bytes)));
    tell(News::RailLost { peer: Rank(peer.rank as u32), rail: RAIL });
}

impl Carrier for ShmCarrier {
    fn send(&mut self, to: Rank, _: RailIndex, bytes: Vec<u8>) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        if !peer.is_lost && (!peer.waiting.is_empty() || !peer.writer.write(&self.mapping, &bytes)) {
            peer.waiting.push_back(bytes);
            return;
        }
        self.mapping.bell(peer.rank).ring();
        self.landed.push((peer.rank, bytes));
    }

    fn turn(&mut self, wait: Duration, tell: &mut dyn FnMut(News<'_>)) -> io::Result<()> {
        if self.is_idle() && !wait.is_zero() {
            let began = Instant::now();
            let spin = SPIN.min(wait);
            let mut looks = 0u32;
            while self.is_idle() {
                looks += 1;
                std::hint::spin_loop();
                if looks.is_multiple_of(LOOKS_PER_YIELD) {
                    if looks > EAGER_LOOKS {
                        std::thread::yield_now();
                    }
                    if began.elapsed() >= spin {
                        break;
                    }
                }
            }
            while self.is_idle() && began.elapsed() < wait {
                self.nap(wait.saturating_sub(began.elapsed()));
                self.look_around(tell);
                if self.peers.iter().any(|peer| !peer.waiting.is_empty()) {
                    break; // There may be room now.
                }
            }
        }
        self.move_parcels(tell);
        Ok(())
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn forget(&mut self, peer: Rank) {
        for peer in self.peers.iter_mut().filter(|known| known.rank == peer.index()) {
            peer.is_lost = true;
            peer.waiting.clear();
        }
    }
}
