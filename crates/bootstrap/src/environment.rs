//! Determines rank, size and job of this process from the variables that its launcher set.
//!
//! In: variables. Out: rank, size, a job name that all processes of the job share and other jobs do not, and the rendezvous
//! point. Supported are Pleach's own variables, Open MPI, MPICH and other users of PMI, MVAPICH, PMIx and Slurm, in this
//! order: `mpirun` within a Slurm allocation also has Slurm's variables, but they do not describe its ranks. Without any
//! of them the process is a job of one rank.

use std::collections::BTreeMap;
use std::fmt;

use topology::expand_host_list;

use super::launcher;

/// Environment variables, by name.
pub type EnvironmentVariables = BTreeMap<String, String>;

/// Most ranks of a job.
pub const MAX_JOB_RANKS: u32 = 65_536;
/// Longest job name and longest token.
const MAX_NAME_BYTES: usize = 256;
/// Slurm numbers its special steps (batch script, interactive shell), which are not parallel runs, from here on.
pub const SLURM_SPECIAL_STEPS: u32 = 0xffff_fff0;
/// Ports for Slurm jobs: below the range that Linux uses for outgoing connections.
const SLURM_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Rank, size and job of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobEnvironment {
    /// Rank of this process.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// The job name, which all its processes share.
    pub job: String,
    /// The token that a process needs to join.
    pub token: JobToken,
    /// Where the ranks meet.
    pub rendezvous: RendezvousPoint,
}

/// Where the ranks of a job meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RendezvousPoint {
    /// The job has only one rank.
    Singleton,
    /// Rank 0 listens here.
    Address {
        /// Name or address of rank 0's host.
        host: String,
        /// A TCP port.
        port: u16,
    },
    /// All ranks are on one host: rank 0 writes its port to a file in /dev/shm, which is named after user and job.
    File,
}

/// Keeps processes of other jobs out. From `PLEACH_TOKEN`, it is a secret; otherwise it is derived from the job name and
/// only prevents accidents.
#[derive(Clone, PartialEq, Eq)]
pub struct JobToken(pub(super) Vec<u8>);

/// Why the variables do not describe a job; the text says what to set.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvironmentError {
    /// A variable is set, but not another one that it needs.
    Missing {
        /// The variable that is set.
        beside: &'static str,
        /// The alternatives for the missing one.
        wanted: Vec<&'static str>,
    },
    /// A variable has an invalid value.
    Invalid {
        /// Its name.
        variable: &'static str,
        /// Its value, truncated.
        value: String,
        /// What is expected.
        expected: String,
    },
    /// The job is on several hosts, and no variable gives the rendezvous address.
    NoRendezvous {
        /// The evidence.
        because: String,
    },
    /// No variable gives the job a name.
    NoJobName,
}

/// The variables of one launcher.
struct LauncherConvention {
    rank: &'static str,
    sizes: &'static [&'static str],
    /// Variables with a name for the job.
    names: &'static [&'static str],
    /// Variables with the number of ranks on this host.
    local_sizes: &'static [&'static str],
    /// Whether `srun` may have set these variables itself; then Slurm knows the hosts.
    slurm: SlurmOrigin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlurmOrigin {
    MayHaveStarted,
    DidNotStart,
}

