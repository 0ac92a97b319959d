//! Unmodified MPI programs with the library preloaded: the results are right, and Pleach computed them.
//!
//! Each test compiles a program of this folder with an MPI's own compiler and runs it with that MPI's own launcher.

mod choice;
mod jobs;
mod pip_installed;

use jobs::{Job, MPICH, Mpi, OPEN_MPI};

#[test]
fn conformance_under_open_mpi() {
    let program = OPEN_MPI.compile("conformance.c");
    for ranks in [1, 2, 4] {
        let end = Job::new(OPEN_MPI, &program, ranks).argument("quick").run();
        assert!(end.stdout.contains("conformance: "), "{ranks} ranks: {}", end.stdout);
        if ranks > 1 {
            end.check_that_everything_was_offloaded();
        }
    }
}

/// Ranks of MPICH do not yield the CPU while they wait, so a third one on two CPUs waits for time slices.
#[test]
fn conformance_under_mpich() {
    let program = MPICH.compile("conformance.c");
    for ranks in [1, 2] {
        let end = Job::new(MPICH, &program, ranks).argument("quick").run();
        assert!(end.stdout.contains("conformance: "), "{ranks} ranks: {}", end.stdout);
        if ranks > 1 {
            end.check_that_everything_was_offloaded();
        }
    }
}

/// Every rank is a host of its own, so everything goes over sockets.
#[test]
fn conformance_over_the_network_under_open_mpi() {
    let program = OPEN_MPI.compile("conformance.c");
    let job = Job::new(OPEN_MPI, &program, 3).set("PLEACH_SHARED_MEMORY", "off");
    let end = job.argument("quick").run();
    assert!(end.stdout.contains("conformance: "), "{}", end.stdout);
    end.check_that_everything_was_offloaded();
    assert_eq!(end.report["hosts"], 3);
}

/// Odd numbers of ranks, on one host and on hosts with two ranks each: the last host has one.
#[test]
fn conformance_of_odd_numbers_of_ranks_under_open_mpi() {
    let program = OPEN_MPI.compile("conformance.c");
    for (ranks, shared_memory, hosts) in [(3, "on", 1), (5, "on", 1), (3, "2", 2), (5, "2", 3)] {
        let job = Job::new(OPEN_MPI, &program, ranks).set("PLEACH_SHARED_MEMORY", shared_memory);
        let end = job.argument("brief").run();
        assert!(end.stdout.contains("conformance: "), "{ranks} ranks: {}", end.stdout);
        end.check_that_everything_was_offloaded();
        assert_eq!(end.report["hosts"], hosts, "{}", end.report);
    }
}

/// A program that looks for functions at run time finds ours, which the native MPI may lack: it gets the call in another form.
fn large_counts(mpi: Mpi) {
    let program = mpi.compile("large_counts.c");
    for choice in ["pleach", "mpi"] {
        let end = Job::new(mpi, &program, 2).set("PLEACH_MPI_CHOICE", choice).run();
        assert!(end.stdout.contains("large counts: right"), "{choice}: {}{}", end.stdout, end.stderr);
    }
}

#[test]
fn arrays_of_large_counts_work_though_the_mpi_lacks_them_under_open_mpi() {
    large_counts(OPEN_MPI);
}

#[test]
fn arrays_of_large_counts_work_under_mpich() {
    large_counts(MPICH);
}

/// With the library off nothing changes, and the report says why it was off.
#[test]
fn turned_off_under_open_mpi() {
    let program = OPEN_MPI.compile("conformance.c");
    let end = Job::new(OPEN_MPI, &program, 2).set("PLEACH_MPI", "off").argument("quick").run();
    assert!(end.stdout.contains("conformance: "), "{}", end.stdout);
    assert_eq!(end.report["off"], "PLEACH_MPI is off");
    assert!(end.calls("taken", |_| true) == 0, "{}", end.report);
}

/// An invalid setting turns it off for all ranks; one of them prints the reason, and the program runs.
#[test]
fn an_invalid_setting_is_reported_and_the_program_runs_under_open_mpi() {
    let program = OPEN_MPI.compile("conformance.c");
    let end = Job::new(OPEN_MPI, &program, 2).set("PLEACH_MPI_MAX_BYTES", "much").argument("quick").run();
    assert!(end.stdout.contains("conformance: "), "{}", end.stdout);
    let complaints = end.stderr.lines().filter(|line| line.contains("PLEACH_MPI_MAX_BYTES is \"much\"")).count();
    assert_eq!(complaints, 1, "{}", end.stderr);
}

