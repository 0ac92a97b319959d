//! Ranks on hosts made of network namespaces, and a node on the host of the launcher; where these cannot be created, the tests print so and
//! return.

use std::os::unix::fs::PermissionsExt;

use namespaces::NamespaceNetwork;

use super::*;

/// Three hosts for ranks, two ranks on the first of them; manager, node and launcher on a fourth.
fn start_between_hosts(
    network: &NamespaceNetwork,
    program: &str,
    rounds: &str,
    plan: &Path,
    report: &Path,
) -> Command {
    let agent = file("agent.sh");
    let script = "#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host unshare --uts sh -c \"hostname $host; $*\"\n";
    std::fs::write(&agent, script).expect("the target folder can be written to");
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("a file of this test");
    let launcher = network.host(3);
    let hosts: Vec<String> = [(0, 2), (1, 1), (2, 1)]
        .iter()
        .map(|(host, ranks)| format!("{}:{ranks}", network.host(*host).name()))
        .collect();
    let address = launcher.address().to_string();
    let own = pleach("exec", &["--nodes", "1", "--listen", &address, "--faults"]);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", launcher.name()]).arg(own.get_program()).args(own.get_args());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.arg(plan).args(["--format", "json", "--output"]).arg(report).arg("--").args(OPEN_MPI).arg("1");
    let networks = format!("{address}/16");
    let options = [
        ("plm_rsh_agent", agent.to_str().expect("a plain path")),
        ("plm_rsh_no_tree_spawn", "1"),
        ("orte_keep_fqdn_hostnames", "1"),
        ("oob_tcp_if_include", &networks),
        ("btl_tcp_if_include", &networks),
        ("btl", "tcp,self"),
        ("pml", "ob1"),
    ];
    for (name, value) in options {
        command.args(["--mca", name, value]);
    }
    command.args(["-H", &hosts.join(","), "-n", "4", program, rounds]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Bits flip, packets are lost, and in the middle the node is killed: the results are the same.
#[test]
fn a_node_between_hosts_is_used_and_killed_under_open_mpi() {
    let network = match NamespaceNetwork::new(4) {
        Ok(network) => network,
        Err(error) => return namespaces::skip_test(error),
    };
    let program = compile("mpicc.openmpi", "survival.c");
    let (plan, report) = (file("faults.toml"), file("report.json"));
    std::fs::write(&plan, FAULTS).expect("the target folder can be written to");
    for kill in [false, true] {
        let rounds = if kill { "2000" } else { "100" };
        let child = start_between_hosts(&network, &program, rounds, &plan, &report).spawn().expect("pleach starts");
        if kill {
            let began = std::time::Instant::now();
            wait_for_children(&child, |found| find(found, &["node", "root"]).is_some());
            while !is_aggregating(&network) {
                assert!(began.elapsed() < SOON, "no rank has opened a socket");
                std::thread::sleep(SOON / 1000);
            }
            std::thread::sleep(SOON / 20); // In the middle of the run.
            signal_to(find(&children(child.id()), &["node", "root"]).expect("a node").process, "KILL");
        }
        let output = child.wait_with_output().expect("a child of this test");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), format!("survival: {rounds} rounds\n"));
        let report = read(&report);
        let of_ranks = &report["report"];
        assert_eq!((&of_ranks["ranks"], &of_ranks["hosts"]), (&4.into(), &3.into()), "{report}");
        // How many went through the node before its end depends on the machine's speed.
        let least = if kill { 0 } else { 100 };
        assert!(
            of_ranks["operations"]["through_nodes"].as_u64() > Some(least) && of_ranks["failures"] == 0,
            "{report}"
        );
        assert!(of_ranks["packets"]["damaged"].as_u64() > Some(0), "{report}");
        assert_eq!(report["lost"].as_array().map(Vec::len), Some(usize::from(kill)), "{report}");
    }
}

/// True once a rank on the first host has opened a socket for packets.
fn is_aggregating(network: &NamespaceNetwork) -> bool {
    let listed = Command::new("ip").args(["netns", "exec", network.host(0).name(), "cat", "/proc/net/udp"]).output();
    text(&listed.expect("iproute2").stdout).lines().count() > 1
}
