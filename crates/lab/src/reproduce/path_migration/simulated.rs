//! The same figures for the product's own queue pairs in the simulator: eight hosts with two ports each, queue pairs between them, and programs that communicate
//! like the kernels. Time is virtual, so every number is a function of the parameters.
//!
//! The network and the protocol are modelled. A host computes for a given time, its adapter answers by itself, and a packet
//! costs a host nothing; experiments/path-migration/README.md discusses the consequences.

mod kernel_programs;
mod migration_latency;
mod parameters;
mod testbed;

use std::thread::ScopedJoinHandle;

use anyhow::{Result, anyhow};
use serde::Serialize;

use super::progress::MeasurementProgress;
use super::statistics::LinearFit;
use crate::nas_kernels::NasKernel;
use kernel_programs::SimulatedClasses;
pub(super) use kernel_programs::SimulatedSlowdown;
pub(super) use migration_latency::{SimulatedLatency, SimulatedTransition};
pub(super) use parameters::{MigrationParameters, TEXT};

/// All simulated figures.
#[derive(Serialize)]
pub(super) struct SimulatedFigures {
    pub transitions: Vec<SimulatedTransition>,
    pub arming_fit: LinearFit,
    pub migrating_fit: LinearFit,
    /// 128-byte messages over more and more connections, all of which migrate by hand; and while all are armed.
    pub by_count: Vec<SimulatedLatency>,
    pub while_arming: SimulatedLatency,
    /// Messages of several sizes: while all connections migrate, and after cuts.
    pub while_migrating: Vec<SimulatedLatency>,
    pub noticed_cut: Vec<SimulatedLatency>,
    pub silent_cut: Vec<SimulatedLatency>,
    pub kernels: Vec<SimulatedSlowdown>,
    pub classes: SimulatedClasses,
}

/// Approximate milliseconds on two cores.
pub(super) const EXPECTED_MS: u64 = 20_000;

pub(super) fn simulate(
    parameters: MigrationParameters,
    cuts: u32,
    seed: u64,
    progress: &MeasurementProgress,
) -> Result<SimulatedFigures> {
    let link = parameters.link;
    progress.report("simulated transitions and messages".to_owned());
    let transitions: Vec<SimulatedTransition> = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        .into_iter()
        .map(|connections| migration_latency::simulate_transitions(link, connections))
        .collect::<Result<_>>()?;
    let points = |of: fn(&SimulatedTransition) -> f64| -> Vec<(f64, f64)> {
        transitions.iter().map(|row| (row.connections as f64, of(row))).collect()
    };
    let sizes = [8, 128, 1024, 4096];
    let by_size = |connections: usize, disturbance| -> Result<Vec<SimulatedLatency>> {
        sizes
            .into_iter()
            .map(|bytes| migration_latency::simulate_disturbed_latency(link, connections, bytes, disturbance))
            .collect()
    };
    let by_count = [16, 64, 256].map(|connections| {
        migration_latency::simulate_disturbed_latency(
            link,
            connections,
            128,
            migration_latency::SimulatedDisturbance::Migration,
        )
    });
    let while_arming = migration_latency::simulate_disturbed_latency(
        link,
        64,
        128,
        migration_latency::SimulatedDisturbance::Arming,
    )?;
    let while_migrating = by_size(128, migration_latency::SimulatedDisturbance::Migration)?;
    let noticed_cut = by_size(128, migration_latency::SimulatedDisturbance::Noticed)?;
    let silent_cut = by_size(16, migration_latency::SimulatedDisturbance::Silent)?;
    progress.report("simulated kernels".to_owned());
    let kernels = simulate_kernels(parameters, cuts, seed)?;
    let classes = kernel_programs::simulate_classes(parameters, cuts, seed)?;
    progress.add(EXPECTED_MS);
    Ok(SimulatedFigures {
        arming_fit: LinearFit::through(&points(|row| row.arming_us)),
        migrating_fit: LinearFit::through(&points(|row| row.migrating_us)),
        by_count: by_count.into_iter().collect::<Result<_>>()?,
        while_migrating,
        noticed_cut,
        silent_cut,
        while_arming,
        kernels,
        classes,
        transitions,
    })
}

/// All kernels, each in its own thread.
fn simulate_kernels(parameters: MigrationParameters, cuts: u32, seed: u64) -> Result<Vec<SimulatedSlowdown>> {
    std::thread::scope(|scope| {
        let threads = NasKernel::ALL
            .map(|kernel| scope.spawn(move || kernel_programs::simulate_slowdown(kernel, parameters, cuts, seed)));
        let ended = |thread: ScopedJoinHandle<'_, Result<SimulatedSlowdown>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a simulation panicked")))
        };
        threads.into_iter().map(ended).collect()
    })
}

