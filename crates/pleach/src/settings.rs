//! Settings of a process, from `PLEACH_…` variables or from code.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use bootstrap::{JobEnvironment, RendezvousPoint};
use protocol::collective::{MethodPreferences, MethodPreferencesError};
use transport::SecurityMode;
use transport::udp::{FaultInjector, local_address_towards};

use crate::environment::variable;
use crate::error::JoinError;
use crate::network_costs::{NETWORK_COSTS, NetworkCosts};

const ADDRESSES: &str = "PLEACH_ADDRESSES";
const ALGORITHM: &str = "PLEACH_ALGORITHM";
const FAULTS: &str = "PLEACH_FAULTS";
const MANAGER_REQUIRED: &str = "PLEACH_MANAGER_REQUIRED";
const JOIN_TIMEOUT: &str = "PLEACH_PATIENCE";
const NODES_SUPERVISED: &str = "PLEACH_NODES_SUPERVISED";
const RESULTS: &str = "PLEACH_RESULTS";
const SHARED_MEMORY: &str = "PLEACH_SHARED_MEMORY";

/// Settings of a process.
///
/// ```
/// use std::time::Duration;
///
/// use pleach::{SecurityMode, Settings};
///
/// // What the user sets in the environment, but with encrypted packets, and an error soon if a rank does not come.
/// let settings = Settings {
///     security: Some(SecurityMode::Encrypt),
///     join_timeout: Some(Duration::from_secs(10)),
///     ..Settings::from_environment()?
/// };
/// let world = pleach::join_with(settings)?;
/// world.barrier()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Addresses of this host for packets, one per path (`PLEACH_ADDRESSES`, separated by commas). Default: the address from
    /// which rank 0 is reached.
    pub addresses: Vec<IpAddr>,
    /// The manager of aggregation nodes (`PLEACH_MANAGER`). Without one, hosts do everything among themselves.
    pub manager: Option<String>,
    /// A job on several hosts that gets no aggregation nodes does not start (`PLEACH_MANAGER_REQUIRED`: 0 or 1). Rank 0's setting holds for
    /// all ranks.
    pub manager_required: bool,
    /// What started the nodes reports one that ends, so rank 0 does not (`PLEACH_NODES_SUPERVISED`: 0 or 1). `pleach launch --nodes` and
    /// `pleach exec --nodes` set it.
    pub nodes_supervised: bool,
    /// Faults to inject into packets that this process sends (`PLEACH_FAULTS`, a file).
    pub faults: FaultInjector,
    /// The name of this host at the manager (`PLEACH_HOST`). Default: the host's own.
    pub host: Option<String>,
    /// How long to wait until all ranks have joined (`PLEACH_PATIENCE`, seconds).
    pub join_timeout: Option<Duration>,
    /// How many ranks of one host combine in shared memory (`PLEACH_SHARED_MEMORY`: `on`, `off`, or a maximum).
    pub shared_memory: SharedMemoryRanks,
    /// How aggregation nodes deliver results (`PLEACH_RESULTS`: `automatic`, `connections`, `multicast` or `both`).
    pub result_delivery: ResultDeliveryMode,
    /// How packets between hosts are protected (`PLEACH_SECURITY`: `off`, `authenticate` or `encrypt`). Default: `authenticate`, or `off` if
    /// all ranks have loopback addresses alone. All ranks need the same.
    pub security: Option<SecurityMode>,
    /// Methods between hosts to use instead of the fastest (`PLEACH_ALGORITHM`, such as `hbcast` or
    /// `barrier=hgsync,allreduce=ring`). Rank 0's setting holds for all ranks.
    pub algorithms: MethodPreferences,
    /// What the network costs, for the choice of algorithms (`PLEACH_NETWORK_COSTS`, a file; default: the one that `pleach tune --network`
    /// has left in the user's cache, if any). Rank 0's setting holds for all ranks.
    pub network_costs: Option<NetworkCosts>,
    /// A function that a thread calls from time to time while it waits long in an operation. For libraries whose own progress
    /// depends on the threads that call them. It must not use the communicator that waits.
    pub progress_callback: Option<fn()>,
}

/// How aggregation nodes deliver results (SH-13).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ResultDeliveryMode {
    /// By multicast if a trial shows that it reaches every host, otherwise over connections.
    #[default]
    Automatic,
    /// Over each member's reliable connection.
    Connections,
    /// In one packet that the network copies; a member that misses it requests it.
    Multicast,
    /// Both: the multicast for speed, the connections for certainty.
    Both,
}

/// How many ranks of one host combine in shared memory, with one of them as leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SharedMemoryRanks {
    /// All of them.
    #[default]
    All,
    /// At most so many, such as one team per socket (SH-2). With 1, each rank counts as a host of its own.
    AtMost(u16),
}

