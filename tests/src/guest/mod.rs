//! A verbs peer for interoperability tests: a small virtual machine with Linux soft-RoCE.
//!
//! The kernel's RoCEv2 (`rdma_rxe`) is an independent implementation in wide use: a packet that it drops is a defect of
//! ours. It needs no hardware, but a kernel with its module, which the machine under test may not have. A [`Guest`]
//! therefore boots Debian's kernel and verbs tools, unpacked into cargo's target directory, under emulation. A guest is slow
//! (some hundred microseconds per packet): it checks bytes, not speed.
//!
//! ```no_run
//! use std::time::Duration;
//! use tests::guest::{Guest, Pingpong};
//!
//! let guest = Guest::boot()?;
//! let pingpong = Pingpong::default();
//! let server = guest.spawn(&pingpong.server(guest.gid_index()), Duration::from_secs(60))?;
//! guest.wait_listening(Duration::from_secs(10))?;
//! let client = guest.network().command("pleach"); // … and the guest's address: guest.address()
//! println!("{}", server.wait()?);
//! # Ok::<(), tests::guest::GuestError>(())
//! ```
//!
//! What the peer of the guest's `ibv_rc_pingpong` must send, byte by byte: [`pingpong`].
//!
//! # Prerequisites
//! An x86-64 machine with `apt-get` and `dpkg-deb` that reaches a Debian mirror (only the first time: 100 MB, half a
//! minute), `ip`, and root for the network namespace. Nothing is installed; the emulator also comes from the mirror
//! unless one is installed. All files are kept in `guest/` of the target directory (250 MB); delete that folder to get
//! newer packages.
//!
//! # Clean-up
//! Dropping a [`Guest`] ends its emulator; dropping the last reference to a [`GuestNetwork`] deletes the namespace. If
//! the test process is killed, the control port closes and the guest powers off; the next process that creates a
//! namespace deletes the stale one. Every wait has a limit.
//!
//! # Pitfalls
//! - The ICRC covers the IPv4 identification and flags. An unconnected UDP socket with `IP_PMTUDISC_DO` sends
//!   identification 0 and don't-fragment; a connected one counts up, and so does segmentation offload within a batch.
//! - Soft-RoCE neither counts nor reports a bad ICRC. The difference shows it: [`Guest::packet_counts`] counts all
//!   packets that arrive, the device's counter `rcvd_pkts` ([`Guest::counters`]) only those with a good ICRC.
//! - Two programs in one guest put nothing on the wire: no IP header, no filter, no capture. Two guests do.
//! - On a loaded machine the emulated guest is late: it retries after its 67 ms without any loss.
//! - A packet socket captures each packet of a guest twice, on the tap device and on the bridge.

mod archive;
mod cache;
mod console;
mod control;
mod emulator;
mod error;
mod fault_rule;
mod image;
mod kernel;
mod modules;
mod network;
mod packages;
pub mod pingpong;
mod process;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::control::{Exit, Output};
pub use self::error::GuestError;
pub use self::fault_rule::{Direction, FaultRule, PacketCount, PacketCounts, PacketFault};
pub use self::network::{GuestNetwork, HOST_ADDRESS};
pub use self::pingpong::{HANDSHAKE_PORT, PayloadCheck, Pingpong, PingpongResult};
pub use self::process::run_bounded;

use self::cache::Cache;
use self::console::Console;
use self::control::{CommandNumber, Control, ControlError};
use self::emulator::Emulator;
use self::image::Image;
use self::network::{GuestPort, LINK_MTU_BYTES, PREFIX_BITS};
use self::packages::Apt;

/// Booting takes six seconds on an idle machine; tests load the machine.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// How long the guest may take to report the end of a command, beyond the command's own limit.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// Limit of the short commands of this module.
const SMALL_LIMIT: Duration = Duration::from_secs(10);

const MEMORY_MEGABYTES: u32 = 256;

/// A running virtual machine with a soft-RoCE device; dropping it ends it.
pub struct Guest {
    emulator: Child,
    control: Control,
    console: Console,
    network: Arc<GuestNetwork>,
    address: Ipv4Addr,
    gid_index: u16,
    boot_time: Duration,
}

