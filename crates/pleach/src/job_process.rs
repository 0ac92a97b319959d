//! A process of a job: the table of all ranks, the progress engine, and what the ranks told each other when they joined.
//!
//! In: the rank table after the rendezvous. Out: which ranks share a host or a CPU, and names and numbers that only this job's
//! processes can compute.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bootstrap::auth::MacKey;
use bootstrap::secure_channel::SECRET_KEY_BYTES;
use bootstrap::{
    ApplicationActivity, FileReserve, JobEnvironment, JoinedJob, LocalEndpoint, ProgressOutcome, ProgressThread,
    RankTable, RejectedProcess, RendezvousTimeouts,
};
use engine::network::{LeaderNetwork, MeshConfig};
use manager::message::Quota;
use manager::{AuthKey, JobTicket};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use transport::SecurityMode;
use transport::udp::link_mtu_bytes;
use units::{GroupId, Rank};

use crate::error::JoinError;
use crate::lost_nodes::LossReport;
use crate::progress_engine::ProgressEngine;
use crate::settings::{Settings, SharedMemoryRanks};
use crate::shared_engine::{CpuSharing, SharedEngine};

/// The coordinator serves the other ranks until they have left, at most for this long; the others wait as long for its
/// acknowledgement.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a request to the manager in progress may take when the process leaves its job.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the progress thread sleeps while no timer runs.
const IDLE_WAIT: Duration = Duration::from_secs(1);

const HEADER_BYTES: u32 = protocol::aggregation::PACKET_HEADER_BYTES as u32;
const MAX_SEGMENT_BYTES: u32 = 4096 - 64;
const MIN_SEGMENT_BYTES: u32 = 256;
/// Fragments of messages that replace a failed tree. They pass every path, also one whose MTU became smaller: it may be why the tree
/// failed, and their connections cannot divide them anew.
const MAX_MESH_FRAGMENT_BYTES: usize = protocol::aggregation::BASE_SEGMENT_BYTES;
const DEFAULT_MTU_BYTES: u32 = 1500;
/// Files that a process opens for its engine, its progress thread and shared memory after all ranks have joined.
const FILES_AFTER_JOINING: usize = 16;
const MAX_HOST_NAME_CHARS: usize = 64;
/// Up to so many ranks per CPU, a rank that waits yields; with more, it sleeps.
const MAX_YIELDING_RANKS: u32 = 2;

/// How the manager identifies the job, for whichever rank talks to it next.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct JobAdmission {
    pub manager: SocketAddr,
    pub ticket: JobTicket,
    pub quota: Quota,
}

pub(crate) struct JobProcess {
    pub table: RankTable,
    /// The name of each rank's host, as the manager knows it.
    pub host_names: Vec<String>,
    pub rank: u32,
    key: AuthKey,
    pub settings: Settings,
    pub job: String,
    /// Where each rank runs, whatever its host is called: a machine and its number of CPUs.
    machines: Vec<(String, u32)>,
    /// Payload that fits one packet on every rank's network.
    pub segment_bytes: u32,
    /// The largest packet that every rank's link carries.
    pub link_bytes: u32,
    /// How all ranks protect their packets.
    pub security: SecurityMode,
    pub activity: Arc<ApplicationActivity>,
    pub shared: Arc<SharedEngine>,
    next_context: AtomicU32,
    /// Set once the manager has admitted the job.
    pub admission: OnceLock<JobAdmission>,
    progress_thread: Option<ProgressThread>,
}

/// What a rank publishes about itself beside its addresses. Serialized names are part of the protocol.
#[derive(Serialize, Deserialize)]
struct EndpointAttributes {
    mtu: u32,
    /// The name of its host at the manager, if it differs from the host's own.
    host: Option<String>,
    /// The boot of the kernel under which it runs, and the CPUs there.
    machine: String,
    #[serde(rename = "processors")]
    cpus: u32,
    /// Rank 0's is the job's.
    key: AuthKey,
    /// How it was told to protect packets.
    #[serde(default)]
    security: Option<String>,
}