impl Settings {
    /// Settings from the environment.
    ///
    /// # Errors
    /// If a variable has an invalid value.
    pub fn from_environment() -> Result<Self, JoinError> {
        let settings = Self {
            addresses: variable(ADDRESSES).map_or(Ok(Vec::new()), |list| parse_addresses(&list))?,
            manager: variable("PLEACH_MANAGER"),
            manager_required: parse_flag(MANAGER_REQUIRED)?,
            nodes_supervised: parse_flag(NODES_SUPERVISED)?,
            faults: variable(FAULTS).map_or(Ok(FaultInjector::default()), |path| read_faults(&path))?,
            host: variable("PLEACH_HOST"),
            join_timeout: variable(JOIN_TIMEOUT).map(|text| parse_seconds(&text)).transpose()?,
            shared_memory: parse_shared_memory(variable(SHARED_MEMORY).as_deref())?,
            result_delivery: parse_results(variable(RESULTS).as_deref())?,
            security: SecurityMode::from_environment()
                .map_err(|error| invalid(SecurityMode::VARIABLE, error.to_string()))?,
            algorithms: variable(ALGORITHM)
                .map_or(Ok(MethodPreferences::default()), |text| parse_algorithms(&text))?,
            network_costs: NetworkCosts::for_jobs(variable(NETWORK_COSTS).as_deref())?,
            progress_callback: None,
        };
        Ok(settings)
    }

    /// The local addresses for packets; the kernel chooses the ports.
    pub(crate) fn sockets(&self, place: &JobEnvironment) -> Vec<SocketAddr> {
        let own = match (&self.addresses[..], &place.rendezvous) {
            ([], RendezvousPoint::Address { host, port }) => vec![local_address_for(host, *port)],
            ([], RendezvousPoint::Singleton | RendezvousPoint::File) => vec![Ipv4Addr::LOCALHOST.into()],
            (addresses, _) => addresses.to_vec(),
        };
        own.into_iter().map(|address| SocketAddr::new(address, 0)).collect()
    }
}

fn invalid(name: &'static str, what: String) -> JoinError {
    JoinError::InvalidSetting { name, what }
}

fn parse_addresses(list: &str) -> Result<Vec<IpAddr>, JoinError> {
    let parsed: Result<Vec<IpAddr>, _> = list.split(',').map(|word| word.trim().parse()).collect();
    parsed.map_err(|_| invalid(ADDRESSES, format!("{list:?} is not a list of addresses such as 10.0.0.1,10.1.0.1")))
}

fn parse_flag(name: &'static str) -> Result<bool, JoinError> {
    match variable(name).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(invalid(name, format!("{other:?} is neither 0 nor 1"))),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, JoinError> {
    let parsed = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    parsed.ok_or_else(|| invalid(JOIN_TIMEOUT, format!("{text:?} is not a number of seconds")))
}

fn parse_algorithms(text: &str) -> Result<MethodPreferences, JoinError> {
    text.parse().map_err(|error: MethodPreferencesError| invalid(ALGORITHM, error.to_string()))
}

fn parse_results(text: Option<&str>) -> Result<ResultDeliveryMode, JoinError> {
    match text {
        None | Some("automatic") => Ok(ResultDeliveryMode::Automatic),
        Some("connections") => Ok(ResultDeliveryMode::Connections),
        Some("multicast") => Ok(ResultDeliveryMode::Multicast),
        Some("both") => Ok(ResultDeliveryMode::Both),
        Some(other) => {
            Err(invalid(RESULTS, format!("{other:?} is not one of automatic, connections, multicast and both")))
        }
    }
}

fn parse_shared_memory(text: Option<&str>) -> Result<SharedMemoryRanks, JoinError> {
    match text {
        None | Some("on") => Ok(SharedMemoryRanks::All),
        Some("off") => Ok(SharedMemoryRanks::AtMost(1)),
        Some(other) => match other.parse() {
            Ok(max_ranks @ 1..) => Ok(SharedMemoryRanks::AtMost(max_ranks)),
            _ => Err(invalid(SHARED_MEMORY, format!("{other:?} is not on, off or a number of ranks"))),
        },
    }
}

fn read_faults(path: &str) -> Result<FaultInjector, JoinError> {
    let compile = |plan: &_| FaultInjector::from_plan(plan, u64::from(std::process::id()));
    faults::read_plan(path, compile).map_err(|error| invalid(FAULTS, error.to_string()))
}

/// The address of this host from which a named host is reached; loopback if there is none.
fn local_address_for(host: &str, port: u16) -> IpAddr {
    let remote = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    remote.and_then(|remote| local_address_towards(remote).ok()).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_and_wrong_ones_name_the_variable() {
        assert_eq!(parse_shared_memory(Some("off")).ok(), Some(SharedMemoryRanks::AtMost(1)));
        assert_eq!(parse_shared_memory(Some("4")).ok(), Some(SharedMemoryRanks::AtMost(4)));
        assert_eq!(parse_results(None).ok(), Some(ResultDeliveryMode::Automatic));
        assert_eq!(parse_seconds("0.5").ok(), Some(Duration::from_millis(500)));
        let errors = [
            parse_shared_memory(Some("0")).expect_err("no ranks").to_string(),
            parse_results(Some("fast")).expect_err("unknown").to_string(),
            parse_seconds("-1").expect_err("negative").to_string(),
            parse_addresses("10.0.0.1,here").expect_err("no address").to_string(),
        ];
        for (error, name) in errors.iter().zip([SHARED_MEMORY, RESULTS, JOIN_TIMEOUT, ADDRESSES]) {
            assert!(error.starts_with(name), "{error}");
        }
    }
}
