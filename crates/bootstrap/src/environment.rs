//! Which process of which job this is, by the variables that a launcher left.
//!
//! In: variables. Out: rank, size, a name for the job that its processes share and other jobs do not, and where rank 0 is
//! to be met. Known are Pleach's own variables, Open MPI, MPICH and other users of PMI, MVAPICH, PMIx and Slurm, in this
//! order: `mpirun` within a Slurm allocation has Slurm's variables as well, and they do not count its ranks. Without any
//! of them a process is a job of one.

use std::collections::BTreeMap;
use std::fmt;

use super::launcher;
use super::nodelist::first_host;

/// Environment variables, by name.
pub type Variables = BTreeMap<String, String>;

/// A job has at most so many ranks.
pub const MOST_RANKS: u32 = 65_536;
/// Names of jobs and tokens are at most so long.
const MOST_NAME_BYTES: usize = 256;
/// Slurm's steps that are no parallel run (batch script, interactive shell) have numbers from here on.
const SLURM_SPECIAL_STEPS: u32 = 0xffff_fff0;
/// Ports for Slurm jobs: below those that Linux gives to outgoing connections.
const SLURM_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// This process's place in its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which process of the job, from zero.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// A name for the job that all its processes share.
    pub job: String,
    /// What a process must know to join.
    pub token: Token,
    /// Where the processes meet.
    pub meeting: Meeting,
}

/// Where the processes of a job meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meeting {
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
pub struct Token(pub(super) Vec<u8>);

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
struct Dialect {
    rank: &'static str,
    sizes: &'static [&'static str],
    /// Variables that hold a name for the job.
    names: &'static [&'static str],
    /// Variables that hold how many ranks are on this host.
    local_sizes: &'static [&'static str],
    /// `srun` may have set these variables itself; then Slurm knows the hosts.
    slurm: Slurm,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slurm {
    MayHaveStarted,
    DidNotStart,
}

