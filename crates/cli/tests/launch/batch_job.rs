//! The batch scripts `examples/slurm/job.sh` and `examples/pbs/job.sh` as they stand: the first under real Slurm, the second on hosts with
//! ssh servers and the environment that PBS gives to a script.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use super::over_ssh::SshHosts;
use super::within_slurm::SlurmCluster;
use super::*;

/// The scripts ask for so many hosts, and for so many ranks on each.
const HOSTS: usize = 4;
const RANKS_PER_HOST: usize = 8;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).canonicalize().expect("an example")
}

/// The user's folder: `./program`, whose ranks sum, and beside it `bin` with pleach. Returns the search path with `bin` first.
fn fill_folder(folder: &Path) -> String {
    let own = std::env::current_exe().expect("this test");
    write_program(
        &folder.join("program"),
        &format!("exec {} --exact over_ssh::as_a_rank --ignored --nocapture", own.display()),
    );
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    symlink(env!("CARGO_BIN_EXE_pleach"), bin.join("pleach")).expect("a link");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

fn write_program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("our file");
}

/// Every rank has the sum of all, and knows all hosts.
#[track_caller]
fn assert_all_summed(said: &str) {
    let ranks = HOSTS * RANKS_PER_HOST;
    let expected = format!("summed {} hosts {HOSTS}", ranks * (ranks - 1) / 2);
    assert_eq!(said.matches(&expected).count(), ranks, "{said}");
}

#[test]
fn the_job_of_the_pbs_examples_runs_on_its_hosts_over_ssh() {
    let Some(hosts) = SshHosts::new("pbs", HOSTS) else { return };
    let path = fill_folder(&hosts.folder);
    // The user's ssh has a key and knows the hosts.
    write_program(&hosts.folder.join("bin/ssh"), &format!("exec /usr/bin/ssh {} \"$@\"", hosts.ssh_options()));
    // PBS names a host once for each of its ranks.
    let names: String =
        (0..HOSTS).map(|host| format!("{}\n", hosts.network.host(host).address()).repeat(RANKS_PER_HOST)).collect();
    let node_file = hosts.folder.join("nodes");
    std::fs::write(&node_file, names).expect("a file");
    let mut command = Command::new("sh");
    without_settings(&mut command);
    command.arg(example("pbs/job.sh")).current_dir("/").env("PATH", path);
    command.env("PBS_JOBID", "7.server").env("PBS_NODEFILE", &node_file).env("PBS_O_WORKDIR", &hosts.folder);
    command.env("PLEACH_MANAGER_REQUIRED", "1"); // Without the nodes, the job fails.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = hosts.output(&mut command);
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", text(&ended.stderr));
    assert_all_summed(&said);
    assert_none_on_hosts(&hosts.network, "--manager");
}

#[test]
#[ignore = "long: starts Slurm"]
fn the_job_of_the_slurm_examples_runs_on_its_hosts_within_slurm() {
    let Some(cluster) = SlurmCluster::with_hosts("job", HOSTS) else { return };
    let path = fill_folder(&cluster.folder);
    let mut command = cluster.command(0, "timeout");
    command.env("PATH", path).env("PLEACH_MANAGER_REQUIRED", "1"); // Without the nodes, the job fails.
    let (status, said) = cluster.submit(&mut command, &[], &example("slurm/job.sh"));
    assert_eq!(status, Some(0), "{said}{}", cluster.logs());
    assert_all_summed(&said);
    assert_none_on_hosts(&cluster.network, "--manager");
}
