//! What the user may say, in `PLEACH_…` variables or in code.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use bootstrap::{JobEnvironment, RendezvousPoint};
use protocol::collective::{MethodPreferences, MethodPreferencesError};
use transport::udp::FaultInjector;

use crate::JoinError;

/// Names what the user wants of algorithms.
const ALGORITHM: &str = "PLEACH_ALGORITHM";

/// How this process takes part.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Addresses of this host for packets, one per path (`PLEACH_ADDRESSES`, with commas). None: the one by which the first
    /// rank is reached.
    pub addresses: Vec<IpAddr>,
    /// Where the manager of aggregation nodes listens (`PLEACH_MANAGER`). None: hosts do everything among themselves.
    pub manager: Option<String>,
    /// Faults to inject into what this process sends (`PLEACH_FAULTS`, a file).
    pub faults: FaultInjector,
    /// The name by which the manager knows this host (`PLEACH_HOST`). None: the host's own.
    pub host: Option<String>,
    /// How long all ranks may take to come (`PLEACH_PATIENCE`, seconds).
    pub patience: Option<Duration>,
    /// How many ranks of one host combine in shared memory (`PLEACH_SHARED_MEMORY`: on, off, or at most so many together).
    pub shared_memory: SharedMemoryRanks,
    /// How results come down from aggregation nodes (`PLEACH_RESULTS`: automatic, connections, multicast or both).
    pub results: ResultDeliveryMode,
    /// How operations go between hosts where not as suits them best (`PLEACH_ALGORITHM`, such as `hbcast` or
    /// `barrier=hgsync,allreduce=ring`). What the first rank says counts for all.
    pub algorithms: MethodPreferences,
    /// What a thread that waits long in an operation calls now and then. A library whose own progress is made by the threads
    /// that call it gives this, so that it does not stand still meanwhile. It may not use the communicator that waits.
    pub companion: Option<fn()>,
}

/// How results come down from aggregation nodes (SH-13).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ResultDeliveryMode {
    /// By multicast if a trial shows that every host hears it, otherwise over connections.
    #[default]
    Automatic,
    /// Over each member's reliable connection.
    Connections,
    /// In one packet that the network copies; whoever misses it asks for it.
    Multicast,
    /// Both: the multicast for speed, the connections for certainty.
    Both,
}

/// How many ranks of one host combine in shared memory, with one of them to speak for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SharedMemoryRanks {
    /// All of them.
    #[default]
    All,
    /// At most so many: one team per socket, say (SH-2). One: each counts as a host of its own.
    AtMost(u16),
}

impl Settings {
    /// From the environment.
    ///
    /// # Errors
    /// If a variable says nothing that makes sense.
    pub fn from_environment() -> Result<Self, JoinError> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let mut settings = Self { manager: get("PLEACH_MANAGER"), host: get("PLEACH_HOST"), ..Self::default() };
        if let Some(list) = get("PLEACH_ADDRESSES") {
            let parsed = list.split(',').map(|word| word.trim().parse());
            settings.addresses = parsed.collect::<Result<_, _>>().map_err(|_| JoinError::Setting {
                name: "PLEACH_ADDRESSES",
                what: format!("{list:?} is no list of addresses such as 10.0.0.1,10.1.0.1"),
            })?;
        }
        if let Some(path) = get("PLEACH_FAULTS") {
            settings.faults = faults_from(&path)?;
        }
        if let Some(seconds) = get("PLEACH_PATIENCE") {
            let parsed = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            settings.patience = Some(parsed.ok_or_else(|| JoinError::Setting {
                name: "PLEACH_PATIENCE",
                what: format!("{seconds:?} is no number of seconds"),
            })?);
        }
        if let Some(text) = get(ALGORITHM) {
            let wrong =
                |error: MethodPreferencesError| JoinError::Setting { name: ALGORITHM, what: error.to_string() };
            settings.algorithms = text.parse().map_err(wrong)?;
        }
        settings.results = match get("PLEACH_RESULTS").as_deref() {
            None | Some("automatic") => ResultDeliveryMode::Automatic,
            Some("connections") => ResultDeliveryMode::Connections,
            Some("multicast") => ResultDeliveryMode::Multicast,
            Some("both") => ResultDeliveryMode::Both,
            Some(other) => {
                let what = format!("{other:?} is neither automatic, connections, multicast nor both");
                return Err(JoinError::Setting { name: "PLEACH_RESULTS", what });
            }
        };
        settings.shared_memory = match get("PLEACH_SHARED_MEMORY").as_deref() {
            None | Some("on") => SharedMemoryRanks::All,
            Some("off") => SharedMemoryRanks::AtMost(1),
            Some(other) => match other.parse() {
                Ok(most @ 1..) => SharedMemoryRanks::AtMost(most),
                _ => {
                    let what = format!("{other:?} is neither on, off nor a number of ranks");
                    return Err(JoinError::Setting { name: "PLEACH_SHARED_MEMORY", what });
                }
            },
        };
        Ok(settings)
    }

    /// The addresses at which this process takes packets; ports are the kernel's choice.
    pub(crate) fn sockets(&self, place: &JobEnvironment) -> Vec<SocketAddr> {
        let own = match (&self.addresses[..], &place.meeting) {
            ([], RendezvousPoint::Address { host, port }) => vec![towards(host, *port)],
            ([], RendezvousPoint::Alone | RendezvousPoint::Notice) => vec![Ipv4Addr::LOCALHOST.into()],
            (addresses, _) => addresses.to_vec(),
        };
        own.into_iter().map(|address| SocketAddr::new(address, 0)).collect()
    }
}

fn faults_from(path: &str) -> Result<FaultInjector, JoinError> {
    let wrong = |what: String| JoinError::Setting { name: "PLEACH_FAULTS", what };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("{path}: {error}")))?;
    let plan = faults::FaultPlan::parse(&text).map_err(|error| wrong(format!("{path}: {error}")))?;
    FaultInjector::from_plan(&plan, u64::from(std::process::id())).map_err(|error| wrong(format!("{path}: {error}")))
}

/// The address of this host by which another is reached. No packet is sent for it.
fn towards(host: &str, port: u16) -> IpAddr {
    let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next()).and_then(|remote| {
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(remote).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    found.unwrap_or(Ipv4Addr::LOCALHOST.into())
}
