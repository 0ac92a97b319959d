//! MPI jobs with the library preloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A job that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(600);

/// An MPI with its compiler and its launcher.
#[derive(Clone, Copy)]
pub(crate) struct Mpi {
    pub(crate) name: &'static str,
    pub(crate) compiler: &'static str,
    pub(crate) compiler_arguments: &'static [&'static str],
    pub(crate) fortran: &'static str,
    pub(crate) launcher: &'static [&'static str],
}

/// Debian's Open MPI. Its AVX operators treat unsigned shorts as signed, so they are off where its results are the reference.
pub(crate) const OPEN_MPI: Mpi = Mpi {
    name: "open-mpi",
    compiler: "mpicc.openmpi",
    compiler_arguments: &[],
    fortran: "mpifort.openmpi",
    launcher: &[
        "mpirun.openmpi",
        "--oversubscribe",
        "--bind-to",
        "none",
        "--mca",
        "op",
        "^avx",
        "--mca",
        "mpi_yield_when_idle",
        "1",
    ],
};

/// Debian's MPICH.
pub(crate) const MPICH: Mpi = Mpi {
    name: "mpich",
    compiler: "mpicc.mpich",
    compiler_arguments: &["-DLARGE_COUNTS"],
    fortran: "mpifort.mpich",
    launcher: &["mpirun.mpich"],
};

impl Mpi {
    /// Compiles a program of `tests/programs`.
    pub(crate) fn compile(&self, source: &str) -> PathBuf {
        self.compile_with(source, &[])
    }

    /// Compiles a shared library of `tests/programs`.
    pub(crate) fn compile_profiler(&self, source: &str) -> PathBuf {
        self.compile_with(source, &["-shared", "-fPIC"])
    }

    /// Compiles a program of `tests/programs` that is linked with a shared library.
    pub(crate) fn compile_linked_with(&self, source: &str, library: &Path) -> PathBuf {
        self.compile_with(source, &[library.to_str().expect("a plain path")])
    }

    fn compile_with(&self, source: &str, arguments: &[&str]) -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let stem = source.split('.').next().expect("a name");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let program = scratch().join(format!("{stem}-{}-{}-{number}", self.name, std::process::id()));
        let compiled = Command::new(self.compiler)
            .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread"])
            .args(self.compiler_arguments)
            .arg("-o")
            .arg(&program)
            .arg(here.join("tests/programs").join(source))
            .args(arguments)
            .arg("-lm")
            .output()
            .expect("the MPI's compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        program
    }
}

impl Mpi {
    /// Compiles a program in Fortran against one of the MPI's bindings.
    pub(crate) fn compile_fortran(&self, source: &str, binding: &str) -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = scratch().join(format!("fortran-{binding}-{}-{}", self.name, std::process::id()));
        let compiled = Command::new(self.fortran)
            .args(["-ffree-line-length-none", "-fallow-argument-mismatch", &format!("-DBINDING={binding}"), "-o"])
            .arg(&program)
            .arg(here.join("tests/programs").join(source))
            .output()
            .expect("the MPI's compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        program
    }
}

