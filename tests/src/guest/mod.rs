//! A verbs peer for interoperability tests: a small virtual machine with Linux soft-RoCE.
//!
//! The kernel's RoCEv2 (`rdma_rxe`) was written by others and is used by others: what it accepts is right, what it
//! drops was wrong. It needs no hardware, but a kernel with its module, which the machine under our tests may not
//! have. So a [`Guest`] brings its own: Debian's kernel and verbs tools, unpacked into cargo's target directory and
//! booted under emulation. A guest takes its time (some hundred microseconds a packet): it judges bytes, not speed.
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
//! # What it needs
//! An x86-64 machine with `apt-get` and `dpkg-deb` that reaches a Debian mirror (the first time only: 100 MB, half a
//! minute), `ip`, and root for the network namespace. Nothing is installed; the emulator comes from the mirror too,
//! unless there is one. All is kept in `guest/` of the target directory (250 MB); delete that folder to get newer
//! packages.
//!
//! # What ends when
//! Dropping a [`Guest`] ends its emulator; dropping the last holder of a [`Network`] deletes the namespace. If our
//! process is killed, the control port closes and the guest turns itself off; the namespace is deleted by the next
//! process that makes one. Every wait has a limit.
//!
//! # Traps
//! - The ICRC covers the IPv4 identification and flags. An unconnected UDP socket with `IP_PMTUDISC_DO` sends
//!   identification 0 and don't-fragment; a connected one counts, and so does segmentation offload within a batch.
//! - Soft-RoCE neither counts nor reports a bad ICRC. Proof is a difference: [`Guest::packet_counts`] sees all
//!   packets that arrive, the device's counter `rcvd_pkts` ([`Guest::counters`]) only those with a good one.
//! - Two programs of one guest put nothing on the wire: no IP header, no filter, no capture. Two guests do.
//! - A loaded machine makes an emulated one late: retries after its 67 ms happen without any loss.
//! - A packet socket sees each packet from a guest twice, on the tap device and on the bridge.

mod archive;
mod cache;
mod console;
mod control;
mod disturbance;
mod emulator;
mod error;
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
pub use self::disturbance::{Direction, Disturbance, Harm, PacketCount, PacketCounts};
pub use self::error::GuestError;
pub use self::network::{HOST_ADDRESS, Network};
pub use self::pingpong::{Contents, HANDSHAKE_PORT, Pingpong, Score};
pub use self::process::run_bounded;

use self::cache::Cache;
use self::console::Console;
use self::control::{Control, Silence, TaskNumber};
use self::emulator::Emulator;
use self::image::Image;
use self::network::{LINK_MTU_BYTES, PREFIX_BITS, Place};
use self::packages::Apt;

/// Six seconds on an idle machine; our tests load it.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// What the guest may take to say that a command has ended, beyond the command's own limit.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// Limit of the small commands of this module.
const SMALL_LIMIT: Duration = Duration::from_secs(10);

const MEMORY_MEGABYTES: u32 = 256;

/// A running virtual machine with a soft-RoCE device; it ends when dropped.
pub struct Guest {
    emulator: Child,
    control: Control,
    console: Console,
    network: Arc<Network>,
    address: Ipv4Addr,
    gid_index: u16,
    boot_time: Duration,
}

/// A command that runs in a guest.
pub struct Task<'guest> {
    guest: &'guest Guest,
    number: TaskNumber,
    command: String,
    deadline: Instant,
}

impl Guest {
    /// Boots a guest in a network of its own; the first time ever it is built before.
    ///
    /// # Errors
    /// This machine lacks something, or the guest did not come up.
    pub fn boot() -> Result<Self, GuestError> {
        Self::boot_in(&Arc::new(Network::create()?))
    }

