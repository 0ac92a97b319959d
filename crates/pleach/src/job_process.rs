//! A process of a job: how it meets the others, and what it has one of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bootstrap::{
    self, ApplicationActivity, JobEnvironment, LocalEndpoint, ProgressOutcome, ProgressThread, RankTable,
    RendezvousTimeouts,
};
use engine::network::{LeaderNetwork, MeshConfig};
use manager::AuthKey;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use transport::udp::link_mtu_bytes;
use units::{GroupId, Rank};

use crate::communicator_inner::CommunicatorInner;
use crate::offload::JobAdmission;
use crate::progress_engine::{CpuSharing, ProgressEngine, SharedEngine};
use crate::settings::SharedMemoryRanks;
use crate::{Communicator, JoinError, Settings};

/// Rank 0 passes on what the others say until they have left, at most so long; the others wait for rank 0 to have heard.
const GOODBYE: Duration = Duration::from_secs(600);

/// Headers around an aggregation message, with padding: IP and UDP (48), BTH and ICRC (16), message (32), tag (8), padding.
const HEADERS: u32 = 112;
const LARGEST_PIECE: u32 = 4096 - 64;
const SMALLEST_PIECE: u32 = 256;
/// Characters of a host's name.
const MOST_NAME: usize = 64;

pub(crate) struct JobProcess {
    pub table: RankTable,
    /// What the manager calls each rank's host.
    pub host_names: Vec<String>,
    pub me: u32,
    key: AuthKey,
    pub settings: Settings,
    pub job: String,
    /// Where each rank runs, whatever hosts it is on: a machine, and how many processors that has.
    machines: Vec<(String, u32)>,
    /// Payload that fits one packet on every rank's network.
    pub segment_bytes: u32,
    /// Bytes of the largest packet that every rank's link carries.
    pub link_bytes: u32,
    pub presence: Arc<ApplicationActivity>,
    pub shared: Arc<SharedEngine>,
    next_context: AtomicU32,
    /// How the manager knows the job, once it does.
    pub admission: OnceLock<JobAdmission>,
    attendant: Option<ProgressThread>,
}

/// What a card tells beyond who it is.
#[derive(Serialize, Deserialize)]
struct EndpointAttributes {
    mtu: u32,
    /// What the manager calls its host, if not by the host's own name.
    host: Option<String>,
    /// The boot of the kernel under which it runs, and the processors there.
    machine: String,
    processors: u32,
    /// Rank 0's is the job's.
    key: AuthKey,
}

pub(crate) fn join(place: JobEnvironment, settings: Settings) -> Result<Communicator, JoinError> {
    let network = LeaderNetwork::open(&settings.sockets(&place), settings.faults.clone())
        .map_err(JoinError::io("opening sockets for packets"))?;
    let addresses = network.addresses();
    let mtu = addresses.iter().map(|address| link_mtu_bytes(address.ip())).min().unwrap_or(1500);
    let host = settings.host.clone().map(|host| host.chars().take(MOST_NAME).collect());
    let key = fresh_key().map_err(JoinError::io("asking the system for randomness"))?;
    let extra = EndpointAttributes { mtu, host, machine: machine(), processors: processors(), key };
    let extra = serde_json::to_vec(&extra).expect("plain values");
    let terms = settings.patience.map_or(RendezvousTimeouts::default(), |patience| RendezvousTimeouts {
        patience,
        ..RendezvousTimeouts::default()
    });
    let joined = bootstrap::join(&place, LocalEndpoint { addresses, extra }, &terms).map_err(JoinError::Meet)?;
    let process = JobProcess::new(place, joined, network, settings)?;
    let everyone: Vec<u32> = (0..process.table.size()).collect();
    Ok(Communicator::new(CommunicatorInner::form(Arc::new(process), GroupId(0), everyone)?))
}

impl JobProcess {
    fn new(
        place: JobEnvironment,
        joined: bootstrap::JoinedJob,
        mut network: LeaderNetwork,
        settings: Settings,
    ) -> Result<Self, JoinError> {
        let bootstrap::JoinedJob { table, lifeline } = joined;
        let strange = || JoinError::Setting { name: "a rank", what: "runs another version of Pleach".to_owned() };
        let extras: Option<Vec<EndpointAttributes>> =
            table.cards().iter().map(|card| serde_json::from_slice(&card.extra).ok()).collect();
        let extras = extras.ok_or_else(strange)?;
        let key = extras.first().ok_or_else(strange)?.key;
        let mtu = extras.iter().map(|extra| extra.mtu).min().unwrap_or(1500);
        let segment_bytes = (mtu.saturating_sub(HEADERS) & !63).clamp(SMALLEST_PIECE, LARGEST_PIECE);
        let machines: Vec<(String, u32)> =
            extras.iter().map(|extra| (extra.machine.clone(), extra.processors.max(1))).collect();
        let names = extras.into_iter().zip(table.cards());
        let host_names = names.map(|(extra, card)| extra.host.unwrap_or_else(|| card.host_name.clone())).collect();
        network.meet(MeshConfig {
            me: Rank(place.rank),
            addresses: table.cards().iter().map(|card| card.addresses.clone()).collect(),
            key,
            piece_bytes: segment_bytes as usize,
        });
        let engine = ProgressEngine::new(network, lifeline);
        let here = machines.get(place.rank as usize).map(|(machine, _)| machine);
        let beside =
            (0..table.size()).filter(|rank| machines.get(*rank as usize).map(|(machine, _)| machine) == here);
        let is_crowded = crowding(&machines, beside) > 1;
        let processors = if is_crowded { CpuSharing::Shared } else { CpuSharing::Own };
        let shared =
            SharedEngine::new(engine, settings.companion, processors).map_err(JoinError::io("waiting on sockets"))?;
        let shared = Arc::new(shared);
        let presence = Arc::new(ApplicationActivity::new());
        let attendant = (table.size() > 1).then(|| attend(&shared, &presence)).transpose();
        Ok(Self {
            me: place.rank,
            host_names,
            key,
            settings,
            job: place.job,
            machines,
            segment_bytes,
            link_bytes: mtu,
            presence,
            shared,
            next_context: AtomicU32::new(1),
            admission: OnceLock::new(),
            attendant: attendant.map_err(JoinError::io("starting a thread"))?,
            table,
        })
    }

