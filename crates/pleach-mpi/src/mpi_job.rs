//! The job: how Pleach comes into it after `MPI_Init`, and how it leaves before `MPI_Finalize`.
//!
//! The ranks meet over the MPI: rank 0 says where, everybody comes, and everybody says whether it worked. Only if it did for all is
//! Pleach used. Each world meets for itself, so that jobs that were spawned have their own.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pleach::{Communicator, RankIdentity, Settings};
use serde::{Deserialize, Serialize};

use crate::abi::MpiAbi;
use crate::bootstrap_channel::{BootstrapChannel, BootstrapFailed};
use crate::call_statistics::{self, OffloadReport, PACKETS};
use crate::configuration::{self, MpiConfiguration};
use crate::explanation::{MpiVersionInfo, OffloadExplanation};
use crate::native_mpi::{NativeMpi, mpi};
use crate::{communicator_table, packing, progress, requests};

/// An invitation has so many bytes.
const BOOTSTRAP_INFO_BYTES: usize = 4096;
/// Rank 0 offers at most so many addresses.
const MOST_ADDRESSES: usize = 16;

/// Everything that calls need to know.
pub(crate) struct MpiJob {
    pub(crate) mpi: &'static NativeMpi,
    pub(crate) abi: MpiAbi,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Vectors up to this many bytes are taken over.
    pub(crate) largest: usize,
    /// The communicator of all ranks; nobody's any more when the job is over.
    world: Mutex<Option<Communicator>>,
    /// The key under which each communicator of the MPI says that it is freed.
    pub(crate) key: i32,
    /// How a request of ours is completed.
    pub(crate) completion: requests::RequestCompletion,
}

static JOB: OnceLock<MpiJob> = OnceLock::new();
static IS_OPEN: AtomicBool = AtomicBool::new(false);
/// Why Pleach is not used, and where to report.
static OFF: Mutex<Option<String>> = Mutex::new(None);
static REPORT: Mutex<Option<String>> = Mutex::new(None);
/// Communicators that failed, of this rank.
pub(crate) static FAILURES: AtomicI64 = AtomicI64::new(0);
static RANK: AtomicU32 = AtomicU32::new(0);

/// The job, while Pleach is in use.
#[inline]
pub(crate) fn job() -> Option<&'static MpiJob> {
    if IS_OPEN.load(Ordering::Acquire) { JOB.get() } else { None }
}

/// The job, also when it is over.
pub(crate) fn last_job() -> Option<&'static MpiJob> {
    JOB.get()
}

impl MpiJob {
    pub(crate) fn words(&self, communicator: usize) -> BootstrapChannel<'_> {
        BootstrapChannel { mpi: self.mpi, abi: &self.abi, communicator }
    }

    /// The communicator of all ranks, unless the job is over.
    pub(crate) fn world(&self) -> Option<Communicator> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One line on the standard error.
pub(crate) fn log(what: &str) {
    say(&format!("rank {}: {what}", RANK.load(Ordering::Relaxed)));
}

/// The same of a process that does not know its rank yet. If nobody takes it, the program must go on all the same.
pub(crate) fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "pleach: {what}");
}

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
struct BootstrapInfo {
    job: String,
    token: String,
    host: String,
    /// Where rank 0 can be reached, with the length of the network's prefix.
    addresses: Vec<(IpAddr, u8)>,
}

