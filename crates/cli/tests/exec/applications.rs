//! Real applications from Debian's packages: the same results as without Pleach, through nodes, with faults, and when the node is killed.

use std::time::{Duration, Instant};

use super::*;

/// Where Debian installs OpenFOAM.
const OPENFOAM: &str = "/usr/share/openfoam";
const CAVITY: &str = "/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity";
/// How the cavity is cut, but for how many pieces.
const DECOMPOSITION: &str = "\
FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }
method simple;
simpleCoeffs { n PIECES; delta 0.001; }
";

/// How an application is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    /// Open MPI alone.
    Nothing,
    /// Pleach, within one host.
    Library,
    /// Pleach through a node, each rank as a host of its own, while bits flip and packets vanish.
    Faults,
    /// The same, and the node is killed in the middle.
    KilledNode,
}

/// Runs it in a folder, and returns what it said, how long it took, and what was reported of it.
fn run(around: Around, folder: &Path, ranks: &str, program: &[&str]) -> (String, Duration, Value) {
    let (plan, report) = (file("faults.toml"), file("report.json"));
    std::fs::write(&plan, FAULTS).expect("the target folder can be written to");
    let mut command = match around {
        Around::Nothing => Command::new(OPEN_MPI[0]),
        Around::Library => pleach("exec", &[]),
        Around::Faults | Around::KilledNode => pleach("exec", &["--nodes", "1", "--faults"]),
    };
    if matches!(around, Around::Faults | Around::KilledNode) {
        command.arg(&plan);
    }
    if around != Around::Nothing {
        command.args(["--format", "json", "--output"]).arg(&report).args(["--", OPEN_MPI[0]]);
    }
    command.args(&OPEN_MPI[1..]).args(["1", "-n", ranks]).args(program).current_dir(folder);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("WM_PROJECT_DIR", OPENFOAM).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = Instant::now();
    let child = command.spawn().expect("it starts");
    if around == Around::KilledNode {
        let found = wait_for_children(&child, |found| find(found, &["node", "root"]).is_some() && have_joined(found));
        let node = find(&found, &["node", "root"]).expect("a node").process;
        std::thread::sleep(Duration::from_millis(300)); // In the middle of the run.
        signal_to(node, "KILL");
    }
    let output = child.wait_with_output().expect("a child of this test");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let report = read(&report);
    if around != Around::Nothing {
        assert!(calls(&report, "taken") > 100 && report["report"]["failures"] == 0, "{report}");
    }
    if matches!(around, Around::Faults | Around::KilledNode) {
        assert!(report["report"]["operations"]["through_nodes"].as_u64() > Some(0), "{report}");
        assert!(report["report"]["packets"]["damaged"].as_u64() > Some(0), "{report}");
    }
    let lost = report["lost"].as_array().map_or(0, Vec::len);
    assert_eq!(lost, usize::from(around == Around::KilledNode), "{report}");
    (text(&output.stdout), began.elapsed(), report)
}

/// A folder with the case, meshed and cut into so many pieces; `end` is the time that is simulated.
fn cavity(pieces: (u32, u32), end: &str) -> PathBuf {
    let folder = file("cavity");
    let copied = Command::new("cp").args(["-r", CAVITY]).arg(&folder).status().expect("there is a cp");
    assert!(copied.success());
    let (x, y) = pieces;
    let cut = DECOMPOSITION.replace("PIECES", &format!("({x} {y} 1)"));
    let cut = format!("{cut}numberOfSubdomains {};\n", x * y);
    std::fs::write(folder.join("system/decomposeParDict"), cut).expect("a folder of this test");
    let control = folder.join("system/controlDict");
    let words = std::fs::read_to_string(&control).expect("part of the case");
    let words: Vec<String> = words
        .lines()
        .map(|line| if line.starts_with("endTime ") { format!("endTime {end};") } else { line.to_owned() })
        .collect();
    std::fs::write(control, words.join("\n")).expect("a folder of this test");
    for program in ["blockMesh", "decomposePar"] {
        let done = Command::new(program).current_dir(&folder).env("WM_PROJECT_DIR", OPENFOAM).output();
        let done = done.expect("OpenFOAM");
        assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    }
    folder
}

/// The application of SH-14: conjugate gradients with allreduces of eight bytes. Its residuals are printed with six digits; sums of what
/// should be nothing are rounding alone, and left out. Two ranks have but one order, so that every bit is the same however long it runs;
/// four have several, which shows when hardly anything is left of the residuals.
#[test]
#[ignore = "long: needs OpenFOAM"]
fn openfoam_has_the_same_residuals_under_open_mpi() {
    let everything = [Around::Library, Around::Faults, Around::KilledNode];
    for (pieces, end, least, ways) in [((2, 2), "0.5", 300, &everything[..2]), ((2, 1), "2.5", 1500, &everything[..])]
    {
        let folder = cavity(pieces, end);
        let ranks = (pieces.0 * pieces.1).to_string();
        let residuals = |around: Around| {
            let (said, took, report) = run(around, &folder, &ranks, &["icoFoam", "-parallel"]);
            let lines = said.lines().filter(|line| line.contains("Initial residual"));
            (lines.map(str::to_owned).collect::<Vec<_>>(), took, report)
        };
        let (plain, plainly_took, _) = residuals(Around::Nothing);
        assert!(plain.len() > least, "{plain:?}");
        for around in ways {
            let (found, took, report) = residuals(*around);
            let different = found.iter().zip(&plain).find(|(found, plain)| found != plain);
            assert_eq!((different, found.len()), (None, plain.len()), "{ranks} ranks");
            assert_eq!(calls(&report, "left"), 0, "{report}");
            println!(
                "icoFoam, {ranks} ranks: {:.2} s, plainly {:.2} s",
                took.as_secs_f64(),
                plainly_took.as_secs_f64()
            );
        }
    }
}

/// A benchmark that verifies its own results: solving, transposing, updating at random, transforming.
#[test]
#[ignore = "long: needs hpcc"]
fn hpcc_verifies_its_results_through_nodes_under_open_mpi() {
    let folder = file("hpcc");
    std::fs::create_dir(&folder).expect("the target folder can be written to");
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pleach-mpi/tests/programs/hpccinf.txt");
    std::fs::copy(input, folder.join("hpccinf.txt")).expect("a file");
    for around in [Around::Nothing, Around::Library, Around::Faults, Around::KilledNode] {
        let written = folder.join("hpccoutf.txt");
        let _ = std::fs::remove_file(&written);
        run(around, &folder, "2", &["hpcc"]);
        let output = std::fs::read_to_string(written).expect("what it wrote");
        assert!(output.contains("Success=1") && output.contains("MPIRandomAccess_Errors=0"), "{output}");
        // Transposing five times and solving once. What takes no measurable processor time has one line less that says so.
        for tests in [5, 1] {
            assert!(output.contains(&format!("{tests} tests completed and passed residual checks")), "{output}");
        }
        assert!(!output.contains("FAILED") && output.matches("PASSED").count() >= 6, "{output}");
    }
}
