//! The pages of reports in a browser: the verdict first, no error, nothing that overlaps or is cut off, data that can be saved, light, dark
//! and on paper.

#[expect(dead_code, reason = "the tests of the manager's page also press keys and wait")]
#[path = "../manager/browser.rs"]
mod browser;
mod checks;
mod process;

use std::path::PathBuf;
use std::process::Command;

use checks::{DrawnPage, PageOutcome};

/// A page that a command wrote, in a file that is removed.
struct ReportFile(PathBuf);

impl ReportFile {
    /// Writes what a command reports.
    fn of(name: &str, arguments: &[&str], outcome: PageOutcome) -> Self {
        let file = Self::named(name);
        let path = file.0.display().to_string();
        let arguments = [arguments, &["--format", "html", "--output", &path]].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_pleach")).args(&arguments).output().expect("pleach starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(outcome.exit_code()), "{arguments:?}: {complaint}");
        file
    }

    /// Writes a page of these contents.
    fn with(name: &str, contents: &str) -> Self {
        let file = Self::named(name);
        std::fs::write(&file.0, contents).expect("a place for files");
        file
    }

    fn named(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("pleach-page-{name}-{}.html", std::process::id())))
    }

    fn open(&self) -> DrawnPage {
        DrawnPage::open(&format!("file://{}", self.0.display()))
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn scenario(name: &str) -> String {
    format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command and checks its page.
fn check(name: &str, arguments: &[&str], outcome: PageOutcome) {
    ReportFile::of(name, arguments, outcome).open().check_report(outcome);
}

#[test]
fn a_simulation_is_drawn_in_chromium() {
    for (name, operations, outcome) in [
        ("spatial-cut-cable", "20", PageOutcome::Held),
        ("torus", "10", PageOutcome::Held),
        ("tree-rebuilt", "20", PageOutcome::Failed),
    ] {
        check(name, &["simulate", &scenario(name), "--operations", operations], outcome);
    }
}

#[test]
fn traffic_with_marks_and_losses_is_drawn_in_chromium() {
    check("lossy", &["simulate", &scenario("lossy-ethernet")], PageOutcome::Held);
}

#[test]
fn a_sweep_with_ten_lines_is_drawn_in_chromium() {
    let rates = "link.rate=SDR,DDR,QDR,FDR,EDR";
    let sweep = ["simulate", &scenario("k-ary-n-tree"), "--operations", "10", "--set", rates];
    let sweep = [&sweep[..], &["--set", "collective.count=1,32"]].concat();
    let file = ReportFile::of("sweep", &sweep, PageOutcome::Held);
    let mut page = file.open();
    page.check_report(PageOutcome::Held);
    let colours = "new Set([...document.querySelectorAll('svg g[class] > path.line')].map((line) => \
        getComputedStyle(line).stroke + getComputedStyle(line).strokeDasharray)).size";
    assert_eq!(page.evaluate(colours), 10);
}

#[test]
fn the_papers_figures_are_drawn_in_chromium() {
    check("checksums", &["reproduce", "checksums", "--quick"], PageOutcome::Held);
    check("soft-errors", &["reproduce", "soft-errors", "--quick", "--collectives", "2"], PageOutcome::Held);
    let quadrics = ["reproduce", "quadrics", "--quick", "--nodes", "64", "--calls", "40"];
    // So few calls do not reproduce every gated number.
    check("quadrics", &quadrics, PageOutcome::Failed);
}

#[test]
fn tables_of_sharp_and_cut_cables_are_drawn_in_chromium() {
    check("sharp", &["reproduce", "sharp", "--quick", "--hosts", "1024", "--hosts-alone", "0"], PageOutcome::Held);
    let migration = ["reproduce", "path-migration", "--simulated", "--quick", "--cuts", "1"];
    check("path-migration", &migration, PageOutcome::Held);
}

#[test]
fn rates_of_checksums_are_drawn_in_chromium() {
    check("rates", &["bench", "checksum", "--quick"], PageOutcome::Measured);
    let detection = ["bench", "checksum", "--detection", "--trials", "300", "--algorithm", "crc-32c"];
    check("detection", &detection, PageOutcome::Held);
}

#[test]
#[ignore = "long: measures this machine for minutes"]
fn measurements_are_drawn_in_chromium() {
    check("simulator", &["bench", "simulator", "--largest", "1024", "--hops", "1"], PageOutcome::Measured);
    check("messages", &["bench", "pingpong", "--quick"], PageOutcome::Measured);
    check("migration", &["bench", "migration", "--quick"], PageOutcome::Measured);
    check("collectives", &["bench", "collectives", "--quick", "--scene", "shared-memory"], PageOutcome::Measured);
}

#[test]
fn a_check_of_a_page_can_fail_in_chromium() {
    let svg = |texts: &str| format!("<main><svg viewBox='0 0 200 40' width='200'>{texts}</svg></main>");
    let faults = |name: &str, texts: &str| ReportFile::with(name, &svg(texts)).open().faults();
    let good = "<text x='10' y='20'>left</text><text x='100' y='20'>right</text>";
    assert_eq!(faults("good", good), [""; 0]);
    let overlapping = "<text x='10' y='20'>left</text><text x='20' y='22'>right</text>";
    assert_eq!(faults("overlapping", overlapping), ["left / right"]);
    let clipped = "<text x='180' y='20'>far too long</text>";
    assert_eq!(faults("clipped", clipped), ["far too long is cut off"]);
    let console = "<main></main><script>throw new Error('broken')</script>";
    let mut page = ReportFile::with("console", console).open();
    assert!(page.problems().iter().any(|problem| problem.contains("broken")), "{:?}", page.problems());
    // A page without a verdict is no report.
    let unfinished = ReportFile::with("unfinished", "<main><h1>A page</h1></main>");
    assert_ne!(unfinished.open().opening(), checks::OPENING);
}
