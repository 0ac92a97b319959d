//! Launchers of MPI programs: which one a command is, and how it sets variables for ranks on all hosts.
//!
//! Only the ranks load the library, not the launcher, if the launcher has arguments for variables of ranks. Secrets are never passed as
//! arguments, which every user of the machine can read.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use control::CREDENTIAL_VARIABLE;

/// For a launcher to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// A variable of ranks.
pub type EnvironmentVariable = (&'static str, OsString);

/// Variables of the user that are forwarded to ranks on all hosts.
const FORWARDED_VARIABLES: [&str; 14] = [
    "PLEACH_MPI",
    "PLEACH_MPI_CHOICE",
    "PLEACH_MPI_MAX_BYTES",
    "PLEACH_MPI_LARGEST", // Deprecated name of the former.
    "PLEACH_MPI_RANKS_PER_HOST",
    "PLEACH_MPI_REPLAY_BYTES",
    "PLEACH_ALGORITHM",
    "PLEACH_MANAGER",
    "PLEACH_MANAGER_REQUIRED",
    CREDENTIAL_VARIABLE,
    "PLEACH_RESULTS",
    "PLEACH_SECURITY",
    "PLEACH_SHARED_MEMORY",
    "PLEACH_PATIENCE",
];

/// The launcher of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MpiLauncher {
    /// `-x NAME` exports a variable.
    OpenMpi(String),
    /// Of MPICH, Intel MPI and others: ranks inherit all variables, and `-genv NAME VALUE` adds one.
    Hydra(String),
    /// Slurm's `srun`: ranks inherit its environment. Which MPI they use is known to them alone.
    Srun(String),
    /// A script or an unknown launcher: ranks inherit its environment.
    Other,
}

impl MpiLauncher {
    /// Identifies a launcher by the version that it prints, if its name is that of a launcher.
    pub fn of(program: &OsStr) -> Self {
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_launcher =
            ["mpirun", "mpiexec", "orterun", "prterun", "srun"].iter().any(|known| name.starts_with(known));
        let said = if is_launcher { program_output(program, "--version", VERSION_TIMEOUT) } else { None };
        said.map_or(Self::Other, |said| Self::from_version(&said))
    }

    fn from_version(version: &str) -> Self {
        let lines = || version.lines().map(str::trim);
        let first = lines().find(|line| !line.is_empty()).unwrap_or_default().to_owned();
        if version.contains("Open MPI") || version.contains("OpenRTE") || version.contains("PRRTE") {
            return Self::OpenMpi(first);
        }
        if version.contains("HYDRA") {
            let version = lines().find_map(|line| line.strip_prefix("Version:")).map(str::trim);
            return Self::Hydra(format!("Hydra {}", version.unwrap_or_default()));
        }
        match first {
            first if version.contains("Intel(R) MPI") => Self::Hydra(first),
            first if first.starts_with("slurm") => Self::Srun(first),
            _ => Self::Other,
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Self::OpenMpi(version) | Self::Hydra(version) => version.clone(),
            Self::Srun(version) => format!("srun of {version}; ranks inherit its environment"),
            Self::Other => "unknown launcher; ranks inherit its environment".to_owned(),
        }
    }

    /// The command line and its environment, with variables for all ranks, which preload `library`.
    pub fn with(
        &self,
        command: &[OsString],
        library: &Path,
        variables: &[EnvironmentVariable],
    ) -> Result<(Vec<OsString>, Vec<EnvironmentVariable>)> {
        let Some((program, rest)) = command.split_first() else { bail!("the command is empty") };
        if rest.iter().any(|word| word.to_string_lossy().contains("LD_PRELOAD")) {
            bail!(
                "the command sets LD_PRELOAD itself; set it in the environment of pleach exec instead, which adds its own library"
            );
        }
        // Theirs first: a profiler sees all calls and then calls `PMPI_…`, which our library exports as well.
        let mut preload = OsString::new();
        if let Some(theirs) = std::env::var_os("LD_PRELOAD").filter(|theirs| !theirs.is_empty()) {
            preload.push(theirs);
            preload.push(":");
        }
        preload.push(library);
        let mut environment = variables.to_vec();
        for name in FORWARDED_VARIABLES {
            let is_ours = environment.iter().any(|(ours, _)| *ours == name);
            if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty() && !is_ours) {
                environment.push((name, value));
            }
        }
        let mut given: Vec<OsString> = Vec::new();
        match self {
            Self::OpenMpi(_) => {
                let mut first = OsString::from("LD_PRELOAD=");
                first.push(&preload);
                given.extend(["-x".into(), first]);
                given.extend(environment.iter().flat_map(|(name, _)| ["-x".into(), OsString::from(name)]));
            }
            Self::Hydra(_) => given.extend(["-genv".into(), "LD_PRELOAD".into(), preload]),
            Self::Srun(_) | Self::Other => environment.push(("LD_PRELOAD", preload)),
        }
        let mut line = vec![program.clone()];
        line.extend_from_slice(&given);
        for word in rest {
            line.push(word.clone());
            // Open MPI 4 exports variables per program, where colons separate several.
            if word == ":" && matches!(self, Self::OpenMpi(_)) {
                line.extend_from_slice(&given);
            }
        }
        Ok((line, environment))
    }
}

