//! `pleach launch --hosts a:2,b:2` over real ssh servers, each on a host made of a network namespace.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use namespaces::NamespaceNetwork;

use super::processes::signal_to;
use super::*;

/// A rank of the tests below: sums, and prints where the ranks are.
#[test]
#[ignore = "other tests launch it"]
fn as_a_rank() {
    let world = pleach::join().expect("all ranks join");
    let mut sum = [u64::from(world.rank())];
    world.all_reduce(&mut sum, pleach::Operator::Sum).expect("every rank takes part");
    println!("\nsummed {} hosts {}", sum[0], world.hosts());
}

/// Hosts with an ssh server each, and a key that opens them.
pub(super) struct SshHosts {
    servers: Vec<Child>,
    pub(super) folder: PathBuf,
    pub(super) network: NamespaceNetwork,
}

impl SshHosts {
    /// None where hosts cannot be created, after printing so.
    pub(super) fn new(name: &str, count: usize) -> Option<Self> {
        let network = match NamespaceNetwork::new(count) {
            Ok(network) => network,
            Err(error) => {
                namespaces::skip_test(error);
                return None;
            }
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ssh-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for key in ["host", "user"] {
            let file = folder.join(key);
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file).status();
            assert!(made.expect("ssh-keygen").success());
        }
        let _ = std::fs::create_dir_all("/run/sshd"); // The server wants it; a service would make it.
        let mut hosts = Self { servers: Vec::new(), folder, network };
        (0..count).for_each(|host| hosts.start_server(host));
        Some(hosts)
    }

