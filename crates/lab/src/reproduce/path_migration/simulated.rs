//! The same figures in the simulator: eight hosts with two ports each, queue pairs between them, and programs that
//! communicate as the kernels do. Virtual time, so that every number is a function of the parameters.
//!
//! What is modelled is the network and the protocol. A host computes for as long as its program says, its adapter answers
//! by itself, and a packet costs a host nothing: see experiments/path-migration/README.md for what follows from that.

mod bounces;
mod fabric;
mod kernels;

use std::thread::ScopedJoinHandle;

use anyhow::{Result, anyhow};
use serde::Serialize;

use super::progress::Progress;
use super::spread::Line;
use crate::kernels::Kernel;
use bounces::Bounced;
pub(super) use bounces::Moved;
use kernels::Slowed;

/// Everything that was simulated.
#[derive(Serialize)]
pub(super) struct Simulated {
    pub transitions: Vec<Moved>,
    pub arming_fit: Line,
    pub migrating_fit: Line,
    /// 128-byte messages over more and more connections, all of which migrate by hand.
    pub by_count: Vec<Bounced>,
    /// Messages of several sizes, likewise, and after cuts.
    pub while_migrating: Vec<Bounced>,
    pub noticed_cut: Vec<Bounced>,
    pub silent_cut: Vec<Bounced>,
    pub kernels: Vec<Slowed>,
}

/// How many milliseconds it takes on two cores, more or less.
pub(super) const EXPECTED_MS: u64 = 20_000;

pub(super) fn simulate(cuts: u32, progress: &Progress) -> Result<Simulated> {
    progress.say("simulated transitions and messages".to_owned());
    let transitions: Vec<Moved> =
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].into_iter().map(bounces::transitions).collect::<Result<_>>()?;
    let points = |of: fn(&Moved) -> f64| -> Vec<(f64, f64)> {
        transitions.iter().map(|row| (row.connections as f64, of(row))).collect()
    };
    let sizes = [8, 128, 1024, 4096];
    let by_size = |connections: usize, happening| -> Result<Vec<Bounced>> {
        sizes.into_iter().map(|bytes| bounces::bouncing(connections, bytes, happening)).collect()
    };
    let by_count =
        [16, 64, 256].map(|connections| bounces::bouncing(connections, 128, bounces::Happening::Migration));
    let while_migrating = by_size(128, bounces::Happening::Migration)?;
    let noticed_cut = by_size(128, bounces::Happening::Noticed)?;
    let silent_cut = by_size(16, bounces::Happening::Silent)?;
    progress.say("simulated kernels".to_owned());
    let kernels = slow_down_all(cuts)?;
    progress.add(EXPECTED_MS);
    Ok(Simulated {
        arming_fit: Line::through(&points(|row| row.arming_us)),
        migrating_fit: Line::through(&points(|row| row.migrating_us)),
        by_count: by_count.into_iter().collect::<Result<_>>()?,
        while_migrating,
        noticed_cut,
        silent_cut,
        kernels,
        transitions,
    })
}

/// All kernels, each in a thread of its own.
fn slow_down_all(cuts: u32) -> Result<Vec<Slowed>> {
    std::thread::scope(|scope| {
        let threads = Kernel::ALL.map(|kernel| scope.spawn(move || kernels::slow_down(kernel, cuts)));
        let ended = |thread: ScopedJoinHandle<'_, Result<Slowed>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a simulation panicked")))
        };
        threads.into_iter().map(ended).collect()
    })
}

impl Simulated {
    /// The number that stands beside a published one, and what it is of.
    pub(super) fn value(&self, id: &str) -> Option<(f64, String)> {
        let of = |kernel: Kernel| self.kernels.iter().find(|slowed| slowed.kernel == kernel);
        let lead = |from: usize, to: usize| {
            let within = self.transitions.iter().filter(|row| (from..=to).contains(&row.connections));
            let mut ratios: Vec<f64> = within.map(|row| row.migrating_us / row.arming_us).collect();
            ratios.sort_by(f64::total_cmp);
            Some((100.0 * (ratios.get(ratios.len() / 2)? - 1.0), format!("{from} to {to} connections")))
        };
        let sizes = |rows: &[Bounced]| {
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
            Some((kernels::percent_of_run(lost.median), words))
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
            "is-free" => free(Kernel::IntegerSort),
            "ft-free" => free(Kernel::Fourier),
            "lu-free" => free(Kernel::Wavefront),
            "ft-silent" => lost(Kernel::Fourier, true),
            "ft-noticed" => lost(Kernel::Fourier, false),
            "lu-silent" => lost(Kernel::Wavefront, true),
            "lu-noticed" => lost(Kernel::Wavefront, false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_half_is_whole() {
        let simulated = simulate(1, &Progress::new(EXPECTED_MS)).expect("it runs");
        for row in super::super::published::read(super::super::PUBLISHED).expect("it is ours") {
            let (value, _) = simulated.value(&row.id).unwrap_or_else(|| panic!("{} is missing", row.id));
            assert!(value.is_finite(), "{}", row.id);
        }
        assert!(simulated.arming_fit.r_squared > 0.95 && simulated.migrating_fit.r_squared > 0.95);
        assert_eq!(simulated.kernels.len(), Kernel::ALL.len());
        simulated.kernels.iter().for_each(a_silent_cut_costs_about_the_timeouts_and_a_noticed_one_less);
    }

    fn a_silent_cut_costs_about_the_timeouts_and_a_noticed_one_less(slowed: &Slowed) {
        let (silent, noticed) = (slowed.silent_ms.expect("cut"), slowed.noticed_ms.expect("cut"));
        // Two timeouts of 5 and 10 ms until a path is left.
        assert!(silent.low > 10.0 && silent.high < 100.0, "{:?}: {silent:?}", slowed.kernel);
        assert!(noticed.high < silent.low, "{:?}: {noticed:?}", slowed.kernel);
    }

    #[test]
    fn the_same_comes_out_every_time() {
        let once = || {
            let slowed = kernels::slow_down(Kernel::Wavefront, 1).expect("it runs");
            let bounced = bounces::bouncing(16, 128, bounces::Happening::Silent).expect("it runs");
            serde_json::to_string(&(slowed, bounced)).expect("plain numbers")
        };
        assert_eq!(once(), once());
    }
}
