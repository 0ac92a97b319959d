use super::*;

fn place(variables: &[(&str, &str)]) -> Result<JobEnvironment, EnvironmentError> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    JobEnvironment::of(&variables, |_| Some("launcher-1-2".to_owned()))
}

fn address(host: &str, port: u16) -> RendezvousPoint {
    RendezvousPoint::Address { host: host.to_owned(), port }
}

#[track_caller]
fn is(variables: &[(&str, &str)], rank: u32, size: u32, job: &str, meeting: RendezvousPoint) {
    let found = place(variables).expect("a place");
    assert_eq!((found.rank, found.size, found.job.as_str(), found.meeting), (rank, size, job, meeting));
}

#[track_caller]
fn says(variables: &[(&str, &str)], words: &[&str]) {
    let said = place(variables).expect_err("no place").to_string();
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn a_process_that_nobody_launched_is_a_job_of_one() {
    let found = place(&[]).expect("a place");
    assert_eq!((found.rank, found.size, found.meeting), (0, 1, RendezvousPoint::Alone));
    assert_eq!(place(&[("PLEACH_JOB", "solo")]).expect("a place").job, "solo");
    assert_eq!(place(&[("PLEACH_SIZE", "1")]).expect("a place").size, 1);
}

#[test]
fn own_variables_come_first() {
    let own =
        [("PLEACH_RANK", "2"), ("PLEACH_SIZE", "3"), ("PLEACH_JOB", "mine"), ("PMI_RANK", "7"), ("PMI_SIZE", "8")];
    is(&own, 2, 3, "mine", RendezvousPoint::Notice);
    is(&[("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2")], 0, 2, "launcher-1-2", RendezvousPoint::Notice);
    let there =
        [("PLEACH_RANK", "1"), ("PLEACH_SIZE", "2"), ("PLEACH_JOB", "j"), ("PLEACH_RENDEZVOUS", "[fd00::1]:7411")];
    is(&there, 1, 2, "j", address("fd00::1", 7411));
}

/// As Debian's Open MPI 4.1.4 sets them.
#[test]
fn open_mpi_on_one_host_meets_by_notice_and_on_several_asks_for_an_address() {
    let mut variables = vec![
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_NAMESPACE", "420020225"),
        ("PMIX_RANK", "1"),
    ];
    is(&variables, 1, 2, "420020225", RendezvousPoint::Notice);
    variables[2].1 = "1";
    says(&variables, &["several hosts", "PLEACH_RENDEZVOUS=host:port", "OMPI_COMM_WORLD_LOCAL_SIZE"]);
    variables.push(("PLEACH_RENDEZVOUS", "node7:9000"));
    is(&variables, 1, 2, "420020225", address("node7", 9000));
}

#[test]
fn mpich_on_one_host_is_named_after_its_launcher() {
    let hydra = [("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("PMI_ID", "3"), ("PMI_FD", "9"), ("MPI_LOCALNRANKS", "4")];
    let variables: EnvironmentVariables =
        hydra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut marks = Vec::new();
    let found = JobEnvironment::of(&variables, |given| {
        marks = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some("proxy".to_owned())
    });
    assert_eq!(found.expect("a place").job, "proxy");
    assert_eq!(marks, ["PMI_RANK=3", "PMI_SIZE=4", "PMI_FD=9"]);
    assert_eq!(JobEnvironment::of(&variables, |_| None), Err(EnvironmentError::NoName));
}

#[test]
fn mvapich_is_known() {
    let variables = [("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2"), ("PMI_JOBID", "5")];
    is(&variables, 0, 2, "5", RendezvousPoint::Notice);
}

const STEP: [(&str, &str); 5] = [
    ("SLURM_JOB_ID", "1234"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_STEP_NODELIST", "node[003-004],x"),
];

#[test]
fn slurm_meets_on_the_first_host_at_a_port_of_the_step() {
    let found = place(&STEP).expect("a place");
    assert_eq!((found.rank, found.size, found.job.as_str()), (5, 8, "slurm-1234.0"));
    let RendezvousPoint::Address { host, port } = found.meeting else { panic!("{:?}", found.meeting) };
    assert_eq!(host, "node003");
    assert!(SLURM_PORTS.contains(&port));
    let mut next = STEP;
    next[1].1 = "1";
    let RendezvousPoint::Address { port: other, .. } = place(&next).expect("a place").meeting else {
        panic!("no address")
    };
    assert_ne!(port, other);
}

#[test]
fn slurm_on_one_host_meets_by_notice() {
    let mut one = STEP;
    one[4].1 = "node003";
    is(&one, 5, 8, "slurm-1234.0", RendezvousPoint::Notice);
}

#[test]
fn slurm_with_pmix_or_pmi_knows_its_hosts_too() {
    let mut variables = STEP.to_vec();
    variables.extend([("PMIX_RANK", "5"), ("PMIX_NAMESPACE", "slurm.pmix.1234.0")]);
    let found = place(&variables).expect("a place");
    assert_eq!((found.rank, found.size, found.job.as_str()), (5, 8, "slurm-1234.0"));
    assert!(matches!(found.meeting, RendezvousPoint::Address { .. }));
    let mut variables = STEP.to_vec();
    variables.extend([("PMI_RANK", "5"), ("PMI_SIZE", "8")]);
    assert_eq!(place(&variables).expect("a place").job, "slurm-1234.0");
}

/// It would wait for seven processes that nobody started.
#[test]
fn a_batch_script_of_slurm_is_alone() {
    let mut script = STEP;
    script[1].1 = "4294967291";
    assert_eq!(place(&script).expect("a place").meeting, RendezvousPoint::Alone);
    assert_eq!(place(&script[2..]).expect("a place").size, 1);
}

#[test]
fn what_is_missing_or_strange_is_named_with_what_to_set() {
    says(&[("PLEACH_RANK", "1")], &["PLEACH_SIZE"]);
    says(&[("PLEACH_SIZE", "4")], &["PLEACH_RANK"]);
    says(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "x")], &["PMIX_RANK", "PLEACH_SIZE"]);
    says(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")], &["PMI_RANK", "\"4\"", "0 to 3"]);
    says(&[("PMI_RANK", "-1"), ("PMI_SIZE", "4")], &["PMI_RANK"]);
    says(&[("PMI_RANK", "0"), ("PMI_SIZE", "0")], &["PMI_SIZE"]);
    says(&[("PMI_RANK", "0"), ("PMI_SIZE", "70000")], &["PMI_SIZE", "65536"]);
    says(&STEP[..4], &["SLURM_STEP_NODELIST"]);
    for odd in ["node", "node:", ":9", "node:0", "node:70000", "[fd00::1:9", "a b:9"] {
        let variables = [("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), ("PLEACH_RENDEZVOUS", odd)];
        says(&variables, &["PLEACH_RENDEZVOUS", "host:port"]);
    }
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    says(&[("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), ("PLEACH_JOB", &long)], &["PLEACH_JOB"]);
}

#[test]
fn a_token_is_never_shown() {
    let secret = "s3cret\u{7}";
    let variables = [("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), ("PLEACH_TOKEN", secret)];
    let said = format!("{:?} {0}", place(&variables).expect_err("it has a bell in it"));
    assert!(said.contains("PLEACH_TOKEN") && !said.contains("s3cret"), "{said}");
    let fine = place(&[("PLEACH_TOKEN", "s3cret")]).expect("a place");
    assert_eq!(fine.token, JobToken(b"s3cret".to_vec()));
    assert!(!format!("{fine:?}").contains("s3cret"));
}

#[test]
fn jobs_of_different_names_have_different_tokens() {
    let token = |job| place(&[("PLEACH_JOB", job)]).expect("a place").token;
    assert_ne!(token("a"), token("b"));
}
