//! Trials and outcomes as text, for debugging a failing seed.

use simulator::queue_pair::{ConnectionEndPlan, ConnectionPlan, HostProgram};
use units::SimTime;

use super::{PathOutcome, PathTrial};
use crate::rule_text::describe_rule;

impl std::fmt::Display for PathOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.problems.iter().try_for_each(|problem| writeln!(f, "{problem}"))?;
        for (number, stream) in self.streams.iter().enumerate() {
            writeln!(f, "stream {number}: {stream}")?;
        }
        for (number, [one, other]) in self.reports.iter().enumerate() {
            writeln!(f, "connection {number}:\n  {one:?}\n  {other:?}")?;
        }
        writeln!(f, "ended at {}", self.ended.since(SimTime::ZERO))
    }
}

impl std::fmt::Display for PathTrial {
    /// Everything that helps to debug a failing seed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, fabric, link, parameters, plan, ending, sabotage, intact, redundant } = self;
        writeln!(f, "seed {seed}: {ending:?} over {fabric}, {sabotage:?}, {:?}\n{link:?}", parameters.notice)?;
        for (number, plan) in parameters.connections.iter().enumerate() {
            let intact = &intact[number];
            let armed = if redundant.contains(&number) { ", armed" } else { "" };
            let ConnectionPlan { paths, policy, path_policy, mtu, .. } = plan;
            writeln!(
                f,
                "connection {number}: {paths} paths, in the end {intact:?}{armed}, mtu {mtu}\n  {policy:?}\n  {path_policy:?}"
            )?;
            for ConnectionEndPlan { host, role, messages, sends_at_once, receives, repost_after, .. } in &plan.ends {
                let bytes: u64 = messages.iter().map(|message| u64::from(message.length)).sum();
                let many = messages.len();
                writeln!(
                    f,
                    "  {host:?} {role:?}: {many} messages, {bytes} bytes, {sends_at_once} at once, {receives} receives, {repost_after}"
                )?;
            }
        }
        for HostProgram { host, steps } in &parameters.programs {
            writeln!(f, "{host:?}: {steps:?}")?;
        }
        plan.rules.iter().try_for_each(|rule| writeln!(f, "{}", describe_rule(rule)))
    }
}
