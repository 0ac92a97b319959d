//! The steps of `cargo xtask test`, in the order in which they run: the quickest to fail first.
//!
//! A new chore is a new line in [`STEPS`] and a function that takes the [`Request`] and the root and returns what it
//! came to. What takes long has the extent [`Extent::All`].

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::debian::{self, Lack};
use crate::process::{self, Ended};
use crate::report::{Demand, Finished, Outcome, Report, Row};
use crate::test_count::TestCount;
use crate::toolchain::{self, CLIPPY, RUSTFMT};
use crate::workspace::{self, cargo};
use crate::{licences, tidy};

/// How much to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    Quick,
    All,
}

/// What the caller asked for.
pub(crate) struct Request {
    pub(crate) extent: Extent,
    /// Names of steps; empty means all of the extent.
    pub(crate) only: Vec<String>,
}

struct Step {
    name: &'static str,
    /// Runs if this much is asked for, or if it is asked for by name.
    extent: Extent,
    run: fn(&Path, Extent) -> anyhow::Result<Finished>,
}

const STEPS: &[Step] = &[
    Step { name: "format", extent: Extent::Quick, run: format },
    Step { name: "tidy", extent: Extent::Quick, run: taste },
    Step { name: "licences", extent: Extent::Quick, run: licences },
    Step { name: "clippy", extent: Extent::Quick, run: clippy },
    Step { name: "clippy-product", extent: Extent::Quick, run: clippy_product },
    Step { name: "package", extent: Extent::Quick, run: package },
    Step { name: "documentation", extent: Extent::All, run: documentation },
    Step { name: TESTS, extent: Extent::Quick, run: tests },
    Step { name: DOC_TESTS, extent: Extent::Quick, run: doc_tests },
];

const TESTS: &str = "tests";
const DOC_TESTS: &str = "doc-tests";

/// The names of all steps, for the command line.
pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs the steps that the request asks for; a failed one does not stop the others.
pub(crate) fn run(request: &Request) -> anyhow::Result<Report> {
    let root = workspace::root()?;
    let steps: Vec<&Step> = STEPS.iter().filter(|step| request.includes(step)).collect();
    let mut report = Report::default();
    for (index, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}", index + 1, steps.len(), step.name);
        let start = Instant::now();
        let finished =
            (step.run)(&root, request.extent).unwrap_or_else(|error| Finished::failed(format!("{error:#}")));
        let row = Row { step: step.name, finished, took: start.elapsed() };
        println!("      {} in {:.1} s\n", row.finished.outcome, row.took.as_secs_f64());
        report.rows.push(row);
    }
    Ok(report)
}

impl Request {
    fn includes(&self, step: &Step) -> bool {
        if self.only.is_empty() { step.extent <= self.extent } else { self.names(step.name) }
    }

    fn names(&self, step: &str) -> bool {
        self.only.iter().any(|name| name == step)
    }

    /// Some of the chosen steps count tests.
    pub(crate) fn may_run_tests(&self) -> bool {
        self.only.is_empty() || [TESTS, DOC_TESTS].iter().any(|step| self.names(step))
    }

    /// A run that includes the tests and finds none has not tested anything.
    pub(crate) fn demands_tests(&self) -> Demand {
        if self.only.is_empty() || self.names(TESTS) { Demand::SomeTests } else { Demand::Nothing }
    }
}

fn format(root: &Path, _: Extent) -> anyhow::Result<Finished> {
    if let Err(why) = RUSTFMT.prepare(root) {
        return Ok(Finished::skipped(why));
    }
    Ok(match process::show(cargo(root).args(["fmt", "--all", "--check", "--", "-l"]))? {
        Ended::Well => Finished::passed(""),
        Ended::Badly => Finished::failed("`cargo fmt --all` puts it right"),
    })
}

fn taste(root: &Path, _: Extent) -> anyhow::Result<Finished> {
    let inspection = tidy::inspect(root)?;
    for note in &inspection.notes {
        println!("      note: {note}");
    }
    for finding in &inspection.findings {
        println!("      {finding}");
    }
    Ok(match inspection.findings.len() {
        0 => Finished::passed(format!("{} files", inspection.file_count)),
        count => Finished::failed(format!("{count} findings")),
    })
}

fn licences(root: &Path, extent: Extent) -> anyhow::Result<Finished> {
    let installed = match toolchain::installed_deny(root) {
        None if extent == Extent::All => toolchain::install_deny(root)?,
        installed => installed,
    };
    if let Some(deny) = installed {
        let mut check = Command::new(deny);
        check.current_dir(root).args(["--locked", "check", "licenses", "bans", "sources"]);
        return Ok(finished(process::show(&mut check)?, "cargo-deny"));
    }
    if extent == Extent::All {
        return Ok(Finished::skipped("cargo-deny could not be installed: bans and licence texts not checked"));
    }
    println!("      cargo-deny is not installed: licences and sources from cargo metadata");
    let findings = licences::check(root)?;
    for finding in &findings {
        println!("      {finding}");
    }
    Ok(match findings.len() {
        0 => Finished::passed("from cargo metadata"),
        count => Finished::failed(format!("{count} findings")),
    })
}

