//! Start and end of offloading: the bootstrap after `MPI_Init`, the report and the clean-up before `MPI_Finalize`.
//!
//! The ranks bootstrap over the native MPI: rank 0 publishes where to meet, all ranks join, and all report whether they did. Pleach is
//! used only if every rank joined. Each `MPI_COMM_WORLD` bootstraps on its own, so spawned jobs have a Pleach job of their own.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pleach::{Communicator, RankIdentity, Settings};
use serde::{Deserialize, Serialize};

use crate::abi::MpiAbi;
use crate::bootstrap_channel::{BootstrapChannel, BootstrapFailed};
use crate::call_statistics::{self, OffloadReport, OffloadedOperations, PACKETS};
use crate::communicator_table::OffloadedCommunicator;
use crate::completion::RequestCompletion;
use crate::configuration::{self, ChoiceMode, MpiConfiguration, OffloadMode};
use crate::explanation::{MpiVersionInfo, OffloadExplanation};
use crate::local_addresses::{is_on_same_network, local_addresses, prefix_of};
use crate::log::{log, set_rank};
use crate::mpi_job::{self, MpiJob};
use crate::native_mpi::{NativeMpi, invoke, mpi};
use crate::trial_report::TrialReport;
use crate::ulfm;
use crate::ulfm_functions::Ulfm;
use crate::{
    communicator_forming, communicator_table, packing, progress, recovery, recovery_hook, requests, trial_budget,
};

/// The length of the broadcast [`BootstrapInfo`], padded with zeros.
const BOOTSTRAP_INFO_BYTES: usize = 4096;
/// How long ranks wait before they abort a job, so that the one that knows the reason tells it first.
const ABORT_DELAY: Duration = Duration::from_secs(1);
/// Addresses that rank 0 offers.
const MAX_ADDRESSES: usize = 16;

/// Why Pleach is off.
static OFF_REASON: Mutex<Option<String>> = Mutex::new(None);
/// Where to write the report.
static REPORT: Mutex<Option<String>> = Mutex::new(None);