impl JobProcess {
    /// Opens sockets, meets the other ranks, and starts the progress thread.
    pub(crate) fn join(place: JobEnvironment, settings: Settings) -> Result<Self, JoinError> {
        let mut timeouts = RendezvousTimeouts::default();
        timeouts.join = settings.join_timeout.unwrap_or(timeouts.join);
        let network = LeaderNetwork::open(&settings.sockets(&place), settings.faults.clone())
            .map_err(JoinError::io("cannot open UDP sockets"))
            .inspect_err(|error| bootstrap::withdraw(&place, &error.to_string(), &timeouts))?;
        let reserve = match FileReserve::hold(FILES_AFTER_JOINING) {
            Ok(reserve) => reserve,
            Err(error) => {
                drop(network); // To tell the others takes files.
                let error =
                    JoinError::io("this process may not open enough files (raise the limit: ulimit -n)")(error);
                bootstrap::withdraw(&place, &error.to_string(), &timeouts);
                return Err(error);
            }
        };
        let addresses = network.addresses();
        let mtu = addresses.iter().map(|address| link_mtu_bytes(address.ip())).min().unwrap_or(DEFAULT_MTU_BYTES);
        let host = settings.host.clone().map(|host| host.chars().take(MAX_HOST_NAME_CHARS).collect());
        let key = random_key().map_err(JoinError::io("cannot get random bits from the kernel"))?;
        let security = settings.security.map(|mode| mode.to_string());
        let extra = EndpointAttributes { mtu, host, machine: machine(), cpus: online_cpus(), key, security };
        let extra = serde_json::to_vec(&extra).expect("plain values serialize");
        let endpoint = LocalEndpoint { addresses, extra };
        match bootstrap::join_reporting(&place, endpoint, &timeouts, &mut report_rejected) {
            Ok(joined) => {
                drop(reserve);
                Self::new(place, joined, network, settings)
            }
            Err(error) => {
                if error.is_local() {
                    drop((network, reserve));
                    bootstrap::withdraw(&place, &error.to_string(), &timeouts);
                }
                Err(JoinError::Rendezvous(error))
            }
        }
    }

    fn new(
        place: JobEnvironment,
        joined: JoinedJob,
        mut network: LeaderNetwork,
        settings: Settings,
    ) -> Result<Self, JoinError> {
        let JoinedJob { table, failure_detector } = joined;
        let attributes: Option<Vec<EndpointAttributes>> =
            table.records().iter().map(|card| serde_json::from_slice(&card.extra).ok()).collect();
        let attributes = attributes.ok_or(JoinError::VersionMismatch)?;
        let key = attributes.first().ok_or(JoinError::VersionMismatch)?.key;
        let security = agreed_security(&attributes, &table)?;
        let mtu = attributes.iter().map(|rank| rank.mtu).min().unwrap_or(DEFAULT_MTU_BYTES);
        let segment_bytes = (mtu.saturating_sub(HEADER_BYTES) & !63).clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
        let machines: Vec<(String, u32)> =
            attributes.iter().map(|rank| (rank.machine.clone(), rank.cpus.max(1))).collect();
        let names = attributes.into_iter().zip(table.records());
        let host_names = names.map(|(rank, card)| rank.host.unwrap_or_else(|| card.host_name.clone())).collect();
        if security == SecurityMode::Encrypt {
            network.encrypt_payloads();
        }
        network.connect_mesh(MeshConfig {
            me: Rank(place.rank),
            addresses: table.records().iter().map(|card| card.addresses.clone()).collect(),
            key,
            fragment_bytes: (segment_bytes as usize).min(MAX_MESH_FRAGMENT_BYTES),
            link_bytes: mtu as usize,
        });
        let loss_report = LossReport::new(settings.nodes_supervised);
        let engine = ProgressEngine::new(place.rank, network, failure_detector, loss_report);
        let shared = SharedEngine::new(engine, settings.progress_callback, cpu_sharing(&machines, place.rank))
            .map_err(JoinError::io("cannot create an epoll set"))?;
        let shared = Arc::new(shared);
        let activity = Arc::new(ApplicationActivity::new());
        let progress_thread = (table.size() > 1).then(|| start_progress_thread(&shared, &activity)).transpose();
        Ok(Self {
            rank: place.rank,
            host_names,
            key,
            settings,
            job: place.job,
            machines,
            segment_bytes,
            link_bytes: mtu,
            security,
            activity,
            shared,
            next_context: AtomicU32::new(1),
            admission: OnceLock::new(),
            progress_thread: progress_thread.map_err(JoinError::io("cannot start the progress thread"))?,
            table,
        })
    }

