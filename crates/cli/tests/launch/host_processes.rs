//! Processes on hosts made of network namespaces, whoever started them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use namespaces::NamespaceNetwork;

use super::processes::{SOON, text};

/// A process on a host.
pub(crate) struct HostProcess {
    pub(crate) host: usize,
    pub(crate) process: u32,
    pub(crate) arguments: Vec<String>,
}

/// All living processes on the hosts of a network.
pub(crate) fn all_on_hosts(network: &NamespaceNetwork) -> Vec<HostProcess> {
    let inode = |path: &Path| std::fs::metadata(path).ok().map(|found| found.ino());
    let hosts: Vec<Option<u64>> =
        (0..network.count()).map(|host| inode(&network.host(host).namespace_path())).collect();
    let names = std::fs::read_dir("/proc").expect("there is a /proc").flatten().map(|entry| entry.path());
    let processes = names.filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path)));
    processes
        .filter_map(|(process, path): (u32, _)| {
            let namespace = inode(&path.join("ns/net"))?;
            let host = hosts.iter().position(|host| *host == Some(namespace))?;
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let arguments = text(&line).split('\0').map(str::to_owned).collect();
            Some(HostProcess { host, process, arguments })
        })
        .collect()
}

/// The arguments of all living processes on the hosts of a network whose command line has this word.
pub(crate) fn on_hosts(network: &NamespaceNetwork, word: &str) -> Vec<Vec<String>> {
    let found = all_on_hosts(network).into_iter().map(|found| found.arguments);
    found.filter(|arguments| arguments.iter().any(|argument| argument == word)).collect()
}

/// Waits until no process on the hosts of a network has this word in its command line.
#[track_caller]
pub(crate) fn assert_none_on_hosts(network: &NamespaceNetwork, word: &str) {
    let began = Instant::now();
    while !on_hosts(network, word).is_empty() {
        assert!(began.elapsed() < SOON, "left behind: {:?}", on_hosts(network, word));
        std::thread::sleep(Duration::from_millis(20));
    }
}
