//! The rates of nodes and jobs over the last two minutes, and how they are drawn in a cell.

use std::collections::{BTreeMap, VecDeque};

use dashboard::ClusterView;

/// Samples of one line.
const MAX_SAMPLES: usize = 120;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Whose rate it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum RateOwner {
    Cluster,
    Node(String),
    Job(String),
}

/// Rates by owner, oldest first.
#[derive(Default)]
pub(super) struct RateHistory {
    samples: BTreeMap<RateOwner, VecDeque<f64>>,
}

impl RateHistory {
    /// Adds what a view shows. Owners that it does not have are removed.
    pub(super) fn note(&mut self, view: &ClusterView) {
        let nodes = view.nodes.iter().map(|node| (RateOwner::Node(node.name.clone()), node.operations_per_second));
        let jobs = view.jobs.iter().map(|job| (RateOwner::Job(job.job.clone()), job.operations_per_second));
        let cluster = std::iter::once((RateOwner::Cluster, view.operations_per_second));
        let mut before = std::mem::take(&mut self.samples);
        for (owner, rate) in nodes.chain(jobs).chain(cluster) {
            let mut samples = before.remove(&owner).unwrap_or_default();
            if samples.len() == MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(rate.unwrap_or(0.0));
            self.samples.insert(owner, samples);
        }
    }

    /// The last `width` samples as bars; the highest of them is a full one.
    pub(super) fn bars(&self, owner: &RateOwner, width: usize) -> String {
        let Some(samples) = self.samples.get(owner) else { return String::new() };
        let shown: Vec<f64> = samples.iter().copied().skip(samples.len().saturating_sub(width)).collect();
        let highest = shown.iter().copied().fold(0.0, f64::max);
        let bar = |rate: &f64| {
            if highest <= 0.0 || *rate <= 0.0 {
                return BARS[0];
            }
            BARS[((rate / highest * 7.0).round() as usize).min(7)]
        };
        shown.iter().map(bar).collect()
    }

    /// The lowest, the mean and the highest of all samples.
    pub(super) fn range(&self, owner: &RateOwner) -> Option<(f64, f64, f64)> {
        let samples = self.samples.get(owner).filter(|samples| !samples.is_empty())?;
        let lowest = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = samples.iter().copied().fold(0.0, f64::max);
        Some((lowest, samples.iter().sum::<f64>() / samples.len() as f64, highest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_the_newest_samples_against_the_highest() {
        let mut history = RateHistory::default();
        let samples = [50.0, 0.0, 100.0, 200.0].into_iter().collect();
        history.samples.insert(RateOwner::Cluster, samples);
        assert_eq!(history.bars(&RateOwner::Cluster, 3), "▁▅█");
        assert_eq!(history.bars(&RateOwner::Cluster, 10), "▃▁▅█");
        assert_eq!(history.bars(&RateOwner::Node("gone".to_owned()), 10), "");
        assert_eq!(history.range(&RateOwner::Cluster), Some((0.0, 87.5, 200.0)));
    }
}