const LAUNCHER_CONVENTIONS: [LauncherConvention; 6] = [
    LauncherConvention {
        rank: "PLEACH_RANK",
        sizes: &["PLEACH_SIZE"],
        names: &[],
        local_sizes: &[],
        slurm: SlurmOrigin::DidNotStart,
    },
    LauncherConvention {
        rank: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        names: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        local_sizes: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        slurm: SlurmOrigin::DidNotStart,
    },
    // PMI_ID is not a job name: MPICH's launcher stores the rank there.
    LauncherConvention {
        rank: "PMI_RANK",
        sizes: &["PMI_SIZE"],
        names: &["PMI_JOBID", "PMI_KVS", "PMI_PORT"],
        local_sizes: &["MPI_LOCALNRANKS"],
        slurm: SlurmOrigin::MayHaveStarted,
    },
    LauncherConvention {
        rank: "MV2_COMM_WORLD_RANK",
        sizes: &["MV2_COMM_WORLD_SIZE"],
        names: &["PMI_JOBID", "PMI_PORT"],
        local_sizes: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        slurm: SlurmOrigin::DidNotStart,
    },
    LauncherConvention {
        rank: "PMIX_RANK",
        sizes: &["PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        names: &["PMIX_NAMESPACE"],
        local_sizes: &[],
        slurm: SlurmOrigin::MayHaveStarted,
    },
    LauncherConvention {
        rank: "SLURM_PROCID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        names: &[],
        local_sizes: &[],
        slurm: SlurmOrigin::MayHaveStarted,
    },
];

impl JobEnvironment {
    /// From the environment of this process.
    ///
    /// # Errors
    /// The variables are contradictory or incomplete; the error says what to set.
    pub fn from_environment() -> Result<Self, EnvironmentError> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables: EnvironmentVariables = std::env::vars_os().filter_map(text).collect();
        Self::from_variables(&variables, launcher::launcher_name)
    }

    /// From the given variables. `launcher` names the process that started all ranks of this host, given the variables that
    /// identify a rank; it is called only if no variable gives the job a name.
    ///
    /// # Errors
    /// As [`JobEnvironment::from_environment`].
    pub fn from_variables(
        variables: &EnvironmentVariables,
        launcher: impl FnOnce(&[(&str, &str)]) -> Option<String>,
    ) -> Result<Self, EnvironmentError> {
        let reader = EnvironmentReader { variables };
        let Some(convention) = LAUNCHER_CONVENTIONS.iter().find(|convention| reader.follows(convention)) else {
            return reader.without_launcher();
        };
        let size = match convention.sizes.iter().find(|name| reader.get(name).is_some()) {
            Some(name) => reader.number(name, 1..=MAX_JOB_RANKS)?,
            None => {
                let wanted = convention.sizes.to_vec();
                return Err(EnvironmentError::Missing { beside: convention.rank, wanted });
            }
        };
        let rank = reader.number(convention.rank, 0..=size - 1)?;
        let step = reader.slurm_step().filter(|_| convention.slurm == SlurmOrigin::MayHaveStarted);
        let job = match reader.job(convention, step.as_deref())? {
            Some(job) => job,
            None if size == 1 => reader.singleton()?.job,
            None => match reader.job_by_hand(convention)? {
                Some(job) => job,
                None => launcher(&reader.rank_variables(convention)).ok_or(EnvironmentError::NoJobName)?,
            },
        };
        let token = reader.token(&job)?;
        let rendezvous = reader.rendezvous(convention, size, step.as_deref())?;
        Ok(Self { rank, size, job, token, rendezvous })
    }
}

struct EnvironmentReader<'a> {
    variables: &'a EnvironmentVariables,
}

