//! The scripts of `examples/slurm` for a standing service: the one that starts it, and a job of an MPI program that uses it.
//! `batch_job.rs` runs job.sh.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use namespaces::NamespaceNetwork;
use serde_json::Value;

use super::within_slurm::SlurmCluster;
use super::*;

/// The hosts that standing-service.sh names; it runs on the first.
const HOSTS: [&str; 3] = ["head1", "n01", "n17"];
/// Seconds that the script may take.
const SCRIPT_TIMEOUT: &str = "60";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/slurm").join(name).canonicalize().expect("an example")
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Hosts that a root can reach by ssh and on which the package is installed, as the script expects. Systemd and ssh are scripts: they run
/// what they are told on that host, without encryption and supervision.
struct Site {
    folder: PathBuf,
    network: NamespaceNetwork,
}

impl Site {
    /// None where hosts cannot be created, after printing so.
    fn new() -> Option<Self> {
        let network = match NamespaceNetwork::new(HOSTS.len()) {
            Ok(network) => network,
            Err(error) => {
                namespaces::skip_test(error);
                return None;
            }
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("standing-service-{}", std::process::id()));
        let site = Self { folder, network };
        std::fs::create_dir_all(site.folder.join("bin")).expect("a folder");
        HOSTS.iter().for_each(|host| site.fill_settings(host));
        site.write_programs();
        Some(site)
    }

    /// A copy of /etc for a host, as after the installation of the package.
    fn fill_settings(&self, host: &str) {
        let settings = self.settings(host);
        let copied = Command::new("cp").args(["-a", "/etc"]).arg(&settings).status();
        assert!(copied.expect("cp").success());
        for folder in ["pleach", "slurm"] {
            std::fs::create_dir_all(settings.join(folder)).expect("a folder");
        }
        // Every package has made a secret of its own.
        std::fs::write(settings.join("pleach/secret"), format!("the secret of {host}")).expect("a file");
        let address = |index: usize| self.network.host(index).address();
        let names: String =
            HOSTS.iter().enumerate().map(|(index, name)| format!("{} {name}\n", address(index))).collect();
        std::fs::write(settings.join("hosts"), format!("127.0.0.1 localhost\n{names}")).expect("a file");
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/config");
        for service in ["manager.toml", "node.toml"] {
            std::fs::copy(packaging.join(service), settings.join("pleach").join(service)).expect("a file");
        }
    }

    /// A host's /etc.
    fn settings(&self, host: &str) -> PathBuf {
        self.folder.join(format!("etc-{host}"))
    }

    /// What the comments in the script tell the operator to do first.
    fn follow_comments(&self, script: &str) {
        let head = self.settings(HOSTS[0]);
        let topology: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
        assert!(topology.iter().all(|line| line.starts_with("SwitchName=")) && topology.len() == 3, "{topology:?}");
        std::fs::write(head.join("slurm/topology.conf"), topology.join("\n") + "\n").expect("a file");
        let comment = script.lines().find_map(|line| line.split_once("/etc/pleach/manager.toml: "));
        let (_, settings) = comment.expect("the settings of the manager");
        let file = head.join("pleach/manager.toml");
        std::fs::write(&file, text_of(&file) + &settings.replace(" and ", "\n") + "\n").expect("a file");
    }

    fn write_programs(&self) {
        let folder = self.folder.display();
        symlink(env!("CARGO_BIN_EXE_pleach"), self.folder.join("bin/pleach")).expect("a link");
        let namespaces: String = HOSTS
            .iter()
            .enumerate()
            .map(|(index, host)| format!("{host}) file={};;\n", self.network.host(index).namespace_path().display()))
            .collect();
        self.program(
            "on-host",
            &format!(
                "host=$1; shift\ncase $host in\n{namespaces}esac\n\
                 exec nsenter --net=$file unshare --mount --uts sh -c \
                 'hostname \"$0\"; mount --bind {folder}/etc-\"$0\" /etc; exec \"$@\"' \"$host\" \"$@\""
            ),
        );
        self.program("ssh", "host=${1#root@}; shift\nexec on-host \"$host\" sh -c \"$*\"");
        // A service is ready when it has printed its address, or it has failed.
        let systemctl = format!(
            "echo \"$(hostname) $*\" >> {folder}/systemctl.log\n\
             case $* in\n'enable --now '*|'restart '*) ;;\n'enable '*) exit 0;;\n*) exit 1;;\nesac\n\
             for service; do :; done\nservice=${{service#pleach-}}; log={folder}/$(hostname)-$service\n\
             pleach \"$service\" --config \"/etc/pleach/$service.toml\" > \"$log.out\" 2> \"$log.log\" < /dev/null &\n\
             until [ -s \"$log.out\" ]; do kill -0 $!; sleep 0.05; done"
        );
        self.program("systemctl", &systemctl);
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.folder.join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\nset -eu\n{script}\n")).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("our file");
    }

