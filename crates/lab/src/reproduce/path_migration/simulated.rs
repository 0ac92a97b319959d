//! The same figures in the simulator: eight hosts with two ports each, queue pairs between them, and programs that
//! communicate as the kernels do. Virtual time, so that every number is a function of the parameters.
//!
//! What is modelled is the network and the protocol. A host computes for as long as its program says, its adapter answers
//! by itself, and a packet costs a host nothing: see experiments/path-migration/README.md for what follows from that.

mod kernel_programs;
mod migration_latency;
mod testbed;

use std::thread::ScopedJoinHandle;

use anyhow::{Result, anyhow};
use serde::Serialize;

use super::progress::MeasurementProgress;
use super::statistics::LinearFit;
use crate::nas_kernels::NasKernel;
use kernel_programs::SimulatedSlowdown;
use migration_latency::SimulatedLatency;
pub(super) use migration_latency::SimulatedTransition;

/// Everything that was simulated.
#[derive(Serialize)]
pub(super) struct SimulatedFigures {
    pub transitions: Vec<SimulatedTransition>,
    pub arming_fit: LinearFit,
    pub migrating_fit: LinearFit,
    /// 128-byte messages over more and more connections, all of which migrate by hand.
    pub by_count: Vec<SimulatedLatency>,
    /// Messages of several sizes, likewise, and after cuts.
    pub while_migrating: Vec<SimulatedLatency>,
    pub noticed_cut: Vec<SimulatedLatency>,
    pub silent_cut: Vec<SimulatedLatency>,
    pub kernels: Vec<SimulatedSlowdown>,
}

/// How many milliseconds it takes on two cores, more or less.
pub(super) const EXPECTED_MS: u64 = 20_000;

pub(super) fn simulate(cuts: u32, progress: &MeasurementProgress) -> Result<SimulatedFigures> {
    progress.say("simulated transitions and messages".to_owned());
    let transitions: Vec<SimulatedTransition> = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        .into_iter()
        .map(migration_latency::simulate_transitions)
        .collect::<Result<_>>()?;
    let points = |of: fn(&SimulatedTransition) -> f64| -> Vec<(f64, f64)> {
        transitions.iter().map(|row| (row.connections as f64, of(row))).collect()
    };
    let sizes = [8, 128, 1024, 4096];
    let by_size = |connections: usize, happening| -> Result<Vec<SimulatedLatency>> {
        sizes
            .into_iter()
            .map(|bytes| migration_latency::simulate_disturbed_latency(connections, bytes, happening))
            .collect()
    };
    let by_count = [16, 64, 256].map(|connections| {
        migration_latency::simulate_disturbed_latency(
            connections,
            128,
            migration_latency::SimulatedDisturbance::Migration,
        )
    });
    let while_migrating = by_size(128, migration_latency::SimulatedDisturbance::Migration)?;
    let noticed_cut = by_size(128, migration_latency::SimulatedDisturbance::Noticed)?;
    let silent_cut = by_size(16, migration_latency::SimulatedDisturbance::Silent)?;
    progress.say("simulated kernels".to_owned());
    let kernels = slow_down_all(cuts)?;
    progress.add(EXPECTED_MS);
    Ok(SimulatedFigures {
        arming_fit: LinearFit::through(&points(|row| row.arming_us)),
        migrating_fit: LinearFit::through(&points(|row| row.migrating_us)),
        by_count: by_count.into_iter().collect::<Result<_>>()?,
        while_migrating,
        noticed_cut,
        silent_cut,
        kernels,
        transitions,
    })
}

/// All kernels, each in a thread of its own.
fn slow_down_all(cuts: u32) -> Result<Vec<SimulatedSlowdown>> {
    std::thread::scope(|scope| {
        let threads =
            NasKernel::ALL.map(|kernel| scope.spawn(move || kernel_programs::simulate_slowdown(kernel, cuts)));
        let ended = |thread: ScopedJoinHandle<'_, Result<SimulatedSlowdown>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a simulation panicked")))
        };
        threads.into_iter().map(ended).collect()
    })
}

