//! The command blocks of README and docs, run as they stand on three hosts made of network namespaces.
//!
//! A block in a document is one of: `sh` (run here, line by line), `toml` (a topology, given to a manager), `rust` (the same lines as a
//! documentation test of `pleach`), `text` (a picture; no commands).

mod blocks;
mod cluster;

use std::path::{Path, PathBuf};

use blocks::{Block, ELSEWHERE, Treatment, blocks_of, treatment};
use cluster::{Cluster, ProgramKind};

/// A rank that `pleach launch` starts in the blocks.
#[test]
#[ignore = "the blocks launch it"]
fn as_a_rank() {
    let world = pleach::join().expect("all ranks join");
    let mut sum = [1_u64];
    world.all_reduce(&mut sum, pleach::Operator::Sum).expect("every rank takes part");
    assert_eq!(sum[0], u64::from(world.size()));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn documents() -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(root().join("docs")).expect("a folder").map(|entry| entry.expect("readable").path());
    let pages = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain([root().join("README.md")]).collect()
}

/// Runs every `sh` and `toml` block of a document; each block has the cluster for itself.
fn run_document(name: &str, program: ProgramKind) {
    let blocks = blocks_of(&root().join(name));
    let mut count = 0;
    for block in blocks.iter().filter(|block| block.language == "sh" || block.language == "toml") {
        let Some(cluster) = Cluster::new(program) else { return };
        count += 1;
        match block.language.as_str() {
            "sh" => cluster.run(block),
            _ => cluster.run_manager_with_topology(block),
        }
    }
    assert!(count > 0, "{name} has no block to run");
}

#[test]
#[ignore = "long: runs every command of the page"]
fn readme_runs_between_hosts_under_open_mpi() {
    run_document("README.md", ProgramKind::Mpi);
}

#[test]
#[ignore = "long: runs every command of the page"]
fn mpi_page_runs_between_hosts_under_open_mpi() {
    run_document("docs/mpi.md", ProgramKind::Mpi);
}

#[test]
#[ignore = "long: runs every command of the page"]
fn libfabric_page_runs_between_hosts_under_open_mpi() {
    run_document("docs/libfabric.md", ProgramKind::Mpi);
}

#[test]
#[ignore = "long: runs every command of the page"]
fn operations_page_runs_between_hosts() {
    run_document("docs/operations.md", ProgramKind::Native);
}

#[test]
#[ignore = "long: runs every command of the page"]
fn chaos_page_runs_between_hosts() {
    run_document("docs/chaos.md", ProgramKind::Native);
}

#[test]
#[ignore = "long: runs every command of the page"]
fn quadrics_page_runs_between_hosts_under_open_mpi() {
    run_document("docs/quadrics.md", ProgramKind::Native);
}

#[test]
#[ignore = "long: runs every command of the page"]
fn soak_page_runs_between_hosts() {
    run_document("docs/soak.md", ProgramKind::Native);
}

/// A page with commands that no test above names would not be run.
#[test]
fn every_page_with_commands_is_run() {
    let own = include_str!("main.rs");
    for path in documents() {
        let name = path.strip_prefix(root()).expect("in the workspace").display().to_string();
        let runs = |block: &Block| block.language == "sh" || block.language == "toml";
        if blocks_of(&path).iter().any(runs) {
            assert!(own.contains(&format!("run_document(\"{name}\"")), "no test runs the commands of {name}");
        }
    }
}

#[test]
fn every_block_says_what_it_is() {
    for path in documents() {
        for block in blocks_of(&path) {
            let place = format!("{}:{}", path.display(), block.line);
            assert!(
                ["sh", "toml", "rust", "text"].contains(&block.language.as_str()),
                "{place}: {:?}",
                block.language
            );
            let is_command =
                |line: &&String| ["pleach ", "cargo ", "sudo ", "export "].iter().any(|word| line.starts_with(word));
            if block.language == "text" {
                assert_eq!(
                    block.lines.iter().find(is_command),
                    None,
                    "{place}: a command in a block of text is not run"
                );
            }
        }
    }
}

/// Documentation tests compile and run that example; the same lines stand in README.
#[test]
fn rust_examples_are_documentation_tests() {
    let library = std::fs::read_to_string(root().join("crates/pleach/src/lib.rs")).expect("text");
    let tested: Vec<&str> = library.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let code = |line: &str| line.split("//").next().unwrap_or_default().trim().to_owned();
    for path in documents() {
        for block in blocks_of(&path).into_iter().filter(|block| block.language == "rust") {
            for line in block.lines {
                let line = code(&line);
                assert!(tested.iter().any(|tested| code(tested) == line), "{}: not tested: {line}", path.display());
            }
        }
    }
}

#[test]
fn every_line_that_is_run_elsewhere_has_a_file_that_runs_it_or_a_reason() {
    for (line, place) in ELSEWHERE {
        assert!(place.starts_with("not run: ") || root().join(place).exists(), "{line}: no file {place}");
        let stands_somewhere = |path: &PathBuf| {
            blocks_of(path).iter().any(|block| block.lines.iter().any(|found| found.starts_with(line)))
        };
        assert!(documents().iter().any(stands_somewhere), "no document has a line that begins with {line:?}");
    }
}

#[test]
fn lines_are_treated_as_their_readers_would() {
    assert_eq!(treatment("pleach manager --listen 10.0.0.1:4797"), Treatment::Stays);
    assert_eq!(treatment("PLEACH_SECRET='a b' pleach node --name x"), Treatment::Stays);
    assert_eq!(treatment("pleach top"), Treatment::Ends);
    assert_eq!(treatment("sudo pleach chaos --minutes 10"), Treatment::Begins);
    assert!(matches!(treatment("cargo xtask test"), Treatment::Elsewhere(_)));
}