const DIALECTS: [Dialect; 6] = [
    Dialect { rank: "PLEACH_RANK", sizes: &["PLEACH_SIZE"], names: &[], local_sizes: &[], slurm: Slurm::DidNotStart },
    Dialect {
        rank: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        names: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        local_sizes: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        slurm: Slurm::DidNotStart,
    },
    // PMI_ID is no name for a job: MPICH's launcher keeps the rank there.
    Dialect {
        rank: "PMI_RANK",
        sizes: &["PMI_SIZE"],
        names: &["PMI_JOBID", "PMI_KVS", "PMI_PORT"],
        local_sizes: &["MPI_LOCALNRANKS"],
        slurm: Slurm::MayHaveStarted,
    },
    Dialect {
        rank: "MV2_COMM_WORLD_RANK",
        sizes: &["MV2_COMM_WORLD_SIZE"],
        names: &["PMI_JOBID", "PMI_PORT"],
        local_sizes: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        slurm: Slurm::DidNotStart,
    },
    Dialect {
        rank: "PMIX_RANK",
        sizes: &["PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        names: &["PMIX_NAMESPACE"],
        local_sizes: &[],
        slurm: Slurm::MayHaveStarted,
    },
    Dialect {
        rank: "SLURM_PROCID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        names: &[],
        local_sizes: &[],
        slurm: Slurm::MayHaveStarted,
    },
];

impl Place {
    /// This process's, by its own environment.
    ///
    /// # Errors
    /// The variables contradict each other or leave something open; the error says what to set.
    pub fn here() -> Result<Self, EnvironmentError> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables: Variables = std::env::vars_os().filter_map(text).collect();
        Self::of(&variables, launcher::name)
    }

    /// The place that these variables describe. `launcher` names the process that started all ranks of this host, given
    /// the variables that mark a rank; it is asked only if nothing else gives the job a name.
    ///
    /// # Errors
    /// As [`Place::here`].
    pub fn of(
        variables: &Variables,
        launcher: impl FnOnce(&[(&str, &str)]) -> Option<String>,
    ) -> Result<Self, EnvironmentError> {
        let reader = Reader { variables };
        let Some(dialect) = DIALECTS.iter().find(|dialect| reader.speaks(dialect)) else {
            return reader.alone();
        };
        let size = match dialect.sizes.iter().find(|name| reader.get(name).is_some()) {
            Some(name) => reader.number(name, 1..=MOST_RANKS)?,
            None => {
                let wanted = dialect.sizes.to_vec();
                return Err(EnvironmentError::Missing { beside: dialect.rank, wanted });
            }
        };
        let rank = reader.number(dialect.rank, 0..=size - 1)?;
        let step = reader.slurm_step().filter(|_| dialect.slurm == Slurm::MayHaveStarted);
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

struct Reader<'a> {
    variables: &'a Variables,
}

impl<'a> Reader<'a> {
    /// A variable that is there and not empty.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn speaks(&self, dialect: &Dialect) -> bool {
        // A batch script has SLURM_PROCID=0, and is alone all the same.
        self.get(dialect.rank).is_some() && (dialect.rank != "SLURM_PROCID" || self.slurm_step().is_some())
    }

    fn number(&self, name: &'static str, range: std::ops::RangeInclusive<u32>) -> Result<u32, EnvironmentError> {
        let value = self.get(name).unwrap_or_default();
        match value.trim().parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(strange(name, value, format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    fn alone(&self) -> Result<Place, EnvironmentError> {
        if self.get("PLEACH_SIZE").is_some_and(|size| size.trim() != "1") {
            return Err(EnvironmentError::Missing { beside: "PLEACH_SIZE", wanted: vec!["PLEACH_RANK"] });
        }
        let job = match self.get("PLEACH_JOB") {
            Some(job) => checked("PLEACH_JOB", job)?.to_owned(),
            None => format!("alone-{}", std::process::id()),
        };
        Ok(Place { rank: 0, size: 1, token: self.token(&job)?, job, meeting: Meeting::Alone })
    }

    /// Job and step of a parallel run of Slurm; `None` in a batch script and outside Slurm.
    fn slurm_step(&self) -> Option<String> {
        let job = self.get("SLURM_JOB_ID").or_else(|| self.get("SLURM_JOBID"))?;
        let step = self.get("SLURM_STEP_ID").or_else(|| self.get("SLURM_STEPID"))?;
        let (job, step): (u64, u32) = (job.parse().ok()?, step.parse().ok()?);
        (step < SLURM_SPECIAL_STEPS).then(|| format!("slurm-{job}.{step}"))
    }

    fn job(&self, dialect: &Dialect, step: Option<&str>) -> Result<Option<String>, EnvironmentError> {
        if let Some(job) = self.get("PLEACH_JOB") {
            return Ok(Some(checked("PLEACH_JOB", job)?.to_owned()));
        }
        if let Some(step) = step {
            return Ok(Some(step.to_owned()));
        }
        let Some((name, value)) = dialect.names.iter().find_map(|name| Some((*name, self.get(name)?))) else {
            return Ok(None);
        };
        Ok(Some(checked(name, value)?.to_owned()))
    }

    fn token(&self, job: &str) -> Result<Token, EnvironmentError> {
        Ok(Token(match self.get("PLEACH_TOKEN") {
            Some(token) => checked("PLEACH_TOKEN", token).map_err(without_value)?.as_bytes().to_vec(),
            None => format!("job {job}").into_bytes(),
        }))
    }

    fn meeting(&self, dialect: &Dialect, size: u32, step: Option<&str>) -> Result<Meeting, EnvironmentError> {
        if size == 1 {
            return Ok(Meeting::Alone);
        }
        if let Some(address) = self.get("PLEACH_RENDEZVOUS") {
            let meeting = address_of(address);
            return meeting.ok_or_else(|| strange("PLEACH_RENDEZVOUS", address, "host:port of rank 0".to_owned()));
        }
        if let Some(step) = step {
            return self.meeting_of_step(step);
        }
        if let Some(name) = dialect.local_sizes.iter().copied().find(|name| self.get(name).is_some()) {
            let here = self.number(name, 1..=MOST_RANKS)?;
            if here != size {
                let because = format!("{name} says {here} of {size}");
                return Err(EnvironmentError::NoMeeting { because });
            }
        }
        Ok(Meeting::Notice)
    }

    /// Slurm puts rank 0 on the first host of its list.
    fn meeting_of_step(&self, step: &str) -> Result<Meeting, EnvironmentError> {
        let names = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
        let Some((name, list)) = names.iter().find_map(|name| Some((*name, self.get(name)?))) else {
            return Err(EnvironmentError::Missing { beside: "SLURM_STEP_ID", wanted: vec![names[0]] });
        };
        let Some(host) = first_host(list) else {
            return Err(strange(name, list, "a list of hosts".to_owned()));
        };
        if host == list.trim() {
            return Ok(Meeting::Notice); // One host: no need to find its address, nor a free port.
        }
        let ports = u64::from(SLURM_PORTS.end - SLURM_PORTS.start);
        let offset = u16::try_from(digest(step.as_bytes()) % ports).expect("there are fewer ports than that");
        Ok(Meeting::Address { host, port: SLURM_PORTS.start + offset })
    }

    /// What tells a rank from its launcher, which may itself be a rank of something.
    fn marks(&self, dialect: &Dialect) -> Vec<(&'static str, &'a str)> {
        let names = [dialect.rank].into_iter().chain(dialect.sizes.iter().copied()).chain(["PMI_FD", "PMI_PORT"]);
        names.filter_map(|name| Some((name, self.get(name)?))).collect()
    }
}

/// `host:port`, `address:port` or `[address]:port`; port 0 is a place where nobody can be met.
fn address_of(text: &str) -> Option<Meeting> {
    let (host, port) = text.trim().rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None => host,
    };
    let port: u16 = port.parse().ok()?;
    let is_host = !host.is_empty() && host.len() <= 255 && !host.contains(char::is_whitespace);
    (is_host && port != 0).then(|| Meeting::Address { host: host.to_owned(), port })
}

fn checked<'a>(variable: &'static str, value: &'a str) -> Result<&'a str, EnvironmentError> {
    if value.len() > MOST_NAME_BYTES || value.chars().any(char::is_control) {
        return Err(strange(variable, value, format!("at most {MOST_NAME_BYTES} plain characters")));
    }
    Ok(value)
}

fn strange(variable: &'static str, value: &str, expected: String) -> EnvironmentError {
    EnvironmentError::Strange { variable, value: value.chars().take(40).collect(), expected }
}

/// A secret does not belong into a message.
fn without_value(error: EnvironmentError) -> EnvironmentError {
    match error {
        EnvironmentError::Strange { variable, expected, .. } => {
            EnvironmentError::Strange { variable, value: "(not shown)".to_owned(), expected }
        }
        other => other,
    }
}

/// FNV-1a: the same in every build, unlike the standard library's.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl fmt::Debug for Token {
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
