//! Unmodified programs under Debian's Open MPI, with all their messages carried by the provider.

mod fabric;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pleach-fi-mpi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn compile(source: &str) -> PathBuf {
    let program = folder().join(format!("{source}-{:?}", std::thread::current().id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let status = Command::new("mpicc.openmpi").arg("-O1").arg("-o").arg(&program).arg(&source).status();
    assert!(status.expect("Open MPI's compiler: install libopenmpi-dev").success());
    program
}

fn run(program: &Path, ranks: u32, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["240", "mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]);
    command.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "pleach"]);
    command.args(["--mca", "mpi_yield_when_idle", "1"]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("FI_PROVIDER_PATH", fabric::provider_directory()).env("PLEACH_ADDRESSES", "127.0.0.1");
    command.envs(variables.iter().copied()).arg(program).args(arguments);
    command.output().expect("it starts")
}

fn check(output: &Output) {
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("messages: right"), "{said}\n{errors}");
}

#[test]
fn messages_are_right_with_1_2_and_4_ranks() {
    let program = compile("messages.c");
    for ranks in [1, 2, 4] {
        check(&run(&program, ranks, &[], &[]));
    }
}

#[test]
fn messages_are_right_on_lossy_links_of_which_one_is_cut() {
    let plan = folder().join("faults.toml");
    let text = "[[fault]]\nkind = \"lose\"\nprobability = 0.005\n[[fault]]\nkind = \"flip\"\nprobability = 0.005\n\
                [[fault]]\nkind = \"down\"\nlink = \"port 0\"\nat-us = 20000\nfor-us = 500000\n";
    std::fs::write(&plan, text).expect("a file");
    let program = compile("messages.c");
    let plan = plan.to_str().expect("plain text");
    let events = folder().join("events");
    std::fs::create_dir_all(&events).expect("a folder");
    let variables = [
        ("PLEACH_FAULTS", plan),
        ("PLEACH_ADDRESSES", "127.0.0.1,127.0.0.2"),
        ("PLEACH_FI_EVENTS", events.to_str().expect("plain text")),
    ];
    check(&run(&program, 2, &["2000000"], &variables));
    let written = fabric::path_events(&events);
    assert!(written.contains("\"event\":\"moved"), "no rail left the link that was cut: {written}");
}

/// The test above would pass without the provider if the MPI chose another; this one must fail.
#[test]
fn without_the_provider_the_program_does_not_start() {
    let program = compile("messages.c");
    let nowhere = folder();
    let output = run(&program, 2, &["1000"], &[("FI_PROVIDER_PATH", nowhere.to_str().expect("plain text"))]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "messages went some other way");
    assert!(errors.contains("pml"), "it failed for another reason: {errors}");
}
