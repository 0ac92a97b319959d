//! Real Slurm: its controller and its daemons, each on a host made of namespaces, start our ranks.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use namespaces::NamespaceNetwork;

use super::*;

/// How long a job may take: Slurm looks for work every few seconds.
const JOB_TIMEOUT: &str = "60";

/// A cluster of hosts n0 (also called head1), n1 and so on, with the controller on the first.
pub(super) struct SlurmCluster {
    daemons: Vec<Child>,
    pub(super) folder: PathBuf,
    pub(super) network: NamespaceNetwork,
}

impl SlurmCluster {
    /// Two hosts.
    pub(super) fn new(name: &str) -> Option<Self> {
        Self::with_hosts(name, 2)
    }

    /// None where hosts cannot be created, after printing so.
    pub(super) fn with_hosts(name: &str, count: usize) -> Option<Self> {
        let network = match NamespaceNetwork::new(count) {
            Ok(network) => network,
            Err(error) => {
                namespaces::skip_test(error);
                return None;
            }
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("slurm-{}-{name}", std::process::id()));
        // PMIx does not work if two hosts have the same temporary files.
        let temporary = (0..count).map(|host| format!("tmp-n{host}"));
        for part in temporary.chain(["state".to_owned()]) {
            std::fs::create_dir_all(folder.join(part)).expect("a folder");
        }
        let mut cluster = Self { daemons: Vec::new(), folder, network };
        cluster.write_settings();
        cluster.start_munge();
        cluster.start_daemon(0, "slurmctld", &[]);
        for host in 0..count {
            cluster.start_daemon(host, "slurmd", &["-N", &format!("n{host}")]);
        }
        cluster.wait_until_idle();
        Some(cluster)
    }

    fn start_daemon(&mut self, host: usize, daemon: &str, arguments: &[&str]) {
        let log = std::fs::File::create(self.folder.join(format!("{daemon}{host}.out"))).expect("a file");
        let mut command = self.command(host, daemon);
        command.args(arguments).arg("-D").stdout(log.try_clone().expect("a file")).stderr(log);
        self.daemons.push(self.network.host(host).start(&mut command).expect("Slurm starts"));
    }

    fn write_settings(&self) {
        let folder = self.folder.display();
        let hosts: Vec<(usize, Ipv4Addr)> =
            (0..self.network.count()).map(|host| (host, self.network.host(host).address())).collect();
        let names: String = hosts.iter().map(|(host, address)| format!("{address} n{host}\n")).collect();
        let names = format!("127.0.0.1 localhost\n{} head1\n{names}", hosts[0].1);
        std::fs::write(self.folder.join("hosts"), names).expect("a file");
        let nodes: String =
            hosts.iter().map(|(host, address)| format!("NodeName=n{host} NodeAddr={address} CPUs=8\n")).collect();
        let settings = format!(
            "ClusterName=test\nSlurmctldHost=n0\nSlurmUser=root\nAuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_Core\nMpiDefault=none\nReturnToService=2\nSlurmdParameters=config_overrides\n\
             StateSaveLocation={folder}/state\nTmpFS={folder}/tmp-%n\nSlurmdSpoolDir={folder}/spool-%n\nSlurmctldPidFile={folder}/slurmctld.pid\n\
             SlurmdPidFile={folder}/slurmd-%n.pid\nSwitchType=switch/none\nJobAcctGatherType=jobacct_gather/none\n\
             {nodes}PartitionName=all Nodes=n[0-{}] Default=YES State=UP\n",
            hosts.len() - 1
        );
        std::fs::write(self.folder.join("slurm.conf"), settings).expect("a file");
    }

