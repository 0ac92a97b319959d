//! A pod's share of a job: the pods of an indexed Job of Kubernetes each run `pleach launch`, and their ranks are one job.

use anyhow::{Context, Result, ensure};
use lab::local_fabric::signals::SignalQueue;

use super::LaunchArgs;
use super::host_agent::HostJob;

/// What a pod must know; a manifest gives the last three, Kubernetes the first.
const VARIABLES: [&str; 4] = ["JOB_COMPLETION_INDEX", "PLEACH_PODS", "PLEACH_RENDEZVOUS", "PLEACH_TOKEN"];
/// The most pods of a job.
const MAX_PODS: u32 = 4096;

/// The place of this pod.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct PodShare {
    index: u32,
    pods: u32,
    rendezvous: String,
    token: String,
}

impl PodShare {
    /// The place of this pod, if it is one of several.
    ///
    /// # Errors
    /// If a variable is missing or has an invalid value.
    pub(super) fn from_environment() -> Result<Option<Self>> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let [index, pods, rendezvous, token] = VARIABLES.map(variable);
        let Some(pods) = pods else { return Ok(None) };
        let index = index.context(
            "PLEACH_PODS is set, but not JOB_COMPLETION_INDEX; the Job needs completionMode: Indexed, or remove PLEACH_PODS",
        )?;
        let pods = pods.parse().ok().filter(|pods| (1..=MAX_PODS).contains(pods));
        let pods =
            pods.with_context(|| format!("PLEACH_PODS is the number of pods of the job, from 1 to {MAX_PODS}"))?;
        let index = index.parse().ok().filter(|index| *index < pods);
        let index = index.with_context(|| format!("JOB_COMPLETION_INDEX is not below the number of pods, {pods}"))?;
        let rendezvous = rendezvous.context(
            "PLEACH_PODS is set, but not PLEACH_RENDEZVOUS; set it to pod 0's name in the headless service and a port, such as \
             job-0.service:7411",
        )?;
        let token = token
            .context("PLEACH_PODS is set, but not PLEACH_TOKEN; set it to the same secret in every pod of the job")?;
        Ok(Some(Self { index, pods, rendezvous, token }))
    }

    /// Runs this pod's ranks to their end; the highest exit status.
    pub(super) fn run(
        &self,
        arguments: &LaunchArgs,
        program: Vec<String>,
        variables: Vec<(&'static str, String)>,
        prefix: bool,
        signals: SignalQueue,
    ) -> Result<u8> {
        ensure!(
            arguments.nodes.is_none(),
            "--nodes does not work in pods; run nodes as a service of their own, and use --manager"
        );
        ensure!(
            arguments.env.is_empty() && arguments.agent.is_none() && arguments.ranks_per_host.is_none(),
            "--env, --agent and --ranks-per-host have no effect in pods: every pod starts its own ranks, -n of them"
        );
        let ranks = arguments.ranks.unwrap_or(1);
        ensure!(
            self.pods.saturating_mul(ranks) <= bootstrap::MAX_JOB_RANKS,
            "{} pods with {ranks} ranks each are too many: a job has at most {} ranks",
            self.pods,
            bootstrap::MAX_JOB_RANKS
        );
        let mut variables: Vec<(String, String)> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let of_the_job = [
            ("PLEACH_SIZE", (self.pods * ranks).to_string()),
            ("PLEACH_RENDEZVOUS", self.rendezvous.clone()),
            ("PLEACH_TOKEN", self.token.clone()),
        ];
        variables.extend(of_the_job.map(|(name, value)| (name.to_owned(), value)));
        let job = HostJob {
            first_rank: self.index * ranks,
            ranks,
            folder: std::env::current_dir().context("this folder does not exist any more")?,
            variables,
            program,
            prefix,
            grace_seconds: arguments.grace,
            service: None,
            input: None,
        };
        job.start(signals)?.run(|| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: [&str; 4]) -> Result<Option<PodShare>> {
        PodShare::from_variables(|wanted| {
            let at = VARIABLES.iter().position(|name| *name == wanted).expect("a known name");
            Some(values[at].to_owned()).filter(|value| !value.is_empty())
        })
    }

    #[test]
    fn the_example_sets_what_a_pod_needs() {
        let manifest = include_str!("../../../../examples/kubernetes/job.yaml");
        for name in &VARIABLES[1..] {
            assert!(manifest.contains(&format!("- name: {name}")), "{name}");
        }
        assert!(manifest.contains("completionMode: Indexed"));
    }

    #[test]
    fn a_pod_knows_its_place_or_is_told_what_is_missing() {
        let share = read(["1", "2", "job-0.s:7411", "secret"]).expect("valid").expect("a pod");
        assert_eq!((share.index, share.pods), (1, 2));
        assert!(read(["1", "", "", ""]).expect("an indexed job of another kind").is_none());
        for (values, expected) in [
            (["2", "2", "a:1", "t"], "JOB_COMPLETION_INDEX"),
            (["", "2", "a:1", "t"], "completionMode: Indexed"),
            (["0", "many", "a:1", "t"], "PLEACH_PODS"),
            (["0", "2", "", "t"], "PLEACH_RENDEZVOUS"),
            (["0", "2", "a:1", ""], "PLEACH_TOKEN"),
        ] {
            let error = format!("{:#}", read(values).expect_err("invalid"));
            assert!(error.contains(expected), "{values:?}: {error}");
        }
    }
}
