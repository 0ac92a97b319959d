//! Options and variables with which the launcher of an MPI places ranks: on this host, over loopback, or on hosts made of namespaces.
//!
//! Each rank is bound to a core if there are enough. If not, ranks of Open MPI yield their processor while they wait.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Result, bail};
use namespaces::NamespaceNetwork;

use super::{MpiImplementation, MpiInstallation};
use crate::bench::samples::BenchPlacement;
use crate::mpi::mpi_launcher::EnvironmentVariable;

/// Options with which Open MPI uses TCP. The name of an interface or a subnet must follow.
const OVER_TCP: [&str; 8] = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include"];
/// The addresses of hosts made of namespaces.
const SUBNET: &str = "10.77.0.0/16";
/// The device of each of them.
const DEVICE: &str = "net0";
/// MPICH between such hosts: TCP through UCX. The user's own settings win.
const MPICH_OVER_TCP: [(&str, &str); 3] =
    [("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", DEVICE)];

impl MpiInstallation {
    /// The options of the launcher.
    ///
    /// # Errors
    /// If the launcher cannot place ranks there.
    pub(in crate::bench) fn options(&self, ranks: u32, placement: BenchPlacement<'_>) -> Result<Vec<String>> {
        match self.implementation {
            MpiImplementation::OpenMpi4 | MpiImplementation::OpenMpi5 => self.open_mpi_options(ranks, placement),
            MpiImplementation::Mpich4 | MpiImplementation::Mpich5 => self.mpich_options(ranks, placement),
            MpiImplementation::Other if matches!(placement, BenchPlacement::OneHost) => Ok(Vec::new()),
            MpiImplementation::Other => bail!("{} can only be started on one host", self.version),
        }
    }

    /// Variables of the launcher, which the ranks inherit.
    pub(in crate::bench) fn variables(&self, placement: BenchPlacement<'_>) -> Vec<EnvironmentVariable> {
        match (self.implementation, placement) {
            (MpiImplementation::Mpich4 | MpiImplementation::Mpich5, BenchPlacement::Namespaces { .. }) => {
                let ours = MPICH_OVER_TCP.iter().filter(|(name, _)| std::env::var_os(name).is_none());
                ours.map(|(name, value)| (*name, OsString::from(value))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn open_mpi_options(&self, ranks: u32, placement: BenchPlacement<'_>) -> Result<Vec<String>> {
        let mut options: Vec<String> = Vec::new();
        let mut add = |arguments: &[&str]| options.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        match self.implementation {
            MpiImplementation::OpenMpi5 => add(&["--map-by", ":OVERSUBSCRIBE"]),
            _ => add(&["--oversubscribe"]),
        }
        let (binding, yielding) = if is_oversubscribed(ranks) { ("none", "1") } else { ("core", "0") };
        // Every host made of a namespace has the processors of this machine, and each launcher there would bind to the first.
        let binding = if matches!(placement, BenchPlacement::Namespaces { .. }) { "none" } else { binding };
        add(&["--bind-to", binding, "--mca", "mpi_yield_when_idle", yielding]);
        match placement {
            BenchPlacement::OneHost => {}
            BenchPlacement::Loopback => {
                add(&OVER_TCP);
                add(&["lo"]);
            }
            BenchPlacement::Namespaces { network, ranks_per_host } => {
                let agent = self.agent(network)?.display().to_string();
                add(&["--host", &hosts(network, ranks, ranks_per_host, &format!(":{ranks_per_host}"))]);
                let shared_memory = if self.implementation == MpiImplementation::OpenMpi5 { "sm" } else { "vader" };
                let transports =
                    if ranks_per_host > 1 { format!("tcp,self,{shared_memory}") } else { "tcp,self".into() };
                add(&["--mca", "pml", "ob1", "--mca", "btl", &transports, "--mca", "btl_tcp_if_include", SUBNET]);
                match self.implementation {
                    MpiImplementation::OpenMpi5 => {
                        add(&["--prtemca", "plm_ssh_agent", &agent, "--prtemca", "plm_ssh_no_tree_spawn", "1"]);
                        add(&["--prtemca", "prte_if_include", SUBNET]);
                    }
                    _ => {
                        add(&["--mca", "oob_tcp_if_include", SUBNET]);
                        add(&["--mca", "plm_rsh_agent", &agent, "--mca", "plm_rsh_no_tree_spawn", "1"]);
                    }
                }
            }
        }
        Ok(options)
    }

    fn mpich_options(&self, ranks: u32, placement: BenchPlacement<'_>) -> Result<Vec<String>> {
        let options: Vec<String> = match placement {
            BenchPlacement::OneHost if is_oversubscribed(ranks) => Vec::new(),
            BenchPlacement::OneHost => ["-bind-to", "core"].map(str::to_owned).to_vec(),
            BenchPlacement::Loopback => bail!("{} is not measured over loopback", self.version),
            BenchPlacement::Namespaces { network, ranks_per_host } => {
                let agent = self.agent(network)?.display().to_string();
                let hosts = hosts(network, ranks, ranks_per_host, "");
                let per_host = ranks_per_host.to_string();
                let launch = ["-launcher", "ssh", "-launcher-exec", &agent, "-iface", DEVICE];
                [&launch[..], &["-hosts", &hosts, "-ppn", &per_host]]
                    .concat()
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            }
        };
        Ok(options)
    }

    /// A script that mpirun calls instead of ssh: it runs a command in the namespace with the given address.
    fn agent(&self, network: &NamespaceNetwork) -> Result<PathBuf> {
        let path = self.file("agent");
        // Options of ssh come first.
        let mut text =
            "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n".to_owned();
        for host in (0..network.count()).map(|host| network.host(host)) {
            text += &format!("{}) space={} ;;\n", host.address(), host.name());
        }
        // Each namespace gets its own host name: from equal names Open MPI concludes that the ranks share one host.
        text += "esac\nexec ip netns exec $space unshare -u sh -c \"hostname $space; $*\"\n";
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(path)
    }
}

fn is_oversubscribed(ranks: u32) -> bool {
    ranks as usize > std::thread::available_parallelism().map_or(1, usize::from)
}

/// The addresses of the hosts of so many ranks, each with a suffix.
fn hosts(network: &NamespaceNetwork, ranks: u32, ranks_per_host: u32, suffix: &str) -> String {
    let hosts = 0..ranks.div_ceil(ranks_per_host) as usize;
    Vec::from_iter(hosts.map(|host| format!("{}{suffix}", network.host(host).address()))).join(",")
}