impl SimulatedFigures {
    /// The simulated number for the id of a published one, and its configuration.
    pub(super) fn value(&self, id: &str) -> Option<(f64, String)> {
        let of = |kernel: NasKernel| self.kernels.iter().find(|slowdown| slowdown.kernel == kernel);
        let lead = |from: usize, to: usize| {
            let within = self.transitions.iter().filter(|row| (from..=to).contains(&row.connections));
            let mut ratios: Vec<f64> = within.map(|row| row.migrating_us / row.arming_us).collect();
            ratios.sort_by(f64::total_cmp);
            Some((100.0 * (ratios.get(ratios.len() / 2)? - 1.0), format!("{from} to {to} connections")))
        };
        let sizes = |rows: &[SimulatedLatency]| {
            let (small, large) = (rows.first()?, rows.last()?);
            let configuration =
                format!("{} B against {} B, {} connections", large.bytes, small.bytes, large.connections);
            Some((large.per_connection_us / small.per_connection_us, configuration))
        };
        let cost_of_alternates = |kernel| {
            let slowdown = of(kernel)?;
            Some((slowdown.armed_percent, format!("runs of {:.0} ms", slowdown.plain_ms)))
        };
        let lost = |kernel| {
            let lost = of(kernel)?.silent_ms?;
            let configuration = format!("{} cuts, {:.2} to {:.2} ms", lost.count, lost.low, lost.high);
            Some((kernel_programs::percent_of_run(lost.median), configuration))
        };
        match id {
            "lead-few" => lead(1, 16),
            "lead-many" => lead(64, 512),
            "migrating-connections" => {
                let (few, many) = (self.by_count.first()?, self.by_count.last()?);
                let configuration = format!("{} against {} connections, 128 B", many.connections, few.connections);
                Some((many.disturbed_us / few.disturbed_us, configuration))
            }
            "migrating-size" => sizes(&self.while_migrating),
            "cut-size" => sizes(&self.silent_cut),
            "is-free" => cost_of_alternates(NasKernel::IntegerSort),
            "ft-free" => cost_of_alternates(NasKernel::Fourier),
            "lu-free" => cost_of_alternates(NasKernel::Wavefront),
            "ft-fault" => lost(NasKernel::Fourier),
            "lu-fault" => lost(NasKernel::Wavefront),
            _ => self.count_or_class(id),
        }
    }

    /// Numbers about slowed messages, classes of IS and many queue pairs.
    fn count_or_class(&self, id: &str) -> Option<(f64, String)> {
        let of = |kernel: NasKernel| self.kernels.iter().find(|slowdown| slowdown.kernel == kernel);
        let lost_by_many = |kernel| {
            let lost = of(kernel)?.many_silent_ms?;
            let configuration = format!("{} cuts, {:.2} to {:.2} ms", lost.count, lost.low, lost.high);
            Some((kernel_programs::percent_of_run(lost.median), configuration))
        };
        match id {
            "arming-latency" => {
                let row = &self.while_arming;
                let configuration = format!("{} connections, {} B", row.connections, row.bytes);
                Some((100.0 * (row.disturbed_us / row.plain_us - 1.0), configuration))
            }
            "affected-iterations" => {
                let row = self.by_count.get(1)?;
                let configuration = format!("{} of {} connections", row.affected, row.connections);
                Some((row.affected as f64 / row.connections as f64, configuration))
            }
            "is-a-over-b" => {
                let SimulatedClasses { class_a_percent, class_b_percent } = self.classes;
                let configuration =
                    format!("{class_a_percent:.1} and {class_b_percent:.1} % of a run of 30 iterations");
                Some((class_a_percent / class_b_percent, configuration))
            }
            "ft-many" => lost_by_many(NasKernel::Fourier),
            "lu-many" => lost_by_many(NasKernel::Wavefront),
            "lu-many-over-few" => {
                let slowdown = of(NasKernel::Wavefront)?;
                let (few, many) = (slowdown.silent_ms?.median, slowdown.many_silent_ms?.median);
                Some((many / few, format!("{many:.1} and {few:.1} ms")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> MigrationParameters {
        MigrationParameters::parse(TEXT).expect("the shipped file is valid")
    }

    #[test]
    #[ignore = "long: the report of the same simulation is tested by default"]
    fn a_silent_cut_costs_about_the_timeouts_and_a_noticed_one_less() {
        for kernel in NasKernel::ALL {
            let slowdown = kernel_programs::simulate_slowdown(kernel, shipped(), 1, 1).expect("it runs");
            let (silent, noticed) = (slowdown.silent_ms.expect("cut"), slowdown.noticed_ms.expect("cut"));
            // Two timeouts of 5 and 10 ms until a path is abandoned.
            assert!(silent.low > 10.0 && silent.high < 100.0, "{kernel:?}: {silent:?}");
            assert!(noticed.high < silent.low, "{kernel:?}: {noticed:?}");
        }
    }

    #[test]
    fn the_simulation_is_deterministic() {
        let once = || {
            let slowdown =
                kernel_programs::simulate_slowdown(NasKernel::Wavefront, shipped(), 1, 1).expect("it runs");
            let bounced = migration_latency::simulate_disturbed_latency(
                shipped().link,
                16,
                128,
                migration_latency::SimulatedDisturbance::Silent,
            )
            .expect("it runs");
            serde_json::to_string(&(slowdown, bounced)).expect("plain numbers")
        };
        assert_eq!(once(), once());
    }
}
