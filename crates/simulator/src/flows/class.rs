//! Classes of traffic: who sends how much to whom, and when.

use std::fmt;

use faults::RandomStream;
use units::{SimSpan, SimTime};

/// The most flows of a class.
pub(crate) const MAX_FLOWS: u64 = 4 << 20;
/// The most points of a size distribution.
const MAX_POINTS: usize = 4_096;

/// The pattern of a class.
#[derive(Clone, PartialEq, Debug)]
pub enum TrafficShape {
    /// Every host sends to one other, and receives from one other.
    Permutation {
        /// To the host so many further; none for a random permutation without a fixed point.
        shift: Option<u32>,
    },
    /// Every host sends to the first of the list of hosts.
    Incast,
    /// Every host sends to every other.
    AllToAll,
    /// Flows start at random, to random hosts.
    Poisson {
        /// Offered load of each host, as a share of its link.
        load: f64,
        /// Sizes of flows.
        sizes: SizeDistribution,
    },
    /// Every host sends to a random other, as fast as its link allows, without acknowledgements.
    Flood,
}

/// A class of traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct TrafficClass {
    /// The name in the report.
    pub name: String,
    /// Who sends to whom.
    pub shape: TrafficShape,
    /// The hosts that take part.
    pub hosts: Vec<u32>,
    /// Bytes of a flow; none for flows without an end.
    pub bytes: Option<u64>,
    /// When it starts.
    pub start: SimSpan,
    /// How long flows start, or flows without an end send.
    pub duration: Option<SimSpan>,
    /// Priority of its packets: the virtual lane.
    pub lane: u8,
}

/// A flow that is to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlowStart {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: Option<u64>,
}

impl TrafficClass {
    /// How many flows start at once when the class starts.
    pub(crate) fn initial_flows(&self) -> u64 {
        let hosts = self.hosts.len() as u64;
        match self.shape {
            TrafficShape::AllToAll => hosts * hosts.saturating_sub(1),
            TrafficShape::Incast => hosts.saturating_sub(1),
            TrafficShape::Permutation { .. } | TrafficShape::Flood => hosts,
            TrafficShape::Poisson { .. } => 0,
        }
    }

    /// The share that is over at this time: of the time that the class has, or of its bytes, or of the most flows that it may have.
    pub(super) fn share_over(&self, now: SimTime, received: u64, drawn: u64) -> f64 {
        let share = match (self.duration, self.bytes) {
            (Some(duration), _) if self.bytes.is_none() || self.is_poisson() => {
                let passed = now.since(SimTime::ZERO).as_nanos_f64() - self.start.as_nanos_f64();
                passed / duration.as_nanos_f64()
            }
            (_, Some(bytes)) => received as f64 / (bytes as f64 * self.initial_flows() as f64),
            (_, None) => drawn as f64 / MAX_FLOWS as f64,
        };
        // A class of no flow is over.
        if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) }
    }

    fn is_poisson(&self) -> bool {
        matches!(self.shape, TrafficShape::Poisson { .. })
    }

    /// The flows that start when the class starts.
    pub(super) fn starts(&self, stream: RandomStream) -> Vec<FlowStart> {
        let (hosts, bytes) = (&self.hosts, self.bytes);
        let count = hosts.len();
        if count < 2 {
            return Vec::new();
        }
        let start = |from: usize, to: usize| FlowStart { from: hosts[from], to: hosts[to], bytes };
        match &self.shape {
            TrafficShape::Permutation { shift: Some(shift) } => {
                let shift = *shift as usize % count;
                (0..count).filter(|_| shift > 0).map(|from| start(from, (from + shift) % count)).collect()
            }
            TrafficShape::Permutation { shift: None } | TrafficShape::Flood => {
                // Every host sends to the next of a random ring: a permutation without a fixed point.
                let order = stream.permutation(count as u32);
                let next = |at: usize| order[(at + 1) % count] as usize;
                (0..count).map(|at| start(order[at] as usize, next(at))).collect()
            }
            TrafficShape::Incast => (1..count).map(|from| start(from, 0)).collect(),
            // Each host begins with its neighbour, so that no receiver is everyone's first.
            TrafficShape::AllToAll => (0..count)
                .flat_map(|from| (1..count).map(move |step| (from, (from + step) % count)))
                .map(|(from, to)| start(from, to))
                .collect(),
            TrafficShape::Poisson { .. } => Vec::new(),
        }
    }

    /// The mean time between the flows of all hosts of a Poisson class, in picoseconds.
    pub(super) fn mean_gap(&self, picos_per_byte: f64) -> Option<f64> {
        let TrafficShape::Poisson { load, sizes } = &self.shape else { return None };
        let per_host = sizes.mean() * picos_per_byte / load;
        (self.hosts.len() > 1 && *load > 0.0).then(|| per_host / self.hosts.len() as f64)
    }

    /// The `number`-th flow of a Poisson class, and the gap before it.
    pub(super) fn draw(&self, stream: RandomStream, number: u64, mean_gap: f64) -> (SimSpan, FlowStart) {
        let uniform = |n: u64| (stream.at(n) >> 11) as f64 / (1_u64 << 53) as f64;
        let gap = -(1.0 - uniform(4 * number)).ln() * mean_gap;
        let count = self.hosts.len() as u64;
        let from = stream.below(4 * number + 1, count);
        let to = (from + 1 + stream.below(4 * number + 2, count - 1)) % count;
        let bytes = match &self.shape {
            TrafficShape::Poisson { sizes, .. } => Some(sizes.quantile(uniform(4 * number + 3))),
            _ => self.bytes,
        };
        let (from, to) = (self.hosts[from as usize], self.hosts[to as usize]);
        (SimSpan::from_picos(gap.min(1e18) as u64), FlowStart { from, to, bytes })
    }
}