    fn start_munge(&mut self) {
        let folder = self.folder.display();
        std::fs::write(self.folder.join("munge.key"), [7; 64]).expect("a file");
        let made = Command::new("chmod").arg("600").arg(self.folder.join("munge.key")).status();
        assert!(made.expect("chmod").success());
        let log = std::fs::File::create(self.folder.join("munged.out")).expect("a file");
        let mut munge = Command::new("/usr/sbin/munged");
        munge.args(["--force", "--foreground", &format!("--socket={folder}/munge.socket")]);
        munge.args([format!("--key-file={folder}/munge.key"), format!("--pid-file={folder}/munge.pid")]);
        munge.args([format!("--seed-file={folder}/munge.seed"), format!("--log-file={folder}/munge.log")]);
        munge.stdout(log.try_clone().expect("a file")).stderr(log);
        self.daemons.push(munge.spawn().expect("munged starts"));
        let began = Instant::now();
        while !self.folder.join("munge.socket").exists() {
            assert!(began.elapsed() < SOON, "munged does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A command of Slurm on a host: with the host's name, and names of the hosts that resolve.
    pub(super) fn command(&self, host: usize, program: &str) -> Command {
        let hosts = self.folder.join("hosts");
        let script = format!("hostname n{host}; mount --bind {} /etc/hosts; exec \"$@\"", hosts.display());
        let mut command = Command::new("unshare");
        // All that a daemon has started ends with it.
        command.args(["--mount", "--mount-proc", "--uts", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", &script, "sh", program]);
        without_settings(&mut command);
        command.env("SLURM_CONF", self.folder.join("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn wait_until_idle(&self) {
        let began = Instant::now();
        loop {
            let states = self.run(self.command(0, "sinfo").args(["--noheader", "--Node", "--format=%T"]));
            if text(&states.stdout).lines().filter(|state| *state == "idle").count() == self.network.count() {
                return;
            }
            assert!(began.elapsed() < 3 * SOON, "Slurm does not start: {}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn run(&self, command: &mut Command) -> Output {
        let child = self.network.host(0).start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        child.expect("it starts").wait_with_output().expect("it ends")
    }

    /// Submits a script for two hosts with so many tasks on each, and waits for its end.
    pub(super) fn batch(&self, tasks: u32, script: &str) -> (Option<i32>, String) {
        let file = self.folder.join("script");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a file");
        let size = ["--nodes=2".to_owned(), format!("--ntasks-per-node={tasks}")];
        self.submit(&mut self.command(0, "timeout"), &size, &file)
    }

    /// Submits a script from the cluster's folder with `command`, which starts `timeout`, and waits for its end.
    pub(super) fn submit(&self, command: &mut Command, options: &[String], file: &Path) -> (Option<i32>, String) {
        let output = self.folder.join("output");
        command.args([JOB_TIMEOUT, "sbatch", "--wait", "--output"]).arg(&output).args(options).arg(file);
        let ended = self.run(command.current_dir(&self.folder));
        let said = std::fs::read_to_string(&output).unwrap_or_default();
        (ended.status.code(), format!("{said}{}", text(&ended.stderr)))
    }

    pub(super) fn logs(&self) -> String {
        let daemons = (0..self.network.count()).map(|host| format!("slurmd{host}.out"));
        let names = ["munged.out".to_owned(), "slurmctld0.out".to_owned()].into_iter().chain(daemons);
        names.map(|name| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()).collect()
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The rank of these tests, as words of a shell.
fn rank() -> String {
    let own = std::env::current_exe().expect("this test");
    format!("{} --exact over_ssh::as_a_rank --ignored --nocapture", own.display())
}

fn pleach_path() -> &'static str {
    env!("CARGO_BIN_EXE_pleach")
}

#[test]
#[ignore = "long: starts Slurm"]
fn srun_starts_ranks_within_slurm() {
    let Some(cluster) = SlurmCluster::new("srun") else { return };
    let mut command = cluster.command(0, "timeout");
    let rank = rank();
    command.args([JOB_TIMEOUT, "srun", "--nodes=2", "--ntasks-per-node=2"]).args(rank.split(' '));
    let ended = cluster.run(&mut command);
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}{}{}", text(&ended.stderr), cluster.logs());
    assert_eq!(said.matches("summed 6 hosts 2").count(), 4, "{said}");
}

#[test]
#[ignore = "long: starts Slurm"]
fn a_batch_script_launches_on_its_hosts_with_nodes_within_slurm() {
    let Some(cluster) = SlurmCluster::new("batch") else { return };
    let (pleach, rank) = (pleach_path(), rank());
    let (status, said) = cluster.batch(2, &format!("exec {pleach} launch --prefix -- {rank}"));
    assert_eq!(status, Some(0), "{said}{}", cluster.logs());
    assert_eq!(said.matches("summed 6 hosts 2").count(), 4, "{said}");
    // A manager and nodes beside the ranks, by one command.
    let script = format!("exec {pleach} launch --nodes 3 --require-nodes --prefix -- {rank}");
    let (status, said) = cluster.batch(2, &script);
    assert_eq!(status, Some(0), "{said}{}", cluster.logs());
    assert_eq!(said.matches("summed 6 hosts 2").count(), 4, "{said}");
    let (status, said) = cluster.batch(1, &format!("exec {pleach} launch -- sh -c 'exit $((6 + PLEACH_RANK))'"));
    assert_eq!(status, Some(7), "{said}{}", cluster.logs());
}

#[test]
#[ignore = "long: starts Slurm"]
fn a_cancelled_job_leaves_nothing_within_slurm() {
    let Some(cluster) = SlurmCluster::new("cancel") else { return };
    let (file, output) = (cluster.folder.join("script"), cluster.folder.join("output"));
    let script = format!("#!/bin/sh\nexec {} launch --nodes 2 -- sleep 60.5\n", pleach_path());
    std::fs::write(&file, script).expect("a file");
    let mut command = cluster.command(0, "sbatch");
    let submitted = cluster
        .run(command.args(["--parsable", "--nodes=2", "--ntasks-per-node=2", "--output"]).arg(&output).arg(&file));
    let job = text(&submitted.stdout).trim().to_owned();
    let began = Instant::now();
    let is_rank = |arguments: &Vec<String>| arguments[0] == "sleep";
    while on_hosts(&cluster.network, "60.5").iter().filter(|arguments| is_rank(arguments)).count() < 4 {
        let said = std::fs::read_to_string(&output).unwrap_or_default();
        assert!(began.elapsed() < 3 * SOON, "{said}{}{}", text(&submitted.stderr), cluster.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!on_hosts(&cluster.network, "--manager").is_empty(), "there are nodes");
    let cancelled = cluster.run(cluster.command(0, "scancel").arg(&job));
    assert!(cancelled.status.success(), "{}", text(&cancelled.stderr));
    assert_none_on_hosts(&cluster.network, "60.5");
    assert_none_on_hosts(&cluster.network, "--manager");
}