/// The native MPI does vectors above the limit.
#[test]
fn longer_vectors_fall_back_under_open_mpi() {
    let program = OPEN_MPI.compile("conformance.c");
    let end = Job::new(OPEN_MPI, &program, 2).set("PLEACH_MPI_MAX_BYTES", "64").argument("quick").run();
    assert!(end.stdout.contains("conformance: "), "{}", end.stdout);
    assert!(end.calls("taken", |row| row["most_bytes"].as_u64().is_none_or(|most| most > 64)) == 0, "{}", end.report);
    assert!(end.calls("left", |row| row["why"] == "vector too long") > 0, "{}", end.report);
}

#[test]
fn threads_under_open_mpi() {
    let program = OPEN_MPI.compile("threads.c");
    let end = Job::new(OPEN_MPI, &program, 2).run();
    assert!(end.stdout.contains("threads: "), "{}", end.stdout);
    assert!(end.calls("taken", |row| row["operation"] == "allreduce") > 0, "{}", end.report);
}

#[test]
fn threads_under_mpich() {
    let program = MPICH.compile("threads.c");
    let end = Job::new(MPICH, &program, 2).run();
    assert!(end.stdout.contains("threads: "), "{}", end.stdout);
    assert!(end.calls("taken", |row| row["operation"] == "allreduce") > 0, "{}", end.report);
}

/// Runs all cases beside each other: each of them waits for ten seconds until a silent rank counts as lost.
fn all_at_once<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let run = &run;
            scope.spawn(move || run(case));
        }
    });
}

/// From some packet on, all packets of one rank are lost: the native MPI finishes the job, and no result is wrong.
#[test]
fn a_rank_whose_packets_are_lost_costs_no_result_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    all_at_once([(2, 0, 1000), (3, 2, 2000)], |(ranks, muted, nth)| {
        let end = Job::new(OPEN_MPI, &program, ranks)
            .set("PLEACH_SHARED_MEMORY", "off")
            .drop_packets_of("OMPI_COMM_WORLD_RANK", muted, nth)
            .argument("1000")
            .run();
        assert!(end.stdout.contains("survival: 1000 rounds"), "{}", end.stdout);
        assert_eq!(end.report["failures"], 2 * ranks, "{}", end.report);
        assert!(end.calls("taken", |_| true) > 0, "{}", end.report);
        assert!(end.calls("left", |row| row["why"] == "Pleach failed before") > 0, "{}", end.report);
        assert_eq!(end.stderr.lines().filter(|line| line.contains("from here on")).count(), 1);
    });
}

/// The same, while each collective is followed by messages, an alltoall with counts, non-blocking calls or long vectors: a rank that has its result
/// blocks somewhere in the native MPI, and must still help those that lack theirs.
#[test]
fn recovery_goes_on_inside_other_calls_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    all_at_once(
        [(2, 1, 900, "pleach"), (3, 0, 2500, "pleach"), (3, 2, 600, "measure")],
        |(ranks, muted, nth, choice)| {
            let end = Job::new(OPEN_MPI, &program, ranks)
                .set("PLEACH_SHARED_MEMORY", "off")
                .set("PLEACH_MPI_REPLAY_BYTES", "67108864")
                .set("PLEACH_MPI_CHOICE", choice)
                .drop_packets_of("OMPI_COMM_WORLD_RANK", muted, nth)
                .argument("300")
                .argument("mixed")
                .run();
            assert!(end.stdout.contains("survival: 300 rounds"), "{}", end.stdout);
            assert_eq!(end.report["failures"], 2 * ranks, "{}", end.report);
        },
    );
}

/// The native MPI repeats long vectors, also those in place, whose input Pleach has overwritten.
#[test]
fn long_vectors_survive_a_rank_whose_packets_are_lost_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    all_at_once([600, 750], |nth| {
        let end = Job::new(OPEN_MPI, &program, 4)
            .set("PLEACH_SHARED_MEMORY", "off")
            .set("PLEACH_MPI_REPLAY_BYTES", "67108864")
            .drop_packets_of("OMPI_COMM_WORLD_RANK", 0, nth)
            .argument("40")
            .argument("long")
            .run();
        assert!(end.stdout.contains("survival: 40 rounds"), "{}", end.stdout);
        assert_eq!(end.report["failures"], 4, "{}", end.report);
    });
}