/// What is read of a program's output.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// The stdout of a program with one argument, unless it takes too long.
pub fn program_output(program: impl AsRef<OsStr>, argument: &str, timeout: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let began = Instant::now();
    // Read while it runs: a program whose output does not fit into a pipe waits for its reader.
    let stdout = child.stdout.take()?.take(MAX_OUTPUT_BYTES);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = { stdout }.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let output = receiver.recv_timeout(timeout).ok();
    while output.is_some() && began.elapsed() < timeout && child.try_wait().ok()?.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill(); // Does nothing if it has ended.
    let _ = child.wait();
    output.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_identified_by_their_version() {
        let of = MpiLauncher::from_version;
        assert_eq!(
            of("mpirun (Open MPI) 4.1.4\n\nReport bugs"),
            MpiLauncher::OpenMpi("mpirun (Open MPI) 4.1.4".into())
        );
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n";
        assert_eq!(of(hydra), MpiLauncher::Hydra("Hydra 4.0.2".into()));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18";
        assert_eq!(of(intel), MpiLauncher::Hydra(intel.into()));
        assert_eq!(of("slurm-wlm 22.05.8\n"), MpiLauncher::Srun("slurm-wlm 22.05.8".to_owned()));
        assert_eq!(of("something"), MpiLauncher::Other);
        assert_eq!(MpiLauncher::of(OsStr::new("sh")), MpiLauncher::Other);
    }

    #[test]
    fn output_that_does_not_fit_into_a_pipe_is_read() {
        let text = program_output("seq", "100000", Duration::from_secs(20)).expect("it ends when it is read");
        assert!(text.len() > 1 << 19 && text.ends_with("\n100000\n"));
        assert_eq!(program_output("sleep", "20", Duration::from_millis(20)), None);
    }

    #[test]
    fn secrets_are_never_arguments() {
        let command: Vec<OsString> = ["mpirun", "-n", "2", "./program"].map(OsString::from).to_vec();
        let variables = [(CREDENTIAL_VARIABLE, OsString::from("hush"))];
        for launcher in [MpiLauncher::OpenMpi(String::new()), MpiLauncher::Hydra(String::new()), MpiLauncher::Other] {
            let (line, environment) = launcher.with(&command, Path::new("/lib/ours.so"), &variables).expect("a line");
            assert!(line.iter().all(|word| !word.to_string_lossy().contains("hush")), "{line:?}");
            assert!(environment.contains(&variables[0]), "{environment:?}");
            assert_eq!((&line[0], &line[line.len() - 3..]), (&command[0], &command[1..]));
            let given = |word: &OsString| word.to_string_lossy().contains("/lib/ours.so");
            assert!(line.iter().any(given) != environment.iter().any(|(_, value)| given(value)));
        }
    }

    #[test]
    fn preloading_by_arguments_is_rejected() {
        let command: Vec<OsString> = ["mpirun", "-x", "LD_PRELOAD=other.so", "program"].map(OsString::from).to_vec();
        let said =
            MpiLauncher::OpenMpi(String::new()).with(&command, Path::new("ours.so"), &[]).expect_err("two of them");
        assert!(said.to_string().contains("LD_PRELOAD"), "{said}");
    }
}