impl SimulatedFigures {
    /// The number that stands beside a published one, and what it is of.
    pub(super) fn value(&self, id: &str) -> Option<(f64, String)> {
        let of = |kernel: NasKernel| self.kernels.iter().find(|slowed| slowed.kernel == kernel);
        let lead = |from: usize, to: usize| {
            let within = self.transitions.iter().filter(|row| (from..=to).contains(&row.connections));
            let mut ratios: Vec<f64> = within.map(|row| row.migrating_us / row.arming_us).collect();
            ratios.sort_by(f64::total_cmp);
            Some((100.0 * (ratios.get(ratios.len() / 2)? - 1.0), format!("{from} to {to} connections")))
        };
        let sizes = |rows: &[SimulatedLatency]| {
            let (small, large) = (rows.first()?, rows.last()?);
            let words = format!("{} B against {} B, {} connections", large.bytes, small.bytes, large.connections);
            Some((large.per_connection_us / small.per_connection_us, words))
        };
        let free = |kernel| {
            let slowed = of(kernel)?;
            Some((slowed.armed_percent, format!("runs of {:.0} ms", slowed.plain_ms)))
        };
        let lost = |kernel, silent: bool| {
            let slowed = of(kernel)?;
            let lost = if silent { slowed.silent_ms? } else { slowed.noticed_ms? };
            let words = format!("{} cuts, {:.2} to {:.2} ms", lost.count, lost.low, lost.high);
            Some((kernel_programs::percent_of_run(lost.median), words))
        };
        match id {
            "lead-few" => lead(1, 16),
            "lead-many" => lead(64, 512),
            "migrating-connections" => {
                let (few, many) = (self.by_count.first()?, self.by_count.last()?);
                let words = format!("{} against {} connections, 128 B", many.connections, few.connections);
                Some((many.disturbed_us / few.disturbed_us, words))
            }
            "migrating-size" => sizes(&self.while_migrating),
            "cut-size" => sizes(&self.noticed_cut),
            "is-free" => free(NasKernel::IntegerSort),
            "ft-free" => free(NasKernel::Fourier),
            "lu-free" => free(NasKernel::Wavefront),
            "ft-silent" => lost(NasKernel::Fourier, true),
            "ft-noticed" => lost(NasKernel::Fourier, false),
            "lu-silent" => lost(NasKernel::Wavefront, true),
            "lu-noticed" => lost(NasKernel::Wavefront, false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_half_is_whole() {
        let simulated = simulate(1, &MeasurementProgress::new(EXPECTED_MS)).expect("it runs");
        for row in super::super::published::read_published(super::super::PUBLISHED).expect("it is ours") {
            let (value, _) = simulated.value(&row.id).unwrap_or_else(|| panic!("{} is missing", row.id));
            assert!(value.is_finite(), "{}", row.id);
        }
        assert!(simulated.arming_fit.r_squared > 0.95 && simulated.migrating_fit.r_squared > 0.95);
        assert_eq!(simulated.kernels.len(), NasKernel::ALL.len());
        simulated.kernels.iter().for_each(a_silent_cut_costs_about_the_timeouts_and_a_noticed_one_less);
    }

    fn a_silent_cut_costs_about_the_timeouts_and_a_noticed_one_less(slowed: &SimulatedSlowdown) {
        let (silent, noticed) = (slowed.silent_ms.expect("cut"), slowed.noticed_ms.expect("cut"));
        // Two timeouts of 5 and 10 ms until a path is left.
        assert!(silent.low > 10.0 && silent.high < 100.0, "{:?}: {silent:?}", slowed.kernel);
        assert!(noticed.high < silent.low, "{:?}: {noticed:?}", slowed.kernel);
    }

    #[test]
    fn the_same_comes_out_every_time() {
        let once = || {
            let slowed = kernel_programs::simulate_slowdown(NasKernel::Wavefront, 1).expect("it runs");
            let bounced = migration_latency::simulate_disturbed_latency(
                16,
                128,
                migration_latency::SimulatedDisturbance::Silent,
            )
            .expect("it runs");
            serde_json::to_string(&(slowed, bounced)).expect("plain numbers")
        };
        assert_eq!(once(), once());
    }
}