/// An empirical distribution of sizes: points of its cumulative distribution, linear between them.
#[derive(Clone, PartialEq, Debug)]
pub struct SizeDistribution {
    /// Bytes, and the share of flows that have at most so many.
    points: Vec<(f64, f64)>,
}

/// Why a list is not a distribution of sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeDistributionError {
    /// The line of the file, from 1; of an inline list, the number of the pair.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for SizeDistributionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for SizeDistributionError {}

impl SizeDistribution {
    /// All flows have one size.
    pub fn fixed(bytes: u64) -> Self {
        Self { points: vec![(bytes as f64, 1.0)] }
    }

    /// From pairs of bytes and cumulative share, with the line of each.
    ///
    /// # Errors
    /// If the list is empty or too long, a number is out of range, or the pairs do not ascend to a share of 1.
    pub fn new(points: impl IntoIterator<Item = (usize, f64, f64)>) -> Result<Self, SizeDistributionError> {
        let mut list: Vec<(f64, f64)> = Vec::new();
        let mut last = 0;
        for (line, bytes, share) in points {
            last = line;
            let wrong = |message: String| Err(SizeDistributionError { line, message });
            if !(1.0..=1e11).contains(&bytes) {
                return wrong(format!("{bytes} bytes; a flow has from 1 to 1e11"));
            }
            if !(0.0..=1.0).contains(&share) {
                return wrong(format!("a cumulative share of {share}; it is from 0 to 1"));
            }
            if list.last().is_some_and(|(b, s)| *b > bytes || *s > share) {
                return wrong("sizes and cumulative shares must not descend".to_owned());
            }
            if list.len() == MAX_POINTS {
                return wrong(format!("more than {MAX_POINTS} points"));
            }
            list.push((bytes, share));
        }
        match list.last() {
            Some((_, share)) if *share == 1.0 => Ok(Self { points: list }),
            Some((_, share)) => {
                let message = format!("the last cumulative share is {share}; it must be 1");
                Err(SizeDistributionError { line: last, message })
            }
            None => Err(SizeDistributionError {
                line: 1,
                message: "no point: lines of bytes,cumulative-share".to_owned(),
            }),
        }
    }

