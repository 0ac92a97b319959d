//! Figures 5 to 8: the time to arm and to migrate many connections, and its cost for messages under way.

use anyhow::Result;
use serde::Serialize;
use transport::udp::LinkCut;

use super::progress::MeasurementProgress;
use super::statistics::LinearFit;
use crate::bench::TrialSummary;
use crate::bench::migration::{Disturbance, DisturbedLatency, measure_disturbed_latency, measure_transitions};

/// The measurements.
#[derive(Serialize)]
pub(super) struct TransitionMeasurements {
    pub rows: Vec<TransitionRow>,
    pub arming_fit: LinearFit,
    pub migrating_fit: LinearFit,
    pub few: MigrationLead,
    pub many: MigrationLead,
    /// 128-byte messages over more and more connections, all of which migrate by hand (Figure 7).
    pub by_count: Vec<DisturbedLatency>,
    /// Messages of several sizes, likewise.
    pub while_migrating: Vec<DisturbedLatency>,
    /// Messages of several sizes after a cut that is noticed (Figure 8).
    pub noticed_cut: Vec<DisturbedLatency>,
    /// After a silent cut; fewer connections, since each waits for its own timeouts.
    pub silent_cut: Vec<DisturbedLatency>,
}

/// The times of so many connections.
#[derive(Clone, Copy, Serialize)]
pub(super) struct TransitionRow {
    pub connections: usize,
    pub arming_us: TrialSummary,
    pub migrating_us: TrialSummary,
}

/// How much longer migrating takes than arming.
#[derive(Clone, Copy, Serialize)]
pub(super) struct MigrationLead {
    pub from: usize,
    pub to: usize,
    pub lead_percent: f64,
}

impl MigrationLead {
    /// The median over all rows with so many connections.
    fn of(rows: &[TransitionRow], from: usize, to: usize) -> Self {
        let within = || rows.iter().filter(|row| (from..=to).contains(&row.connections));
        let ratios: Vec<f64> = within().map(|row| row.migrating_us.median / row.arming_us.median).collect();
        let lead_percent = 100.0 * (TrialSummary::of(ratios).median - 1.0);
        let to = within().map(|row| row.connections).max().unwrap_or(to);
        Self { from, to, lead_percent }
    }

    pub(super) fn label(&self) -> String {
        format!("{} to {} connections", self.from, self.to)
    }
}

impl TransitionMeasurements {
    /// The mean latency while all connections migrate: the most connections relative to the fewest.
    pub(super) fn by_connections(&self) -> (f64, String) {
        let (few, many) = (&self.by_count[0], &self.by_count[self.by_count.len() - 1]);
        let configuration = format!("{} against {} connections, 128 B", many.connections, few.connections);
        (many.disturbed_us.median / few.disturbed_us.median, configuration)
    }
}

/// The added time per connection: the largest messages relative to the smallest. It is a difference of two latencies, so the ratio
/// means little where their spread is as large; the configuration shows both.
pub(super) fn by_size(rows: &[DisturbedLatency]) -> (f64, String) {
    let (small, large) = (&rows[0], &rows[rows.len() - 1]);
    let added = |row: &DisturbedLatency| format!("{} B: {} us", row.bytes, row.per_connection_us.format(2));
    let configuration = format!("{}, {}, {} connections", added(large), added(small), large.connections);
    (large.per_connection_us.median / small.per_connection_us.median, configuration)
}

/// Approximate milliseconds on two cores.
pub(super) const EXPECTED_MS: u64 = 60_000;

pub(super) fn measure(quick: bool, progress: &MeasurementProgress) -> Result<TransitionMeasurements> {
    let counts: &[usize] =
        if quick { &[1, 4, 16, 64, 128, 256] } else { &[1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512] };
    let (tries, disturbed) = if quick { (3, 64) } else { (9, 512) };
    let mut rows = Vec::new();
    for connections in counts {
        progress.report(format!("transitions of {connections} connections"));
        let (arming_us, migrating_us) = measure_transitions(*connections, tries)?;
        rows.push(TransitionRow { connections: *connections, arming_us, migrating_us });
    }
    let points =
        |of: fn(&TransitionRow) -> f64| rows.iter().map(|row| (row.connections as f64, of(row))).collect::<Vec<_>>();
    let counts: &[usize] = if quick { &[16, 64] } else { &[16, 64, 256, 512] };
    let sizes: &[usize] = if quick { &[8, 1024] } else { &[8, 128, 1024, 4096] };
    let measure = |connections: usize, bytes: usize, disturbance: Disturbance| {
        progress.report(format!("messages of {bytes} bytes over {connections} connections"));
        measure_disturbed_latency(connections, bytes, disturbance, tries.min(5))
    };
    let by_size = |connections, disturbance| -> Result<Vec<DisturbedLatency>> {
        sizes.iter().map(|bytes| measure(connections, *bytes, disturbance)).collect()
    };
    let by_count = counts.iter().map(|connections| measure(*connections, 128, Disturbance::Migration));
    let measured = TransitionMeasurements {
        arming_fit: LinearFit::through(&points(|row| row.arming_us.median)),
        migrating_fit: LinearFit::through(&points(|row| row.migrating_us.median)),
        few: MigrationLead::of(&rows, 1, 16),
        many: MigrationLead::of(&rows, 64, 512),
        by_count: by_count.collect::<Result<_>>()?,
        while_migrating: by_size(disturbed, Disturbance::Migration)?,
        noticed_cut: by_size(disturbed, Disturbance::Cut(LinkCut::Noticed))?,
        silent_cut: by_size(if quick { 8 } else { 64 }, Disturbance::Cut(LinkCut::Silent))?,
        rows,
    };
    progress.add(EXPECTED_MS);
    Ok(measured)
}
