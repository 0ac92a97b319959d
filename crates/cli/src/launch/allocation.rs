//! The hosts that a batch system gave to this job: read from the variables of Slurm and PBS.
//!
//! In: variables of a batch script. Out: the hosts, how many ranks each takes, and the command that runs another on a host.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bootstrap::SLURM_SPECIAL_STEPS;
use lab::text_file::read_text;
use topology::{MAX_LISTED_HOSTS, expand_host_list};

use super::host_list::HostSlots;
use crate::configuration::MAX_TEXT_BYTES;

/// Steps share the processors of the allocation: the ranks of a host are in one step, and manager and nodes beside them.
const SLURM_AGENT: &str =
    "srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none --mem=0 --quiet --export=ALL --nodelist";
/// Variables by which `srun` would give a step only a part of the processors.
pub(super) const SLURM_STEP_LIMITS: [&str; 4] =
    ["SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_TASK", "SLURM_THREADS_PER_CORE", "SLURM_EXACT"];

/// Hosts of an allocation.
#[derive(Debug)]
pub(super) struct BatchAllocation {
    pub(super) hosts: Vec<HostSlots>,
    /// Runs a command on a host: AGENT HOST COMMAND. None for the default.
    pub(super) agent: Option<&'static str>,
}

impl BatchAllocation {
    /// The allocation around this process, if there is one and this is its batch script, not a process that `srun` started.
    ///
    /// # Errors
    /// If the batch system's variables are malformed.
    pub(super) fn from_environment() -> Result<Option<Self>> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let step = variable("SLURM_STEP_ID").and_then(|step| step.parse::<u32>().ok());
        if step.is_some_and(|step| step < SLURM_SPECIAL_STEPS) {
            return Ok(None);
        }
        if let (Some(_), Some(list)) = (variable("SLURM_JOB_ID"), variable("SLURM_JOB_NODELIST")) {
            let tasks = variable("SLURM_TASKS_PER_NODE")
                .context("SLURM_JOB_NODELIST is set, but not SLURM_TASKS_PER_NODE; name the hosts with --hosts")?;
            return Ok(Some(Self { hosts: slurm_hosts(&list, &tasks)?, agent: Some(SLURM_AGENT) }));
        }
        if let (Some(_), Some(file)) = (variable("PBS_JOBID"), variable("PBS_NODEFILE")) {
            let file = PathBuf::from(file);
            let hosts = read_text(&file, MAX_TEXT_BYTES).and_then(|text| pbs_hosts(&text));
            let hosts = hosts.context("cannot read the hosts in PBS_NODEFILE; name them with --hosts")?;
            // By ssh: PBS's own pbs_tmrsh forwards neither stdin nor output.
            return Ok(Some(Self { hosts, agent: None }));
        }
        Ok(None)
    }
}

/// `node[1-3]` with `2(x2),1` tasks: two on each of the first two hosts, and one on the third.
fn slurm_hosts(list: &str, tasks: &str) -> Result<Vec<HostSlots>> {
    let names = expand_host_list(list)
        .with_context(|| format!("SLURM_JOB_NODELIST is {list:?}, not a list of hosts; name them with --hosts"))?;
    let counts = repeated_numbers(tasks)
        .with_context(|| format!("SLURM_TASKS_PER_NODE is {tasks:?}, expected numbers such as 2(x3),1"))?;
    ensure!(
        names.len() == counts.len(),
        "SLURM_JOB_NODELIST names {} hosts, but SLURM_TASKS_PER_NODE has {}; name the hosts with --hosts",
        names.len(),
        counts.len()
    );
    names.iter().zip(counts).map(|(name, slots)| HostSlots::new(name, slots).map_err(anyhow::Error::msg)).collect()
}

/// `2(x3),1` means 2, 2, 2, 1.
fn repeated_numbers(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        let number: u32 = number.parse().ok()?;
        if times > MAX_LISTED_HOSTS - numbers.len() {
            return None;
        }
        numbers.extend(std::iter::repeat_n(number, times));
    }
    Some(numbers)
}

/// A host per line, as often as it takes ranks.
fn pbs_hosts(text: &str) -> Result<Vec<HostSlots>> {
    let mut counts: Vec<(&str, u32)> = Vec::new();
    for name in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
        ensure!(counts.len() <= MAX_LISTED_HOSTS, "more than {MAX_LISTED_HOSTS} hosts");
    }
    ensure!(!counts.is_empty(), "the file names no host");
    counts.iter().map(|(name, slots)| HostSlots::new(name, *slots).map_err(anyhow::Error::msg)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<BatchAllocation>> {
        BatchAllocation::from_variables(|wanted| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        })
    }

    fn shown(hosts: &[HostSlots]) -> String {
        let shown: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        shown.join(",")
    }

    #[test]
    fn slurms_variables_name_hosts_and_tasks() {
        let slurm =
            [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[1-3],x"), ("SLURM_TASKS_PER_NODE", "2(x2),1,4")];
        let found = read(&slurm).expect("valid variables").expect("an allocation");
        assert_eq!(shown(&found.hosts), "n1:2,n2:2,n3:1,x:4");
        assert!(found.agent.is_some_and(|agent| agent.starts_with("srun ")));
        assert!(read(&slurm[..1]).expect("valid variables").is_none());
        let with_step =
            |step| read(&[slurm[0], slurm[1], slurm[2], ("SLURM_STEP_ID", step)]).expect("valid variables");
        assert!(with_step("0").is_none(), "srun started this process");
        assert!(with_step("4294967291").is_some(), "a batch script");
        for (tasks, expected) in
            [("2(x2)", "names 4 hosts"), ("2(x", "expected numbers"), ("1(x99999999)", "expected")]
        {
            let variables = [slurm[0], slurm[1], ("SLURM_TASKS_PER_NODE", tasks)];
            let error = format!("{:#}", read(&variables).expect_err("invalid"));
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_file_of_pbs_names_a_host_per_rank() {
        let path = std::env::temp_dir().join(format!("pleach-nodefile-{}", std::process::id()));
        std::fs::write(&path, "a\na\nb.site\na\nb.site\n").expect("a file");
        let path = path.to_str().expect("text");
        let pbs = [("PBS_JOBID", "7.server"), ("PBS_NODEFILE", path)];
        let found = read(&pbs).expect("valid variables").expect("an allocation");
        assert_eq!((shown(&found.hosts).as_str(), found.agent), ("a:3,b.site:2", None));
        std::fs::write(path, "\n").expect("a file");
        assert!(format!("{:#}", read(&pbs).expect_err("an empty file")).contains("names no host"));
        std::fs::remove_file(path).expect("our own file");
    }
}
