//! Which process of which job this is, by the variables that a launcher left.
//!
//! In: variables. Out: rank, size, a name for the job that its processes share and other jobs do not, and where rank 0 is
//! to be met. Known are Pleach's own variables, Open MPI, MPICH and other users of PMI, MVAPICH, PMIx and Slurm, in this
//! order: `mpirun` within a Slurm allocation has Slurm's variables as well, and they do not count its ranks. Without any
//! of them a process is a job of one.

use std::collections::BTreeMap;
use std::fmt;

use super::launcher;
use super::slurm_nodelist::first_host;

/// Environment variables, by name.
pub type EnvironmentVariables = BTreeMap<String, String>;

/// A job has at most so many ranks.
pub const MAX_JOB_RANKS: u32 = 65_536;
/// Names of jobs and tokens are at most so long.
const MAX_NAME_BYTES: usize = 256;
/// Slurm's steps that are no parallel run (batch script, interactive shell) have numbers from here on.
const SLURM_SPECIAL_STEPS: u32 = 0xffff_fff0;
/// Ports for Slurm jobs: below those that Linux gives to outgoing connections.
const SLURM_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// This process's place in its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobEnvironment {
    /// Which process of the job, from zero.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// A name for the job that all its processes share.
    pub job: String,
    /// What a process must know to join.
    pub token: JobToken,
    /// Where the processes meet.
    pub meeting: RendezvousPoint,
}

/// Where the processes of a job meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RendezvousPoint {
    /// There is only one.
    Alone,
    /// Rank 0 listens here.
    Address {
        /// A name or an address of rank 0's host.
        host: String,
        /// A TCP port.
        port: u16,
    },
    /// All are on one host: rank 0 leaves its port in a file in /dev/shm that has the name of user and job.
    Notice,
}

/// Keeps out processes that are not of this job. From `PLEACH_TOKEN`, it is a secret; otherwise it follows from the job's name
/// and keeps out only strays.
#[derive(Clone, PartialEq, Eq)]
pub struct JobToken(pub(super) Vec<u8>);

/// Why the variables do not say which process this is; the text says what to set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EnvironmentError {
    /// A variable is needed beside another, and is missing.
    Missing {
        /// The variable that is there.
        beside: &'static str,
        /// Those of which one is needed.
        wanted: Vec<&'static str>,
    },
    /// A variable has a value that it cannot have.
    Strange {
        /// Its name.
        variable: &'static str,
        /// Its value, cut short.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// The job is on several hosts, and nothing says where to meet.
    NoMeeting {
        /// How one knows.
        because: String,
    },
    /// Nothing gives the job a name.
    NoName,
}

/// What one launcher calls things.
struct LauncherConvention {
    rank: &'static str,
    sizes: &'static [&'static str],
    /// Variables that hold a name for the job.
    names: &'static [&'static str],
    /// Variables that hold how many ranks are on this host.
    local_sizes: &'static [&'static str],
    /// `srun` may have set these variables itself; then Slurm knows the hosts.
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
    // PMI_ID is no name for a job: MPICH's launcher keeps the rank there.
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
    /// This process's, by its own environment.
    ///
    /// # Errors
    /// The variables contradict each other or leave something open; the error says what to set.
    pub fn here() -> Result<Self, EnvironmentError> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables: EnvironmentVariables = std::env::vars_os().filter_map(text).collect();
        Self::of(&variables, launcher::launcher_name)
    }

    /// The place that these variables describe. `launcher` names the process that started all ranks of this host, given
    /// the variables that mark a rank; it is asked only if nothing else gives the job a name.
    ///
    /// # Errors
    /// As [`JobEnvironment::here`].
    pub fn of(
        variables: &EnvironmentVariables,
        launcher: impl FnOnce(&[(&str, &str)]) -> Option<String>,
    ) -> Result<Self, EnvironmentError> {
        let reader = EnvironmentReader { variables };
        let Some(dialect) = LAUNCHER_CONVENTIONS.iter().find(|dialect| reader.speaks(dialect)) else {
            return reader.alone();
        };
        let size = match dialect.sizes.iter().find(|name| reader.get(name).is_some()) {
            Some(name) => reader.number(name, 1..=MAX_JOB_RANKS)?,
            None => {
                let wanted = dialect.sizes.to_vec();
                return Err(EnvironmentError::Missing { beside: dialect.rank, wanted });
            }
        };
        let rank = reader.number(dialect.rank, 0..=size - 1)?;
        let step = reader.slurm_step().filter(|_| dialect.slurm == SlurmOrigin::MayHaveStarted);
        let job = match reader.job(dialect, step.as_deref())? {
            Some(job) => job,
            None if size == 1 => reader.alone()?.job,
            None => launcher(&reader.marks(dialect)).ok_or(EnvironmentError::NoName)?,
        };
        let token = reader.token(&job)?;
        let meeting = reader.meeting(dialect, size, step.as_deref())?;
        Ok(Self { rank, size, job, token, meeting })
    }
}