    /// From a CSV text: lines of bytes and cumulative share; empty lines, comments (#) and a header are skipped.
    ///
    /// # Errors
    /// As [`Self::new`], with the line.
    pub fn parse_csv(text: &str) -> Result<Self, SizeDistributionError> {
        let mut points = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or("").trim();
            if content.is_empty() {
                continue;
            }
            let mut fields = content.split([',', ';', '\t', ' ']).filter(|field| !field.is_empty());
            let numbers: Vec<Option<f64>> = fields.by_ref().take(3).map(|field| field.parse().ok()).collect();
            match numbers[..] {
                [Some(bytes), Some(share)] => points.push((at + 1, bytes, share)),
                [None, None] if points.is_empty() => {} // A header.
                _ => {
                    let message = "expected two numbers, bytes and cumulative share, such as 1460,0.53".to_owned();
                    return Err(SizeDistributionError { line: at + 1, message });
                }
            }
            if points.len() > MAX_POINTS {
                break; // `new` says so.
            }
        }
        Self::new(points)
    }

    /// The size below which a share of the flows lies; at least 1.
    pub fn quantile(&self, share: f64) -> u64 {
        let after = self.points.partition_point(|(_, cumulative)| *cumulative < share).min(self.points.len() - 1);
        let (bytes, cumulative) = self.points[after];
        let (low, from) = if after == 0 { (bytes, 0.0) } else { self.points[after - 1] };
        let part = if cumulative > from { (share - from) / (cumulative - from) } else { 1.0 };
        (low + (bytes - low) * part.clamp(0.0, 1.0)).round().max(1.0) as u64
    }

    /// The mean size.
    pub fn mean(&self) -> f64 {
        let mut mean = self.points[0].0 * self.points[0].1;
        for pair in self.points.windows(2) {
            mean += (pair[0].0 + pair[1].0) / 2.0 * (pair[1].1 - pair[0].1);
        }
        mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_follow_the_points_and_average_to_the_mean() {
        let sizes =
            SizeDistribution::parse_csv("bytes,share\n1000,0.5\n10000,0.9 # most\n\n1000000,1\n").expect("valid");
        assert_eq!(sizes.quantile(0.2), 1_000);
        assert_eq!(sizes.quantile(0.7), 5_500);
        assert_eq!(sizes.quantile(1.0), 1_000_000);
        let drawn: f64 = (0..100_000).map(|n| sizes.quantile((f64::from(n) + 0.5) / 1e5) as f64).sum::<f64>() / 1e5;
        assert!((drawn / sizes.mean() - 1.0).abs() < 0.01, "{drawn} {}", sizes.mean());
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in
            [("100,0.5\n50,1\n", 2), ("100,0.5\n", 1), ("", 1), ("1,0\n2,zebra\n", 2), ("0,1\n", 1), ("5,2\n", 1)]
        {
            assert_eq!(SizeDistribution::parse_csv(text).expect_err(text).line, line, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_distribution_or_an_error(text in "\\PC{0,200}") {
            if let Ok(sizes) = SizeDistribution::parse_csv(&text) {
                prop_assert!(sizes.mean() >= 1.0 && sizes.quantile(0.5) >= 1);
            }
        }
    }

    #[test]
    fn patterns_have_the_flows_that_they_say() {
        let class = |shape| TrafficClass {
            name: String::new(),
            shape,
            hosts: (10..18).collect(),
            bytes: Some(1),
            start: SimSpan::ZERO,
            duration: None,
            lane: 0,
        };
        let stream = RandomStream::new(1, 1);
        for shape in [TrafficShape::Permutation { shift: None }, TrafficShape::Permutation { shift: Some(3) }] {
            let starts = class(shape).starts(stream);
            let mut to: Vec<u32> = starts.iter().map(|start| start.to).collect();
            to.sort_unstable();
            assert_eq!(to, (10..18).collect::<Vec<_>>());
            assert!(starts.iter().all(|start| start.from != start.to));
        }
        let all = class(TrafficShape::AllToAll);
        assert_eq!(all.starts(stream).len() as u64, all.initial_flows());
        let incast = class(TrafficShape::Incast).starts(stream);
        assert!(incast.len() == 7 && incast.iter().all(|start| start.to == 10));
    }
}