/// The MPI has just been initialized.
pub(crate) fn open(threads: i32) {
    let mpi = mpi();
    let Some(abi) = MpiAbi::of(mpi) else { return };
    let world = BootstrapChannel { mpi, abi: &abi, communicator: abi.world };
    let Some((rank, size)) = world.place() else { return };
    RANK.store(rank, Ordering::Relaxed);
    if size < 2 {
        return stay_off("there is one rank");
    }
    let wish = MpiConfiguration::of_environment(rank);
    // Everybody says this, also who wants nothing: or the others would wait.
    if let Err(who) = world.all(rank, wish.as_ref().is_ok_and(|wish| wish.use_it)) {
        let why = match &wish {
            Ok(_) => "PLEACH_MPI is off".to_owned(),
            Err(why) => why.clone(),
        };
        if who == Some(rank) && wish.is_err() {
            log(&format!("not used: {why}"));
        }
        return stay_off(&why);
    }
    let Ok(wish) = wish else { return };
    if wish.report.is_some() {
        call_statistics::keep();
    }
    *REPORT.lock().unwrap_or_else(PoisonError::into_inner) = wish.report;
    let met = meet(&world, rank, size, &wish.settings);
    let met =
        met.and_then(|met| communicator_table::create_key(mpi).map(|key| (met, key)).ok_or("no key".to_owned()));
    if let Err(who) = world.all(rank, met.is_ok()) {
        let why = met.err().unwrap_or_else(|| "another rank could not join".to_owned());
        if who == Some(rank) || who.is_none() {
            log(&format!("not used: {why}"));
        }
        return stay_off(&why);
    }
    let Ok((communicator, key)) = met else { return };
    let completion = match wish.only_blocking {
        true => requests::RequestCompletion::Unwanted,
        false => requests::RequestCompletion::of(mpi, &abi, threads),
    };
    let largest = wish.largest;
    let world = Mutex::new(Some(communicator.clone()));
    let job = JOB.get_or_init(|| MpiJob { mpi, abi, rank, size, largest, world, key, completion });
    let is_fit = progress::prepare(job) && packing::is_plain(job);
    if job.words(job.abi.world).all(rank, is_fit).is_err() {
        return stay_off("this MPI packs data, or goes on, in a way of its own");
    }
    communicator_table::enter_world(job, communicator);
    IS_OPEN.store(true, Ordering::Release);
}