    /// Groups positions in `ranks` by the host whose memory the ranks share: each group in order, groups by their first position.
    pub(crate) fn hosts_of(&self, ranks: &[u32]) -> Vec<Vec<u32>> {
        let mut indices = BTreeMap::new();
        let mut hosts: Vec<Vec<u32>> = Vec::new();
        for (position, rank) in ranks.iter().enumerate() {
            let host = self.table.record(*rank).map(|card| &card.host);
            let index = *indices.entry(host).or_insert_with(|| {
                hosts.push(Vec::new());
                hosts.len() - 1
            });
            hosts[index].push(position as u32);
        }
        let max_ranks = match self.settings.shared_memory {
            SharedMemoryRanks::All => usize::from(u16::MAX),
            SharedMemoryRanks::AtMost(max_ranks) => usize::from(max_ranks),
        };
        let teams = hosts.iter().flat_map(|host| host.chunks(max_ranks));
        let mut teams: Vec<Vec<u32>> = teams.map(<[u32]>::to_vec).collect();
        teams.sort_by_key(|team| team[0]);
        teams
    }

    /// How many of these ranks share a CPU, on the machine where most do.
    pub(crate) fn ranks_per_cpu(&self, ranks: impl Iterator<Item = u32>) -> u32 {
        ranks_per_cpu(&self.machines, ranks)
    }

    /// The machine with the most ranks per CPU among these ranks, if it has fewer CPUs than ranks.
    pub(crate) fn most_oversubscribed(&self, ranks: &[u32]) -> Option<OversubscribedMachine> {
        let machine = most_oversubscribed(&self.machines, ranks)?;
        let host = self.host_names.get(machine.0 as usize).cloned().unwrap_or_default();
        Some(OversubscribedMachine { host, ranks: machine.1, cpus: machine.2 })
    }

    /// A name that only this job's processes can compute.
    pub(crate) fn secret_name(&self, context: GroupId, leader: u32, what: &str) -> String {
        format!("pleach-{:016x}", self.secret_number(context, &format!("{leader}-{what}")))
    }

    /// A number that only this job's processes can compute.
    pub(crate) fn secret_number(&self, context: GroupId, what: &str) -> u64 {
        use std::hash::Hasher;
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        hasher.write_u32(context.0);
        hasher.write(what.as_bytes());
        hasher.finish()
    }

    /// The key of the packets between two ranks for a purpose.
    pub(crate) fn pair_key(&self, purpose: &str, ranks: (u32, u32)) -> AuthKey {
        let (low, high) = (ranks.0.min(ranks.1), ranks.0.max(ranks.1));
        let parts = [b"pleach pair ", &low.to_le_bytes()[..], &high.to_le_bytes(), purpose.as_bytes()];
        let mac = MacKey::new(&self.key.0).mac(&parts);
        AuthKey(mac[..16].try_into().expect("sixteen bytes"))
    }

    /// A key for a purpose that only this job's processes can compute.
    pub(crate) fn channel_key(&self, purpose: &[u8]) -> [u8; SECRET_KEY_BYTES] {
        MacKey::new(&self.key.0).mac(&[b"pleach job ", purpose])
    }

    pub(crate) fn next_context(&self) -> u32 {
        self.next_context.load(Ordering::Relaxed)
    }

    /// Reserves a context that the ranks agreed on: later ones are higher.
    pub(crate) fn reserve_context(&self, context: u32) {
        self.next_context.fetch_max(context + 1, Ordering::Relaxed);
    }
}