    /// Boots one more guest in a network.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_in(network: &Arc<Network>) -> Result<Self, GuestError> {
        let (emulator, image) = prepare()?;
        let place = network.add_place()?;
        let start = Instant::now();
        let mut emulator = start_emulator(&emulator, &image, network, &place)?;
        let console = Console::start(emulator.stderr.take().expect("its standard error is a pipe"));
        let control = Control::start(
            emulator.stdin.take().expect("its standard input is a pipe"),
            emulator.stdout.take().expect("its standard output is a pipe"),
        );
        let network = Arc::clone(network);
        // From here on dropping it ends the emulator.
        let mut guest = Self {
            emulator,
            control,
            console,
            network,
            address: place.address,
            gid_index: 0,
            boot_time: start.elapsed(),
        };
        let ready = guest.control.wait_ready(BOOT_LIMIT);
        guest.gid_index = ready.map_err(|silence| guest.silent("come up", &silence))?;
        guest.boot_time = start.elapsed();
        Ok(guest)
    }

    /// Runs a command, one line for the guest's shell, that may take `limit`.
    ///
    /// # Errors
    /// The guest is gone or stuck. A command that fails is no error: its [`Output`] says so.
    pub fn run(&self, command: &str, limit: Duration) -> Result<Output, GuestError> {
        self.spawn(command, limit)?.wait()
    }

    /// Starts a command, one line for the guest's shell; it is ended after `limit`.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn spawn(&self, command: &str, limit: Duration) -> Result<Task<'_>, GuestError> {
        let started = self.control.start_task(command, limit);
        let number = started.map_err(|_| self.silent(&format!("start `{command}`"), &Silence::Closed))?;
        Ok(Task { guest: self, number, command: command.to_owned(), deadline: Instant::now() + limit })
    }

    /// Waits until a program of the guest listens at the port of the ping-pong's handshake.
    ///
    /// # Errors
    /// None does in time.
    pub fn wait_listening(&self, limit: Duration) -> Result<(), GuestError> {
        let command = format!("until netstat -ltn | grep -q ':{HANDSHAKE_PORT} '; do sleep 0.05; done");
        self.demand(&command, limit).map(drop)
    }

    /// The soft-RoCE device's own counters, by name.
    ///
    /// # Errors
    /// The guest is gone or stuck.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, GuestError> {
        // `lifespan` lies among them and is a setting.
        let command = "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . * | grep -v lifespan";
        let text = self.demand(command, SMALL_LIMIT)?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.filter_map(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?))).collect())
    }

    /// From now on RoCE packets come to this harm, and no other; all counts start again.
    ///
    /// # Errors
    /// The guest is gone or stuck.
    pub fn disturb(&self, disturbances: &[Disturbance]) -> Result<(), GuestError> {
        self.demand(&disturbance::command(disturbances), SMALL_LIMIT).map(drop)
    }

    /// How many RoCE packets came and went since the last [`Guest::disturb`].
    ///
    /// # Errors
    /// The guest is gone or stuck, or was never disturbed (by an empty list, for instance).
    pub fn packet_counts(&self) -> Result<PacketCounts, GuestError> {
        Ok(disturbance::read_counts(&self.demand(disturbance::COUNT_COMMAND, SMALL_LIMIT)?))
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

    /// The network in which this guest lives; programs of this machine that talk to it run there.
    #[must_use]
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// How long the guest took from power-on to its first word.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// What guest and emulator wrote to their console so far.
    #[must_use]
    pub fn console(&self) -> String {
        self.console.text()
    }

    /// Runs a command that must not fail, and returns what it wrote.
    fn demand(&self, command: &str, limit: Duration) -> Result<String, GuestError> {
        let output = self.run(command, limit)?;
        if output.is_success() {
            return Ok(output.stdout);
        }
        Err(GuestError::Task { command: command.to_owned(), output: output.to_string() })
    }

    fn silent(&self, expected: &str, silence: &Silence) -> GuestError {
        let expected = match silence {
            Silence::Late => format!("{expected} in time"),
            Silence::Closed => format!("{expected}: it is gone"),
        };
        GuestError::Guest { expected, console: self.console() }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

impl Task<'_> {
    /// Waits until the command has ended; at its limit the guest ends it.
    ///
    /// # Errors
    /// The guest is gone or stuck.
    pub fn wait(self) -> Result<Output, GuestError> {
        let limit = self.deadline.saturating_duration_since(Instant::now()) + ANSWER_LIMIT;
        let output = self.guest.control.wait_task(self.number, limit);
        output.map_err(|silence| self.guest.silent(&format!("finish `{}`", self.command), &silence))
    }

    /// Ends the command and all that it started, and waits for that.
    ///
    /// # Errors
    /// The guest is gone or stuck.
    pub fn kill(self) -> Result<Output, GuestError> {
        let told = self.guest.control.kill_task(self.number);
        told.map_err(|_| self.guest.silent(&format!("end `{}`", self.command), &Silence::Closed))?;
        self.wait()
    }
}

/// The emulator and the guest's image, kept or new.
fn prepare() -> Result<(Emulator, Image), GuestError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(GuestError::Missing("an x86-64 machine".to_owned()));
    }
    let cache = Cache::open()?;
    let mut apt = None;
    let emulator = Emulator::prepare(&cache, &mut apt)?;
    let image = Image::prepare(&cache, &mut apt)?;
    if apt.is_some() {
        Apt::forget(&cache)?;
    }
    Ok((emulator, image))
}

fn start_emulator(emulator: &Emulator, image: &Image, network: &Network, place: &Place) -> Result<Child, GuestError> {
    let Place { tap, address, hardware } = place;
    let gid = address.to_ipv6_mapped().segments().map(|segment| format!("{segment:04x}")).join(":");
    // Without mitigations and address randomisation the emulated kernel has less to do; after a panic it ends at
    // once.
    let parameters = format!(
        "console=ttyS0 panic=-1 mitigations=off nokaslr \
         guest_address={address} guest_prefix={PREFIX_BITS} guest_gid={gid} guest_mtu={LINK_MTU_BYTES}"
    );
    let mut command = network.command("env");
    command.args(emulator.words());
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-smp", "1"]);
    command.args(["-m", &MEMORY_MEGABYTES.to_string()]);
    // The control port is our pipes: when we are gone, they close, and the guest learns of it.
    command.args(["-chardev", "stdio,id=control,signal=off", "-device", "virtio-serial-pci"]);
    command.args(["-device", "virtserialport,chardev=control,name=control"]);
    command.args(["-chardev", "file,id=console,path=/dev/stderr", "-serial", "chardev:console"]);
    command.args(["-netdev", &format!("tap,id=network,ifname={tap},script=no,downscript=no")]);
    // Without a ROM: it does not boot from the network, and the ROM is in a package of its own.
    command.args(["-device", &format!("virtio-net-pci,netdev=network,mac={hardware},romfile=")]);
    command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.file_system);
    command.args([OsString::from("-append"), OsString::from(parameters)]);
    spawn(&mut command)
}

fn spawn(command: &mut Command) -> Result<Child, GuestError> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    spawned.map_err(|source| GuestError::io("starting the emulator", source))
}
