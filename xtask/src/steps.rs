//! The steps of `cargo xtask test`, in the order in which they run: the quickest first.
//!
//! A new step is a new line in [`STEPS`] and a function from the root folder and the [`Extent`] to a [`StepResult`]. Slow
//! steps have the extent [`Extent::All`].

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::debian::{self, MissingPackage};
use crate::process::{self, ExitState};
use crate::report::{Outcome, Report, StepReport, StepResult, TestRequirement};
use crate::test_count::{self, TestCount};
use crate::toolchain::{self, CLIPPY, RUSTFMT};
use crate::workspace::{self, cargo};
use crate::{install_check, licences, package, site, tidy};

/// How much to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    Quick,
    All,
}

/// The steps that the user requested.
pub(crate) struct Request {
    pub(crate) extent: Extent,
    /// Names of steps; if empty, all steps of the extent.
    pub(crate) only: Vec<String>,
}

struct Step {
    name: &'static str,
    /// The step runs in a run of this extent or a larger one, or if it is requested by name.
    extent: Extent,
    run: fn(&Path, Extent) -> anyhow::Result<StepResult>,
}

const STEPS: &[Step] = &[
    Step { name: "format", extent: Extent::Quick, run: format },
    Step { name: "tidy", extent: Extent::Quick, run: project_rules },
    Step { name: "licences", extent: Extent::Quick, run: licences },
    Step { name: "clippy", extent: Extent::Quick, run: clippy },
    Step { name: "clippy-product", extent: Extent::Quick, run: clippy_product },
    Step { name: "crates", extent: Extent::Quick, run: package_crates },
    Step { name: "documentation", extent: Extent::All, run: documentation },
    Step { name: "site", extent: Extent::All, run: build_site },
    Step { name: TESTS, extent: Extent::Quick, run: tests },
    Step { name: DOC_TESTS, extent: Extent::Quick, run: doc_tests },
    Step { name: "installation", extent: Extent::All, run: installation },
    Step { name: FIGURES, extent: Extent::All, run: figures },
];

const TESTS: &str = "tests";
const DOC_TESTS: &str = "doc-tests";
const FIGURES: &str = "figures";
/// Parts of the names of ignored tests that compare a time with a promise: with the program that users install, and nothing beside them.
const FIGURE_TESTS: [&str; 2] = ["web_figures::", "many_ranks_start_over_ssh"];
/// If more tests fail than this, the cause is not the machine.
const MOST_TESTS_TO_RUN_AGAIN: usize = 10;

/// The names of all steps, for the command line.
pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs the requested steps. The steps after a failed step still run.
pub(crate) fn run(request: &Request) -> anyhow::Result<Report> {
    let root = workspace::root()?;
    let steps: Vec<&Step> = STEPS.iter().filter(|step| request.includes(step)).collect();
    let mut report = Report::default();
    for (index, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}", index + 1, steps.len(), step.name);
        let start = Instant::now();
        let finished =
            (step.run)(&root, request.extent).unwrap_or_else(|error| StepResult::failed(format!("{error:#}")));
        let row = StepReport { step: step.name, finished, took: start.elapsed() };
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

    /// True if a requested step runs tests.
    pub(crate) fn may_run_tests(&self) -> bool {
        self.only.is_empty() || [TESTS, DOC_TESTS, FIGURES].iter().any(|step| self.names(step))
    }

    /// A run that includes the tests must run at least one.
    pub(crate) fn test_requirement(&self) -> TestRequirement {
        if self.only.is_empty() || self.names(TESTS) { TestRequirement::SomeTests } else { TestRequirement::None }
    }
}

fn format(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    if let Err(why) = RUSTFMT.prepare(root) {
        return Ok(StepResult::skipped(why));
    }
    Ok(match process::show(cargo(root).args(["fmt", "--all", "--check", "--", "-l"]))? {
        ExitState::Success => StepResult::passed(""),
        ExitState::Failure => StepResult::failed("run `cargo fmt --all`"),
    })
}

fn project_rules(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    let inspection = tidy::inspect(root)?;
    for note in &inspection.notes {
        println!("      note: {note}");
    }
    for finding in &inspection.findings {
        println!("      {finding}");
    }
    Ok(match inspection.findings.len() {
        0 => StepResult::passed(format!("{} files", inspection.file_count)),
        count => StepResult::failed(format!("{count} findings")),
    })
}

fn licences(root: &Path, extent: Extent) -> anyhow::Result<StepResult> {
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
        return Ok(StepResult::skipped("cargo-deny could not be installed: bans and licence texts not checked"));
    }
    println!("      cargo-deny is not installed: licences and sources from cargo metadata");
    let findings = licences::check(root)?;
    for finding in &findings {
        println!("      {finding}");
    }
    Ok(match findings.len() {
        0 => StepResult::passed("from cargo metadata"),
        count => StepResult::failed(format!("{count} findings")),
    })
}

