//! A model of the paper's adapter, so that its figures come out of a mechanism: firmware on one processor serves the transitions of all
//! queue pairs one after the other, a lost path is left after a timeout for each queue pair, and MPI uses its queue pairs in turn.
//!
//! In: the parameters and a seed. Out: the numbers of Figures 5 to 12. Nothing of the product runs here: the product's own figures are
//! in `simulated` and `cable_cuts`, beside these. Packets, retries and credits are not modelled; a message is the smallest thing.

mod cluster;
mod connection;
mod figures;
mod kernels;
mod mpi_progress;
mod packet;
mod rank;
#[cfg(test)]
mod tests;
mod verbs;

use anyhow::Result;
use serde::Serialize;

use super::simulated::{MigrationParameters, SimulatedLatency, SimulatedTransition};
use super::statistics::LinearFit;
use crate::report::{TableRows, with_header};
use crate::reproduce::comparison::{Gate, Remark};
use cluster::AdapterTimes;
use kernels::{AdapterSlowdown, NasProgram};
use verbs::VerbsFigures;

/// Pulled cables of a program, each in a run of its own (PM-7).
pub(super) const CABLE_PULLS: u32 = 16;

/// Figures 5 to 12 of the paper's adapter.
#[derive(Serialize)]
pub(super) struct AdapterFigures {
    #[serde(flatten)]
    verbs: VerbsFigures,
    arming_fit: LinearFit,
    migrating_fit: LinearFit,
    programs: Vec<AdapterSlowdown>,
}

pub(super) fn simulate(parameters: &MigrationParameters, cuts: u32, seed: u64) -> Result<AdapterFigures> {
    let verbs = verbs::simulate(AdapterTimes::of(parameters))?;
    let fit = |of: fn(&SimulatedTransition) -> f64| {
        let points: Vec<(f64, f64)> = verbs.transitions.iter().map(|row| (row.connections as f64, of(row))).collect();
        LinearFit::through(&points)
    };
    let (arming_fit, migrating_fit) = (fit(|row| row.arming_us), fit(|row| row.migrating_us));
    let programs = [NasProgram::SortA, NasProgram::SortB, NasProgram::FourierB, NasProgram::WavefrontB];
    let programs = programs.into_iter().map(|program| kernels::simulate(program, parameters, cuts, seed));
    Ok(AdapterFigures { programs: programs.collect::<Result<_>>()?, verbs, arming_fit, migrating_fit })
}

impl AdapterFigures {
    /// The number of the model for the id of a published one, and its configuration.
    pub(super) fn value(&self, id: &str) -> Option<(f64, String)> {
        let verbs = &self.verbs;
        match id {
            "lead-few" => self.lead(1, 16),
            "lead-many" => self.lead(64, 512),
            "arming-latency" => {
                let row = &verbs.while_arming;
                Some((100.0 * (row.disturbed_us / row.plain_us - 1.0), round_trips(row)))
            }
            "affected-iterations" => affected(verbs.by_count.last()?),
            "affected-cut" => affected(verbs.pulled_cable.get(1)?),
            "migrating-connections" => {
                let (few, many) = (verbs.by_count.first()?, verbs.by_count.last()?);
                let configuration = format!("{} against {} queue pairs, 128 B", many.connections, few.connections);
                Some((many.disturbed_us / few.disturbed_us, configuration))
            }
            "migrating-size" => by_size(&verbs.while_migrating),
            "cut-size" => by_size(&verbs.pulled_cable),
            _ => self.program_value(id),
        }
    }

    fn lead(&self, from: usize, to: usize) -> Option<(f64, String)> {
        let within = self.verbs.transitions.iter().filter(|row| (from..=to).contains(&row.connections));
        let mut ratios: Vec<f64> = within.map(|row| row.migrating_us / row.arming_us).collect();
        ratios.sort_by(f64::total_cmp);
        Some((100.0 * (ratios.get(ratios.len() / 2)? - 1.0), format!("median of {from} to {to} queue pairs")))
    }

    fn program_value(&self, id: &str) -> Option<(f64, String)> {
        let of = |program: NasProgram| self.programs.iter().find(|slowdown| slowdown.program == program);
        let (sort_a, sort_b) = (of(NasProgram::SortA)?, of(NasProgram::SortB)?);
        let (fourier, wavefront) = (of(NasProgram::FourierB)?, of(NasProgram::WavefrontB)?);
        let free =
            |slowdown: &AdapterSlowdown| Some((slowdown.free_percent(), format!("run of {:.2} s", slowdown.run_s)));
        let lost = |slowdown: &AdapterSlowdown| {
            let loss = slowdown.many;
            Some((loss.mean, format!("mean of {} cuts, {:.2} to {:.2} %", loss.count, loss.low, loss.high)))
        };
        let ratio = |one: f64, other: f64| Some((one / other, format!("{one:.3} and {other:.3} %")));
        match id {
            "is-free" => free(sort_a),
            "ft-free" => free(fourier),
            "lu-free" => free(wavefront),
            "is-free-a-over-b" => ratio(sort_a.free_percent(), sort_b.free_percent()),
            "is-fault-over-free" => ratio(sort_a.many.mean, sort_a.free_percent()),
            "is-a-over-b" => ratio(sort_a.many.mean, sort_b.many.mean),
            "ft-fault" | "ft-many" => lost(fourier),
            "lu-fault" | "lu-many" => lost(wavefront),
            "ft-many-over-few" => ratio(fourier.many.mean, fourier.few.mean),
            "lu-many-over-few" => ratio(wavefront.many.mean, wavefront.few.mean),
            _ => None,
        }
    }