/// What rank 0 publishes.
#[derive(Serialize, Deserialize)]
struct BootstrapInfo {
    job: String,
    token: String,
    host: String,
    /// Addresses of rank 0, with the prefix lengths of their networks.
    addresses: Vec<(IpAddr, u8)>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts offloading after the native MPI was initialized with this thread level.
pub(crate) fn open(thread_level: i32) {
    let mpi = mpi();
    let Some(abi) = MpiAbi::of(mpi) else { return };
    let world = BootstrapChannel { mpi, abi: &abi, communicator: abi.world };
    let Some((rank, size)) = world.rank_and_size() else { return };
    set_rank(rank);
    if size < 2 {
        return stay_off("there is one rank");
    }
    match configure_and_join(mpi, &world, rank, size) {
        Err(reason) => stay_off(&reason),
        Ok((configuration, communicator, key)) => {
            let completion = match configuration.mode {
                OffloadMode::All => RequestCompletion::of(mpi, &abi, thread_level),
                OffloadMode::BlockingOnly | OffloadMode::Off => RequestCompletion::Disabled,
            };
            let choice = agree_on_choice(&world, rank, configuration.choice);
            let (max_bytes, replay_bytes) = (configuration.max_bytes, configuration.replay_bytes);
            let world = Mutex::new(Some(communicator.clone()));
            let (failures, patience) = (communicator.failure_counter(), configuration.recovery_timeout);
            let ulfm = Ulfm::of(mpi, &abi);
            let job = mpi_job::install(MpiJob {
                mpi,
                abi,
                rank,
                size,
                choice,
                max_bytes,
                replay_bytes,
                world,
                key,
                completion,
                failures,
                patience,
                ulfm,
            });
            start(job, communicator);
        }
    }
}

/// Reads the configuration and joins the job; every rank takes part in every agreement, also one that does not want to offload, since
/// the others would block otherwise.
fn configure_and_join(
    mpi: &NativeMpi,
    world: &BootstrapChannel<'_>,
    rank: u32,
    size: u32,
) -> Result<(MpiConfiguration, Communicator, i32), String> {
    let configuration = MpiConfiguration::from_environment(rank, |warning| {
        if rank == 0 {
            log(warning);
        }
    });
    let is_wanted = configuration.as_ref().is_ok_and(|configuration| configuration.mode != OffloadMode::Off);
    let patience = configuration.as_ref().map_or(configuration::JOIN_TIMEOUT, MpiConfiguration::join_timeout);
    let Some(agreed) = world.all_agree_within(rank, is_wanted, patience) else {
        end_without_all_ranks(mpi, patience)
    };
    if let Err(dissenter) = agreed {
        let is_wrong = configuration.is_err();
        let reason = configuration.err().unwrap_or_else(|| "PLEACH_MPI is off".to_owned());
        let tells = dissenter == Some(rank) && is_wrong;
        if is_wrong && configuration::requires_nodes() {
            end_without_nodes(mpi, tells.then_some(&reason));
        }
        if tells {
            log(&format!("Pleach is off for this job: {reason}"));
        }
        return Err(reason);
    }
    let mut configuration = configuration?;
    configuration.settings.progress_callback = Some(progress::progress_mpi);
    if configuration.report.is_some() {
        call_statistics::enable();
    }
    locked(&REPORT).clone_from(&configuration.report);
    let joined = bootstrap(world, rank, size, &configuration.settings).and_then(|communicator| {
        let key = communicator_forming::create_key(mpi);
        key.map(|key| (communicator, key)).ok_or_else(|| "MPI_Comm_create_keyval failed".to_owned())
    });
    if let Err(dissenter) = world.all_agree(rank, joined.is_ok()) {
        let reason = joined.err().unwrap_or_else(|| "another rank could not join".to_owned());
        let tells = dissenter == Some(rank) || dissenter.is_none();
        if configuration::requires_nodes() {
            end_without_nodes(mpi, tells.then_some(&reason));
        }
        if tells {
            log(&format!("Pleach is off for this job: {reason}"));
        }
        return Err(reason);
    }
    let (communicator, key) = joined?;
    Ok((configuration, communicator, key))
}

/// Some ranks did not take part in the first agreement. The others cannot continue: the native MPI would wait for these ranks as well.
fn end_without_all_ranks(mpi: &NativeMpi, patience: Duration) -> ! {
    log(&format!(
        "aborting the job: within {} s after MPI_Init, some ranks did not take part in Pleach's start. Most likely they run without \
         this library: preload it on all ranks (pleach exec does so), or on none",
        patience.as_secs()
    ));
    end_job(mpi)
}

/// The job requires aggregation nodes and has none.
fn end_without_nodes(mpi: &NativeMpi, reason: Option<&String>) -> ! {
    match reason {
        Some(reason) => log(&format!("aborting the job: {reason}")),
        // Another rank has told it, or is about to.
        None => std::thread::sleep(ABORT_DELAY),
    }
    end_job(mpi)
}

fn end_job(mpi: &NativeMpi) -> ! {
    if let (Some(abort), Some(abi)) = (mpi.real.Abort, MpiAbi::of(mpi)) {
        // SAFETY: the world exists until the native MPI is finalized.
        unsafe { invoke!(abort; abi.world, 1_usize) };
    }
    std::process::abort()
}

/// The common choice of all ranks. Their environments may differ, but the ranks must not.
fn agree_on_choice(world: &BootstrapChannel<'_>, rank: u32, own: ChoiceMode) -> ChoiceMode {
    let mut names = [own as i64, -(own as i64)];
    let is_common = world.all_reduce_min(&mut names).is_ok() && names[0] == -names[1];
    if !is_common && rank == 0 {
        log("PLEACH_MPI_CHOICE differs between ranks; Pleach does all calls, as with PLEACH_MPI_CHOICE=pleach");
    }
    if is_common { own } else { ChoiceMode::Pleach }
}

/// Offloads from now on, if all ranks can make the native MPI progress and know its pack format.
fn start(job: &'static MpiJob, communicator: Communicator) {
    let is_supported = progress::prepare(job) && packing::is_plain(job);
    if job.channel(job.abi.world).all_agree(job.rank, is_supported).is_err() {
        return stay_off_or_end(job, "unsupported MPI: unknown pack format, or no way to make it progress");
    }
    let world = OffloadedCommunicator::new(job, communicator, 0);
    let Some(world) = communicator_forming::create_recovery_communicator(job, job.abi.world, world) else {
        return stay_off_or_end(job, "the MPI cannot create another communicator");
    };
    communicator_table::insert_world(job, world);
    mpi_job::set_open();
    recovery_hook::register(job);
}

/// After the job was joined. A job that requires nodes does not continue without Pleach.
fn stay_off_or_end(job: &MpiJob, reason: &str) {
    job.take_world();
    if configuration::requires_nodes() {
        end_without_nodes(job.mpi, (job.rank == 0).then_some(&reason.to_owned()));
    }
    stay_off(reason);
}

fn stay_off(reason: &str) {
    *locked(&OFF_REASON) = Some(reason.to_owned());
}

/// Ends offloading before the native MPI is finalized: writes the report and leaves the job.
pub(crate) fn close() {
    let Some(job) = mpi_job::set_closed() else { return report_off() };
    recovery::settle_all(job);
    let explanation = configuration::wants_explanation().then(|| OffloadExplanation::of(job)).flatten();
    let world = job.take_world();
    report(job, world.as_ref(), explanation);
    requests::close();
    progress::close(job);
    communicator_table::clear();
    drop(world);
}

fn report(job: &MpiJob, world: Option<&Communicator>, explanation: Option<OffloadExplanation>) {
    let Some(target) = locked(&REPORT).take() else { return };
    let mut numbers = call_statistics::numbers();
    let tail = numbers.len();
    let [formed, failed] = [communicator_table::formed(), recovery::failed_communicators()];
    numbers.extend([formed, failed]);
    numbers.extend(communicator_table::operations());
    let trials = numbers.len();
    numbers.extend(trial_budget::numbers());
    let counted = numbers.len();
    let packets = world.map(Communicator::packets).unwrap_or_default();
    numbers.extend(PACKETS.map(|(_, count)| count(&packets) as i64));
    let choices = numbers.len();
    numbers.extend(communicator_table::choices());
    let Some(survivors) = ulfm::survivors(job) else { return };
    let is_first = survivors.rank_and_size().is_some_and(|(rank, _)| rank == 0);
    if survivors.all_reduce_sum(&mut numbers) == Err(BootstrapFailed) || !is_first {
        return;
    }
    let mut report = OffloadReport::new(&numbers[..tail]);
    (report.communicators, report.failures) = (numbers[tail], numbers[tail + 1]);
    report.operations = OffloadedOperations::new(&numbers[tail + 2..trials]);
    report.trials = TrialReport::new(job.choice, &numbers[trials..counted], &numbers[choices..]);
    report.packets = PACKETS.iter().zip(&numbers[counted..]).map(|((name, _), count)| (*name, *count)).collect();
    (report.mpi, report.explanation) = (MpiVersionInfo::of(job), explanation);
    (report.ranks, report.hosts) = (job.size, world.map_or(0, Communicator::hosts));
    report.write(&target);
}

/// Reports why nothing was offloaded, if a report is wanted.
fn report_off() {
    let reason = locked(&OFF_REASON).take();
    if let (Some(reason), Some(target), true) = (reason, configuration::report(), crate::log::is_rank_zero()) {
        let mut report = OffloadReport::new(&call_statistics::numbers());
        report.off = Some(reason);
        report.write(&target);
    }
}

/// Joins the Pleach job. Every rank makes the same calls of the native MPI, whatever fails here.
fn bootstrap(
    world: &BootstrapChannel<'_>,
    rank: u32,
    size: u32,
    settings: &Settings,
) -> Result<Communicator, String> {
    let failed = |call: &'static str| move |BootstrapFailed| format!("{call} failed during start-up");
    let mut bytes = vec![0; BOOTSTRAP_INFO_BYTES];
    let own = if rank == 0 { BootstrapInfo::serialized(settings) } else { Ok(Vec::new()) };
    if let Ok(written) = &own {
        let length = written.len().min(BOOTSTRAP_INFO_BYTES);
        bytes[..length].copy_from_slice(&written[..length]);
    }
    world.broadcast(&mut bytes).map_err(failed("MPI_Bcast"))?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let info: Result<BootstrapInfo, _> = serde_json::from_slice(text);
    let is_same_host = info.as_ref().is_ok_and(|info| info.host == RankIdentity::host());
    // For each address whether all ranks are on its network; last, whether all ranks are on rank 0's host.
    let mut reachable = [0_i64; MAX_ADDRESSES + 1];
    reachable[MAX_ADDRESSES] = is_same_host.into();
    for (index, (address, prefix)) in info.iter().flat_map(|info| &info.addresses).enumerate().take(MAX_ADDRESSES) {
        reachable[index] = (is_same_host || is_on_same_network(*address, *prefix)).into();
    }
    world.all_reduce_min(&mut reachable).map_err(failed("MPI_Allreduce"))?;
    let rendezvous = if reachable[MAX_ADDRESSES] == 1 {
        None
    } else {
        let common = reachable[..MAX_ADDRESSES].iter().position(|seen| *seen == 1).unwrap_or(0);
        let address = info.as_ref().ok().and_then(|info| info.addresses.get(common)).map(|(address, _)| *address);
        let mut port = [0; 2];
        if let (0, Some(address)) = (rank, address) {
            port = free_port(address).to_be_bytes();
        }
        world.broadcast(&mut port).map_err(failed("MPI_Bcast"))?;
        let address = address.ok_or("rank 0 has no address that other hosts reach; set PLEACH_ADDRESSES")?;
        Some(SocketAddr::new(address, u16::from_be_bytes(port)))
    };
    own?;
    let malformed = |error| format!("malformed bootstrap message from rank 0 ({} bytes): {error}", text.len());
    let BootstrapInfo { job, token, .. } = info.map_err(malformed)?;
    let identity = RankIdentity { rank, size, job, token, rendezvous };
    pleach::join_as(&identity, settings.clone()).map_err(|error| error.to_string())
}

/// A TCP port that is free now; 0 if there is none.
fn free_port(address: IpAddr) -> u16 {
    let listener = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    listener.map_or(0, |address| address.port())
}

impl BootstrapInfo {
    /// For a new job with rank 0 here.
    fn serialized(settings: &Settings) -> Result<Vec<u8>, String> {
        let secret = random_hex()?;
        let (name, token) = secret.split_at(secret.len() / 2);
        let named = settings.addresses.iter().map(|address| (*address, prefix_of(*address)));
        let mut addresses: Vec<(IpAddr, u8)> = named.collect();
        if addresses.is_empty() {
            addresses = local_addresses().into_iter().filter(|(address, _)| !address.is_loopback()).collect();
        }
        addresses.truncate(MAX_ADDRESSES);
        let info =
            Self { job: format!("mpi-{name}"), token: token.to_owned(), host: RankIdentity::host(), addresses };
        serde_json::to_vec(&info).map_err(|error| error.to_string())
    }
}

/// 256 random bits.
fn random_hex() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot get random bits from the kernel: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
