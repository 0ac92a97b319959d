use super::*;

fn environment(variables: &[(&str, &str)]) -> Result<JobEnvironment, EnvironmentError> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    JobEnvironment::from_variables(&variables, |_| Some("launcher-1-2".to_owned()))
}

fn address(host: &str, port: u16) -> RendezvousPoint {
    RendezvousPoint::Address { host: host.to_owned(), port }
}

#[track_caller]
fn is(variables: &[(&str, &str)], rank: u32, size: u32, job: &str, rendezvous: RendezvousPoint) {
    let found = environment(variables).expect("valid variables");
    assert_eq!((found.rank, found.size, found.job.as_str(), found.rendezvous), (rank, size, job, rendezvous));
}

#[track_caller]
fn fails_with(variables: &[(&str, &str)], words: &[&str]) {
    let message = environment(variables).expect_err("invalid variables").to_string();
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

#[test]
fn a_process_without_a_launcher_is_a_job_of_one_rank() {
    let found = environment(&[]).expect("valid variables");
    assert_eq!((found.rank, found.size, found.rendezvous), (0, 1, RendezvousPoint::Singleton));
    assert_eq!(environment(&[("PLEACH_JOB", "solo")]).expect("valid variables").job, "solo");
    assert_eq!(environment(&[("PLEACH_SIZE", "1")]).expect("valid variables").size, 1);
}

#[test]
fn own_variables_have_priority() {
    let own =
        [("PLEACH_RANK", "2"), ("PLEACH_SIZE", "3"), ("PLEACH_JOB", "mine"), ("PMI_RANK", "7"), ("PMI_SIZE", "8")];
    is(&own, 2, 3, "mine", RendezvousPoint::File);
    is(&[("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2")], 0, 2, "launcher-1-2", RendezvousPoint::File);
    let there =
        [("PLEACH_RANK", "1"), ("PLEACH_SIZE", "2"), ("PLEACH_JOB", "j"), ("PLEACH_RENDEZVOUS", "[fd00::1]:7411")];
    is(&there, 1, 2, "j", address("fd00::1", 7411));
}

/// Each rank by another process, on another host: no launcher gives the job a name that all ranks share.
#[test]
fn ranks_that_were_started_by_hand_share_a_token_or_are_told_what_is_missing() {
    let mut by_hand = vec![("PLEACH_RANK", "1"), ("PLEACH_SIZE", "2"), ("PLEACH_RENDEZVOUS", "node7:9000")];
    fails_with(&by_hand, &["PLEACH_RENDEZVOUS is set, but not PLEACH_TOKEN or PLEACH_JOB"]);
    by_hand.push(("PLEACH_TOKEN", "secret"));
    is(&by_hand, 1, 2, "at-node7-9000", address("node7", 9000));
    let mut by_hand = vec![("PLEACH_RANK", "1"), ("PLEACH_SIZE", "2"), ("PLEACH_TOKEN", "secret")];
    let missing = "PLEACH_TOKEN is set, but not PLEACH_RENDEZVOUS or PLEACH_JOB; set PLEACH_RENDEZVOUS=host:port in";
    fails_with(&by_hand, &[missing, "PLEACH_JOB to the same text"]);
    by_hand.push(("PLEACH_JOB", "mine"));
    is(&by_hand, 1, 2, "mine", RendezvousPoint::File);
    let alone = [("PLEACH_RANK", "0"), ("PLEACH_SIZE", "1"), ("PLEACH_RENDEZVOUS", "node7:9000")];
    assert_eq!(environment(&alone).expect("valid variables").rendezvous, RendezvousPoint::Singleton);
    let shared = [("PLEACH_RENDEZVOUS", "node7:9000"), ("PLEACH_TOKEN", "secret"), ("PLEACH_SIZE", "1")];
    for length in [1, 2, 3] {
        fails_with(
            &shared[..length],
            &["PLEACH_RENDEZVOUS is set, but not PLEACH_RANK; set PLEACH_RANK and PLEACH_SIZE in every process"],
        );
    }
}

/// The variables of Open MPI 4.1.4 in Debian.
#[test]
fn open_mpi_uses_a_file_on_one_host_and_needs_an_address_on_several() {
    let mut variables = vec![
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_NAMESPACE", "420020225"),
        ("PMIX_RANK", "1"),
    ];
    is(&variables, 1, 2, "420020225", RendezvousPoint::File);
    variables[2].1 = "1";
    fails_with(&variables, &["several hosts", "PLEACH_RENDEZVOUS=host:port", "OMPI_COMM_WORLD_LOCAL_SIZE"]);
    variables.push(("PLEACH_RENDEZVOUS", "node7:9000"));
    is(&variables, 1, 2, "420020225", address("node7", 9000));
}

#[test]
fn mpich_on_one_host_is_named_after_its_launcher() {
    let hydra = [("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("PMI_ID", "3"), ("PMI_FD", "9"), ("MPI_LOCALNRANKS", "4")];
    let variables: EnvironmentVariables =
        hydra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut marks = Vec::new();
    let found = JobEnvironment::from_variables(&variables, |given| {
        marks = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some("proxy".to_owned())
    });
    assert_eq!(found.expect("valid variables").job, "proxy");
    assert_eq!(marks, ["PMI_RANK=3", "PMI_SIZE=4", "PMI_FD=9"]);
    assert_eq!(JobEnvironment::from_variables(&variables, |_| None), Err(EnvironmentError::NoJobName));
}

#[test]
fn mvapich_is_supported() {
    let variables = [("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2"), ("PMI_JOBID", "5")];
    is(&variables, 0, 2, "5", RendezvousPoint::File);
}

const STEP: [(&str, &str); 5] = [
    ("SLURM_JOB_ID", "1234"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_STEP_NODELIST", "node[003-004],x"),
];

#[test]
fn slurm_uses_the_first_host_and_a_port_derived_from_the_step() {
    let found = environment(&STEP).expect("valid variables");
    assert_eq!((found.rank, found.size, found.job.as_str()), (5, 8, "slurm-1234.0"));
    let RendezvousPoint::Address { host, port } = found.rendezvous else { panic!("{:?}", found.rendezvous) };
    assert_eq!(host, "node003");
    assert!(SLURM_PORTS.contains(&port));
    let mut next = STEP;
    next[1].1 = "1";
    let RendezvousPoint::Address { port: other, .. } = environment(&next).expect("valid variables").rendezvous else {
        panic!("no address")
    };
    assert_ne!(port, other);
}

#[test]
fn slurm_on_one_host_uses_a_file() {
    let mut one = STEP;
    one[4].1 = "node003";
    is(&one, 5, 8, "slurm-1234.0", RendezvousPoint::File);
}

#[test]
fn slurm_with_pmix_or_pmi_knows_its_hosts() {
    let mut variables = STEP.to_vec();
    variables.extend([("PMIX_RANK", "5"), ("PMIX_NAMESPACE", "slurm.pmix.1234.0")]);
    let found = environment(&variables).expect("valid variables");
    assert_eq!((found.rank, found.size, found.job.as_str()), (5, 8, "slurm-1234.0"));
    assert!(matches!(found.rendezvous, RendezvousPoint::Address { .. }));
    let mut variables = STEP.to_vec();
    variables.extend([("PMI_RANK", "5"), ("PMI_SIZE", "8")]);
    assert_eq!(environment(&variables).expect("valid variables").job, "slurm-1234.0");
}

/// Otherwise it would wait for seven processes that do not exist.
#[test]
fn a_slurm_batch_script_is_a_job_of_one_rank() {
    let mut script = STEP;
    script[1].1 = "4294967291";
    assert_eq!(environment(&script).expect("valid variables").rendezvous, RendezvousPoint::Singleton);
    assert_eq!(environment(&script[2..]).expect("valid variables").size, 1);
}

#[test]
fn missing_and_invalid_variables_are_named_with_what_to_set() {
    fails_with(&[("PLEACH_RANK", "1")], &["PLEACH_SIZE"]);
    fails_with(&[("PLEACH_SIZE", "4")], &["PLEACH_RANK"]);
    fails_with(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "x")], &["PMIX_RANK", "PLEACH_SIZE"]);
    fails_with(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")], &["PMI_RANK", "\"4\"", "0 to 3"]);
    fails_with(&[("PMI_RANK", "-1"), ("PMI_SIZE", "4")], &["PMI_RANK"]);
    fails_with(&[("PMI_RANK", "0"), ("PMI_SIZE", "0")], &["PMI_SIZE"]);
    fails_with(&[("PMI_RANK", "0"), ("PMI_SIZE", "70000")], &["PMI_SIZE", "65536"]);
    fails_with(&STEP[..4], &["SLURM_STEP_NODELIST"]);
    for invalid in ["node", "node:", ":9", "node:0", "node:70000", "[fd00::1:9", "a b:9"] {
        let variables = [("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), ("PLEACH_RENDEZVOUS", invalid)];
        fails_with(&variables, &["PLEACH_RENDEZVOUS", "host:port"]);
    }
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    fails_with(&[("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), ("PLEACH_JOB", &long)], &["PLEACH_JOB"]);
}

#[test]
fn a_token_is_never_shown() {
    let secret = "s3cret\u{7}";
    let variables = [("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), ("PLEACH_JOB", "j"), ("PLEACH_TOKEN", secret)];
    let message = format!("{:?} {0}", environment(&variables).expect_err("it contains a control character"));
    assert!(message.contains("PLEACH_TOKEN") && !message.contains("s3cret"), "{message}");
    let fine = environment(&[("PLEACH_TOKEN", "s3cret")]).expect("valid variables");
    assert_eq!(fine.token, JobToken(b"s3cret".to_vec()));
    assert!(!format!("{fine:?}").contains("s3cret"));
}

#[test]
fn jobs_with_different_names_have_different_tokens() {
    let token = |job| environment(&[("PLEACH_JOB", job)]).expect("valid variables").token;
    assert_ne!(token("a"), token("b"));
}
