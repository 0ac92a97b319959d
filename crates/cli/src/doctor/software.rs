//! Checks of network namespaces, RDMA and MPIs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use super::finding::Finding;
use super::finding::FindingStatus::{Limited, Missing};
use lab::mpi::mpi_launcher::program_output;

pub(super) fn findings() -> Vec<Finding> {
    vec![namespaces(), rdma(), mpi(), messages()]
}

/// For `pleach launch --hosts netns` and benchmarks.
fn namespaces() -> Finding {
    let what = "namespaces";
    // Only the thread enters the new namespace, which ends with it.
    let moved = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join();
    match moved {
        Ok(Ok(())) if in_path("ip").is_some() => Finding::good(what, "network namespaces can be created"),
        Ok(Ok(())) => Finding::bad(
            what,
            Missing,
            "allowed, but `ip` is not installed",
            "install iproute2 for pleach launch --hosts netns",
        ),
        Ok(Err(error)) => {
            let advice = "only for pleach launch --hosts netns: run it as root";
            Finding::bad(what, Missing, format!("not allowed: {error}"), advice)
        }
        Err(_) => Finding::bad(what, Missing, "cannot be tested", "none"),
    }
}

fn rdma() -> Finding {
    let what = "RDMA";
    let listed = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let devices = listed(Path::new("/sys/class/infiniband"));
    if !devices.is_empty() {
        return Finding::good(what, format!("adapters: {}", devices.join(" ")));
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let soft = Path::new("/lib/modules").join(release.trim()).join("kernel/drivers/infiniband/sw/rxe");
    if soft.exists() {
        let advice = "only for peers that use verbs: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev DEVICE";
        return Finding::bad(what, Limited, "no adapter; the kernel supports soft-RoCE", advice);
    }
    Finding::bad(what, Missing, "no adapter and no soft-RoCE", "only for peers that use verbs; Pleach needs neither")
}

/// For `pleach exec --messages`: libfabric, and the provider.
fn messages() -> Finding {
    let what = "messages";
    let scratch = std::env::temp_dir().join(format!("pleach-doctor-{}", std::process::id()));
    let provider = lab::mpi::provider_library::folder(&scratch);
    let _ = std::fs::remove_dir_all(&scratch);
    let cache = program_output("/sbin/ldconfig", "-p", Duration::from_secs(5)).unwrap_or_default();
    let advice = "only for pleach exec --messages, which is off by default";
    match provider {
        Err(error) => Finding::bad(what, Missing, error.to_string(), advice),
        Ok(_) if cache.contains("libfabric.so.1") => {
            Finding::good(what, "pleach exec --messages can send all messages of an MPI that uses libfabric")
        }
        Ok(_) => {
            let found = "this system has no libfabric; an MPI may bring its own";
            Finding::bad(what, Limited, found, advice)
        }
    }
}

/// MPIs that can start ranks, and that benchmarks compare with.
fn mpi() -> Finding {
    let what = "MPI";
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for name in ["mpirun", "mpiexec", "srun"] {
        let Some(path) = in_path(name) else { continue };
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if found.iter().all(|(other, _)| *other != real)
            && let Some(version) = version_of(&path)
            && found.iter().all(|(_, other)| *other != version)
        {
            found.push((real, version));
        }
    }
    if found.is_empty() {
        return Finding::bad(what, Missing, "none", "none needed: pleach launch starts ranks without one");
    }
    let listed: Vec<String> = found.iter().map(|(path, version)| format!("{version} ({})", path.display())).collect();
    Finding::good(what, listed.join(", "))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The first line of a program's version text.
fn version_of(program: &Path) -> Option<String> {
    let text = program_output(program, "--version", Duration::from_secs(3))?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|letter| !letter.is_control()).take(60).collect())
}
