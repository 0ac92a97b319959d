//! Checks of CPUs, memory and clock.

use std::fs::read_to_string;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use super::finding::Finding;
use super::finding::FindingStatus::{Broken, Limited, Missing};
use lab::number_format::si_number;

/// Enough for two ranks of one host, and some for each further one.
const MIN_SHARED_BYTES: u64 = 64 << 20;
/// The clock is read for every packet.
const SLOW_CLOCK_NS: f64 = 150.0;
/// Enough for a manager with some hundred nodes and jobs.
const MIN_DESCRIPTORS: u64 = 1024;

pub(super) fn findings() -> Vec<Finding> {
    vec![processors(), vectors(), shared_memory(), huge_pages(), locked_memory(), descriptors(), clock()]
}

fn processors() -> Finding {
    let what = "processors";
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => Finding::bad(
            what,
            Limited,
            "1",
            "use more than one: on a single CPU, processes that wait compete with those that work",
        ),
        count => Finding::good(what, count.to_string()),
    }
}

/// Used by checksums if available; reductions use only what every CPU of this architecture has.
fn vectors() -> Finding {
    let what = "vector units";
    let found = detected();
    if found.iter().any(|name| *name == "pclmulqdq" || *name == "pmull") {
        return Finding::good(what, found.join(" "));
    }
    let listed = if found.is_empty() { "none in use".to_owned() } else { found.join(" ") };
    Finding::bad(what, Limited, listed, "without carry-less multiplication, checksums of large payloads are slower")
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Vec<&'static str> {
    let all = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("vpclmulqdq", is_x86_feature_detected!("vpclmulqdq")),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(target_arch = "aarch64")]
fn detected() -> Vec<&'static str> {
    let all = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("pmull", std::arch::is_aarch64_feature_detected!("pmull")),
        ("sha3", std::arch::is_aarch64_feature_detected!("sha3")),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detected() -> Vec<&'static str> {
    Vec::new()
}

/// Ranks of one host combine in a file in /dev/shm, whose pages are all reserved at creation.
fn shared_memory() -> Finding {
    let what = "shared memory";
    let path = format!("/dev/shm/pleach-doctor-{}", std::process::id());
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
    let _ = std::fs::remove_file(&path);
    let advice = "mount a tmpfs at /dev/shm (docker: --shm-size=1g), or set PLEACH_SHARED_MEMORY=off for the ranks";
    if let Err(error) = made {
        return Finding::bad(what, Broken, format!("cannot create a file in /dev/shm: {error}"), advice);
    }
    let Ok(room) = statvfs("/dev/shm") else {
        return Finding::bad(what, Broken, "cannot read the size of /dev/shm", advice);
    };
    let bytes = |blocks: u64| blocks.saturating_mul(room.fragment_size());
    let (free, all) = (bytes(room.blocks_available()), bytes(room.blocks()));
    let found = format!("/dev/shm, {}B free of {}B", si_number(free as f64), si_number(all as f64));
    if free < MIN_SHARED_BYTES { Finding::bad(what, Limited, found, advice) } else { Finding::good(what, found) }
}

/// The selected value, which the kernel puts in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split(['[', ']']).nth(1)
}

fn huge_pages() -> Finding {
    let what = "huge pages";
    let read = |name: &str| read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}")).unwrap_or_default();
    let (private, shared) = (read("enabled"), read("shmem_enabled"));
    let (Some(private), Some(shared)) = (chosen(&private), chosen(&shared)) else {
        return Finding::bad(
            what,
            Missing,
            "not supported by the kernel",
            "none needed: large vectors in shared memory cost more page faults",
        );
    };
    let found = format!("transparent huge pages: {private}; in shared memory: {shared}");
    match shared {
        "always" | "within_size" | "force" => Finding::good(what, found),
        _ => {
            let advice = "echo within_size > /sys/kernel/mm/transparent_hugepage/shmem_enabled saves page faults for large vectors";
            Finding::bad(what, Limited, found, advice)
        }
    }
}

fn limit(resource: Resource) -> (u64, String) {
    let soft = getrlimit(resource).map_or(0, |(soft, _)| soft);
    let text = if soft == u64::MAX { "unlimited".to_owned() } else { soft.to_string() };
    (soft, text)
}

/// Pleach locks no memory; verbs adapters need it for the memory that they read and write.
fn locked_memory() -> Finding {
    let what = "locked memory";
    let (soft, text) = limit(Resource::RLIMIT_MEMLOCK);
    let found = format!("{text} bytes");
    if soft < 64 << 20 {
        let advice = "only verbs needs more: ulimit -l unlimited, or memlock in /etc/security/limits.conf";
        return Finding::bad(what, Limited, found, advice);
    }
    Finding::good(what, if soft == u64::MAX { text } else { found })
}

fn descriptors() -> Finding {
    let what = "open files";
    let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
    let (soft, text) = limit(Resource::RLIMIT_NOFILE);
    // Manager and nodes raise the soft limit to the hard limit.
    if hard < MIN_DESCRIPTORS || soft < 64 {
        let advice = "a manager needs one for each node and job: raise nofile in /etc/security/limits.conf";
        return Finding::bad(what, Limited, format!("{text} now, {hard} at most"), advice);
    }
    Finding::good(what, format!("{text} now, {hard} at most"))
}

fn clock() -> Finding {
    let what = "clock";
    let source =
        read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default();
    let source = if source.trim().is_empty() { "unknown" } else { source.trim() };
    let cost = clock_cost_ns();
    let found = format!("{source}, {cost:.0} ns to read");
    if cost > SLOW_CLOCK_NS {
        let advice = "it is read for every packet: boot with clocksource=tsc if the TSC is invariant, or use a kernel with a vDSO clock";
        return Finding::bad(what, Limited, found, advice);
    }
    Finding::good(what, found)
}

/// The median of several trials, since other processes may be busy.
fn clock_cost_ns() -> f64 {
    const READS: u32 = 10_000;
    let mut tries: Vec<Duration> = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        for _ in 0..READS {
            std::hint::black_box(Instant::now());
        }
        tries.push(began.elapsed());
    }
    tries.sort();
    tries[tries.len() / 2].as_nanos() as f64 / f64::from(READS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_value_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("[always] within_size"), Some("always"));
        assert_eq!(chosen("no choice"), None);
    }
}
