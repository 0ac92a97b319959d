//! A manager and aggregation nodes, each in a thread of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::{AccessPolicy, DataPlane, ManagerClient, ManagerDaemon, NodeControl};
use engine::aggregation::NodeDataPlane;
use manager::ManagerSettings;
use manager::message::{Capacity, NodeDescriptor};
use transport::udp::FaultInjector;

/// A manager and its nodes; dropping it ends them.
pub(crate) struct LocalServices {
    manager: SocketAddr,
    threads: Vec<Service>,
    /// How many operations the nodes have reduced so far.
    reduced: Arc<AtomicU64>,
}

struct Service {
    name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Service {
    fn start(name: &str, work: impl FnOnce(&AtomicBool) -> u64 + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        Self { name: name.to_owned(), stop, thread: Some(std::thread::spawn(move || work(&seen))) }
    }

    /// Ends it; how many operations it has reduced.
    fn end(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().expect("no panic"))
    }
}

impl LocalServices {
    /// Starts nodes on loopback, each with its name and its parents.
    pub(crate) fn new(nodes: &[(&str, &[&str])], faults: &FaultInjector) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), nodes, faults)
    }

    /// Starts them at an address of this host.
    pub(crate) fn at(address: IpAddr, nodes: &[(&str, &[&str])], faults: &FaultInjector) -> Self {
        let any_port = SocketAddr::new(address, 0);
        let access = if address.is_loopback() { AccessPolicy::LoopbackOnly } else { AccessPolicy::AnyAddress };
        let mut daemon = ManagerDaemon::bind(any_port, ManagerSettings::default(), None, access).expect("a port");
        let manager = daemon.address();
        let mut threads = vec![Service::start("manager", move |stop| {
            while !stop.load(Ordering::Relaxed) {
                daemon.turn(Duration::from_millis(5)).expect("polling works");
            }
            0
        })];
        let reduced = Arc::new(AtomicU64::new(0));
        for (name, parents) in nodes {
            let all = Arc::clone(&reduced);
            let mut seats = NodeDataPlane::open(&[any_port], faults.clone()).expect("a socket");
            let card = NodeDescriptor {
                name: (*name).to_owned(),
                addresses: seats.addresses(),
                control: any_port,
                parents: parents.iter().map(|parent| (*parent).to_owned()).collect(),
                serves: Vec::new(),
                capacity: Capacity { seats: 100, operations: 1 << 14, bytes: 1 << 30 },
            };
            let mut control = NodeControl::bind(card, manager, any_port, None, access).expect("a port");
            threads.push(Service::start(name, move |stop| {
                let mut counted = 0;
                while !stop.load(Ordering::Relaxed) {
                    control.turn(&mut seats);
                    for _ in 0..20 {
                        if !seats.turn() {
                            std::thread::sleep(Duration::from_micros(50));
                        }
                    }
                    let operations = seats.report().operations;
                    all.fetch_add(operations - counted, Ordering::Relaxed);
                    counted = operations;
                }
                seats.report().operations
            }));
        }
        let services = Self { manager, threads, reduced };
        services.wait_for(nodes.len());
        services
    }

    fn wait_for(&self, nodes: usize) {
        let began = Instant::now();
        let mut client =
            ManagerClient::connect(self.manager, None::<control::ControlCredential>, Duration::from_secs(10))
                .expect("a manager");
        while client.status().expect("an answer").nodes.len() < nodes {
            assert!(began.elapsed() < Duration::from_secs(60), "the nodes do not register");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Blocks until the nodes have reduced that many operations together.
    pub(crate) fn wait_until_reduced(&self, operations: u64) {
        let began = Instant::now();
        while self.reduced.load(Ordering::Relaxed) < operations {
            assert!(began.elapsed() < Duration::from_secs(60), "the ranks do not use the nodes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn manager(&self) -> String {
        self.manager.to_string()
    }

    /// Ends a node or the manager, as a killed process would; how many operations it has reduced.
    pub(crate) fn kill(&mut self, name: &str) -> u64 {
        self.threads.iter_mut().find(|service| service.name == name).expect("a service of that name").end()
    }
}

impl Drop for LocalServices {
    fn drop(&mut self) {
        for service in &mut self.threads {
            service.stop.store(true, Ordering::Relaxed);
        }
        for service in &mut self.threads {
            service.end();
        }
    }
}