/// A command that runs in a guest.
pub struct GuestCommand<'guest> {
    guest: &'guest Guest,
    number: CommandNumber,
    command: String,
    deadline: Instant,
}

impl Guest {
    /// Boots a guest in its own network; the first call on a machine also builds the image.
    ///
    /// # Errors
    /// The machine lacks a prerequisite, or the guest did not boot.
    pub fn boot() -> Result<Self, GuestError> {
        Self::boot_in(&Arc::new(GuestNetwork::create()?))
    }

    /// Boots another guest in a network.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_in(network: &Arc<GuestNetwork>) -> Result<Self, GuestError> {
        let (emulator, image) = prepare()?;
        let port = network.add_port()?;
        let start = Instant::now();
        let mut emulator = start_emulator(&emulator, &image, network, &port)?;
        let console = Console::start(emulator.stderr.take().expect("its standard error is a pipe"));
        let control = Control::start(
            emulator.stdin.take().expect("its standard input is a pipe"),
            emulator.stdout.take().expect("its standard output is a pipe"),
        );
        let network = Arc::clone(network);
        // From here on, dropping the guest ends the emulator.
        let mut guest = Self {
            emulator,
            control,
            console,
            network,
            address: port.address,
            gid_index: 0,
            boot_time: start.elapsed(),
        };
        let ready = guest.control.wait_ready(BOOT_LIMIT);
        guest.gid_index = ready.map_err(|error| guest.error("come up", &error))?;
        guest.boot_time = start.elapsed();
        Ok(guest)
    }

    /// Runs a command, one line for the guest's shell, that may take `limit`.
    ///
    /// # Errors
    /// The guest ended or does not answer. A command that fails is no error: see its [`Output`].
    pub fn run(&self, command: &str, limit: Duration) -> Result<Output, GuestError> {
        self.spawn(command, limit)?.wait()
    }

    /// Starts a command, one line for the guest's shell; the guest ends it after `limit`.
    ///
    /// # Errors
    /// The guest ended.
    pub fn spawn(&self, command: &str, limit: Duration) -> Result<GuestCommand<'_>, GuestError> {
        let started = self.control.start_command(command, limit);
        let number = started.map_err(|_| self.error(&format!("start `{command}`"), &ControlError::Closed))?;
        Ok(GuestCommand { guest: self, number, command: command.to_owned(), deadline: Instant::now() + limit })
    }

    /// Waits until a program in the guest listens on the port of the ping-pong's handshake.
    ///
    /// # Errors
    /// No program listens in time.
    pub fn wait_listening(&self, limit: Duration) -> Result<(), GuestError> {
        let command = format!("until netstat -ltn | grep -q ':{HANDSHAKE_PORT} '; do sleep 0.05; done");
        self.run_successfully(&command, limit).map(drop)
    }

    /// The counters of the soft-RoCE device, by name.
    ///
    /// # Errors
    /// The guest ended or does not answer.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, GuestError> {
        // `lifespan` is a setting in the same folder.
        let command = "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . * | grep -v lifespan";
        let text = self.run_successfully(command, SMALL_LIMIT)?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.filter_map(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?))).collect())
    }

    /// Replaces the fault rules for RoCE packets and sets all packet counts to zero.
    ///
    /// # Errors
    /// The guest ended or does not answer.
    pub fn set_fault_rules(&self, rules: &[FaultRule]) -> Result<(), GuestError> {
        self.run_successfully(&fault_rule::command(rules), SMALL_LIMIT).map(drop)
    }

    /// The numbers of RoCE packets in both directions since the last [`Guest::set_fault_rules`].
    ///
    /// # Errors
    /// The guest ended or does not answer, or [`Guest::set_fault_rules`] was never called (an empty list will do).
    pub fn packet_counts(&self) -> Result<PacketCounts, GuestError> {
        Ok(fault_rule::read_counts(&self.run_successfully(fault_rule::COUNT_COMMAND, SMALL_LIMIT)?))
    }

    /// The guest's address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The index of the guest's RoCEv2 address over IPv4, for `-g` of the verbs examples.
    #[must_use]
    pub fn gid_index(&self) -> u16 {
        self.gid_index
    }

    /// The guest's network; programs of this machine that communicate with the guest run in it.
    #[must_use]
    pub fn network(&self) -> &Arc<GuestNetwork> {
        &self.network
    }

    /// The time from power-on until the guest reported that it is ready.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// The console output of guest and emulator so far.
    #[must_use]
    pub fn console(&self) -> String {
        self.console.text()
    }

    /// Runs a command that must succeed, and returns its standard output.
    fn run_successfully(&self, command: &str, limit: Duration) -> Result<String, GuestError> {
        let output = self.run(command, limit)?;
        if output.is_success() {
            return Ok(output.stdout);
        }
        Err(GuestError::GuestCommand { command: command.to_owned(), output: output.to_string() })
    }

    fn error(&self, expected: &str, error: &ControlError) -> GuestError {
        let expected = match error {
            ControlError::TimedOut => format!("{expected} in time"),
            ControlError::Closed => format!("{expected}: it has ended"),
        };
        GuestError::Guest { expected, console: self.console() }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

impl GuestCommand<'_> {
    /// Waits for the end of the command; at its limit the guest ends it.
    ///
    /// # Errors
    /// The guest ended or does not answer.
    pub fn wait(self) -> Result<Output, GuestError> {
        let limit = self.deadline.saturating_duration_since(Instant::now()) + ANSWER_LIMIT;
        let output = self.guest.control.wait_command(self.number, limit);
        output.map_err(|error| self.guest.error(&format!("finish `{}`", self.command), &error))
    }

    /// Ends the command and all processes that it started, and waits for that.
    ///
    /// # Errors
    /// The guest ended or does not answer.
    pub fn kill(self) -> Result<Output, GuestError> {
        let sent = self.guest.control.kill_command(self.number);
        sent.map_err(|_| self.guest.error(&format!("end `{}`", self.command), &ControlError::Closed))?;
        self.wait()
    }
}