fn stay_off(why: &str) {
    *OFF.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    if let Some(job) = JOB.get() {
        job.world.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The MPI is about to be finalized: reports, and leaves.
pub(crate) fn close() {
    let was_open = IS_OPEN.swap(false, Ordering::AcqRel);
    let Some(job) = JOB.get().filter(|_| was_open) else { return report_off() };
    communicator_table::settle_all(job);
    let explanation = configuration::wants_explanation().then(|| OffloadExplanation::of(job)).flatten();
    let world = job.world.lock().unwrap_or_else(PoisonError::into_inner).take();
    report(job, world.as_ref(), explanation);
    requests::close();
    progress::close(job);
    communicator_table::forget_all();
    drop(world);
}

fn report(job: &MpiJob, world: Option<&Communicator>, explanation: Option<OffloadExplanation>) {
    let place = REPORT.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(place) = place else { return };
    let mut numbers = call_statistics::numbers();
    let tail = numbers.len();
    numbers.extend([
        communicator_table::formed(),
        FAILURES.load(Ordering::Relaxed),
        communicator_table::aggregated(),
    ]);
    let packets = world.map(Communicator::packets).unwrap_or_default();
    numbers.extend(PACKETS.map(|(_, count)| count(&packets) as i64));
    let words = job.words(job.abi.world);
    if words.sum(&mut numbers) == Err(BootstrapFailed) || RANK.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut report = OffloadReport::new(&numbers[..tail]);
    (report.communicators, report.failures) = (numbers[tail], numbers[tail + 1]);
    report.aggregated = numbers[tail + 2];
    report.packets = PACKETS.iter().zip(&numbers[tail + 3..]).map(|((name, _), count)| (*name, *count)).collect();
    (report.mpi, report.explanation) = (MpiVersionInfo::of(job), explanation);
    (report.ranks, report.hosts) = (job.size, world.map_or(0, Communicator::hosts));
    report.write(&place);
}

/// Nothing was done; somebody may want to know why.
fn report_off() {
    let why = OFF.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Some(why), Some(place), 0) = (why, configuration::report(), RANK.load(Ordering::Relaxed)) {
        let mut report = OffloadReport::new(&call_statistics::numbers());
        report.off = Some(why);
        report.write(&place);
    }
}

/// Meets the other ranks. Every rank says the same words over the MPI, whatever goes wrong here.
fn meet(world: &BootstrapChannel<'_>, rank: u32, size: u32, settings: &Settings) -> Result<Communicator, String> {
    let unheard = |BootstrapFailed| "the MPI carries no words".to_owned();
    let mut bytes = vec![0; BOOTSTRAP_INFO_BYTES];
    if rank == 0 {
        let written = serde_json::to_vec(&BootstrapInfo::new(settings)).unwrap_or_default();
        let length = written.len().min(BOOTSTRAP_INFO_BYTES);
        bytes[..length].copy_from_slice(&written[..length]);
    }
    world.hear_first(&mut bytes).map_err(unheard)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let invitation: Result<BootstrapInfo, _> = serde_json::from_slice(text);
    let is_here = invitation.as_ref().is_ok_and(|invitation| invitation.host == RankIdentity::host());
    let mut sight = [0_i64; MOST_ADDRESSES + 1];
    sight[MOST_ADDRESSES] = is_here.into();
    for (place, (address, prefix)) in invitation.iter().flat_map(|invitation| &invitation.addresses).enumerate() {
        sight[place] = (is_here || is_near(*address, *prefix)).into();
    }
    world.least(&mut sight).map_err(unheard)?;
    let seen_by_all = sight[..MOST_ADDRESSES].iter().position(|seen| *seen == 1).unwrap_or(0);
    let rendezvous = if sight[MOST_ADDRESSES] == 1 {
        None
    } else {
        let address = invitation.as_ref().ok().and_then(|invitation| invitation.addresses.get(seen_by_all)).copied();
        let mut port = [0; 2];
        if let (0, Some((address, _))) = (rank, address) {
            let listener = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
            port = listener.map_or(0, |address| address.port()).to_be_bytes();
        }
        world.hear_first(&mut port).map_err(unheard)?;
        let (address, _) = address.ok_or("rank 0 has no address for ranks of other hosts (PLEACH_ADDRESSES)")?;
        Some(SocketAddr::new(address, u16::from_be_bytes(port)))
    };
    let BootstrapInfo { job, token, .. } =
        invitation.map_err(|error| format!("what rank 0 says is strange: {error}"))?;
    let standing = RankIdentity { rank, size, job, token, rendezvous };
    pleach::join_as(&standing, settings.clone()).map_err(|error| error.to_string())
}

impl BootstrapInfo {
    fn new(settings: &Settings) -> Self {
        let secret = random_hex();
        let (name, token) = secret.split_at(secret.len() / 2);
        let named = settings.addresses.iter().map(|address| (*address, prefix_of(*address)));
        let mut addresses: Vec<(IpAddr, u8)> = named.collect();
        if addresses.is_empty() {
            addresses = own_addresses().into_iter().filter(|(address, _)| !address.is_loopback()).collect();
        }
        addresses.truncate(MOST_ADDRESSES);
        Self { job: format!("mpi-{name}"), token: token.to_owned(), host: RankIdentity::host(), addresses }
    }
}

/// 256 bits that nobody guesses.
fn random_hex() -> String {
    use std::io::Read;
    let mut bytes = [0; 32];
    if std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).is_err() {
        bytes[..4].copy_from_slice(&std::process::id().to_ne_bytes()); // Strays are kept out, if nobody else.
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// This host's addresses and the lengths of their networks' prefixes, IPv4 first.
fn own_addresses() -> Vec<(IpAddr, u8)> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut addresses: Vec<(IpAddr, u8)> = interfaces
        .filter_map(|interface| {
            let (address, mask) = (interface.address?, interface.netmask?);
            if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
                return Some((IpAddr::V4(address.ip()), mask.ip().to_bits().count_ones() as u8));
            }
            let (address, mask) = (address.as_sockaddr_in6()?, mask.as_sockaddr_in6()?);
            // Those of one link need to be told which.
            let is_of_link = address.ip().is_unicast_link_local();
            (!is_of_link).then(|| (IpAddr::V6(address.ip()), mask.ip().to_bits().count_ones() as u8))
        })
        .collect();
    addresses.sort_by_key(|(address, _)| address.is_ipv6());
    addresses
}

fn prefix_of(address: IpAddr) -> u8 {
    own_addresses().into_iter().find(|(own, _)| *own == address).map_or(32, |(_, prefix)| prefix)
}

/// True if one of this host's networks is the one of that address.
fn is_near(address: IpAddr, prefix: u8) -> bool {
    own_addresses().into_iter().any(|(own, _)| match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            (own.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(prefix)
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => {
            (own.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(prefix)
        }
        _ => false,
    })
}