    /// The ranks of these that share a host's memory, host by host, each in order; hosts by their first rank.
    pub(crate) fn hosts_of(&self, ranks: &[u32]) -> Vec<Vec<u32>> {
        let mut places = BTreeMap::new();
        let mut hosts: Vec<Vec<u32>> = Vec::new();
        for (position, rank) in ranks.iter().enumerate() {
            let host = self.table.card(*rank).map(|card| &card.host);
            let place = *places.entry(host).or_insert_with(|| {
                hosts.push(Vec::new());
                hosts.len() - 1
            });
            hosts[place].push(position as u32);
        }
        let most = match self.settings.shared_memory {
            SharedMemoryRanks::All => usize::from(u16::MAX),
            SharedMemoryRanks::AtMost(most) => usize::from(most),
        };
        let mut teams: Vec<Vec<u32>> = hosts.iter().flat_map(|host| host.chunks(most)).map(<[u32]>::to_vec).collect();
        teams.sort_by_key(|team| team[0]);
        teams
    }

    /// How many of these ranks share a processor, on the machine where most do.
    pub(crate) fn crowding(&self, ranks: impl Iterator<Item = u32>) -> u32 {
        crowding(&self.machines, ranks)
    }

    /// A name that only this job's processes can guess.
    pub(crate) fn secret_name(&self, context: GroupId, leader: u32, what: &str) -> String {
        format!("pleach-{:016x}", self.secret_number(context, &format!("{leader}-{what}")))
    }

    /// A number that only this job's processes can guess.
    pub(crate) fn secret_number(&self, context: GroupId, what: &str) -> u64 {
        use std::hash::Hasher;
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        hasher.write_u32(context.0);
        hasher.write(what.as_bytes());
        hasher.finish()
    }

    pub(crate) fn next_context(&self) -> u32 {
        self.next_context.load(Ordering::Relaxed)
    }

    /// A context was agreed on: later ones are higher.
    pub(crate) fn note_context(&self, context: u32) {
        self.next_context.fetch_max(context + 1, Ordering::Relaxed);
    }
}

impl Drop for JobProcess {
    fn drop(&mut self) {
        self.attendant = None;
        let is_well = !std::thread::panicking();
        if is_well && self.table.size() > 1 {
            self.shared.linger(self.me, self.table.size());
        }
        let mut engine = self.shared.engine();
        let (lifeline, manager) = (engine.lifeline.take(), engine.manager.take());
        drop(engine);
        // Who panics is lost to the others, as it should be.
        if let Some(lifeline) = lifeline.filter(|_| is_well) {
            lifeline.leave(GOODBYE);
        }
        if let Some(mut manager) = manager.filter(|_| self.me == 0) {
            let _ = manager.close_job(); // Without a word the manager finds out a little later.
        }
    }
}

/// Looks after the network while the user computes.
fn attend(shared: &Arc<SharedEngine>, presence: &Arc<ApplicationActivity>) -> std::io::Result<ProgressThread> {
    let engine = Arc::clone(shared);
    let attendant = ProgressThread::start(Arc::clone(presence), move || {
        let Some(mut engine) = engine.try_engine() else { return ProgressOutcome::Busy };
        let busy = engine.turn();
        engine.listen();
        if busy {
            ProgressOutcome::Again
        } else {
            ProgressOutcome::Wait(engine.network.patience().unwrap_or(Duration::from_secs(1)))
        }
    })?;
    attendant.watch(shared.descriptor())?;
    Ok(attendant)
}

fn crowding(machines: &[(String, u32)], ranks: impl Iterator<Item = u32>) -> u32 {
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (machine, processors) in ranks.filter_map(|rank| machines.get(rank as usize)) {
        let (count, most) = counts.entry(machine).or_default();
        (*count, *most) = (*count + 1, (*most).max(*processors));
    }
    counts.values().map(|(count, processors)| count.div_ceil((*processors).max(1))).max().unwrap_or(1)
}

/// One boot of one kernel. Where it does not say, a process has a machine to itself.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if boot.trim().is_empty() { format!("process {}", std::process::id()) } else { boot.trim().to_owned() }
}

/// Those of the whole machine: a rank that is bound to some of them does not have them to itself.
fn processors() -> u32 {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

fn fresh_key() -> std::io::Result<AuthKey> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(AuthKey(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_crowded_machine_counts() {
        let on = |name: &str, processors: u32, ranks: usize| vec![(name.to_owned(), processors); ranks];
        let machines = [on("a", 2, 5), on("b", 4, 4), on("c", 1, 1)].concat();
        assert_eq!(crowding(&machines, 0..10), 3);
        assert_eq!(crowding(&machines, 5..10), 1);
        assert_eq!(crowding(&machines, [0, 5, 9].into_iter()), 1);
        assert_eq!(crowding(&machines, [].into_iter()), 1);
    }
}