fn clippy(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    run_clippy(root, &["--workspace", "--all-targets"])
}

/// Checks the product with its own features: `tests` enables others, such as sabotaged machines, for the whole workspace.
fn clippy_product(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    run_clippy(root, &["--workspace", "--exclude", "tests", "--exclude", "xtask"])
}

fn run_clippy(root: &Path, scope: &[&str]) -> anyhow::Result<StepResult> {
    if let Err(why) = CLIPPY.prepare(root) {
        return Ok(StepResult::skipped(why));
    }
    let mut clippy = cargo(root);
    clippy.arg("clippy").args(scope).args(["--locked", "--", "-D", "warnings"]);
    Ok(finished(process::show(&mut clippy)?, ""))
}

/// Packages every crate for publication. With `--all`, also builds each crate from its package alone.
fn package_crates(root: &Path, extent: Extent) -> anyhow::Result<StepResult> {
    let mut package = cargo(root);
    package.args(["package", "--workspace", "--locked", "--offline", "--allow-dirty", "--quiet"]);
    package.args(["--exclude", "tests", "--exclude", "xtask"]);
    match extent {
        Extent::Quick => {
            package.arg("--no-verify");
        }
        Extent::All => {
            // In an empty folder of its own: cargo does not build a package of the same version again.
            forget_packaged_sources()?;
            let folder = root.join("target/verified-packages");
            if folder.exists() {
                std::fs::remove_dir_all(&folder)?;
            }
            package.arg("--target-dir").arg(folder);
        }
    }
    Ok(finished(process::show(&mut package)?, ""))
}

/// Deletes what cargo has unpacked of our packages before: it does not unpack a package of the same version again.
fn forget_packaged_sources() -> anyhow::Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let Some(home) = home else { return Ok(()) };
    let folders = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    // The sources of a registry in a folder; those of a server begin with its name.
    for registry in folders(home.join("registry/src")).filter(|entry| starts_with(entry, "-")) {
        for package in folders(registry.path()).filter(|entry| starts_with(entry, "pleach")) {
            std::fs::remove_dir_all(package.path())?;
        }
    }
    Ok(())
}

fn starts_with(entry: &DirEntry, prefix: &str) -> bool {
    entry.file_name().to_string_lossy().starts_with(prefix)
}

fn build_site(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    let Some(mdbook) = toolchain::mdbook(root)? else {
        return Ok(StepResult::skipped("mdBook could not be installed"));
    };
    site::build(root, &mdbook)?;
    Ok(StepResult::passed(""))
}

fn documentation(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    let mut doc = cargo(root);
    doc.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings");
    Ok(finished(process::show(&mut doc)?, ""))
}

