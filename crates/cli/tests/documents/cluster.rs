//! Three hosts, `a` (10.0.0.1), `b` and `rack1`, with ssh between them, in a folder that looks like that of the documents' reader.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use namespaces::NamespaceNetwork;

use crate::blocks::{Block, Treatment, treatment};

const HOSTS: [&str; 3] = ["a", "b", "rack1"];
const SOON: Duration = Duration::from_secs(20);
/// How long a command runs that takes minutes.
const BEGIN_SECONDS: u32 = 4;
/// How long a service has to be ready.
const SERVICE_SECONDS: u32 = 1;

const MPI_PROGRAM: &str = r"
#include <mpi.h>
int main(int argc, char **argv)
{
    int size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 10; round++) {
        int one = 1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return sum == size ? 0 : 1;
}
";

/// What `./program` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    Mpi,
    /// A program that calls Pleach itself.
    Native,
}

/// The hosts, their ssh servers, and the reader's folder.
pub(crate) struct Cluster {
    servers: Vec<Child>,
    folder: PathBuf,
    network: NamespaceNetwork,
}

impl Cluster {
    /// None where hosts cannot be created, after printing so.
    pub(crate) fn new(program: ProgramKind) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let network = match NamespaceNetwork::new(HOSTS.len()) {
            Ok(network) => network,
            Err(error) => {
                namespaces::skip_test(error);
                return None;
            }
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("documents-{}-{number}", std::process::id()));
        let mut cluster = Self { servers: Vec::new(), folder, network };
        cluster.fill_folder(program);
        cluster.fill_settings();
        (0..HOSTS.len()).for_each(|host| cluster.start_host(host));
        Some(cluster)
    }

    /// The reader's folder: the programs in the path, a build, a program, and the repository's data.
    fn fill_folder(&self, program: ProgramKind) {
        let root = crate::root();
        let own = std::env::current_exe().expect("this test");
        let built = own.parent().expect("a folder");
        for folder in ["bin", "target/release"] {
            std::fs::create_dir_all(self.folder.join(folder)).expect("a folder");
        }
        let link = |from: &Path, to: &str| std::os::unix::fs::symlink(from, self.folder.join(to)).expect("a link");
        link(Path::new(env!("CARGO_BIN_EXE_pleach")), "bin/pleach");
        link(Path::new(env!("CARGO_BIN_EXE_pleach")), "target/release/pleach");
        link(&built.join("libpleach_mpi.so"), "target/release/libpleach_mpi.so");
        link(&root.join("scenarios"), "scenarios");
        link(&root.join("contrib"), "contrib");
        self.script("bin/sudo", "exec \"$@\"\n");
        std::fs::write(self.folder.join("hosts"), "a:2\nb:2\n").expect("a file");
        link(&root.join("tests/tests/soak_cases/damaged-naks.toml"), "failure.toml");
        match program {
            ProgramKind::Mpi => {
                link(Path::new("/usr/bin/mpirun.openmpi"), "bin/mpirun");
                let source = self.folder.join("program.c");
                std::fs::write(&source, MPI_PROGRAM).expect("a file");
                let compiled =
                    Command::new("mpicc.openmpi").arg("-o").arg(self.folder.join("program")).arg(source).status();
                assert!(compiled.expect("mpicc").success());
            }
            ProgramKind::Native => {
                self.script("program", &format!("exec {} --exact as_a_rank --ignored\n", own.display()));
            }
        }
    }

    fn script(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}")).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("our file");
    }

    /// A copy of /etc, which all hosts see in its place, with names, keys and a secret.
    fn fill_settings(&self) {
        let settings = self.folder.join("etc");
        let copied = Command::new("cp").args(["-a", "/etc"]).arg(&settings).status();
        assert!(copied.expect("cp").success());
        std::fs::create_dir_all(settings.join("pleach")).expect("a folder");
        std::fs::write(settings.join("pleach/secret"), "correct horse battery staple").expect("a file");
        let mut names = "127.0.0.1 localhost\n".to_owned();
        for (index, name) in HOSTS.iter().enumerate() {
            writeln!(names, "{} {name}", address(index)).expect("memory");
        }
        std::fs::write(settings.join("hosts"), names).expect("a file");
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(self.folder.join(key)).status();
            assert!(made.expect("ssh-keygen").success());
        }
        let client = format!(
            "Host *\nIdentityFile {}/user\nBatchMode yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n",
            self.folder.display()
        );
        std::fs::write(settings.join("ssh/ssh_config"), client).expect("a file");
    }

    fn start_host(&mut self, index: usize) {
        let folder = self.folder.display();
        let settings = format!(
            "HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n\
             SetEnv PATH={folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        );
        let file = self.folder.join(format!("server{index}"));
        std::fs::write(&file, settings).expect("a file");
        let _ = std::fs::create_dir_all("/run/sshd"); // The server wants it; a service would make it.
        // A monitor of packets finds the device that the documents name.
        let script = format!(
            "ip address flush dev net0 && ip address add {}/24 dev net0 && ip route add 224.0.0.0/4 dev net0 && ip link add eth0 type veth peer name unused && \
             ip link set unused up && ip link set eth0 up && exec /usr/sbin/sshd -D -e -f {}",
            address(index),
            file.display()
        );
        let log = std::fs::File::create(self.folder.join(format!("server{index}.log"))).expect("a file");
        let mut shell = self.shell(index, &script);
        let server = self.network.host(index).start(shell.stdout(Stdio::null()).stderr(log)).expect("a shell");
        self.servers.push(server);
        let at = std::net::SocketAddr::from((address(index), 22));
        let began = Instant::now();
        while self.network.host(index).inside(|| std::net::TcpStream::connect(at)).expect("a host").is_err() {
            let said = || std::fs::read_to_string(self.folder.join(format!("server{index}.log"))).unwrap_or_default();
            assert!(began.elapsed() < SOON, "sshd of {} does not listen: {}", HOSTS[index], said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A shell that sees the cluster's /etc and has the host's name. All that it starts ends with it. It has no namespaces of others: by
    /// the numbers of processes that it knows, their owners would have ended, and commands in it would remove them.
    fn shell(&self, index: usize, script: &str) -> Command {
        let enter = format!(
            "hostname {}; mount --bind {}/etc /etc; mount -t sysfs sysfs /sys || true; \
             mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; {script}",
            HOSTS[index],
            self.folder.display()
        );
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c", &enter]);
        shell.current_dir(&self.folder).stdin(Stdio::null());
        shell
    }

    /// Runs the lines of a block on the first host.
    pub(crate) fn run(&self, block: &Block) {
        let mut script = "set -e\n".to_owned();
        if block.lines.iter().any(|line| line.contains("10.1.0.1")) {
            script += "ip address add 10.1.0.1/32 dev lo\n"; // A second address of this host. Other blocks do without: Open MPI would use it.
        }
        for line in block.lines.iter().filter(|line| !line.trim().is_empty()) {
            let written = match treatment(line) {
                Treatment::Elsewhere(by) => writeln!(script, "# {by}: {line}"),
                Treatment::Ends => writeln!(script, "echo '+' {}\n{line}", quoted(line)),
                Treatment::Stays => {
                    let command = line.split(" #").next().unwrap_or_default().trim().trim_end_matches('&');
                    writeln!(script, "echo '+' {}\n{command} &\nsleep {SERVICE_SECONDS}; kill -0 $!", quoted(line))
                }
                Treatment::Begins => writeln!(
                    script,
                    "echo '+' {}\ntimeout --kill-after 20 --signal INT {BEGIN_SECONDS} sh -c {} || [ $? = 124 ]",
                    quoted(line),
                    quoted(line)
                ),
            };
            written.expect("memory");
        }
        self.run_script(block, &script);
    }

    /// Starts a manager with the topology of a block, which must accept it.
    pub(crate) fn run_manager_with_topology(&self, block: &Block) {
        std::fs::write(self.folder.join("topology.toml"), block.lines.join("\n")).expect("a file");
        let script = "set -e\npleach manager --topology topology.toml &\nsleep 1; kill -0 $!; pleach top\n";
        self.run_script(block, script);
    }

    fn run_script(&self, block: &Block, script: &str) {
        let log_path = self.folder.join(format!("block{}.log", block.line));
        let log = std::fs::File::create(&log_path).expect("a file");
        let mut shell = self.shell(0, script);
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}/bin:{path}", self.folder.display()));
        for name in
            std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("PLEACH_"))
        {
            shell.env_remove(name);
        }
        // Open MPI demands these of root, and of a machine with fewer processors than ranks.
        shell.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        shell.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env("OMPI_MCA_hwloc_base_binding_policy", "none");
        shell.stdout(log.try_clone().expect("a file")).stderr(log).process_group(0);
        let mut child = self.network.host(0).start(&mut shell).expect("a shell");
        let status = child.wait().expect("a child of this process");
        let said = std::fs::read_to_string(&log_path).unwrap_or_default();
        assert!(status.success(), "the block at line {}: {status}\n{script}\n{said}", block.line);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn address(index: usize) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::new(10, 0, 0, u8::try_from(index + 1).expect("three hosts"))
}

/// A word for the shell.
fn quoted(line: &str) -> String {
    format!("'{}'", line.replace('\'', "'\\''"))
}