impl Drop for JobProcess {
    fn drop(&mut self) {
        self.progress_thread = None;
        let (is_panicking, began) = (std::thread::panicking(), Instant::now());
        if !is_panicking && self.table.size() > 1 {
            self.shared.linger(self.table.size());
            self.shared.coordinate_until_not_needed(LEAVE_TIMEOUT);
        }
        let mut engine = self.shared.engine();
        let (failure_detector, manager) = (engine.failure_detector.take(), engine.manager.take());
        let pending = engine.take_pending_renewal();
        drop(engine);
        // After a panic the connection just closes, so that the other ranks see this one as lost.
        if let Some(failure_detector) = failure_detector.filter(|_| !is_panicking) {
            failure_detector.leave(LEAVE_TIMEOUT.saturating_sub(began.elapsed()));
        }
        if self.rank != 0 || is_panicking {
            return; // The connection closes, and the job's other processes keep theirs.
        }
        if let Some(mut manager) = manager.or_else(|| pending?.wait(RENEWAL_TIMEOUT)) {
            let _ = manager.close_job(); // If that fails, the manager closes it when the connection is gone.
        }
    }
}

/// Tells the user at once: otherwise rank 0 would wait in silence for a process that has given up.
fn report_rejected(rejected: &RejectedProcess) {
    let line = format!("pleach: warning: {rejected}\n");
    let _ = std::io::stderr().write_all(line.as_bytes()); // In one write. Without stderr there is nobody to tell.
}

/// Starts the thread that makes network progress while the application computes.
fn start_progress_thread(
    shared: &Arc<SharedEngine>,
    activity: &Arc<ApplicationActivity>,
) -> io::Result<ProgressThread> {
    let shared_engine = Arc::clone(shared);
    let thread = ProgressThread::start(Arc::clone(activity), move || {
        let Some(mut engine) = shared_engine.try_engine() else { return ProgressOutcome::Busy };
        let was_busy = engine.progress();
        engine.poll_events();
        if std::mem::take(&mut engine.has_new_sockets) {
            drop(engine);
            let _ = shared_engine.watch_sockets(); // Otherwise the next wait is as long as it may be.
            ProgressOutcome::Again
        } else if was_busy {
            ProgressOutcome::Again
        } else {
            let timeouts = [engine.network.next_timeout(), engine.next_event_timeout()];
            ProgressOutcome::Wait(timeouts.into_iter().flatten().min().unwrap_or(IDLE_WAIT))
        }
    })?;
    thread.watch(shared.descriptor())?;
    Ok(thread)
}

/// How the ranks protect their packets: all the same way, or the job does not start.
fn agreed_security(ranks: &[EndpointAttributes], table: &RankTable) -> Result<SecurityMode, JoinError> {
    let addresses = table.records().iter().flat_map(|record| &record.addresses);
    let default = SecurityMode::default_for(addresses.map(SocketAddr::ip));
    let settings: Result<Vec<Option<SecurityMode>>, _> =
        ranks.iter().map(|rank| rank.security.as_deref().map(str::parse).transpose()).collect();
    agree(&settings.map_err(|_| JoinError::VersionMismatch)?, default)
}

fn agree(settings: &[Option<SecurityMode>], default: SecurityMode) -> Result<SecurityMode, JoinError> {
    let mode = |setting: Option<SecurityMode>| setting.unwrap_or(default);
    let first = settings.first().copied().flatten();
    let Some(other) = settings.iter().position(|setting| mode(*setting) != mode(first)) else {
        return Ok(mode(first));
    };
    let name = |setting: Option<SecurityMode>| match setting {
        Some(mode) => mode.to_string(),
        None => format!("none, which means {default} here"),
    };
    Err(JoinError::SecurityMismatch { first: (0, name(first)), other: (other as u32, name(settings[other])) })
}

/// Whether the ranks on this rank's machine outnumber its CPUs.
fn cpu_sharing(machines: &[(String, u32)], rank: u32) -> CpuSharing {
    let machine_of = |rank: u32| machines.get(rank as usize).map(|(machine, _)| machine);
    let same_machine = (0..machines.len() as u32).filter(|other| machine_of(*other) == machine_of(rank));
    match ranks_per_cpu(machines, same_machine) {
        0 | 1 => CpuSharing::Dedicated,
        2..=MAX_YIELDING_RANKS => CpuSharing::Shared,
        _ => CpuSharing::Oversubscribed,
    }
}

/// A machine that has fewer CPUs than ranks.
pub(crate) struct OversubscribedMachine {
    /// The host of one of its ranks.
    pub host: String,
    pub ranks: u32,
    pub cpus: u32,
}