/// The native MPI repeats calls in which ranks have different parts of a vector, in place or not, blocking or in flight.
#[test]
fn blocks_survive_a_rank_whose_packets_are_lost_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    all_at_once([(2, 1, 400, "off"), (3, 0, 900, "off"), (4, 2, 700, "2")], |(ranks, muted, nth, shared_memory)| {
        let end = Job::new(OPEN_MPI, &program, ranks)
            .set("PLEACH_SHARED_MEMORY", shared_memory)
            .set("PLEACH_MPI_CHOICE", "pleach") // Otherwise the MPI does them between hosts.
            .drop_packets_of("OMPI_COMM_WORLD_RANK", muted, nth)
            .argument("300")
            .argument("blocks")
            .run();
        assert!(end.stdout.contains("survival: 300 rounds"), "{}", end.stdout);
        assert_eq!(end.report["failures"], 2 * ranks, "{}", end.report);
        assert!(end.calls("taken", |row| row["operation"] == "allgatherv") > 0, "{}", end.report);
        assert!(end.calls("left", |row| row["why"] == "Pleach failed before") > 0, "{}", end.report);
    });
}

/// The root of a gather expects more than it gives itself: other ranks cannot know, and would wait for it for ever.
#[test]
fn a_root_that_contradicts_itself_ends_the_job_with_the_reason_under_open_mpi() {
    let program = OPEN_MPI.compile("dying.c");
    let (status, end) = Job::new(OPEN_MPI, &program, 3).argument("lengths").run_to_any_end();
    assert!(!status.success() && !end.stdout.contains("no rank died"), "{}", end.stdout);
    assert!(end.stderr.contains("MPI_Gather at one rank describe blocks of 16 and 8 bytes"), "{}", end.stderr);
}

/// Many non-blocking calls at once, and a communicator that is freed with one of them in flight: with and without a failure, in
/// which each of them is repeated by the native MPI.
#[test]
fn many_calls_in_flight_and_a_freed_communicator_under_open_mpi() {
    let program = OPEN_MPI.compile("in_flight.c");
    for shared_memory in ["off", "2"] {
        let end = Job::new(OPEN_MPI, &program, 4).set("PLEACH_SHARED_MEMORY", shared_memory).argument("20").run();
        assert!(end.stdout.contains("in flight: 20 rounds"), "{}", end.stdout);
        assert_eq!(end.report["failures"], 0, "{}", end.report);
    }
    let end = Job::new(OPEN_MPI, &program, 3)
        .set("PLEACH_SHARED_MEMORY", "off")
        .set("PLEACH_MPI_REPLAY_BYTES", "67108864")
        .drop_packets_of("OMPI_COMM_WORLD_RANK", 1, 1500)
        .argument("300")
        .argument("keep")
        .run();
    assert!(end.stdout.contains("in flight: 300 rounds"), "{}", end.stdout);
    assert!(end.report["failures"].as_u64() > Some(0), "{}", end.report);
}

#[test]
fn many_calls_in_flight_and_a_freed_communicator_under_mpich() {
    let program = MPICH.compile("in_flight.c");
    let end = Job::new(MPICH, &program, 2).set("PLEACH_SHARED_MEMORY", "off").argument("20").run();
    assert!(end.stdout.contains("in flight: 20 rounds"), "{}", end.stdout);
    assert_eq!(end.report["failures"], 0, "{}", end.report);
}

/// The root of a broadcast has nothing in flight when its packets turn out to be lost, and waits for an answer to them.
#[test]
fn a_root_that_waits_for_answers_helps_those_without_its_broadcast_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    let end = Job::new(OPEN_MPI, &program, 3)
        .set("PLEACH_SHARED_MEMORY", "off")
        .drop_packets_of("OMPI_COMM_WORLD_RANK", 0, 300)
        .argument("1000")
        .argument("receive")
        .run();
    assert!(end.stdout.contains("survival: 1000 rounds"), "{}", end.stdout);
}