    /// Statements that must hold, whatever the exact numbers.
    pub(super) fn gates(&self) -> Vec<Gate> {
        let fits = [self.arming_fit.r_squared, self.migrating_fit.r_squared];
        vec![Gate::new(
            "the paper's adapter: both transitions grow linearly with the queue pairs (R\u{b2} at least 0.99)",
            format!("{:.4} and {:.4}", fits[0], fits[1]),
            fits.iter().all(|fit| *fit >= 0.99),
        )]
    }

    pub(super) fn tables(&self) -> Vec<(&'static str, TableRows)> {
        let verbs = &self.verbs;
        let transitions = verbs.transitions.iter().map(|row| {
            [
                row.connections.to_string(),
                format!("{:.1}", row.arming_us),
                format!("{:.1}", row.migrating_us),
                format!("{:.2}", row.migrating_us / row.arming_us),
            ]
        });
        let arming = std::slice::from_ref(&verbs.while_arming);
        let events = [
            ("arming", arming),
            ("by hand", &verbs.by_count),
            ("by hand", &verbs.while_migrating),
            ("pulled cable", &verbs.pulled_cable),
        ];
        let trips = events.into_iter().flat_map(|(what, rows)| rows.iter().map(move |row| latency_cells(what, row)));
        let header =
            ["event", "queue pairs", "bytes", "plain, us", "disturbed, us", "added for each, us", "slower trips"];
        vec![
            ("The paper's adapter: programs (Figures 9 to 12)", self.program_rows()),
            (
                "The paper's adapter: transitions (Figures 5 and 6)",
                with_header(["queue pairs", "to ARMED, us", "to MIGRATED, us", "ratio"], transitions),
            ),
            ("The paper's adapter: the slower round trips (Figures 7 and 8)", with_header(header, trips)),
        ]
    }

    fn program_rows(&self) -> TableRows {
        let header =
            ["program", "run, s", "arming, %", "migrating, %", "cable, 1 queue pair a peer, %", "cable, many, %"];
        let row = |slowdown: &AdapterSlowdown| {
            let lost = |loss: kernels::CutLoss| format!("{:.2} ({:.2}..{:.2})", loss.mean, loss.low, loss.high);
            [
                format!("{:?}", slowdown.program),
                format!("{:.2}", slowdown.run_s),
                format!("{:.3}", slowdown.arming_percent),
                format!("{:.3}", slowdown.migrating_percent),
                lost(slowdown.few),
                lost(slowdown.many),
            ]
        };
        with_header(header, self.programs.iter().map(row))
    }
}

fn latency_cells(what: &str, row: &SimulatedLatency) -> [String; 7] {
    [
        what.into(),
        row.connections.to_string(),
        row.bytes.to_string(),
        format!("{:.1}", row.plain_us),
        format!("{:.1}", row.disturbed_us),
        format!("{:.1}", row.per_connection_us),
        row.affected.to_string(),
    ]
}

fn round_trips(row: &SimulatedLatency) -> String {
    format!("{} queue pairs, {} B", row.connections, row.bytes)
}

fn affected(row: &SimulatedLatency) -> Option<(f64, String)> {
    let configuration = format!("{} of {} queue pairs", row.affected, row.connections);
    Some((row.affected as f64 / row.connections as f64, configuration))
}

fn by_size(rows: &[SimulatedLatency]) -> Option<(f64, String)> {
    let (small, large) = (rows.first()?, rows.last()?);
    let configuration = format!("{} B against {} B, {} queue pairs", large.bytes, small.bytes, large.connections);
    Some((large.per_connection_us / small.per_connection_us, configuration))
}

/// The explanation of a number of the model that differs.
pub(super) fn remark(id: &str) -> Option<Remark> {
    Some(Remark::Why(match id {
        "lu-fault" | "lu-many" => {
            "5 % of 256 s are 13 s. LU sends short messages without waiting, so the timeouts of all queue pairs of a neighbour run at \
             the same time, and a sweep waits for one of them only; the paper says itself that LU amortizes the overhead"
        }
        _ => "not explained",
    }))
}