/// One rank of that machine, how many ranks it has, and its CPUs.
fn most_oversubscribed(machines: &[(String, u32)], ranks: &[u32]) -> Option<(u32, u32, u32)> {
    let on_machine_of = |rank: u32| {
        let (machine, cpus) = machines.get(rank as usize)?;
        let count = ranks.iter().filter(|other| machines.get(**other as usize).is_some_and(|(of, _)| of == machine));
        Some((rank, count.count() as u32, *cpus))
    };
    let found = ranks.iter().filter_map(|rank| on_machine_of(*rank)).filter(|(_, count, cpus)| count > cpus);
    found.max_by(|a, b| (u64::from(a.1) * u64::from(b.2)).cmp(&(u64::from(b.1) * u64::from(a.2))))
}

fn ranks_per_cpu(machines: &[(String, u32)], ranks: impl Iterator<Item = u32>) -> u32 {
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (machine, machine_cpus) in ranks.filter_map(|rank| machines.get(rank as usize)) {
        let (count, cpus) = counts.entry(machine).or_default();
        (*count, *cpus) = (*count + 1, (*cpus).max(*machine_cpus));
    }
    counts.values().map(|(count, cpus)| count.div_ceil((*cpus).max(1))).max().unwrap_or(1)
}

/// Identifies one boot of one kernel. Where the kernel does not tell, each process counts as a machine of its own.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if boot.trim().is_empty() { format!("process {}", std::process::id()) } else { boot.trim().to_owned() }
}

/// The CPUs of the whole machine: those to which a rank is bound may be shared with other ranks.
fn online_cpus() -> u32 {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

fn random_key() -> io::Result<AuthKey> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(AuthKey(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines() -> Vec<(String, u32)> {
        let on = |name: &str, cpus: u32, ranks: usize| vec![(name.to_owned(), cpus); ranks];
        [on("a", 2, 5), on("b", 4, 4), on("c", 1, 1)].concat()
    }

    #[test]
    fn the_most_loaded_machine_determines_ranks_per_cpu() {
        let machines = machines();
        assert_eq!(ranks_per_cpu(&machines, 0..10), 3);
        assert_eq!(ranks_per_cpu(&machines, 5..10), 1);
        assert_eq!(ranks_per_cpu(&machines, [0, 5, 9].into_iter()), 1);
        assert_eq!(ranks_per_cpu(&machines, [].into_iter()), 1);
    }

    #[test]
    fn an_oversubscribed_machine_has_fewer_cpus_than_ranks() {
        let machines = machines();
        assert_eq!(most_oversubscribed(&machines, &[0, 1, 5, 6, 7, 8, 9]), None);
        let found = most_oversubscribed(&machines, &[0, 1, 2, 9]);
        assert!(matches!(found, Some((0..=2, 3, 2))), "{found:?}");
        let twice = [machines, vec![("d".to_owned(), 1); 3]].concat();
        let all: Vec<u32> = (0..13).collect();
        assert!(
            matches!(most_oversubscribed(&twice, &all), Some((10..=12, 3, 1))),
            "three per CPU are more than five on two"
        );
    }

    #[test]
    fn ranks_agree_on_security_or_the_error_names_two_of_them() {
        use SecurityMode::{Authenticate, Encrypt, Off};
        assert_eq!(agree(&[None, None], Off).ok(), Some(Off));
        assert_eq!(agree(&[Some(Encrypt), Some(Encrypt)], Off).ok(), Some(Encrypt));
        assert_eq!(agree(&[None, Some(Authenticate)], Authenticate).ok(), Some(Authenticate));
        let error = agree(&[None, None, Some(Encrypt)], Authenticate).expect_err("they differ").to_string();
        assert_eq!(
            error,
            "PLEACH_SECURITY differs: rank 0 has none, which means authenticate here, rank 2 has encrypt; set it to the same for all ranks"
        );
    }

    #[test]
    fn only_ranks_of_the_same_machine_share_its_cpus() {
        let machines = machines();
        assert_eq!(cpu_sharing(&machines, 4), CpuSharing::Oversubscribed);
        assert_eq!(cpu_sharing(&machines, 5), CpuSharing::Dedicated);
        assert_eq!(cpu_sharing(&machines, 9), CpuSharing::Dedicated);
    }
}