/// A file for the ranks to read.
pub(crate) fn scratch_file(name: &str, text: &str) -> PathBuf {
    let path = scratch().join(format!("{}-{}-{name}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&path, text).expect("a file");
    path
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(crate) fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The library that was built with this test.
pub(crate) fn library() -> PathBuf {
    let folder = std::env::current_exe().expect("this program").parent().expect("a folder").to_owned();
    folder.join("libpleach_mpi.so")
}

/// A program to be run.
pub(crate) struct Job {
    mpi: Mpi,
    program: PathBuf,
    ranks: u32,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// A shell command to run first.
    first: String,
    folder: PathBuf,
    /// The launcher exports the library to every process that it starts.
    is_exported: bool,
    /// Arguments before and after the launcher's own.
    around: [Vec<String>; 2],
    /// A library to preload before this one.
    before: Option<PathBuf>,
    /// The library to preload, if any.
    library: Option<PathBuf>,
}

/// The outcome of a job.
pub(crate) struct End {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) report: Value,
    pub(crate) folder: PathBuf,
}

impl Job {
    pub(crate) fn new(mpi: Mpi, program: &Path, ranks: u32) -> Self {
        let program = program.to_owned();
        Self {
            mpi,
            program,
            ranks,
            arguments: Vec::new(),
            variables: vec![("PLEACH_MPI_CHOICE".to_owned(), "pleach".to_owned())],
            first: String::new(),
            folder: scratch().to_owned(),
            is_exported: false,
            around: Default::default(),
            before: None,
            library: Some(library()),
        }
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Tries both ways and leaves to the MPI what it does faster, as in a user's job. Without this, Pleach does all that it can.
    pub(crate) fn measured(self) -> Self {
        self.set("PLEACH_MPI_CHOICE", "measure")
    }

    /// Sets a variable for every rank; the last value wins.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// From the n-th packet on, all packets of this rank are lost. `variable` holds a process's rank.
    pub(crate) fn drop_packets_of(mut self, variable: &str, rank: u32, nth: u32) -> Self {
        let plan =
            scratch_file("mute.toml", &format!("[[fault]]\nkind = \"lose\"\nnth = {nth}\ncount = 1000000000\n"));
        self.first = format!("[ \"${variable}\" = {rank} ] && export PLEACH_FAULTS={}; ", plan.display());
        self
    }

    /// One rank runs without the library, and without arguments. `variable` holds a process's rank.
    pub(crate) fn without_library_on(mut self, variable: &str, rank: u32) -> Self {
        self.first = format!("[ \"${variable}\" = {rank} ] && exec {}; ", self.program.display());
        self
    }

    /// Lets Open MPI's launcher set the variables, for ranks that are spawned later too.
    pub(crate) fn exported(mut self) -> Self {
        self.is_exported = true;
        self
    }

    /// Runs it in a folder of its own, with a file of `tests/programs`.
    pub(crate) fn in_folder_with(mut self, file: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.folder = scratch().join(format!("folder-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&self.folder).expect("a folder");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(file);
        std::fs::copy(from, self.folder.join(file)).expect("a file");
        self
    }

    /// Starts Open MPI's launcher on one host and the ranks on others, which are namespaces: `name:ranks`, with commas.
    pub(crate) fn started_on(mut self, host: namespaces::NamespaceHost<'_>, others: &str) -> Self {
        let agent = scratch_file(
            "agent.sh",
            "#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host unshare --uts sh -c \"hostname $host; $*\"\n",
        );
        let own = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&agent, own).expect("our own file");
        self.around[0] = ["ip", "netns", "exec", host.name()].map(str::to_owned).to_vec();
        let network = format!("{}/16", host.address());
        let options = [
            ("plm_rsh_agent", agent.to_str().expect("a plain path")),
            ("plm_rsh_no_tree_spawn", "1"),
            ("orte_keep_fqdn_hostnames", "1"),
            ("oob_tcp_if_include", &network),
            ("btl_tcp_if_include", &network),
            ("btl", "tcp,self"),
            ("pml", "ob1"),
        ];
        self.around[1] = ["-H", others].map(str::to_owned).to_vec();
        self.around[1].extend(options.iter().flat_map(|(name, value)| ["--mca", name, value].map(str::to_owned)));
        self
    }

    /// Redirects the stderr of each rank to a file of its own. `variable` holds a process's rank.
    pub(crate) fn with_stderr_files(mut self, file: &Path, variable: &str) -> Self {
        self.first = format!("exec 2> {}.${variable}; ", file.display());
        self
    }

    /// Preloads another library before this one.
    pub(crate) fn preloaded_after(mut self, other: &Path) -> Self {
        self.before = Some(other.to_owned());
        self
    }

    /// Runs it without the library.
    pub(crate) fn without_library(mut self) -> Self {
        self.library = None;
        self
    }

    /// Runs it; it must succeed.
    pub(crate) fn run(self) -> End {
        let (status, end) = self.run_to_any_end();
        assert!(status.success(), "{status}\n{}\n{}", end.stdout, end.stderr);
        end
    }

    pub(crate) fn run_to_any_end(self) -> (ExitStatus, End) {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let report = scratch().join(format!("report-{}-{number}.json", std::process::id()));
        let [before, after] = &self.around;
        let mut line: Vec<&str> = before.iter().map(String::as_str).collect();
        line.extend(self.mpi.launcher);
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).args(after).args(["-n", &self.ranks.to_string()]);
        let mut variables = self.variables.clone();
        if let Some(library) = &self.library {
            let all = self.before.iter().chain([library]).map(|library| library.display().to_string());
            variables.push(("LD_PRELOAD".to_owned(), all.collect::<Vec<_>>().join(":")));
        }
        variables.push(("PLEACH_MPI_REPORT".to_owned(), report.display().to_string()));
        if self.is_exported {
            for (name, value) in &variables {
                command.args(["-x", &format!("{name}={value}")]);
            }
        } else {
            // Not for the launcher itself: `env` loads the library into the ranks alone.
            command.args(["sh", "-c", &format!("{}exec env \"$@\"", self.first), "sh"]);
            command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        }
        command.arg(&self.program).args(&self.arguments).current_dir(&self.folder);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let (stdout, stderr) = (report.with_extension("out"), report.with_extension("err"));
        let file = |path: &Path| Stdio::from(std::fs::File::create(path).expect("a file"));
        command.stdin(Stdio::null()).stdout(file(&stdout)).stderr(file(&stderr));
        let mut child = command.spawn().expect("the MPI's launcher");
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child of this process") {
                break status;
            }
            if began.elapsed() > TIMEOUT {
                child.kill().expect("a child of this process");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let (stdout, stderr) = (read(&stdout), read(&stderr));
        assert!(began.elapsed() < TIMEOUT, "the job hangs\n{stdout}\n{stderr}");
        let report = serde_json::from_str(&read(&report)).unwrap_or_default();
        (status, End { stdout, stderr, report, folder: self.folder })
    }
}

impl End {
    /// The number of calls in the report's rows of this kind.
    pub(crate) fn calls(&self, kind: &str, of_interest: impl Fn(&Value) -> bool) -> u64 {
        let rows = self.report[kind].as_array().map(Vec::as_slice).unwrap_or_default();
        rows.iter().filter(|row| of_interest(row)).filter_map(|row| row["calls"].as_u64()).sum()
    }

    /// Pleach did every operation, blocking and non-blocking, and only the expected calls fell back.
    pub(crate) fn check_that_everything_was_offloaded(&self) {
        let reductions = ["reduce", "allreduce", "reduce-scatter-block", "reduce-scatter", "scan", "exscan"];
        let copies = ["broadcast", "allgather", "allgatherv", "gather", "scatter", "alltoall"];
        for operation in [&["barrier"][..], &reductions, &copies].concat() {
            for non_blocking in [false, true] {
                let is_it = |row: &Value| row["operation"] == operation && row["non_blocking"] == non_blocking;
                assert!(self.calls("taken", is_it) > 0, "{operation}, {non_blocking}: {}", self.report);
            }
        }
        // The conformance program has no invalid arguments in these, and every type goes.
        let of_blocks = |row: &Value| copies[1..].iter().any(|operation| row["operation"] == *operation);
        let is_expected = |row: &Value| row["why"] == "intercommunicator" || row["why"] == "one rank";
        assert_eq!(self.calls("left", |row| of_blocks(row) && !is_expected(row)), 0, "{}", self.report);
        let expected_fallbacks =
            ["invalid argument", "unsupported datatype", "user-defined operator", "intercommunicator", "one rank"];
        let others = self.calls("left", |row| !expected_fallbacks.iter().any(|why| row["why"] == *why));
        assert_eq!(others, 0, "{}", self.report);
        assert_eq!(self.report["failures"], 0);
        // Open MPI's launcher sometimes prints this about its own children: it was too late to put one into a process group.
        let is_ours = |line: &&str| !line.is_empty() && !line.contains("plm:rsh: Warning: setpgid");
        assert_eq!(self.stderr.lines().find(is_ours), None, "{}", self.stderr);
    }
}