/// The emulator and the guest's image, from the cache or new.
fn prepare() -> Result<(Emulator, Image), GuestError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(GuestError::Missing("an x86-64 machine".to_owned()));
    }
    let cache = Cache::open()?;
    let mut apt = None;
    let emulator = Emulator::prepare(&cache, &mut apt)?;
    let image = Image::prepare(&cache, &mut apt)?;
    if apt.is_some() {
        Apt::remove_lists(&cache)?;
    }
    Ok((emulator, image))
}

fn start_emulator(
    emulator: &Emulator,
    image: &Image,
    network: &GuestNetwork,
    port: &GuestPort,
) -> Result<Child, GuestError> {
    let GuestPort { tap, address, mac_address } = port;
    let gid = address.to_ipv6_mapped().segments().map(|segment| format!("{segment:04x}")).join(":");
    // Without mitigations and address randomisation the emulated kernel boots faster; after a panic it ends at once.
    let parameters = format!(
        "console=ttyS0 panic=-1 mitigations=off nokaslr \
         guest_address={address} guest_prefix={PREFIX_BITS} guest_gid={gid} guest_mtu={LINK_MTU_BYTES}"
    );
    let mut command = network.command("env");
    command.args(emulator.env_arguments());
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-smp", "1"]);
    command.args(["-m", &MEMORY_MEGABYTES.to_string()]);
    // The control port is connected to pipes of this process: when it ends, they close, and the guest powers off.
    command.args(["-chardev", "stdio,id=control,signal=off", "-device", "virtio-serial-pci"]);
    command.args(["-device", "virtserialport,chardev=control,name=control"]);
    command.args(["-chardev", "file,id=console,path=/dev/stderr", "-serial", "chardev:console"]);
    command.args(["-netdev", &format!("tap,id=network,ifname={tap},script=no,downscript=no")]);
    // No ROM: the guest does not boot from the network, and the ROM is in another package.
    command.args(["-device", &format!("virtio-net-pci,netdev=network,mac={mac_address},romfile=")]);
    command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.file_system);
    command.args([OsString::from("-append"), OsString::from(parameters)]);
    spawn(&mut command)
}

fn spawn(command: &mut Command) -> Result<Child, GuestError> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    spawned.map_err(|source| GuestError::io("starting the emulator", source))
}