/// MPICH before 4.2 has no hook in its progress engine: the job does not hang, but ends with the reason.
#[test]
fn a_rank_that_cannot_be_interrupted_ends_the_job_with_the_reason_under_mpich() {
    let program = MPICH.compile("survival.c");
    let (status, end) = Job::new(MPICH, &program, 2)
        .set("PLEACH_SHARED_MEMORY", "off")
        .set("PLEACH_PATIENCE", "10")
        .drop_packets_of("PMI_RANK", 0, 300)
        .argument("1000")
        .argument("receive")
        .run_to_any_end();
    assert!(!status.success() && !end.stdout.contains("survival:"), "{}", end.stdout);
    assert!(end.stderr.contains("did not take part in the recovery"), "{}", end.stderr);
}

/// Rank 1 runs without the library: rank 0 says so and ends the job, instead of waiting for it for ever.
#[test]
fn a_rank_without_the_library_ends_the_job_with_the_reason_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    let (status, end) = Job::new(OPEN_MPI, &program, 2)
        .set("PLEACH_PATIENCE", "5")
        .without_library_on("OMPI_COMM_WORLD_RANK", 1)
        .argument("100")
        .run_to_any_end();
    assert!(!status.success(), "{}", end.stdout);
    assert!(end.stderr.contains("Most likely they run without this library"), "{}", end.stderr);
}

/// The launcher ends a job in which a process has died; Pleach does not get ahead of it, and so the exit status is the same.
fn the_exit_status_of_a_dead_rank_stays(mpi: Mpi) {
    /// MPICH's launcher now and then returns the signal by which it ended the other rank instead, with and without the library.
    const ATTEMPTS: usize = 5;
    const ENDED_BY_LAUNCHER: Option<i32> = Some(9);
    let program = mpi.compile("dying.c");
    for how in ["exit", "signal"] {
        let natively = || Job::new(mpi, &program, 2).without_library().argument(how).run_to_any_end().0;
        let mut statuses = (0..ATTEMPTS).map(|_| natively()).filter(|status| status.code() != ENDED_BY_LAUNCHER);
        let without = statuses.next().expect("the status of the rank that died");
        assert!(!without.success(), "{how}: {without}");
        for shared_memory in ["on", "off"] {
            let job = || Job::new(mpi, &program, 2).set("PLEACH_SHARED_MEMORY", shared_memory).argument(how);
            let is_same = (0..ATTEMPTS).any(|_| job().run_to_any_end().0 == without);
            assert!(is_same, "{how}, shared memory {shared_memory}: never {without}");
        }
    }
}

#[test]
fn the_exit_status_of_a_dead_rank_stays_under_open_mpi() {
    the_exit_status_of_a_dead_rank_stays(OPEN_MPI);
}

#[test]
fn the_exit_status_of_a_dead_rank_stays_under_mpich() {
    the_exit_status_of_a_dead_rank_stays(MPICH);
}

/// Packets are lost, corrupted, duplicated and reordered; Pleach repairs that by itself.
#[test]
fn faults_change_nothing_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    let rules = ["flip", "lose", "duplicate", "reorder"]
        .map(|kind| format!("[[fault]]\nkind = \"{kind}\"\nprobability = 0.02\n"));
    let plan = jobs::scratch_file("faults.toml", &rules.concat());
    let end = Job::new(OPEN_MPI, &program, 3)
        .set("PLEACH_SHARED_MEMORY", "off")
        .set("PLEACH_FAULTS", plan.to_str().expect("a plain path"))
        .argument("200")
        .run();
    assert!(end.stdout.contains("survival: 200 rounds"), "{}", end.stdout);
    assert_eq!(end.report["failures"], 0, "{}", end.report);
    assert!(end.stderr.is_empty(), "{}", end.stderr);
}

/// Two ranks on one host, one on each of two others: rank 0 finds an address on a network of all of them.
#[test]
fn conformance_between_hosts_under_open_mpi() {
    let network = match namespaces::NamespaceNetwork::new(4) {
        Ok(network) => network,
        Err(error) => return namespaces::skip_test(error),
    };
    let program = OPEN_MPI.compile("conformance.c");
    let hosts = [(network.host(1), 2), (network.host(2), 1), (network.host(3), 1)];
    let list: Vec<String> = hosts.iter().map(|(host, ranks)| format!("{}:{ranks}", host.name())).collect();
    let end = Job::new(OPEN_MPI, &program, 4).argument("brief").started_on(network.host(0), &list.join(",")).run();
    assert!(end.stdout.contains("conformance: "), "{}", end.stdout);
    assert_eq!((&end.report["ranks"], &end.report["hosts"]), (&4.into(), &3.into()), "{}", end.report);
    end.check_that_everything_was_offloaded();
}

