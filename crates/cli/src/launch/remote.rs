//! A job on other machines: an agent, such as ssh, starts `pleach launch-host` on each of them (`host_agent.rs`).
//!
//! Ranks start when all hosts are ready (`host_start.rs`). Then the agents' processes are supervised as ranks are elsewhere: if one fails, the
//! others are ended. The job's token travels by stdin, where other users do not see it. The launcher's own stdin has a connection of its own
//! (`input_relay.rs`).

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control::CREDENTIAL_VARIABLE;
use lab::local_fabric::{fault_file, random_hex};

use super::host_agent::HostJob;
use super::host_list::{HostRanks, address_of};
use super::host_start::{HostStarter, Readiness, StartingHosts};
use super::input_relay::{self, InputConnection};
use super::rank;
use super::remote_fabric::{NodeLogs, RemoteFabric, RemoteFabricSpec};
use super::supervisor::{Supervisor, take_over_signals};
use super::{LaunchArgs, program_words};
use crate::configuration::{self, SECRET_VARIABLES};

/// What identifies a rank of another job, perhaps one around this.
const OF_A_RANK: [&str; 5] = ["PLEACH_RANK", "PLEACH_SIZE", "PLEACH_JOB", "PLEACH_TOKEN", "PLEACH_RENDEZVOUS"];
/// What is true of this host only.
const OF_A_HOST: [&str; 2] = ["PLEACH_HOST", "PLEACH_ADDRESSES"];

/// Runs the job; `variables` are those of the command line.
pub(super) fn run(
    arguments: &LaunchArgs,
    agent: &str,
    hosts: &[HostRanks],
    mut variables: Vec<(&'static str, String)>,
    prefix: bool,
) -> Result<ExitCode> {
    ensure!(
        arguments.ranks_per_host.is_none(),
        "--ranks-per-host is for jobs on this machine; write how many ranks a host takes, as in --hosts a:8,b:8"
    );
    configuration::raise_descriptor_limit(); // Three pipes for each host.
    let signals = take_over_signals().context("cannot block signals")?;
    let starter = HostStarter::new(agent, arguments.remote_pleach.as_deref())?;
    let faults = variables.iter().find(|(name, _)| *name == fault_file::VARIABLE).map(|(_, plan)| plan.clone());
    let fabric = arguments.nodes.map(|nodes| {
        let logs = if arguments.node_logs { NodeLogs::All } else { NodeLogs::Warnings };
        let plan = RemoteFabricSpec { nodes, faults: faults.as_deref(), logs };
        RemoteFabric::start(&starter, hosts, &plan, &signals).context("cannot start aggregation nodes")
    });
    let mut fabric = fabric.transpose()?;
    if let Some(fabric) = &fabric {
        variables.retain(|(name, _)| *name != CREDENTIAL_VARIABLE);
        variables.extend(fabric.variables()?);
    }
    let mut starting = StartingHosts::start(&starter, hosts.iter().map(|host| &host.name[..]))?;
    let port = starting.reserve_port(&signals)?;
    let rendezvous = format!("{}:{port}", address_of(&hosts[0].name));
    let size = hosts.last().map_or(0, |host| host.ranks.end);
    let common = common_variables(arguments, size, &rendezvous, variables)?;
    let input = input_relay::name_if_needed().context("cannot forward stdin")?;
    let (folder, program) = (std::env::current_dir(), program_words(arguments)?);
    let folder = folder.context("this folder does not exist any more")?;
    let jobs = hosts.iter().map(|host| HostJob {
        first_rank: host.ranks.start,
        ranks: host.ranks.len() as u32,
        folder: folder.clone(),
        variables: common.clone(),
        program: program.clone(),
        prefix,
        grace_seconds: arguments.grace,
        service: None,
        input: input.clone().filter(|_| host.ranks.start == 0),
    });
    if let Readiness::NoProgram(hosts) = starting.prepare(jobs, &signals)? {
        let program = arguments.program[0].display();
        eprintln!("pleach launch: cannot run {program}: there is no such program on {hosts}");
        return Ok(ExitCode::from(rank::NO_PROGRAM));
    }
    let mut supervisor = Supervisor::new("pleach launch", signals, Duration::from_secs_f64(arguments.grace));
    for (host, mut agent) in hosts.iter().zip(starting.go()) {
        let control = agent.stdin.take().context("the agent has a stdin")?;
        supervisor.adopt(format!("host {}", host.name), agent, control);
    }
    let mut input = input.map(|name| starter.forward_input(&hosts[0].name, &name)).transpose()?;
    let status = supervisor.run(|| {
        if let Some(failure) = input.as_mut().and_then(InputConnection::failure) {
            eprintln!("pleach launch: {failure}");
        }
        for ended in fabric.iter_mut().flat_map(RemoteFabric::watch) {
            eprintln!("pleach launch: {ended}; the job continues without it");
        }
    })?;
    // Drops the nodes and the manager.
    Ok(ExitCode::from(status))
}

/// Variables of all ranks: the user's settings, those of the command line, and those of the job.
fn common_variables(
    arguments: &LaunchArgs,
    size: u32,
    rendezvous: &str,
    variables: Vec<(&'static str, String)>,
) -> Result<Vec<(String, String)>> {
    let is_setting = |name: &str| {
        let stays_here = SECRET_VARIABLES.iter().chain(&OF_A_RANK).chain(&OF_A_HOST).any(|found| *found == name);
        name.starts_with("PLEACH_") && !stays_here
    };
    let mut common: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_setting(name))
        .collect();
    for variable in &arguments.env {
        let (name, value) = match variable.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                (&variable[..], std::env::var(variable).with_context(|| format!("--env {variable}: it is not set"))?)
            }
        };
        common.push((name.to_owned(), value));
    }
    common.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
    let job = format!("{}-{}-{}", arguments.job, std::process::id(), &random_hex()?[..8]);
    let of_the_job = [
        ("PLEACH_SIZE", size.to_string()),
        ("PLEACH_JOB", job),
        ("PLEACH_TOKEN", random_hex()?),
        ("PLEACH_RENDEZVOUS", rendezvous.to_owned()),
    ];
    common.extend(of_the_job.map(|(name, value)| (name.to_owned(), value)));
    Ok(common)
}