    fn start_server(&mut self, host: usize) {
        let folder = self.folder.display();
        // All hosts have this machine's name; ranks must tell them apart.
        let settings = format!(
            "HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
             PidFile none\nSetEnv PLEACH_HOST=host{host}\n"
        );
        let file = self.folder.join(format!("server{host}"));
        std::fs::write(&file, settings).expect("a file");
        let log = std::fs::File::create(self.folder.join(format!("server{host}.log"))).expect("a file");
        let mut server = Command::new("/usr/sbin/sshd");
        server.args(["-D", "-e", "-f"]).arg(file).stderr(log);
        self.servers.push(self.network.host(host).start(&mut server).expect("sshd starts"));
        let at = SocketAddr::from((self.network.host(host).address(), 22));
        let began = Instant::now();
        while self.network.host(host).inside(|| TcpStream::connect(at)).expect("a host").is_err() {
            assert!(began.elapsed() < SOON, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// `pleach launch` on the first host, with so many ranks on each, and an ssh that soon notices a lost host.
    fn launch(&self, ranks: usize, arguments: &[&str]) -> Command {
        self.launch_by("-o ConnectTimeout=5 -o ServerAliveInterval=1", ranks, arguments)
    }

    /// `pleach launch` on the first host, by ssh with options.
    fn launch_by(&self, ssh_options: &str, ranks: usize, arguments: &[&str]) -> Command {
        let hosts = (0..self.network.count()).map(|host| format!("{}:{ranks}", self.network.host(host).address()));
        let agent = format!("ssh {} -o BatchMode=yes {ssh_options}", self.ssh_options());
        let mut command = launch(&["--hosts", &hosts.collect::<Vec<_>>().join(","), "--agent", &agent]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Options for ssh to open these hosts.
    pub(super) fn ssh_options(&self) -> String {
        let key = self.folder.join("user");
        format!("-i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR", key.display())
    }

    /// The output of so many ranks on each host that sum; all must succeed.
    fn sums(&self, ranks: usize, options: &[&str]) -> String {
        let own = std::env::current_exe().expect("this test").display().to_string();
        let program = ["--prefix", "--", &own, "--exact", "over_ssh::as_a_rank", "--ignored", "--nocapture"];
        let ended = self.output(self.launch(ranks, options).args(program));
        let said = text(&ended.stdout);
        assert!(ended.status.success(), "{said}{}", text(&ended.stderr));
        said
    }

    fn start(&self, command: &mut Command) -> Child {
        self.network.host(0).start(command).expect("pleach starts")
    }

    pub(super) fn output(&self, command: &mut Command) -> Output {
        self.start(command).wait_with_output().expect("it ends")
    }

    /// Starts ranks that print their process number and sleep; those numbers.
    fn sleepers(&self) -> (Child, Vec<u32>) {
        let mut child =
            self.start(&mut self.launch(1, &["--grace", "1", "--", "sh", "-c", "echo $$; exec sleep 60"]));
        let reader = BufReader::new(child.stdout.take().expect("piped"));
        let ranks = reader.lines().take(2).map(|line| line.expect("text").parse().expect("a number")).collect();
        (child, ranks)
    }
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        // A session of a host without a link waits for a quarter of an hour.
        for left in all_on_hosts(&self.network) {
            let _ = Command::new("kill").args(["-KILL", &left.process.to_string()]).output(); // It may have ended.
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn ranks_of_two_hosts_meet_over_ssh() {
    let Some(hosts) = SshHosts::new("meet", 2) else { return };
    let said = hosts.sums(2, &[]);
    for rank in 0..4 {
        assert!(said.contains(&format!("[{rank}] summed 6 hosts 2")), "rank {rank}: {said}");
    }
}

#[test]
fn nodes_run_on_the_hosts_and_end_with_the_job_over_ssh() {
    let Some(hosts) = SshHosts::new("nodes", 2) else { return };
    let said = hosts.sums(2, &["--nodes", "3", "--require-nodes"]);
    assert_eq!(said.matches("summed 6 hosts 2").count(), 4, "{said}");
    let ended = hosts.output(&mut hosts.launch(1, &["--nodes", "1", "--", "sh", "-c", "echo $PLEACH_MANAGER"]));
    let said = text(&ended.stdout);
    let manager: SocketAddr = said.lines().next().and_then(|line| line.parse().ok()).expect("an address");
    assert!(hosts.network.host(1).inside(|| TcpStream::connect(manager)).expect("a host").is_err());
    assert_none_on_hosts(&hosts.network, "--manager");
}

#[test]
fn nodes_end_with_a_launcher_that_is_killed_over_ssh() {
    let Some(hosts) = SshHosts::new("killed-nodes", 2) else { return };
    let mut command = hosts.launch(1, &["--nodes", "2", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    let mut child = hosts.start(&mut command);
    let reader = BufReader::new(child.stdout.take().expect("piped"));
    let ranks: Vec<u32> = reader.lines().take(2).map(|line| line.expect("text").parse().expect("a number")).collect();
    assert!(!on_hosts(&hosts.network, "--manager").is_empty(), "there are nodes");
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    assert_gone(&ranks);
    assert_none_on_hosts(&hosts.network, "--manager");
}

#[test]
fn settings_and_the_folder_go_along_and_secrets_stay_here_over_ssh() {
    let Some(hosts) = SshHosts::new("settings", 2) else { return };
    let script = "echo $PLEACH_RANK/$PLEACH_SIZE $PLEACH_ALGORITHM $COLOUR [$PLEACH_SECRET] $(pwd)";
    let folder = std::env::temp_dir().canonicalize().expect("a folder");
    let mut command = hosts.launch(1, &["--env", "COLOUR=light blue", "--", "sh", "-c", script]);
    command.current_dir(&folder).env("PLEACH_ALGORITHM", "ring").env("PLEACH_SECRET", "correct horse");
    let ended = hosts.output(&mut command);
    let mut said: Vec<String> = text(&ended.stdout).lines().map(str::to_owned).collect();
    said.sort();
    let expected = |rank: u32| format!("{rank}/2 ring light blue [] {}", folder.display());
    assert_eq!(said, [expected(0), expected(1)], "{}", text(&ended.stderr));
}

#[test]
fn stdin_goes_to_rank_0_over_ssh() {
    let Some(hosts) = SshHosts::new("stdin", 2) else { return };
    let sent: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
    let file = hosts.folder.join("input");
    std::fs::write(&file, &sent).expect("a file");
    let mut command = hosts.launch(1, &["--", "sh", "-c", "test $PLEACH_RANK = 0 || wc -c >&2; cat"]);
    let ended = hosts.output(command.stdin(std::fs::File::open(&file).expect("a file")));
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout) == sent, "{} of {} bytes", ended.stdout.len(), sent.len());
    assert_eq!(text(&ended.stderr).trim(), "0", "rank 1 has an empty one");
}

/// Neither a rank that does not read nor an input that does not end keeps the job from ending.
#[test]
fn a_job_ends_before_its_stdin_over_ssh() {
    let Some(hosts) = SshHosts::new("endless", 2) else { return };
    let mut endless = Command::new("yes").stdout(Stdio::piped()).spawn().expect("yes");
    let input = endless.stdout.take().expect("piped");
    let mut command = hosts.launch(1, &["--", "sh", "-c", "test $PLEACH_RANK != 0 || { head -n 2; sleep 0.5; }"]);
    let ended = hosts.output(command.stdin(input));
    drop(command); // And with it the input, so that nobody reads it.
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert_eq!(text(&ended.stdout), "y\ny\n");
    assert_none_on_hosts(&hosts.network, "--input");
    endless.wait().expect("our own child");
}

#[test]
fn the_highest_exit_status_counts_and_the_others_are_ended_over_ssh() {
    let Some(hosts) = SshHosts::new("status", 2) else { return };
    let script = "echo $$; if [ $PLEACH_RANK = 1 ]; then exit 7; fi; exec sleep 60";
    let ended = hosts.output(&mut hosts.launch(1, &["--grace", "0.2", "--", "sh", "-c", script]));
    assert_eq!(ended.status.code(), Some(7), "{}", text(&ended.stderr));
    let ranks: Vec<u32> = text(&ended.stdout).lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(ranks.len(), 2);
    assert_gone(&ranks);
}

#[test]
fn signals_reach_the_ranks_over_ssh() {
    let Some(hosts) = SshHosts::new("signals", 2) else { return };
    let (child, ranks) = hosts.sleepers();
    signal(&child, "INT");
    assert_eq!(end_of(child).0, Some(128 + 2));
    assert_gone(&ranks);
}

/// As after Ctrl-Z and `fg` in a shell.
#[test]
fn a_job_stops_for_a_while_and_goes_on_over_ssh() {
    let Some(hosts) = SshHosts::new("suspended", 2) else { return };
    let (child, ranks) = hosts.sleepers();
    signal(&child, "TSTP");
    let state = |process: u32| std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let is_stopped = |process: u32| state(process).contains(") T ");
    let wait_until = |holds: &dyn Fn() -> bool, what: &str| {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < SOON, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait_until(&|| ranks.iter().all(|rank| is_stopped(*rank)) && is_stopped(child.id()), "all are stopped");
    signal(&child, "CONT");
    wait_until(&|| !ranks.iter().any(|rank| is_stopped(*rank)), "all go on");
    signal(&child, "INT");
    assert_eq!(end_of(child).0, Some(128 + 2));
    assert_gone(&ranks);
}

#[test]
fn ranks_end_with_the_launcher_however_it_ends_over_ssh() {
    let Some(hosts) = SshHosts::new("killed", 2) else { return };
    let (mut child, ranks) = hosts.sleepers();
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    assert_gone(&ranks);
}

#[test]
fn a_host_that_cannot_be_reached_is_named_over_ssh() {
    let Some(hosts) = SshHosts::new("unreachable", 1) else { return };
    // The key is wrong for a host that does not listen, and there is no such address.
    let agent = "ssh -o BatchMode=yes -o ConnectTimeout=2 -o LogLevel=ERROR";
    let mut command = launch(&["--hosts", "10.77.9.9", "--agent", agent, "--", "true"]);
    let ended = hosts.output(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot start pleach on host 10.77.9.9"), "{said}");
}

/// The line on stderr with which a job ends that has no other.
#[track_caller]
fn only_line(errors: &[u8]) -> String {
    let said = text(errors);
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_end().to_owned()
}

#[test]
fn a_missing_program_is_named_once_for_all_hosts_over_ssh() {
    let Some(hosts) = SshHosts::new("program", 2) else { return };
    for program in ["/no/such/program", "no-such-program"] {
        let ended = hosts.output(&mut hosts.launch(2, &["--", program]));
        assert_eq!(ended.status.code(), Some(127), "{}", text(&ended.stderr));
        let expected = format!(
            "pleach launch: cannot run {program}: there is no such program on hosts {}, {}",
            hosts.network.host(0).address(),
            hosts.network.host(1).address()
        );
        assert_eq!(only_line(&ended.stderr), expected);
    }
    assert_none_on_hosts(&hosts.network, "launch-host");
}

#[test]
fn no_rank_starts_if_a_host_cannot_be_reached_over_ssh() {
    let Some(hosts) = SshHosts::new("half", 2) else { return };
    hosts.network.host(1).take_link_down().expect("the kernel obeys");
    let began = Instant::now();
    let ended = hosts.output(&mut hosts.launch(1, &["--", "sh", "-c", "echo $$; exec sleep 60"]));
    assert_eq!(ended.status.code(), Some(2), "{}", text(&ended.stderr));
    let expected =
        format!("error: cannot start pleach on host {}: ssh: connect to host", hosts.network.host(1).address());
    assert!(only_line(&ended.stderr).starts_with(&expected), "{}", text(&ended.stderr));
    assert_eq!(text(&ended.stdout), "", "no rank has run");
    assert!(began.elapsed() < 2 * SOON, "{:?}", began.elapsed());
    assert_none_on_hosts(&hosts.network, "launch-host");
}

/// On each of two hosts its rank, a script, starts a process that sleeps.
const SLEEPERS: &[&str] = &["--grace", "1", "--", "sh", "-c", "sleep 300 & echo $PLEACH_RANK $!; wait"];

/// Starts [`SLEEPERS`]; the numbers of the two processes.
fn sleeper_on_each_host(hosts: &SshHosts, mut command: Command) -> (Child, [u32; 2]) {
    let mut child = hosts.start(&mut command);
    let reader = BufReader::new(child.stdout.take().expect("piped"));
    let mut ranks = [0; 2];
    for line in reader.lines().take(2) {
        let line = line.expect("text");
        let (rank, process) = line.split_once(' ').expect("two numbers");
        ranks[rank.parse::<usize>().expect("a rank")] = process.parse().expect("a number");
    }
    (child, ranks)
}

/// A host goes silent and the job ends within `job_limit`, and its own ranks within 30 s, as docs/operations.md says.
fn lose_a_link(hosts: &SshHosts, command: Command, job_limit: Duration) {
    let (child, [near, far]) = sleeper_on_each_host(hosts, command);
    let began = Instant::now();
    hosts.network.host(1).take_link_down().expect("the kernel obeys");
    let (status, said) = end_of(child);
    assert_eq!(status, Some(255), "{said}");
    assert!(said.contains(&format!("host {} ended with status 255", hosts.network.host(1).address())), "{said}");
    assert!(began.elapsed() < job_limit, "{:?}", began.elapsed());
    assert_gone(&[near]);
    let is_left = || all_on_hosts(&hosts.network).iter().any(|found| found.process == far);
    assert!(is_left(), "the other host does not know yet");
    while is_left() {
        assert!(began.elapsed() < SILENT_HOST_LIMIT, "left behind on the host that was cut off");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_none_on_hosts(&hosts.network, "launch-host");
}

/// Within this, the ranks of a silent host end (docs/operations.md, "A job on several hosts"): 30 s of silence, and the second of
/// [`SLEEPERS`] that ranks have to end.
const SILENT_HOST_LIMIT: Duration = Duration::from_secs(32);

/// The connection just goes silent: ssh notices it on one side, `pleach launch-host` on the other.
#[test]
fn a_host_that_loses_its_link_ends_the_job_on_both_sides_over_ssh() {
    let Some(hosts) = SshHosts::new("cut", 2) else { return };
    lose_a_link(&hosts, hosts.launch(1, SLEEPERS), 2 * SOON);
}

/// The time that docs/operations.md names, by the limits that the launcher gives to ssh.
#[test]
#[ignore = "long: waits until ssh notices"]
fn a_silent_host_ends_the_job_within_twenty_five_seconds_over_ssh() {
    let Some(hosts) = SshHosts::new("silent", 2) else { return };
    lose_a_link(&hosts, hosts.launch_by("", 1, SLEEPERS), Duration::from_secs(25));
}

#[test]
fn an_agent_that_is_killed_on_its_host_leaves_no_rank_behind_over_ssh() {
    let Some(hosts) = SshHosts::new("agent", 2) else { return };
    let (child, ranks) = sleeper_on_each_host(&hosts, hosts.launch(1, SLEEPERS));
    let found = all_on_hosts(&hosts.network);
    let is_agent = |arguments: &[String]| arguments.get(1).is_some_and(|word| word == "launch-host");
    let agent = found.iter().find(|found| found.host == 1 && is_agent(&found.arguments));
    signal_to(agent.expect("it runs").process, "KILL");
    let (status, said) = end_of(child);
    assert_ne!(status, Some(0), "{said}");
    assert!(said.contains(&format!("host {} ended", hosts.network.host(1).address())), "{said}");
    assert_gone(&ranks);
    assert_none_on_hosts(&hosts.network, "launch-host");
}

#[test]
#[ignore = "long: 256 processes"]
fn many_ranks_start_over_ssh() {
    let Some(hosts) = SshHosts::new("many", 4) else { return };
    let began = Instant::now();
    let said = hosts.sums(64, &[]);
    assert_eq!(said.matches("summed 32640 hosts 4").count(), 256, "{said}");
    let took = began.elapsed();
    println!("256 ranks on 4 hosts: {:.1} s", took.as_secs_f64());
    assert!(took <= Duration::from_secs(15), "it took {took:?}");
}