/// All tests of the workspace except doc tests, which nextest does not run.
fn tests(root: &Path, extent: Extent) -> anyhow::Result<StepResult> {
    let missing = debian::prepare(debian::PACKAGES)?;
    let mut command = cargo(root);
    if toolchain::has_nextest(root) {
        command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
        // Most tests take two of these threads; those that mostly wait, one (.config/nextest.toml).
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        command.args(["--profile", "mixed", "--test-threads", &(2 * processors).to_string()]);
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
    for test in missing.iter().flat_map(|missing| missing.package.tests).chain(&FIGURE_TESTS) {
        command.args(["--skip", test]);
    }
    let mut finished = counted(&mut command)?;
    if finished.outcome == Outcome::Failed && toolchain::has_nextest(root) {
        finished = run_failed_tests_again(root, finished)?;
    }
    Ok(note_missing(finished, &missing))
}

/// A step that passed without the tests whose packages are missing counts as skipped.
fn note_missing(mut finished: StepResult, missing: &[MissingPackage]) -> StepResult {
    if finished.outcome == Outcome::Passed && !missing.is_empty() {
        finished.outcome =
            Outcome::Skipped(missing.iter().map(MissingPackage::describe).collect::<Vec<_>>().join("; "));
    }
    finished
}

/// The tests that compare a time with a promise, one at a time, with the program that users install. The packages of the workspace are those
/// of the step `tests`: nothing is built again.
fn figures(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    let mut missing = debian::prepare(debian::PACKAGES)?;
    missing.retain(|missing| missing.package.tests.iter().any(|test| ["in_chromium", "over_ssh"].contains(test)));
    let mut command = cargo(root);
    command.env("PLEACH_TEST_PROGRAM", package::build_program(root)?);
    if toolchain::has_nextest(root) {
        command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--run-ignored", "all"]);
        command.args(["--test-threads", "1", "--success-output", "immediate", "--"]);
    } else {
        command.args(["test", "--workspace", "--locked", "--no-fail-fast", "--tests", "--"]);
        command.args(["--include-ignored", "--test-threads", "1", "--nocapture"]);
    }
    command.args(FIGURE_TESTS);
    for test in missing.iter().flat_map(|missing| missing.package.tests) {
        command.args(["--skip", test]);
    }
    Ok(note_missing(counted(&mut command)?, &missing))
}

/// The tests that failed, if every failure is among them and they are few.
fn tests_to_run_again(first: &StepResult) -> Option<&[String]> {
    let failed = &first.failed_tests;
    (failed.len() as u64 == first.tests.failed && failed.len() <= MOST_TESTS_TO_RUN_AGAIN).then_some(failed)
}

/// Runs the failed tests once more, alone, and names those that passed then. A test that waits for something up to a
/// limit fails on a shared machine that does not run meanwhile; that proves nothing, but it must be seen.
fn run_failed_tests_again(root: &Path, first: StepResult) -> anyhow::Result<StepResult> {
    let Some(failed) = tests_to_run_again(&first).map(<[String]>::to_vec) else { return Ok(first) };
    println!("      the failed tests run once more, alone");
    let mut command = cargo(root);
    command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--run-ignored", "all"]);
    command.args(["--test-threads", "1", "-E"]);
    command.arg(failed.iter().map(|test| format!("test(={test})")).collect::<Vec<_>>().join(" + "));
    let mut again = counted(&mut command)?;
    again.tests.passed = first.tests.ran() - again.tests.failed;
    again.tests.skipped = first.tests.skipped;
    if again.outcome == Outcome::Passed {
        again.note = format!("passed only when run again: {}", failed.join(", "));
    }
    Ok(again)
}

fn doc_tests(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    counted(cargo(root).args(["test", "--workspace", "--locked", "--no-fail-fast", "--doc"]))
}

/// Builds the packages that users install, and installs the Debian package where nobody else sees it.
fn installation(root: &Path, _: Extent) -> anyhow::Result<StepResult> {
    let missing = debian::prepare(debian::PACKAGING)?;
    if !missing.is_empty() {
        return Ok(StepResult::skipped(missing.iter().map(MissingPackage::describe).collect::<Vec<_>>().join("; ")));
    }
    let packages = package::build(root)?;
    Ok(finished(install_check::run(root, &packages)?, ""))
}

fn counted(command: &mut Command) -> anyhow::Result<StepResult> {
    let ran = process::show_and_keep(command)?;
    let mut finished = finished(ran.exit, "");
    finished.tests = TestCount::read(&ran.text);
    finished.failed_tests = test_count::failed_tests(&ran.text);
    if finished.outcome == Outcome::Failed && finished.tests.failed == 0 {
        finished.note = "it did not build, or it crashed before its summary".to_owned();
    }
    Ok(finished)
}

fn finished(exit: ExitState, note: &str) -> StepResult {
    match exit {
        ExitState::Success => StepResult::passed(note),
        ExitState::Failure => StepResult::failed(note),
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
    fn a_quick_run_omits_slow_steps() {
        let quick = chosen(&request(Extent::Quick, &[]));
        assert!(quick.contains(&"tests") && !quick.contains(&"documentation"));
        assert_eq!(chosen(&request(Extent::All, &[])), names());
    }

    #[test]
    fn tests_run_again_only_if_every_failure_is_among_them() {
        let mut first = StepResult::failed("");
        first.tests.failed = 2;
        first.failed_tests = vec!["one".to_owned()];
        assert_eq!(tests_to_run_again(&first), None); // The other one crashed without a line of its own.
        first.failed_tests.push("two".to_owned());
        assert_eq!(tests_to_run_again(&first).map(<[String]>::len), Some(2));
        first.failed_tests = (0..11).map(|number| number.to_string()).collect();
        first.tests.failed = 11;
        assert_eq!(tests_to_run_again(&first), None);
    }

    #[test]
    fn a_step_requested_by_name_runs_alone() {
        assert_eq!(chosen(&request(Extent::Quick, &["documentation"])), ["documentation"]);
    }

    #[test]
    fn only_a_run_that_includes_the_tests_requires_some() {
        assert_eq!(request(Extent::Quick, &[]).test_requirement(), TestRequirement::SomeTests);
        assert_eq!(request(Extent::Quick, &["tests"]).test_requirement(), TestRequirement::SomeTests);
        assert_eq!(request(Extent::Quick, &["tidy"]).test_requirement(), TestRequirement::None);
        assert!(!request(Extent::Quick, &["tidy"]).may_run_tests());
    }
}