fn clippy(root: &Path, _: Extent) -> anyhow::Result<Finished> {
    run_clippy(root, &["--workspace"])
}

/// Once more as it ships: `tests` turns on features, such as sabotaged machines, for the whole workspace.
fn clippy_product(root: &Path, _: Extent) -> anyhow::Result<Finished> {
    run_clippy(root, &["--workspace", "--exclude", "tests", "--exclude", "xtask"])
}

fn run_clippy(root: &Path, scope: &[&str]) -> anyhow::Result<Finished> {
    if let Err(why) = CLIPPY.prepare(root) {
        return Ok(Finished::skipped(why));
    }
    let mut clippy = cargo(root);
    clippy.arg("clippy").args(scope).args(["--all-targets", "--locked", "--", "-D", "warnings"]);
    Ok(finished(process::show(&mut clippy)?, ""))
}

/// Every crate can be packaged for publication; a whole run also builds each from its package alone.
fn package(root: &Path, extent: Extent) -> anyhow::Result<Finished> {
    let mut package = cargo(root);
    package.args(["package", "--workspace", "--locked", "--offline", "--allow-dirty", "--quiet"]);
    package.args(["--exclude", "tests", "--exclude", "xtask"]);
    if extent == Extent::Quick {
        package.arg("--no-verify");
    }
    Ok(finished(process::show(&mut package)?, ""))
}

fn documentation(root: &Path, _: Extent) -> anyhow::Result<Finished> {
    let mut doc = cargo(root);
    doc.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings");
    Ok(finished(process::show(&mut doc)?, ""))
}

/// All tests of the workspace except doc tests, which nextest does not know.
fn tests(root: &Path, extent: Extent) -> anyhow::Result<Finished> {
    let lacks = debian::prepare(debian::PACKAGES)?;
    let mut command = cargo(root);
    if toolchain::has_nextest(root) {
        command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
        if extent == Extent::All {
            command.args(["--run-ignored", "all"]);
        }
        command.arg("--");
    } else {
        command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
        command.args(["--lib", "--bins", "--tests", "--examples", "--"]);
        if extent == Extent::All {
            command.arg("--include-ignored");
        }
    }
    for test in lacks.iter().flat_map(|lack| lack.package.tests) {
        command.args(["--skip", test]);
    }
    let mut finished = counted(&mut command)?;
    if finished.outcome == Outcome::Passed && !lacks.is_empty() {
        finished.outcome = Outcome::Skipped(lacks.iter().map(Lack::sentence).collect::<Vec<_>>().join("; "));
    }
    Ok(finished)
}

fn doc_tests(root: &Path, _: Extent) -> anyhow::Result<Finished> {
    counted(cargo(root).args(["test", "--workspace", "--locked", "--no-fail-fast", "--doc"]))
}

fn counted(command: &mut Command) -> anyhow::Result<Finished> {
    let ran = process::show_and_keep(command)?;
    let mut finished = finished(ran.ended, "");
    finished.tests = TestCount::read(&ran.text);
    if finished.outcome == Outcome::Failed && finished.tests.failed == 0 {
        finished.note = "it did not build, or it died before its summary".to_owned();
    }
    Ok(finished)
}

fn finished(ended: Ended, note: &str) -> Finished {
    match ended {
        Ended::Well => Finished::passed(note),
        Ended::Badly => Finished::failed(note),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(extent: Extent, only: &[&str]) -> Request {
        Request { extent, only: only.iter().map(|&name| name.to_owned()).collect() }
    }

    fn chosen(request: &Request) -> Vec<&'static str> {
        STEPS.iter().filter(|step| request.includes(step)).map(|step| step.name).collect()
    }

    #[test]
    fn a_quick_run_leaves_out_what_takes_long() {
        let quick = chosen(&request(Extent::Quick, &[]));
        assert!(quick.contains(&"tests") && !quick.contains(&"documentation"));
        assert_eq!(chosen(&request(Extent::All, &[])), names());
    }

    #[test]
    fn a_step_asked_for_by_name_runs_alone() {
        assert_eq!(chosen(&request(Extent::Quick, &["documentation"])), ["documentation"]);
    }

    #[test]
    fn only_a_run_that_includes_the_tests_demands_some() {
        assert_eq!(request(Extent::Quick, &[]).demands_tests(), Demand::SomeTests);
        assert_eq!(request(Extent::Quick, &["tests"]).demands_tests(), Demand::SomeTests);
        assert_eq!(request(Extent::Quick, &["tidy"]).demands_tests(), Demand::Nothing);
        assert!(!request(Extent::Quick, &["tidy"]).may_run_tests());
    }
}