/// The spawned world does not have the library, since the launcher does not export it.
#[test]
fn a_job_that_spawns_another_under_open_mpi() {
    let program = OPEN_MPI.compile("spawn.c");
    let end = Job::new(OPEN_MPI, &program, 2).run();
    assert!(end.stdout.contains("spawn: 4 ranks"), "{}", end.stdout);
    assert!(end.calls("taken", |row| row["operation"] == "allreduce") >= 80, "{}", end.report);
    assert_eq!(end.calls("left", |row| row["why"] == "ranks of another job"), 40, "{}", end.report);
}

/// If it has it, each world uses Pleach on its own.
#[test]
fn two_worlds_with_the_library_under_open_mpi() {
    let program = OPEN_MPI.compile("spawn.c");
    let end = Job::new(OPEN_MPI, &program, 2).exported().run();
    assert!(end.stdout.contains("spawn: 4 ranks"), "{}", end.stdout);
}

#[test]
#[ignore = "long: needs mpi4py"]
fn python_under_open_mpi() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/python.py");
    let python = std::path::Path::new("/usr/bin/python3"); // Debian's, which sees Debian's mpi4py.
    let end = Job::new(OPEN_MPI, python, 3).argument(script.to_str().expect("a plain path")).run();
    assert!(end.stdout.contains("python: 320 checks"), "{}", end.stdout);
    assert!(end.calls("taken", |row| row["non_blocking"] == true) > 0, "{}", end.report);
}

/// A benchmark that verifies its own results: solving, transposing, updating at random, transforming.
#[test]
#[ignore = "long: needs hpcc"]
fn hpcc_verifies_its_results_under_open_mpi() {
    let end = Job::new(OPEN_MPI, std::path::Path::new("hpcc"), 2).in_folder_with("hpccinf.txt").run();
    let output = std::fs::read_to_string(end.folder.join("hpccoutf.txt")).expect("what it wrote");
    assert!(output.contains("Success=1") && output.contains("MPIRandomAccess_Errors=0"), "{output}");
    // Five matrix transpositions, which print a second line unless they took no measurable processor time, and Linpack.
    let passed = |what: &str| output.lines().filter(|line| line.contains(what) && line.contains("PASSED")).count();
    assert!(!output.contains("FAILED") && passed("WALL") == 5 && passed("||Ax-b||") == 1, "{output}");
    assert!(end.calls("taken", |row| row["operation"] == "allreduce") > 0, "{}", end.report);
}

fn fortran(mpi: jobs::Mpi) {
    for binding in ["77", "90", "8"] {
        let program = mpi.compile_fortran("fortran.F90", binding);
        let end = Job::new(mpi, &program, 2).run();
        assert!(end.stdout.contains("fortran: 330 checks"), "{}", end.stdout);
        for operation in ["allreduce", "allgather", "allgatherv", "gather", "scatter", "alltoall", "reduce-scatter"] {
            assert!(end.calls("taken", |row| row["operation"] == operation) >= 40, "{operation}: {}", end.report);
        }
    }
}

#[test]
#[ignore = "long: needs a Fortran compiler"]
fn fortran_under_open_mpi() {
    fortran(OPEN_MPI);
}

#[test]
#[ignore = "long: needs a Fortran compiler"]
fn fortran_under_mpich() {
    fortran(MPICH);
}

#[test]
#[ignore = "long: every type and count; up to nine ranks"]
fn conformance_at_length_under_open_mpi() {
    let program = OPEN_MPI.compile("conformance.c");
    for ranks in 1..=9 {
        let extent = if ranks <= 3 { "full" } else { "quick" };
        let end = Job::new(OPEN_MPI, &program, ranks).argument(extent).run();
        assert!(end.stdout.contains("conformance: "), "{ranks} ranks: {}", end.stdout);
    }
}

#[test]
#[ignore = "long: every type and count"]
fn conformance_at_length_under_mpich() {
    let program = MPICH.compile("conformance.c");
    let end = Job::new(MPICH, &program, 2).argument("full").run();
    assert!(end.stdout.contains("conformance: "), "{}", end.stdout);
    for ranks in 3..=9 {
        let end = Job::new(MPICH, &program, ranks).argument("brief").run();
        assert!(end.stdout.contains("conformance: "), "{ranks} ranks: {}", end.stdout);
    }
}