    /// Runs a script on the first host. All that it starts anywhere ends with it.
    fn run(&self, script: &str) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "timeout", SCRIPT_TIMEOUT]);
        command.args(["on-host", HOSTS[0], "sh", "-euc", script]);
        without_settings(&mut command);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}/bin:{path}", self.folder.display())).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.network.host(0).start(&mut command).expect("a shell");
        child.wait_with_output().expect("it ends")
    }

    /// What the services have logged.
    fn logs(&self) -> String {
        let files = std::fs::read_dir(&self.folder).expect("our folder").flatten().map(|entry| entry.path());
        files.filter(|file| file.extension().is_some_and(|end| end == "log")).map(|file| text_of(&file)).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The nodes register within moments after their services are ready.
const WAIT_FOR_NODES: &str = "
for _ in $(seq 200); do
    view=$(pleach top --manager head1:4797 --secret-file /etc/pleach/secret --once --format json --interval 0.1)
    case $view in *alive*alive*alive*) break;; esac
    sleep 0.05
done
echo \"VIEW $view\"";

#[test]
fn the_standing_service_of_the_slurm_examples_starts_between_hosts() {
    let Some(site) = Site::new() else { return };
    let script = example("standing-service.sh");
    site.follow_comments(&text_of(&script));
    let ended = site.run(&format!("sh {}\n{WAIT_FOR_NODES}", script.display()));
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}{}{}", text(&ended.stderr), site.logs());
    let view = said.lines().find_map(|line| line.strip_prefix("VIEW ")).expect("the last view");
    let view: Value = serde_json::from_str(view).expect("one object");
    let nodes = view["nodes"].as_array().expect("a list");
    let mut names: Vec<&str> =
        nodes.iter().filter(|node| node["alive"] == true).filter_map(|node| node["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["core", "rack1", "rack2"], "{view} {}", site.logs());
    // All have the manager's secret, and it is still whole.
    for host in HOSTS {
        assert_eq!(text_of(&site.settings(host).join("pleach/secret")), "the secret of head1", "{host}");
        let enabled = format!("{host} enable pleach-node");
        assert!(text_of(&site.folder.join("systemctl.log")).lines().any(|line| line == enabled), "{host}");
    }
}

const SUM: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %d\n", sum);
    return MPI_Finalize();
}
"#;

/// The script as it stands, but for the places of the program, of ours and of the secret.
#[test]
#[ignore = "long: starts Slurm"]
fn the_mpi_job_of_the_examples_runs_within_slurm_under_open_mpi() {
    let Some(cluster) = SlurmCluster::new("mpi-job") else { return };
    let at = |name: &str| cluster.folder.join(name).display().to_string();
    std::fs::write(at("sum.c"), SUM).expect("a file");
    let compiled = Command::new("mpicc.openmpi").args(["-o", &at("program"), &at("sum.c")]).status();
    assert!(compiled.expect("mpicc").success());
    std::fs::write(at("secret"), "correct horse battery staple").expect("a file");
    let pleach = env!("CARGO_BIN_EXE_pleach");
    let service = |name: &str, arguments: &[&str]| {
        let mut command = cluster.command(0, pleach);
        command.args(arguments).args(["--secret-file", &at("secret")]);
        let log = std::fs::File::create(at(name)).expect("a file");
        command.stdout(log.try_clone().expect("a file")).stderr(log);
        cluster.network.host(0).start(&mut command).expect("pleach starts")
    };
    let mut services = [
        service("manager.log", &["manager", "--listen", "head1:4797"]),
        service("node.log", &["node", "--manager", "head1:4797", "--name", "rack1"]),
    ];
    let own = std::env::current_exe().expect("this test");
    let library = own.parent().expect("a folder").display();
    let script = text_of(&example("mpi-job.sh"));
    let script = script
        .replace("/etc/pleach/secret", &at("secret"))
        .replace("$(pleach ", &format!("$({pleach} "))
        .replace("./program", &at("program"))
        .replace(
            "exec pleach exec ",
            &format!(
                "export PLEACH_MPI_LIBRARY={library} PLEACH_MPI_CHOICE=pleach PLEACH_MANAGER_REQUIRED=1\nexec {pleach} exec "
            ),
        );
    let (status, said) = cluster.batch(2, &script);
    let logs = text_of(Path::new(&at("manager.log"))) + &text_of(Path::new(&at("node.log")));
    for service in &mut services {
        let _ = service.kill();
        let _ = service.wait();
    }
    assert_eq!(status, Some(0), "{said}{logs}{}", cluster.logs());
    assert!(said.contains("sum 6"), "{said}");
    assert!(said.contains("calls of all ranks offloaded"), "{said}");
}