struct EnvironmentReader<'a> {
    variables: &'a EnvironmentVariables,
}

impl<'a> EnvironmentReader<'a> {
    /// A variable that is there and not empty.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn speaks(&self, dialect: &LauncherConvention) -> bool {
        // A batch script has SLURM_PROCID=0, and is alone all the same.
        self.get(dialect.rank).is_some() && (dialect.rank != "SLURM_PROCID" || self.slurm_step().is_some())
    }

    fn number(&self, name: &'static str, range: std::ops::RangeInclusive<u32>) -> Result<u32, EnvironmentError> {
        let value = self.get(name).unwrap_or_default();
        match value.trim().parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(invalid(name, value, format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    fn alone(&self) -> Result<JobEnvironment, EnvironmentError> {
        if self.get("PLEACH_SIZE").is_some_and(|size| size.trim() != "1") {
            return Err(EnvironmentError::Missing { beside: "PLEACH_SIZE", wanted: vec!["PLEACH_RANK"] });
        }
        let job = match self.get("PLEACH_JOB") {
            Some(job) => validated("PLEACH_JOB", job)?.to_owned(),
            None => format!("alone-{}", std::process::id()),
        };
        Ok(JobEnvironment { rank: 0, size: 1, token: self.token(&job)?, job, meeting: RendezvousPoint::Alone })
    }

    /// Job and step of a parallel run of Slurm; `None` in a batch script and outside Slurm.
    fn slurm_step(&self) -> Option<String> {
        let job = self.get("SLURM_JOB_ID").or_else(|| self.get("SLURM_JOBID"))?;
        let step = self.get("SLURM_STEP_ID").or_else(|| self.get("SLURM_STEPID"))?;
        let (job, step): (u64, u32) = (job.parse().ok()?, step.parse().ok()?);
        (step < SLURM_SPECIAL_STEPS).then(|| format!("slurm-{job}.{step}"))
    }

    fn job(&self, dialect: &LauncherConvention, step: Option<&str>) -> Result<Option<String>, EnvironmentError> {
        if let Some(job) = self.get("PLEACH_JOB") {
            return Ok(Some(validated("PLEACH_JOB", job)?.to_owned()));
        }
        if let Some(step) = step {
            return Ok(Some(step.to_owned()));
        }
        let Some((name, value)) = dialect.names.iter().find_map(|name| Some((*name, self.get(name)?))) else {
            return Ok(None);
        };
        Ok(Some(validated(name, value)?.to_owned()))
    }

    fn token(&self, job: &str) -> Result<JobToken, EnvironmentError> {
        Ok(JobToken(match self.get("PLEACH_TOKEN") {
            Some(token) => validated("PLEACH_TOKEN", token).map_err(redact_value)?.as_bytes().to_vec(),
            None => format!("job {job}").into_bytes(),
        }))
    }

    fn meeting(
        &self,
        dialect: &LauncherConvention,
        size: u32,
        step: Option<&str>,
    ) -> Result<RendezvousPoint, EnvironmentError> {
        if size == 1 {
            return Ok(RendezvousPoint::Alone);
        }
        if let Some(address) = self.get("PLEACH_RENDEZVOUS") {
            let meeting = parse_rendezvous(address);
            return meeting.ok_or_else(|| invalid("PLEACH_RENDEZVOUS", address, "host:port of rank 0".to_owned()));
        }
        if let Some(step) = step {
            return self.meeting_of_step(step);
        }
        if let Some(name) = dialect.local_sizes.iter().copied().find(|name| self.get(name).is_some()) {
            let here = self.number(name, 1..=MAX_JOB_RANKS)?;
            if here != size {
                let because = format!("{name} says {here} of {size}");
                return Err(EnvironmentError::NoMeeting { because });
            }
        }
        Ok(RendezvousPoint::Notice)
    }

    /// Slurm puts rank 0 on the first host of its list.
    fn meeting_of_step(&self, step: &str) -> Result<RendezvousPoint, EnvironmentError> {
        let names = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
        let Some((name, list)) = names.iter().find_map(|name| Some((*name, self.get(name)?))) else {
            return Err(EnvironmentError::Missing { beside: "SLURM_STEP_ID", wanted: vec![names[0]] });
        };
        let Some(host) = first_host(list) else {
            return Err(invalid(name, list, "a list of hosts".to_owned()));
        };
        if host == list.trim() {
            return Ok(RendezvousPoint::Notice); // One host: no need to find its address, nor a free port.
        }
        let ports = u64::from(SLURM_PORTS.end - SLURM_PORTS.start);
        let offset = u16::try_from(fnv1a(step.as_bytes()) % ports).expect("there are fewer ports than that");
        Ok(RendezvousPoint::Address { host, port: SLURM_PORTS.start + offset })
    }

    /// What tells a rank from its launcher, which may itself be a rank of something.
    fn marks(&self, dialect: &LauncherConvention) -> Vec<(&'static str, &'a str)> {
        let names = [dialect.rank].into_iter().chain(dialect.sizes.iter().copied()).chain(["PMI_FD", "PMI_PORT"]);
        names.filter_map(|name| Some((name, self.get(name)?))).collect()
    }
}

/// `host:port`, `address:port` or `[address]:port`; port 0 is a place where nobody can be met.
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
    EnvironmentError::Strange { variable, value: value.chars().take(40).collect(), expected }
}

/// A secret does not belong into a message.
fn redact_value(error: EnvironmentError) -> EnvironmentError {
    match error {
        EnvironmentError::Strange { variable, expected, .. } => {
            EnvironmentError::Strange { variable, value: "(not shown)".to_owned(), expected }
        }
        other => other,
    }
}

/// FNV-1a: the same in every build, unlike the standard library's.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl fmt::Debug for JobToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(not shown)")
    }
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { beside, wanted } => {
                write!(formatter, "{beside} is set, but not {}", wanted.join(" or "))?;
                write!(formatter, "; set PLEACH_RANK and PLEACH_SIZE in every process")
            }
            Self::Strange { variable, value, expected } => {
                write!(formatter, "{variable} is {value:?}, and should be {expected}")
            }
            Self::NoMeeting { because } => write!(
                formatter,
                "the job is on several hosts ({because} ranks are on this one): set PLEACH_RENDEZVOUS=host:port in every \
                 process, with the host of rank 0 and a free TCP port"
            ),
            Self::NoName => formatter.write_str(
                "nothing gives the job a name: set PLEACH_JOB to the same text in every process of the job",
            ),
        }
    }
}

impl std::error::Error for EnvironmentError {}

#[cfg(test)]
mod tests;