impl<'a> EnvironmentReader<'a> {
    /// A variable that is set and not empty.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn follows(&self, convention: &LauncherConvention) -> bool {
        // A batch script has SLURM_PROCID=0 and is still a job of one rank.
        self.get(convention.rank).is_some() && (convention.rank != "SLURM_PROCID" || self.slurm_step().is_some())
    }

    fn number(&self, name: &'static str, range: std::ops::RangeInclusive<u32>) -> Result<u32, EnvironmentError> {
        let value = self.get(name).unwrap_or_default();
        match value.trim().parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(invalid(name, value, format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    /// A job of one rank, unless variables tell of others.
    fn without_launcher(&self) -> Result<JobEnvironment, EnvironmentError> {
        let missing = |beside| Err(EnvironmentError::Missing { beside, wanted: vec!["PLEACH_RANK"] });
        if self.get("PLEACH_SIZE").is_some_and(|size| size.trim() != "1") {
            return missing("PLEACH_SIZE");
        }
        if self.get("PLEACH_RENDEZVOUS").is_some() {
            return missing("PLEACH_RENDEZVOUS"); // Nobody sets it for one rank alone.
        }
        self.singleton()
    }

    fn singleton(&self) -> Result<JobEnvironment, EnvironmentError> {
        let job = match self.get("PLEACH_JOB") {
            Some(job) => validated("PLEACH_JOB", job)?.to_owned(),
            None => format!("alone-{}", std::process::id()),
        };
        Ok(JobEnvironment { rank: 0, size: 1, token: self.token(&job)?, job, rendezvous: RendezvousPoint::Singleton })
    }

    /// Job and step of a parallel run of Slurm; `None` in a batch script and outside Slurm.
    fn slurm_step(&self) -> Option<String> {
        let job = self.get("SLURM_JOB_ID").or_else(|| self.get("SLURM_JOBID"))?;
        let step = self.get("SLURM_STEP_ID").or_else(|| self.get("SLURM_STEPID"))?;
        let (job, step): (u64, u32) = (job.parse().ok()?, step.parse().ok()?);
        (step < SLURM_SPECIAL_STEPS).then(|| format!("slurm-{job}.{step}"))
    }

    fn job(&self, convention: &LauncherConvention, step: Option<&str>) -> Result<Option<String>, EnvironmentError> {
        if let Some(job) = self.get("PLEACH_JOB") {
            return Ok(Some(validated("PLEACH_JOB", job)?.to_owned()));
        }
        if let Some(step) = step {
            return Ok(Some(step.to_owned()));
        }
        let Some((name, value)) = convention.names.iter().find_map(|name| Some((*name, self.get(name)?))) else {
            return Ok(None);
        };
        Ok(Some(validated(name, value)?.to_owned()))
    }

    /// The name of a job whose ranks were started by hand with a rendezvous: each by another process, which cannot name it.
    fn job_by_hand(&self, convention: &LauncherConvention) -> Result<Option<String>, EnvironmentError> {
        if convention.rank != "PLEACH_RANK" {
            return Ok(None);
        }
        if self.get("PLEACH_TOKEN").is_some() && self.get("PLEACH_RENDEZVOUS").is_none() {
            // A token is for ranks on several hosts, which would wait for each other in vain.
            let wanted = vec!["PLEACH_RENDEZVOUS", "PLEACH_JOB"];
            return Err(EnvironmentError::Missing { beside: "PLEACH_TOKEN", wanted });
        }
        let address = self.get("PLEACH_RENDEZVOUS").filter(|address| parse_rendezvous(address).is_some());
        let Some(address) = address else { return Ok(None) };
        if self.get("PLEACH_TOKEN").is_none() {
            let wanted = vec!["PLEACH_TOKEN", "PLEACH_JOB"];
            return Err(EnvironmentError::Missing { beside: "PLEACH_RENDEZVOUS", wanted });
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        Ok(Some(format!("at-{}", address.chars().map(plain).collect::<String>())))
    }

    fn token(&self, job: &str) -> Result<JobToken, EnvironmentError> {
        Ok(JobToken(match self.get("PLEACH_TOKEN") {
            Some(token) => validated("PLEACH_TOKEN", token).map_err(redact_value)?.as_bytes().to_vec(),
            None => format!("job {job}").into_bytes(),
        }))
    }

    fn rendezvous(
        &self,
        convention: &LauncherConvention,
        size: u32,
        step: Option<&str>,
    ) -> Result<RendezvousPoint, EnvironmentError> {
        if size == 1 {
            return Ok(RendezvousPoint::Singleton);
        }
        if let Some(address) = self.get("PLEACH_RENDEZVOUS") {
            let point = parse_rendezvous(address);
            return point.ok_or_else(|| invalid("PLEACH_RENDEZVOUS", address, "host:port of rank 0".to_owned()));
        }
        if let Some(step) = step {
            return self.rendezvous_of_step(step);
        }
        if let Some(name) = convention.local_sizes.iter().copied().find(|name| self.get(name).is_some()) {
            let here = self.number(name, 1..=MAX_JOB_RANKS)?;
            if here != size {
                let because = format!("{name} says {here} of {size}");
                return Err(EnvironmentError::NoRendezvous { because });
            }
        }
        Ok(RendezvousPoint::File)
    }

    /// Slurm puts rank 0 on the first host of its list.
    fn rendezvous_of_step(&self, step: &str) -> Result<RendezvousPoint, EnvironmentError> {
        let names = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
        let Some((name, list)) = names.iter().find_map(|name| Some((*name, self.get(name)?))) else {
            return Err(EnvironmentError::Missing { beside: "SLURM_STEP_ID", wanted: vec![names[0]] });
        };
        let Some(hosts) = expand_host_list(list) else {
            return Err(invalid(name, list, "a list of hosts".to_owned()));
        };
        if hosts.len() == 1 {
            return Ok(RendezvousPoint::File); // On one host neither its address nor a free port is needed.
        }
        let host = hosts[0].clone();
        let ports = u64::from(SLURM_PORTS.end - SLURM_PORTS.start);
        let offset = u16::try_from(fnv1a(step.as_bytes()) % ports).expect("a port has 16 bits");
        Ok(RendezvousPoint::Address { host, port: SLURM_PORTS.start + offset })
    }

    /// The variables that distinguish a rank from its launcher, which may itself be a rank of another job.
    fn rank_variables(&self, convention: &LauncherConvention) -> Vec<(&'static str, &'a str)> {
        let names =
            [convention.rank].into_iter().chain(convention.sizes.iter().copied()).chain(["PMI_FD", "PMI_PORT"]);
        names.filter_map(|name| Some((name, self.get(name)?))).collect()
    }
}

/// Parses `host:port`, `address:port` or `[address]:port`. Port 0 is invalid: no rank could connect to it.
fn parse_rendezvous(text: &str) -> Option<RendezvousPoint> {
    let (host, port) = text.trim().rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None => host,
    };
    let port: u16 = port.parse().ok()?;
    let is_host = !host.is_empty() && host.len() <= 255 && !host.contains(char::is_whitespace);
    (is_host && port != 0).then(|| RendezvousPoint::Address { host: host.to_owned(), port })
}

fn validated<'a>(variable: &'static str, value: &'a str) -> Result<&'a str, EnvironmentError> {
    if value.len() > MAX_NAME_BYTES || value.chars().any(char::is_control) {
        return Err(invalid(variable, value, format!("at most {MAX_NAME_BYTES} plain characters")));
    }
    Ok(value)
}

fn invalid(variable: &'static str, value: &str, expected: String) -> EnvironmentError {
    EnvironmentError::Invalid { variable, value: value.chars().take(40).collect(), expected }
}

/// Removes a secret from an error.
fn redact_value(error: EnvironmentError) -> EnvironmentError {
    match error {
        EnvironmentError::Invalid { variable, expected, .. } => {
            EnvironmentError::Invalid { variable, value: "(not shown)".to_owned(), expected }
        }
        other => other,
    }
}

/// FNV-1a: the same in every build, unlike the hash of the standard library.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl fmt::Debug for JobToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JobToken(..)")
    }
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { beside, wanted } => {
                write!(formatter, "{beside} is set, but not {}", wanted.join(" or "))?;
                formatter.write_str(match (*beside, wanted.first().copied()) {
                    ("PLEACH_RENDEZVOUS", Some("PLEACH_TOKEN")) => {
                        "; set PLEACH_TOKEN to the same secret in every process"
                    }
                    ("PLEACH_TOKEN", _) => {
                        "; set PLEACH_RENDEZVOUS=host:port in every process, with the host of rank 0 and a free TCP port, \
                         or, if all ranks are on this host, PLEACH_JOB to the same text"
                    }
                    _ => "; set PLEACH_RANK and PLEACH_SIZE in every process",
                })
            }
            Self::Invalid { variable, value, expected } => {
                write!(formatter, "{variable} is {value:?}, expected {expected}")
            }
            Self::NoRendezvous { because } => write!(
                formatter,
                "the job is on several hosts ({because} ranks are on this host): set PLEACH_RENDEZVOUS=host:port in every \
                 process, with the host of rank 0 and a free TCP port"
            ),
            Self::NoJobName => formatter.write_str(
                "no variable gives the job a name: set PLEACH_JOB to the same text in every process of the job",
            ),
        }
    }
}

/// As [`Display`](fmt::Display): a `main` that returns the error prints `Debug`.
impl fmt::Debug for EnvironmentError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for EnvironmentError {}

#[cfg(test)]
mod tests;
